"""The gate before every request: rates, hosts, tokens, sizes, a request number; tracebacks go only to the log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forerun.web.connections import client_key
from forerun.web.heads import Heads
from forerun.web.rest import problem
from forerun.web.settings import ServerSettings
from forerun.web.traffic import Metrics, Rates, token_matches

log = logging.getLogger("forerun.web")
_WITHOUT_TOKEN = ("/healthz",)
_UPLOADS = "/v1/uploads"
#: Requests of the page's own code are the values of a form.
_PAGE, _PAGE_BYTES = "/gradio_api/", 64 * 1024
#: Static files, of which a page loads dozens: the factor on a client's rate for them.
_READY, _TIMES = ("/assets/", "/static/", "/page/", "/healthz", "/favicon.ico"), 10
#: The least rate of a body; a slower client is refused.
_BYTES_PER_S = 32 * 1024
#: An answer is written in parts of this many bytes, each after the previous one was read: what a client does not read
#: is not buffered for it.
_PART = 64 * 1024
#: The most characters of a client's own words in a line of the log.
_LOGGED = 200


class BodyTooLarge(HTTPException):
    """A request is larger than its kind may be."""

    def __init__(self, most: int) -> None:
        super().__init__(413, f"a request of this kind has at most {most:,} bytes")


class BodyTooSlow(HTTPException):
    """The client took too long to send its request."""

    def __init__(self) -> None:
        super().__init__(408, "the body of the request arrived too slowly")


class Gate:
    """An ASGI application around the server's own."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._heads = Heads(settings.allowed_hosts)
        self._rates = Rates(settings.rate_per_s, settings.burst)
        self._ready_rates = Rates(_TIMES * settings.rate_per_s, _TIMES * settings.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # not supported here
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            elif status >= 400 and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await body.drop_rest()
                message = {"type": "http.response.body"}
            await _send_in_parts(send, message)

        most = self._most_bytes(scope["path"])
        body = _Body(receive, most, self._settings.client_s)
        try:
            refused = self._refused(scope, most, number)
            await (refused or self._app)(scope, body.receive, watched)
        except HTTPException as error:
            if not status:
                await problem(error.detail, number, error.status_code)(scope, receive, watched)
        except Exception:  # the traceback goes to the log; the client gets the request number
            log.exception(json.dumps({"request_id": number, "path": scope["path"][:_LOGGED]}))
            if not status:
                await problem("internal server error (logged)", number, 500)(scope, receive, watched)
        finally:
            self._note(scope, number, status, time.monotonic() - began)

    def _most_bytes(self, path: str) -> int:
        if path == _UPLOADS:
            return self._settings.upload_mb * 2**20
        return _PAGE_BYTES if path.startswith(_PAGE) else self._settings.body_kb * 1024

    def _refused(self, scope: Scope, most: int, number: str) -> Response | None:
        """The refusal of a request, or None. The cheapest checks come first: a client without a token has a rate as
        well."""
        headers, path, token = Headers(scope=scope), scope["path"], self._settings.token
        if wait := (self._ready_rates if path.startswith(_READY) else self._rates).wait_s(_client(scope)):
            return problem("rate limit exceeded", number, 429, **{"Retry-After": str(max(1, round(wait)))})
        if refusal := self._heads.refusal(scope):
            return problem(refusal[1], number, refusal[0])
        if token and path not in _WITHOUT_TOKEN and not token_matches(headers.get("authorization"), token):
            challenge = {"WWW-Authenticate": 'Bearer, Basic realm="forerun: the token is the password"'}
            return problem("the bearer token is missing or wrong", number, 401, **challenge)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 15 or int(length) > most:
            return problem(BodyTooLarge(most).detail, number, 413)
        return None

    def _note(self, scope: Scope, number: str, status: int, seconds: float) -> None:
        self._metrics.note(getattr(scope.get("route"), "path", "other"), scope["method"], status, seconds)
        about = {"request_id": number, "client": _client(scope), "method": scope["method"][:20],
                 "path": scope["path"][:_LOGGED], "status": status, "ms": round(seconds * 1e3, 1)}  # fmt: skip
        log.info(json.dumps(about))


def _client(scope: Scope) -> str:
    return client_key(scope["client"][0]) if scope.get("client") else "unknown"


async def _send_in_parts(send: Send, message: Message) -> None:
    body = message.get("body", b"")
    if len(body) <= _PART:
        await send(message)
        return
    for start in range(0, len(body), _PART):
        end = start + _PART
        more = end < len(body) or message.get("more_body", False)
        await send({"type": message["type"], "body": body[start:end], "more_body": more})


class _Body:
    """The body of a request as it arrives. It ends with an error after the most bytes, as a length need not be
    announced, and where they arrive too slowly."""

    def __init__(self, receive: Receive, most: int, patience_s: float) -> None:
        self._receive, self._most, self._patience_s = receive, most, patience_s
        self._had, self._began, self._complete = 0, time.monotonic(), False

    async def receive(self) -> Message:
        if self._complete:  # the next message is the end of the connection
            return await self._receive()
        try:
            until = self._began + self._patience_s + self._had / _BYTES_PER_S
            message = await asyncio.wait_for(self._next(), max(0.0, until - time.monotonic()))
        except TimeoutError:
            raise BodyTooSlow from None
        if self._had > self._most:
            raise BodyTooLarge(self._most)
        return message

    async def drop_rest(self) -> None:
        """Drains the body for some seconds: most clients send a request to its end before they read the answer, and
        would find the connection closed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                while not self._complete:
                    await self._next()

    async def _next(self) -> Message:
        message = await self._receive()
        self._had += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        return message
