"""Access and load: tokens, rates, places in the queue, and metrics."""

from __future__ import annotations

import asyncio
import base64
import hmac
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from forerun.web.heads import METHODS

_MOST_CLIENTS = 10_000
_STATUSES = frozenset(HTTPStatus)


class Rates:
    """A token bucket for each client, filled at a steady rate."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s, self._burst = per_s, float(burst)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """0 where the client may send a request now, else the seconds until it may."""
        if self._per_s <= 0:
            return 0.0
        now = time.monotonic()
        left, then = self._buckets.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - then) * self._per_s)
        allowed = left >= 1
        self._buckets[client] = (left - 1 if allowed else left, now)
        while len(self._buckets) > _MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_s


class QueueFull(Exception):
    """The queue is full."""


class Places:
    """A limited number of requests run at a time, a limited number wait, and others are refused."""

    def __init__(self, running: int, waiting: int) -> None:
        self._running = asyncio.Semaphore(running)
        self._most = running + waiting
        self.taken = 0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        if self.taken >= self._most:
            raise QueueFull
        self.taken += 1
        try:
            async with self._running:
                yield
        finally:
            self.taken -= 1


def token_matches(header: str | None, token: str) -> bool:
    """Whether an Authorization header carries the token; the comparison takes the same time for any wrong one.

    Programs send it as a bearer token. A browser asks its user for a name and a password: the password is the token.
    """
    kind, _, given = (header or "").partition(" ")
    sent = given.strip().encode(errors="replace")
    if kind.lower() == "basic":
        try:
            sent = base64.b64decode(sent, validate=True).partition(b":")[2]
        except ValueError:
            return False
    return hmac.compare_digest(sent, token.encode()) and kind.lower() in ("bearer", "basic")


class Metrics:
    """Metrics for Prometheus. Labels are from sets that are fixed before the first request: a client cannot add any."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._paths: frozenset[str] = frozenset()
        self.requests = Counter(
            "forerun_requests", "Requests answered.", ["path", "method", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "forerun_request_seconds", "Seconds until the answer.", ["path"], registry=self.registry,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
        )  # fmt: skip
        self.taken = Gauge("forerun_requests_in_progress", "Requests answered or waiting now.", registry=self.registry)
        self.uploads = Counter("forerun_uploads", "Files that were uploaded.", registry=self.registry)

    def know(self, paths: Iterable[str]) -> None:
        """The paths, as templates, that are counted separately; the others are counted together."""
        self._paths = frozenset(paths)

    def note(self, path: str, method: str, status: int, seconds: float) -> None:
        """Counts a request."""
        path = path if path in self._paths else "other"
        method = method if method in METHODS else "other"
        self.requests.labels(path, method, str(status) if status in _STATUSES else "other").inc()
        self.seconds.labels(path).observe(seconds)
