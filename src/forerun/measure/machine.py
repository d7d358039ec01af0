"""This machine as a device: the catalogue's entry for its GPU or CPU, or a CPU described by a probe of two seconds."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from forerun.device import Device, aliases, load_device
from forerun.device.reading import key
from forerun.errors import ForerunError

_BRANDS = ("(R)", "(TM)", "(r)", "(tm)")


def name_of(device: dict[str, Any], host: dict[str, Any]) -> str:
    """The name that a machine reports for the device of a row; CPUs of one name differ by how many cores there are."""
    reported = str(device.get("name", "unknown"))
    if device.get("kind") != "cpu":
        return reported
    model = f" {device['model']}" if device.get("model") else ""
    return f"{reported}{model}, {host.get('cores')} cores"


def plain_name(reported: str) -> str:
    """The form in which the catalogue compares names: 'Intel(R) Xeon(R) Processor, 2 cores' without its brands."""
    for mark in (*_BRANDS, ","):
        reported = reported.replace(mark, "")
    return key(reported.replace("/", "-"))


def catalogue_id(reported: str) -> str:
    """The catalogue's id of a device by the name that a machine reports; the plain name where it has none."""
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
    """A CPU described by what it does: kept in the cache, so that it is probed once."""
    from forerun.graph import cache

    kept = cache.folder().parent / f"machine-{device_id}.json"
    try:
        found = json.loads(kept.read_text())
    except (OSError, ValueError):
        found = probe()
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(found))
        os.replace(part, kept)
    peaks = {name.removesuffix("_tflops"): value for name, value in found.items() if name.endswith("_tflops")}
    provenance = dict.fromkeys(found, "measured by a probe on this machine")
    return Device(
        id=device_id, name=reported, kind="cpu", peak_tflops=peaks, bandwidth_gbs=found["bandwidth_gbs"],
        memory_gb=found["memory_gb"], provenance=provenance,
    )  # fmt: skip


def probe() -> dict[str, float]:
    """Peaks and bandwidth that large matmuls and copies reach here, and the memory there is."""
    import torch

    def best_s(call: Any, tries: int = 6) -> float:
        call()
        times = []
        for _ in range(tries):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        return min(times)

    size = 1024
    peaks = {}
    with torch.inference_mode():
        for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
            peaks[f"{name}_tflops"] = 2 * size**3 / best_s(lambda a=a, b=b: a @ b) / 1e12
        with contextlib.suppress(RuntimeError):  # a build without 8-bit products
            a = torch.randint(-100, 100, (size, size), dtype=torch.int8)
            peaks["int8_tflops"] = 2 * size**3 / best_s(lambda: torch._int_mm(a, a)) / 1e12
        x, y = torch.zeros(2**26), torch.zeros(2**26)  # 256 MB each: beyond most caches
        bandwidth = 2 * 4 * 2**26 / best_s(lambda: y.copy_(x)) / 1e9
    return {**peaks, "bandwidth_gbs": bandwidth, "memory_gb": _memory_gb()}


def _memory_gb() -> float:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        pages = min(pages, int(limit)) if limit.isdigit() else pages
    except OSError:
        pass
    return pages / 2**30
