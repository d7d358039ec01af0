"""The meters: one class per vendor, discovered by entry point, and the choice among them.

A package adds a meter without touching forerun, by an entry point of its own:

    [project.entry-points."forerun.meters"]
    tpu = "my_package.meter:TpuMeter"
"""

from __future__ import annotations

from forerun._util.registry import Registry
from forerun.errors import ForerunError

from .base import GraphCapture, KernelProfiler, Meter, Packer, Record, Timer

__all__ = [
    "METERS", "GraphCapture", "KernelProfiler", "Meter", "Packer", "Record", "Timer", "check_name", "class_of_device",
    "meter_for",
]  # fmt: skip

#: Built-in meters work without installed metadata, for machines that the sources were copied to.
METERS: Registry[Meter] = Registry(
    "meter", Meter, ["forerun.meters"],
    {"cuda": "forerun.measure.core.meters.cuda:CudaMeter", "cpu": "forerun.measure.core.meters.cpu:CpuMeter"},
)  # fmt: skip


def check_name(device: str) -> None:
    """Raises a ForerunError unless `device` is auto or a known meter."""
    METERS.check(device, also=["auto"])


def meter_for(device: str = "auto") -> Meter:
    """The meter of that name; `auto` selects the available one with the highest priority."""
    if device == "auto":
        return max(filter(lambda kind: kind.available(), _kinds()), key=lambda kind: kind.priority)()
    check_name(device)
    kind = METERS.kind(device)
    if not kind.available():
        raise ForerunError(f"the meter {device} finds no device on this machine")
    return kind()


def class_of_device(device_type: str) -> type[Meter]:
    """The meter class for a PyTorch device type; the base class if there is none."""
    return next((kind for kind in _kinds() if kind.device == device_type), Meter)


def _kinds() -> list[type[Meter]]:
    return [METERS.kind(name) for name in METERS.names()]
