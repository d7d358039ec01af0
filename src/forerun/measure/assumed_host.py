"""The host that a prediction assumes: the requested one, else this machine's where probed, else the reference host."""

from __future__ import annotations

from forerun._util.readable import short
from forerun.device import Device
from forerun.device.cpus import Cpu, cpu_ids, cpu_key, deviation, find_cpu
from forerun.device.hosts import find_host, host_ids
from forerun.errors import ForerunError, did_you_mean
from forerun.measure.saved_host import AGAIN, SLOWNESS, SavedProbe, UnusableProbe, saved
from forerun.prediction import AssumedHost

#: Values of `--host` besides names of the catalogue and numbers.
WORDS = ("default", "reference", "this")
REFERENCE = "the reference host"


def assume(requested: str | float, device: Device | None = None, *, honoured: bool = True) -> AssumedHost:
    """The host of a prediction.

    'default' means this machine's host if `device` belongs to this machine and a recent probe is saved, else the
    reference host; without a `device`, or where the predictor ignores hosts (`honoured`), always the reference host.
    Other values are explicit: 'reference', 'this' (as probed here), a host or a CPU of the catalogue, or a number.
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
    cpu = find_cpu(requested) if isinstance(requested, str) else None
    if cpu is not None:
        return _with(cpu)
    value = _number(requested)
    return AssumedHost("given", f"a host of slowness {value:g}", value)


def host_names() -> list[str]:
    """Every value of `--host` except CPUs and numbers."""
    return [*WORDS, *host_ids()]


def _with(cpu: Cpu) -> AssumedHost:
    """A host that is known by its CPU alone."""
    reason = (
        f"{_times(cpu.slowness)} by {cpu.basis} ({cpu.date}), assumed to be off by {deviation():.0%} as measured hosts "
        "are from one another; forerun measure host calibrates this one"
    )
    return AssumedHost(
        "cpu", f"a host with {cpu.name}", cpu.slowness, reason=reason, rating=cpu.rating, source=cpu.source,
        deviation=deviation(),
    )  # fmt: skip


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
        near = did_you_mean(cpu_key(requested), [*host_names(), *cpu_ids()]) if isinstance(requested, str) else ""
        raise ForerunError(
            f"host is one of {', '.join(host_names())}, a CPU of forerun hosts, or how many times slower than the "
            f"reference host (0.05 to 50), not {short(requested)}{near and '.' + near}"
        )
    return value
