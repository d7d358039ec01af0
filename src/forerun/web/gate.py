"""The gate before every request: tokens, rates, sizes, a number for the log, and nothing of a mistake to the client."""

from __future__ import annotations

import json
import logging
import secrets
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forerun.web.rest import problem
from forerun.web.settings import ServerSettings
from forerun.web.traffic import Metrics, Rates, token_matches

log = logging.getLogger("forerun.web")
_WITHOUT_TOKEN = ("/healthz",)
_UPLOADS = ("/v1/uploads", "/gradio_api/upload")
_COUNTED = ("/v1/", "/mcp")


class BodyTooLarge(Exception):
    """More bytes came than a request of its kind may have."""


class Gate:
    """An ASGI application around the server's own."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._rates = Rates(settings.rate_per_s, settings.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        number, began = secrets.token_hex(8), time.monotonic()
        scope.setdefault("state", {})["request_id"] = number
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = number
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "same-origin"
            await send(message)

        most = self._most_bytes(scope)
        try:
            refused = self._refused(scope, most, number)
            await (refused or self._app)(scope, _counted(receive, most), watched)
        except BodyTooLarge:
            await problem(_too_large(most), number, 413)(scope, receive, watched)
        except Exception:  # the trace is for the log; the client gets the number to ask for
            log.exception(json.dumps({"request_id": number, "path": scope["path"]}))
            if not status:
                await problem("the server made a mistake, and has logged it", number, 500)(scope, receive, watched)
        self._note(scope, number, status, time.monotonic() - began)

    def _most_bytes(self, scope: Scope) -> int:
        return self._settings.upload_mb * 2**20 if scope["path"] in _UPLOADS else self._settings.body_kb * 1024

    def _refused(self, scope: Scope, most: int, number: str) -> Any:
        """The answer to a request that is not even looked at, or None."""
        headers, path, token = Headers(scope=scope), scope["path"], self._settings.token
        if token and path not in _WITHOUT_TOKEN and not token_matches(headers.get("authorization"), token):
            asked = {"WWW-Authenticate": 'Bearer, Basic realm="forerun: the token is the password"'}
            return problem("the bearer token is missing or wrong", number, 401, **asked)
        if path.startswith(_COUNTED) and (wait := self._rates.wait_s(_client(scope))):
            seconds = str(max(1, round(wait)))
            return problem("this client asks too often; wait a moment", number, 429, **{"Retry-After": seconds})
        length = headers.get("content-length", "0")
        return problem(_too_large(most), number, 413) if not length.isdigit() or int(length) > most else None

    def _note(self, scope: Scope, number: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or "other"
        self._metrics.requests.labels(route, scope["method"], status).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        about = {"request_id": number, "client": _client(scope), "method": scope["method"], "path": scope["path"],
                 "status": status, "ms": round(seconds * 1e3, 1)}  # fmt: skip
        log.info(json.dumps(about))


def _client(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else "unknown"


def _too_large(most: int) -> str:
    return f"a request of this kind has at most {most:,} bytes"


def _counted(receive: Receive, most: int) -> Receive:
    """The same stream, which ends with an error after so many bytes: a length need not be announced."""
    had = 0

    async def counted() -> Message:
        nonlocal had
        message = await receive()
        had += len(message.get("body", b""))
        if had > most:
            raise BodyTooLarge
        return message

    return counted
