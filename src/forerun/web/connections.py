"""uvicorn's connections, with the limits that it leaves to a proxy.

uvicorn closes a connection that is idle between two requests. It waits without end for the rest of a request's head,
for the end of an abandoned body, and for a client that does not read its answer.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import h11
import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol

from forerun.web.settings import ServerSettings

_LOOK_S = 0.5


class LimitedConnection(H11Protocol):
    """A connection that is closed when its client is too slow, or when the server has too many."""

    def __init__(self, *args: Any, settings: ServerSettings, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settings = settings
        self._look: asyncio.TimerHandle | None = None
        self._waits: object = None
        self._since = 0.0
        self._drained = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._look = self.loop.call_later(_LOOK_S, self._look_after)
        key = client_key(self.client[0]) if self.client else ""
        others: Iterable[Any] = self.connections
        same = sum(1 for c in others if (c.client and client_key(c.client[0])) == key)
        if len(self.connections) > self._settings.connections or same > self._settings.client_connections:
            self._refuse(429, "the server is at its connection limit; try again")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self._drained += 1
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not an HTTP request, or its head is too long")

    def _look_after(self) -> None:
        waits, now = self._waiting_for(), self.loop.time()
        if waits != self._waits:
            self._waits, self._since = waits, now
        elif waits is not None and now - self._since > self._settings.client_s:
            self._since = now
            self._time_out()
        self._look = self.loop.call_later(_LOOK_S, self._look_after)

    def _waiting_for(self) -> object:
        """What the client has yet to do; None while the server works, or where uvicorn's own limit applies."""
        busy = self.cycle is not None and not self.cycle.response_complete
        if self.flow.write_paused or (not busy and self.transport.get_write_buffer_size()):
            return "reading", self.cycle, self._drained
        if busy or self.timeout_keep_alive_task is not None:
            return None  # the gate limits bodies that the server reads
        return "request", self.cycle

    def _time_out(self) -> None:
        if self.cycle is None and not self.conn.trailing_data[0]:  # a browser opens connections ahead of their use
            self.transport.close()
        elif self.conn.our_state is h11.IDLE and not self.transport.get_write_buffer_size():
            self._refuse(408, f"a request has to arrive within {self._settings.client_s:g} s")
        else:
            self.transport.abort()

    def _refuse(self, status: int, sentence: str) -> None:
        """Sends a refusal where no request reached the server, and closes."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer is being sent already
            self.transport.abort()
            return
        body = orjson.dumps({"error": sentence, "request_id": ""})
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        answer = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode())
        for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def client_key(address: str) -> str:
    """The key of a client: an IPv4 address, or the /64 network of an IPv6 one, in which a client can take any
    address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if parsed.version == 4:
        return str(parsed)
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
