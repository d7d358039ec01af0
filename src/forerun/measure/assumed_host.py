"""The host that a prediction assumes: the requested one, else this machine's where probed, else the reference host."""

from __future__ import annotations

from forerun._util.readable import short
from forerun.device import Device
from forerun.device.hosts import find_host, host_ids
from forerun.errors import ForerunError
from forerun.measure.saved_host import AGAIN, SLOWNESS, SavedProbe, UnusableProbe, saved
from forerun.prediction import AssumedHost

#: Values of `--host` besides names of the catalogue and numbers.
WORDS = ("default", "reference", "this")
REFERENCE = "the reference host"


def assume(requested: str | float, device: Device | None = None, *, honoured: bool = True) -> AssumedHost:
    """The host of a prediction.

    'default' means this machine's host if `device` belongs to this machine and a recent probe is saved, else the
    reference host; without a `device`, or where the predictor ignores hosts (`honoured`), always the reference host.
    Other values are explicit: 'reference', 'this' (as probed here), a name of the catalogue, or a number.
    """
    if requested == "default":
        if device is None or device.traits.is_host or not honoured:
            return AssumedHost("reference", REFERENCE)
        return _by_itself(device)
    if requested == "reference":
        return AssumedHost("reference", REFERENCE)
    if requested == "this":
        probe = saved()
        if probe is None:
            raise ForerunError("this machine's host was not probed yet: run forerun measure host")
        return _of(probe)
    host = find_host(requested) if isinstance(requested, str) else None
    if host is not None:
        reason = f"{_times(host.slowness)}: {host.rows}"
        return AssumedHost("named", f"the host {host.id}", host.slowness, reason=reason)
    value = _number(requested)
    return AssumedHost("given", f"a host of slowness {value:g}", value)


def slowness(requested: str | float) -> float | None:
    """How many times slower than the reference host, for tables of many devices; None: the reference host."""
    return assume(requested).slowness


def host_names() -> list[str]:
    """Every value of `--host` except numbers."""
    return [*WORDS, *host_ids()]


def _by_itself(device: Device) -> AssumedHost:
    """The host of this machine if `device` belongs to it and a recent probe is saved, else the reference host."""
    gpu = device.id.partition("/")[0]  # of a MIG slice
    try:
        probe = saved()
    except UnusableProbe as error:
        same_device = error.device_id in (None, gpu)
        return AssumedHost("reference", REFERENCE, reason=str(error) if same_device else "")
    if probe is None or probe.dispatch_only or probe.device_id != gpu:
        return AssumedHost("reference", REFERENCE)
    if not probe.is_fresh:
        return AssumedHost("reference", REFERENCE, reason=f"this machine's was probed {probe.age_text}: {AGAIN}")
    return _of(probe)


def _of(probe: SavedProbe) -> AssumedHost:
    reason = f"{_times(probe.slowness)}, probed {probe.age_text}" + ("" if probe.is_fresh else f": {AGAIN}")
    return AssumedHost("probe", "this machine's host", probe.slowness, probe.measured_at, reason)


def _times(slowness: float) -> str:
    return f"a launch takes {slowness:.2f} times as long as on the reference host"


def _number(requested: str | float) -> float:
    try:
        value = float(requested)
    except (TypeError, ValueError, OverflowError):
        value = 0.0
    if not SLOWNESS[0] <= value <= SLOWNESS[1]:
        raise ForerunError(
            f"host is one of {', '.join(host_names())}, or how many times slower than the reference host "
            f"(0.05 to 50), not {short(requested)}"
        )
    return value
