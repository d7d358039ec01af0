"""How slow this machine's host is beside the one that the launch costs were fitted on: a probe of a few seconds."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError

#: Microseconds per call on the reference host (median of the H200 machine's probes, docs/DATASET.md).
REFERENCE_US = {
    "empty": 2.6, "view": 1.0, "add": 7.8, "mul": 7.5, "relu": 8.0, "gelu": 8.6, "copy": 14.0, "cast": 11.0,
    "linear": 13.3, "matmul": 10.5, "bmm": 18.5, "conv2d": 23.2, "batch_norm": 20.0, "layer_norm": 16.0,
    "softmax": 9.5, "sdpa": 17.0, "cat": 8.5, "max_pool": 9.5, "mean": 11.0, "embedding": 12.5, "index": 14.0,
}  # fmt: skip
#: On a CPU a launch is the work itself; only these cost nothing but the dispatcher.
_DISPATCH_ONLY = ("empty", "view")


@dataclass(frozen=True)
class HostSpeed:
    """How many times slower than the reference host, and the times of the launches."""

    slowness: float
    launch_us: dict[str, float]
    cpu: str
    device: str
    dispatch_only: bool = False  # the device is the CPU itself, so only the dispatcher was timed


def probe(calls: int = 2000, device: str = "auto") -> HostSpeed:
    """Measures this host; about ten seconds."""
    import statistics

    from forerun.measure.core import host_probe, meters

    meter = meters.meter_for(device)
    found = host_probe.measure(meter, calls)
    names = _DISPATCH_ONLY if meter.is_host else REFERENCE_US
    ratios = [found["launch_us"][name] / REFERENCE_US[name] for name in names]
    return HostSpeed(statistics.median(ratios), found["launch_us"], str(found["cpu"]), meter.kind, meter.is_host)


def _file() -> Path:
    chosen = os.environ.get("FORERUN_STORE")
    if chosen:
        return Path(chosen) / "host.json"
    from platformdirs import user_data_dir

    return Path(user_data_dir("forerun")) / "host.json"


def keep(found: HostSpeed) -> Path:
    """Writes the probe to the file that `--host this` reads."""
    path = _file()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(asdict(found), indent=1))
    os.replace(part, path)
    return path


def slowness(requested: str | float) -> float | None:
    """'default' (None: not known), 'this' (as probed here), or how many times slower than the reference host."""
    if requested == "default":
        return None
    if requested == "this":
        try:
            saved: dict[str, Any] = json.loads(_file().read_text())
            return float(saved["slowness"])
        except (OSError, ValueError, KeyError) as error:
            raise ForerunError("this machine's host was not probed yet: run forerun measure host") from error
    try:
        value = float(requested)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 50:
        raise ForerunError(f"host is default, this, or how many times slower (0.05 to 50), not {requested!r}")
    return value
