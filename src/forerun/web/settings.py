"""Settings of the server: its address, who may use it, and the limits of a client."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field

from forerun._util.readable import short
from forerun.errors import ForerunError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class ServerSettings:
    """The options of `forerun serve`. The defaults are safe on a personal machine."""

    host: str = "127.0.0.1"
    port: int = 8000
    #: Names under which clients reach the server, besides local ones and the address that they connect to.
    allowed_hosts: tuple[str, ...] = ()
    #: Addresses of reverse proxies: the client is then the one that their X-Forwarded-For names.
    trusted_proxies: tuple[str, ...] = ()
    #: What clients send as `Authorization: Bearer ...`; None: no authentication. Not in the settings' text, nor in
    #: logs.
    token: str | None = field(default=None, repr=False)
    #: Whether configs may be fetched from the Hugging Face hub.
    allow_hub: bool = False
    #: Requests per second of one client, and how many it may send at once after a pause; 0: no limit.
    rate_per_s: float = 20.0
    burst: int = 60
    #: Requests that run at the same time, and those that wait; beyond these: 429.
    running: int = 4
    waiting: int = 64
    #: Worker processes, the most seconds that one request may take there, and its memory.
    workers: int = 2
    job_s: float = 120.0
    job_memory_mb: int = 6144
    #: The most MB of an upload, of all uploads together, and the minutes after its last use when one is deleted.
    upload_mb: int = 512
    uploads_mb: int = 2048
    upload_minutes: float = 15.0
    #: The most files of all uploads together, and how many may arrive at the same time.
    most_uploads: int = 512
    uploading: int = 8
    #: The most bytes of a request that is not an upload.
    body_kb: int = 1024
    #: Connections of all clients, and of one address.
    connections: int = 512
    client_connections: int = 128
    #: Seconds that a client may take for the head of a request, and without reading its answer; a body has as many, and
    #: more with every byte that arrives (`gate.py`).
    client_s: float = 10.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ForerunError(f"a port is a number from 0 to 65535, got {self.port}")
        if self.workers < 1 or self.running < 1 or self.waiting < 0 or self.rate_per_s < 0:
            raise ForerunError("a server needs at least one worker and one request at a time, and no negative limits")
        if self.client_s <= 0:
            raise ForerunError(f"clients need some seconds to send a request, got {self.client_s:g}")
        for name in self.allowed_hosts:
            if not re.fullmatch(r"[\w.-]{1,253}|\[[0-9a-fA-F:.]{2,45}\]", name, re.ASCII):
                raise ForerunError(
                    "an allowed host is a name or an address without a port, such as forerun.example.org, "
                    f"got {short(name)}"
                )
        for address in self.trusted_proxies:
            try:
                ipaddress.ip_network(address)
            except ValueError as error:
                raise ForerunError(f"a trusted proxy is an address such as 10.0.0.2, got {short(address)}") from error
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
