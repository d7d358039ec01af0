"""The host factor of this machine relative to the host that launch costs were fitted on: a probe of a few seconds."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

#: Microseconds per call on the reference host (median of the H200 machine's probes, docs/DATASET.md).
REFERENCE_US = {
    "empty": 2.6, "view": 1.0, "add": 7.8, "mul": 7.5, "relu": 8.0, "gelu": 8.6, "copy": 14.0, "cast": 11.0,
    "linear": 13.3, "matmul": 10.5, "bmm": 18.5, "conv2d": 23.2, "batch_norm": 20.0, "layer_norm": 16.0,
    "softmax": 9.5, "sdpa": 17.0, "cat": 8.5, "max_pool": 9.5, "mean": 11.0, "embedding": 12.5, "index": 14.0,
}  # fmt: skip
#: On a CPU a launch includes the work; only these ops measure the dispatcher alone.
_DISPATCH_ONLY = ("empty", "view")


@dataclass(frozen=True)
class HostSpeed:
    """The slowness relative to the reference host, and the launch times."""

    slowness: float
    launch_us: dict[str, float]
    cpu: str
    device: str
    dispatch_only: bool = False  # the device is the CPU, so only the dispatcher was timed
    device_id: str = ""  # catalogue id of the device that the kernels were launched on
    machine: str = ""  # the probed machine (core/host_facts.py)
    measured_at: str = ""  # UTC, ISO 8601


def probe(calls: int = 2000, device: str = "auto") -> HostSpeed:
    """Measures this host; about ten seconds."""
    import statistics

    from forerun.measure.core import host_facts, host_probe, meters
    from forerun.measure.machine import catalogue_id, name_of

    meter = meters.meter_for(device)
    times = host_probe.measure(meter, calls)
    names = _DISPATCH_ONLY if meter.is_host else REFERENCE_US
    ratios = [times["launch_us"][name] / REFERENCE_US[name] for name in names]
    return HostSpeed(
        statistics.median(ratios), times["launch_us"], str(times["cpu"]), meter.kind, meter.is_host,
        catalogue_id(name_of(meter.describe(), times)), host_facts.machine(),
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
