"""The meters: one class per vendor, found by entry point, and the choice among them.

A package adds a meter without touching forerun, by an entry point of its own:

    [project.entry-points."forerun.meters"]
    tpu = "my_package.meter:TpuMeter"
"""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, entry_points

from forerun.errors import ForerunError, did_you_mean

from .base import GraphCapture, KernelProfiler, Meter, Packer, Record, Timer

__all__ = [
    "GROUP", "GraphCapture", "KernelProfiler", "Meter", "Packer", "Record", "Timer", "check_name", "class_of_device",
    "load", "meter_for", "registered",
]  # fmt: skip

GROUP = "forerun.meters"
#: Known without installed metadata, as on a machine that the sources were copied to.
BUILT_IN = {
    "cuda": "forerun.measure.core.meters.cuda:CudaMeter",
    "cpu": "forerun.measure.core.meters.cpu:CpuMeter",
}


@functools.cache
def registered() -> dict[str, EntryPoint]:
    """Every meter by name; two of one name are an error."""
    found = {name: EntryPoint(name, value, GROUP) for name, value in BUILT_IN.items()}
    for point in entry_points(group=GROUP):
        if found.get(point.name, point).value != point.value:
            raise ForerunError(f"two meters have the name {point.name}: {found[point.name].value}, {point.value}")
        found[point.name] = point
    return found


def load(name: str) -> type[Meter]:
    """The class of a registered meter."""
    check_name(name)
    point = registered()[name]
    try:
        found: type[Meter] = point.load()
    except Exception as error:
        raise ForerunError(f"the meter {name} ({point.value}) cannot be loaded: {error}") from error
    return found


def check_name(device: str) -> None:
    """Raises a ForerunError unless `device` is auto or a registered meter."""
    known = ["auto", *registered()]
    if device not in known:
        raise ForerunError(f"no meter has the name {device!r}; known: {', '.join(known)}.{did_you_mean(device, known)}")


def meter_for(device: str = "auto") -> Meter:
    """The meter of that name; `auto` takes the available one of highest priority."""
    if device == "auto":
        return max(filter(lambda kind: kind.available(), map(load, registered())), key=lambda kind: kind.priority)()
    kind = load(device)
    if not kind.available():
        raise ForerunError(f"the meter {device} finds no device on this machine")
    return kind()


def class_of_device(device_type: str) -> type[Meter]:
    """The meter for tensors on a device type of PyTorch; the base class where there is none."""
    return next((kind for kind in map(load, registered()) if kind.device == device_type), Meter)
