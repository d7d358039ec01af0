"""This machine as a device: the catalogue's entry of its GPU or CPU, or a CPU probed in two seconds."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from forerun._util.documents import write_json
from forerun.device import Device, aliases, load_device
from forerun.device.kinds import CPU, read_by
from forerun.device.reading import key
from forerun.errors import ForerunError

if TYPE_CHECKING:
    from forerun.measure.core.meters import Meter

_BRANDS = ("(R)", "(TM)", "(r)", "(tm)")
#: Size of the matmul and the copy that probe a CPU, and for how long.
_SHAPE, _BYTES, _PROBE_S = (1024, 1024, 1024), 2**29, 0.3
#: Size of the matmul if the one above would take longer than this many seconds.
_SMALL_SHAPE, _LONGEST_S = (128, 128, 128), 1.0


def name_of(device: dict[str, Any], host: dict[str, Any]) -> str:
    """The name that a machine reports for the device of a row; for CPUs it includes the number of cores."""
    reported = str(device.get("name", "unknown"))
    if not read_by(device.get("kind")).is_host:
        return reported
    model = f" {device['model']}" if device.get("model") else ""
    return f"{reported}{model}, {host.get('cores')} cores"


def plain_name(reported: str) -> str:
    """The normalised form of a name for comparison: 'Intel(R) Xeon(R) Processor, 2 cores' without trademarks."""
    for mark in (*_BRANDS, ","):
        reported = reported.replace(mark, "")
    return key(reported.replace("/", "-"))


def catalogue_id(reported: str) -> str:
    """The catalogue's id of a device by the name that a machine reports; the plain name if it has none."""
    bare = plain_name(reported)
    return aliases().get(bare, bare)


def this_device() -> Device:
    """The device that `forerun measure` would run on."""
    from forerun.measure.core import host_facts, meters

    meter = meters.meter_for("auto")
    reported = name_of(meter.describe(), host_facts.host())
    bare = plain_name(reported)
    known = aliases().get(bare)
    if known:
        return load_device(known)
    if meter.is_host:
        return _probed(bare, reported)
    try:
        return load_device(reported)
    except ForerunError as e:
        raise ForerunError(
            f"the catalogue does not have this machine's device, {reported}; describe it in a .yaml and give --device"
        ) from e


def _probed(device_id: str, reported: str) -> Device:
    """A CPU described by a probe, which is cached."""
    from forerun.graph import cache

    path = cache.folder().parent / f"machine-{device_id}.json"
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError):
        values = probe()
        write_json(path, values)
    peaks = {name.removesuffix("_tflops"): value for name, value in values.items() if name.endswith("_tflops")}
    provenance = dict.fromkeys(values, "measured by a probe on this machine")
    return Device(
        id=device_id, name=reported, kind=CPU.name, peak_tflops=peaks, bandwidth_gbs=values["bandwidth_gbs"],
        memory_gb=values["memory_gb"], provenance=provenance,
    )  # fmt: skip


def probe() -> dict[str, float]:
    """Peaks and bandwidth reached by large matmuls and copies on this machine, and its memory.

    A short form of `forerun measure machine`: one shape per dtype, and one buffer larger than most caches.
    """
    import torch

    from forerun.measure.core import host_facts, meters
    from forerun.measure.core.ceilings import bandwidth, effort

    meter, values = meters.METERS.kind(CPU.meters[0])(), {}
    with torch.inference_mode():
        for dtype in ("fp32", "bf16", "int8"):
            with contextlib.suppress(RuntimeError):  # a build without 8-bit matmuls
                values[f"{dtype}_tflops"] = _peak_tflops(meter, dtype)
        ms = effort.best_ms(bandwidth.copy(bandwidth.numbers(meter, _BYTES)), meter, _PROBE_S)
    return {**values, "bandwidth_gbs": _BYTES / ms / 1e6, "memory_gb": host_facts.memory_mb() / 1024}


def _peak_tflops(meter: Meter, dtype: str) -> float:
    """The rate of a large matmul, or of a small one if the dtype has no units and a large one would take seconds."""
    from forerun.measure.core.ceilings import peaks

    small = peaks.burst(meter, dtype, _SMALL_SHAPE, _PROBE_S)["tflops"]
    if peaks.tflops(_SHAPE, 1e3) / small > _LONGEST_S:
        return float(small)
    return float(peaks.burst(meter, dtype, _SHAPE, _PROBE_S)["tflops"])
