"""Checks of a request's head: its method, its length, and the host name of the server.

A web page can make a browser ask any address, under a name of the page's own (DNS rebinding) or with a form (cross-site
request). Both show in the head: the Host is not one of the server's, or the Origin is not.
"""

from __future__ import annotations

import re

from starlette.datastructures import Headers
from starlette.types import Scope

from forerun.web.settings import LOOPBACK

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
#: A link of the page carries a whole form in its query (`page/blocks.py`); other addresses are short.
LONGEST_PATH, LONGEST_QUERY = 1024, 32 * 1024
MOST_HEADERS, LONGEST_HEADERS = 64, 16 * 1024
_HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(:\d{1,5})?")
_ORIGIN = re.compile(r"https?://(.+)")

#: A status and its message.
Refusal = tuple[int, str]


class Heads:
    """The checks. `allowed` are names of the server besides its local ones."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self._allowed = frozenset(_bare(name.lower()) for name in (*LOOPBACK, *allowed))

    def refusal(self, scope: Scope) -> Refusal | None:
        """Why the request is refused, or None."""
        if scope["method"] not in METHODS:
            return 405, f"the method of a request is one of {', '.join(METHODS)}"
        if len(scope.get("raw_path") or scope["path"]) > LONGEST_PATH or len(scope["query_string"]) > LONGEST_QUERY:
            return 414, f"an address has at most {LONGEST_PATH:,} bytes, and {LONGEST_QUERY:,} after its question mark"
        sent = scope["headers"]
        if len(sent) > MOST_HEADERS or sum(len(name) + len(value) for name, value in sent) > LONGEST_HEADERS:
            return 431, f"a request has at most {MOST_HEADERS} headers of {LONGEST_HEADERS:,} bytes together"
        return self._misdirected(scope)

    def _misdirected(self, scope: Scope) -> Refusal | None:
        headers = Headers(scope=scope)
        address = _bare(scope["server"][0]) if scope.get("server") else ""
        for name in ("host", "x-forwarded-host"):
            value = headers.get(name, "" if name == "host" else None)
            if value is not None and not self._is_served(value, address):
                return 421, "this Host is not allowed; the operator adds it with --allowed-host"
        if (origin := headers.get("origin")) is not None:
            match = _ORIGIN.fullmatch(origin.lower())
            if not match or not self._is_served(match[1], address):
                return 403, "cross-site requests are not allowed"
        return None

    def _is_served(self, host: str, address: str) -> bool:
        """Whether a host is one of the server's names, or the address at which the client reached it."""
        match = _HOST.fullmatch(host.lower())
        return match is not None and (_bare(match[1]) in self._allowed or _bare(match[1]) == address)


def _bare(host: str) -> str:
    """A host without the brackets of IPv6; an IPv4 client of a socket for both is written as IPv4."""
    return host.removeprefix("[").removesuffix("]").removeprefix("::ffff:")
