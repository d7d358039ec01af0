"""How the server runs: where it listens, whom it answers, and how much a client may ask of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from forerun.errors import ForerunError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class ServerSettings:
    """The options of `forerun serve`. The defaults are safe on a machine of one's own."""

    host: str = "127.0.0.1"
    port: int = 8000
    #: What clients send as `Authorization: Bearer ...`; None: nobody is asked. Not in the settings' text, nor in logs.
    token: str | None = field(default=None, repr=False)
    #: Whether configs may be fetched from the Hugging Face hub.
    allow_hub: bool = False
    #: Requests per second of one client, and how many it may send at once after a pause; 0: no limit.
    rate_per_s: float = 20.0
    burst: int = 60
    #: Requests that are answered at the same time, and those that wait for it; beyond these: 429.
    running: int = 4
    waiting: int = 64
    #: Processes that read models and decide, the most seconds that one question may take there, and its memory.
    workers: int = 2
    job_s: float = 120.0
    job_memory_mb: int = 6144
    #: The most MB of an upload, of all uploads together, and the minutes after its last use when one is deleted.
    upload_mb: int = 512
    uploads_mb: int = 2048
    upload_minutes: float = 15.0
    #: The most bytes of a request that is no upload.
    body_kb: int = 1024

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ForerunError(f"a port is a number from 0 to 65535, got {self.port}")
        if self.workers < 1 or self.running < 1 or self.waiting < 0 or self.rate_per_s < 0:
            raise ForerunError("a server needs at least one worker and one request at a time, and no negative limits")
        if self.host not in LOOPBACK and self.token is None:
            raise ForerunError(
                f"{self.host} can be reached by others: set FORERUN_TOKEN to the token that clients must send, or "
                "keep to 127.0.0.1"
            )


def token_of_environment() -> str | None:
    """The bearer token of FORERUN_TOKEN, if there is one."""
    token = os.environ.get("FORERUN_TOKEN", "").strip()
    if token and len(token) < 16:
        raise ForerunError("FORERUN_TOKEN needs at least 16 characters: a short one can be guessed")
    return token or None
