"""The assumed host of a prediction, and the latency on known hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from forerun._util.readable import in_readable_units
from forerun.device.hosts import known_range
from forerun.prediction import AssumedHost

#: Hosts whose current speed was not measured.
_UNPROBED = ("reference", "named")


def on_known_hosts(host: AssumedHost, latency_ms: Callable[[Sequence[float]], list[float]]) -> AssumedHost:
    """The host, with the latency of a host-bound call on the fastest and the slowest host of the catalogue, as
    `latency_ms` says for hosts by their slowness."""
    if host.kind not in _UNPROBED:
        return host
    fastest, slowest = latency_ms(known_range())
    return replace(host, fastest_ms=fastest, slowest_ms=slowest)


def line(host: AssumedHost) -> str:
    """The host as a remark beside the host time."""
    return f"on {host.name}"


def notes(host: AssumedHost) -> Iterator[str]:
    """Why this host was assumed, and what a probe would change."""
    if host.reason:
        yield f"host: {host.name} is assumed; {host.reason}"
    if host.fastest_ms is not None and host.slowest_ms is not None:
        low, _, high, unit = in_readable_units(host.fastest_ms, host.fastest_ms, host.slowest_ms, "ms")
        yield (
            f"latency is host-bound and {host.name} is assumed; known hosts (forerun hosts) give {low} to {high} "
            f"{unit}; forerun measure host calibrates this one"
        )
