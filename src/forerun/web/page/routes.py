"""The routes of Gradio that exist: those that the page itself uses, with bounds on what a session may store.

Gradio has dozens more, for other kinds of pages: uploads of any kind, files and URLs to fetch, calls by name, links
stored on disk. Here they return 404.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import Any
from urllib.parse import parse_qs

import gradio as gr
import orjson
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forerun.web.rest import problem

_SESSION = r"[0-9A-Za-z_-]{1,64}"
_GET = re.compile(
    r"/|/config|/theme\.css|/favicon\.ico|/robots\.txt|/manifest\.json|/(assets|static|svelte)/[\w./@+-]+"
    rf"|/gradio_api/(info|app_id|startup-events|queue/data|heartbeat/{_SESSION})"
)
_POST = re.compile(r"/gradio_api/(queue/join|cancel|reset)")
#: Gradio stores answers until their session's stream is read, which a browser opens at once. The most seconds and
#: sessions that wait.
_UNREAD_S, _MOST_UNREAD = 20.0, 16
#: The most pending requests of one session.
_MOST_ASKED = 8
#: Messages for Gradio's refusals; its own are a traceback, a list, or empty.
_SENTENCES = {403: "there is nothing at this address", 404: "there is nothing at this address",
              503: "the server is at its request limit; try again"}  # fmt: skip
_UNREADABLE = "this is not a request of the page"
#: What Gradio would build anew for every reader, and for how many names of the server it is cached.
_MADE_ONCE, _MOST_PAGES = ("/", "/config"), 8


class PageRoutes:
    """An ASGI application around Gradio's own."""

    def __init__(self, app: ASGIApp, blocks: gr.Blocks) -> None:
        self._app, self._blocks = app, blocks
        self._streams: Counter[str] = Counter()
        self._joined: dict[str, float] = {}
        self._pages: dict[tuple[str, ...], list[Message]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, number = scope["path"], scope.get("state", {}).get("request_id", "")
        known = _POST if scope["method"] == "POST" else _GET if scope["method"] in ("GET", "HEAD") else None
        if known is None or not known.fullmatch(path) or ".." in path:
            await problem("there is nothing at this address", number, 404)(scope, receive, send)
        elif path == "/gradio_api/queue/join":
            await self._join(scope, receive, send)
        elif path == "/gradio_api/queue/data":
            await self._stream(scope, receive, send)
        elif path in _MADE_ONCE:
            await self._made_once({**scope, "query_string": b""}, receive, send)
        else:
            await self._gradio(scope, receive, send)

    async def _gradio(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Gradio's answer, or its refusal in a sentence."""
        refused = 0

        async def answered(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] >= 400:
                refused = message["status"]
            if not refused:
                await send(message)

        await self._app({**scope, "query_string": b""}, receive, answered)
        if refused:
            sentence = _SENTENCES.get(refused, _UNREADABLE)
            await problem(sentence, scope["state"]["request_id"], refused)(scope, receive, send)

    async def _made_once(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The page itself, cached by the name of the server: readers share one copy."""
        headers = Headers(scope=scope)
        names = (headers.get(name, "") for name in ("host", "x-forwarded-host", "x-forwarded-proto"))
        key = (scope["path"], scope["scheme"], *names)
        messages = self._pages.get(key)
        if messages is None:
            messages = []

            async def keep(message: Message) -> None:
                messages.append(message)

            await self._app(scope, receive, keep)
            if any(message.get("status") == 200 for message in messages):
                if len(self._pages) >= _MOST_PAGES:
                    self._pages.clear()
                self._pages[key] = messages
        for message in messages:
            await send({**message, "headers": [*message["headers"]]} if "headers" in message else message)

    async def _join(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request of a session, which has a short name and a limited number of requests."""
        body, number = await _full_body(receive), scope["state"]["request_id"]
        question = _question(body)
        session = question.get("session_hash")
        if not isinstance(session, str) or not re.fullmatch(_SESSION, session):
            await problem("a request of the page must name its session", number, 422)(scope, receive, send)
            return
        if type(question.get("fn_index")) is not int or question["fn_index"] not in self._blocks.fns:
            await problem(_UNREADABLE, number, 422)(scope, receive, send)
            return
        if len(self._queue.pending_event_ids_session.get(session, ())) >= _MOST_ASKED:
            await problem("rate limit exceeded", number, 429)(scope, receive, send)
            return
        await self._forget_unread()
        self._joined[session] = time.monotonic()
        await self._gradio(scope, _again(body, receive), send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The answers of a session; when it is no longer read, Gradio stores nothing of it."""
        session = parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [""])[0]
        if not re.fullmatch(_SESSION, session) or session not in self._queue.pending_messages_per_session:
            number = scope["state"]["request_id"]
            await problem("there is no such session", number, 404)(scope, receive, send)
            return
        self._streams[session] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._streams[session] -= 1
            if self._streams[session] <= 0:
                del self._streams[session]
                if not self._queue.pending_event_ids_session.get(session):
                    await self._forget(session)

    @property
    def _queue(self) -> Any:
        return self._blocks._queue

    async def _forget_unread(self) -> None:
        """Drops sessions whose answers were not read: the old ones, and where there are many, the oldest."""
        queue, now = self._queue, time.monotonic()
        held = {*queue.pending_messages_per_session, *queue.pending_event_ids_session, *self._joined}
        unread = sorted((s for s in held if s not in self._streams), key=lambda s: self._joined.get(s, 0.0))
        for place, session in enumerate(unread):
            if len(unread) - place > _MOST_UNREAD or now - self._joined.get(session, 0.0) > _UNREAD_S:
                await self._forget(session)

    async def _forget(self, session: str) -> None:
        queue = self._queue
        await queue.clean_events(session_hash=session)
        queue.pending_messages_per_session.pop(session, None)
        for event in queue.pending_event_ids_session.pop(session, ()):
            queue.event_ids_to_events.pop(event, None)
        self._joined.pop(session, None)


def _question(body: bytes) -> dict[str, Any]:
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return content if isinstance(content, dict) else {}


async def _full_body(receive: Receive) -> bytes:
    """The body of a request; the gate has bounded it."""
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message["type"] == "http.request" and message.get("more_body", False)
    return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """A stream that starts with a body that was read already."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again
