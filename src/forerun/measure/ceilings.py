"""The measured ceilings of this machine's device: by name, beside a datasheet, and as a device file."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from forerun._util.documents import read_json
from forerun.device import Device, device_ids, fields, load_device
from forerun.device.kinds import read_by
from forerun.errors import ForerunError
from forerun.measure.machine import catalogue_id, name_of
from forerun.measure.saved_host import utc_time

#: Significant digits that are reproducible between measurements.
_DIGITS = 4
#: A dtype without dedicated units is computed in fp32 and must not be reported as if it had them.
_ALWAYS = ("fp64", "fp32")
#: Keys of the power measurements in the record, by their label in the table.
_POWER = {
    "idle power": ("idle",), "full power": ("full",), "power of matmul": ("full", "matmul"),
    "power of streaming": ("full", "streaming"),
}  # fmt: skip


@dataclass(frozen=True)
class Ceilings:
    """A validated record of measured ceilings; `content` is the record as the measuring core wrote it."""

    content: Mapping[str, Any]

    @property
    def reported(self) -> str:
        """The device name as the machine reports it."""
        return name_of(self.part("device"), self.part("host"))

    @property
    def device_id(self) -> str:
        """The catalogue's id, or the plain name if the device is not in the catalogue."""
        return catalogue_id(self.reported)

    @property
    def device(self) -> Device | None:
        """The device in the catalogue; None if it has none."""
        return load_device(self.device_id) if self.device_id in device_ids() else None

    @property
    def measured_at(self) -> datetime.datetime:
        time = utc_time(self.content["measured_at"])
        assert time is not None
        return time

    @property
    def source(self) -> str:
        """'measured by forerun on NVIDIA H200 (torch 2.11.0, CUDA 13.0, driver 580.159)'."""
        software = self.part("software")
        named = (("torch", "torch"), ("cuda", "CUDA"), ("driver", "driver"))
        parts = ", ".join(f"{title} {software[name]}" for name, title in named if software.get(name))
        return f"measured by forerun on {self.reported}" + (f" ({parts})" if parts else "")

    @cached_property
    def values(self) -> dict[str, float]:
        """Every measured ceiling by its name in `calibrated`; those that could not be measured are absent."""
        band, launch = self.part("bandwidth"), self.part("launch")
        named: dict[str, Any] = {}
        for field in fields.PEAKS:
            reached = self.part("peaks", fields.peak_dtype(field))
            named[f"measured_{field}"] = reached.get("burst_tflops")
            named[f"sustained_{field}"] = reached.get("tflops")
        named |= {
            "measured_bandwidth_gbs": band.get("memory_gbs"), "measured_l2_gbs": band.get("cache_gbs"),
            "measured_l2_mb": band.get("cache_mb"), "launch_us": launch.get("launch_us"),
            "kernel_us": launch.get("kernel_us"), "synchronised_us": launch.get("synchronised_us"),
            "measured_idle_w": self.part("power", "idle").get("power_w"),
            "context_idle_w": self.part("power", "idle_after").get("power_w"),
            "full_w": self.part("power", "full", "matmul").get("power_w"),
            "streaming_w": self.part("power", "full", "streaming").get("power_w"),
        }  # fmt: skip
        good = {name: number for name, value in named.items() if (number := fields.number(value)) and number > 0}
        return {name: _rounded(number) for name, number in good.items()}

    @property
    def omitted(self) -> dict[str, str]:
        """The reason for every ceiling that was not measured."""
        reasons = {dtype: self.part("peaks", dtype).get("reason") for dtype in self.part("peaks")}
        reasons["bandwidth"], reasons["launch"] = (
            self.part("bandwidth").get("reason"),
            self.part("launch").get("reason"),
        )
        reasons["cache"] = self.part("bandwidth").get("cache_reason")
        reasons["empty kernel"] = self.part("launch").get("kernel_reason")
        for name, place in _POWER.items():
            part = self.part("power", *place)
            reasons[name] = part.get("energy_reason") or part.get("reason")
        return {name: str(why) for name, why in reasons.items() if why}

    def part(self, *names: str) -> dict[str, Any]:
        """A nested part of the record; empty if missing."""
        value: Any = self.content
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        return dict(value) if isinstance(value, Mapping) else {}

    def entry(self) -> dict[str, Any]:
        """A device file in catalogue format: the catalogue's device with these values added, or one built from them."""
        date = self.measured_at.date().isoformat()
        device = self.device
        name = device.id if device else self.device_id
        source = f"measured-{name}"

        def cell(value: float) -> dict[str, Any]:
            return {"value": value, "source": source}

        calibrated = {key: cell(value) for key, value in self.values.items()}
        if device is not None:
            facts: dict[str, Any] = {"base": device.id, "name": device.name, "calibrated": calibrated}
        else:
            sheet = {key: cell(value) for key, value in self._datasheet().items()}
            facts = {**self._identity(), "datasheet": sheet, "calibrated": calibrated}
        return {"sources": {source: {"title": self.source, "date": date}}, "devices": {name: facts}}

    def _identity(self) -> dict[str, Any]:
        about = self.part("device")
        out: dict[str, Any] = {"name": self.reported, "kind": read_by(about.get("kind")).name}
        capability = fields.number(_as_float(about.get("capability")))
        if capability is not None:
            out["compute_capability"] = capability
        return {**out, "note": "Peaks and bandwidth are measured, and so lower than those of a datasheet."}

    def _datasheet(self) -> dict[str, float]:
        """The measured fields that a prediction needs."""
        about, values = self.part("device"), self.values
        single = values.get("measured_fp32_tflops", 0.0)
        is_host = read_by(about.get("kind")).is_host  # the curve of a CPU mixes several cache levels
        out = {}
        for field in fields.PEAKS:
            reached = values.get(f"measured_{field}")
            if reached is not None and (fields.peak_dtype(field) in _ALWAYS or reached > single):
                out[field] = reached
        sheet = {
            # Only the memory visible to processes is known, so no further reserve is subtracted.
            "memory_gb": _scaled(self.content.get("memory_mb"), 1 / 1024),
            "driver_memory_mb": _scaled(self.content.get("memory_mb")),
            "usable_memory_mb": _scaled(self.content.get("memory_mb")),
            "bandwidth_gbs": values.get("measured_bandwidth_gbs"),
            "l2_cache_mb": None if is_host else values.get("measured_l2_mb"),
            "sm_count": _scaled(about.get("sms")), "tdp_w": _scaled(about.get("power_limit_w")),
            "idle_w": values.get("measured_idle_w"),
        }  # fmt: skip
        return out | {name: value for name, value in sheet.items() if value is not None}


def measured(
    device: str = "auto", budget_s: float | None = None, progress: Callable[[int, int], None] | None = None
) -> Ceilings:
    """Measures the ceilings of this machine's device: about a minute on a GPU, half of that on a CPU."""
    from forerun.measure.core import ceilings, meters

    return Ceilings(ceilings.measure(meters.meter_for(device), budget_s, progress=progress))


def read(path: Path) -> Ceilings:
    """Ceilings read from a file that the measuring core or `forerun measure machine` wrote."""
    return checked(read_json(path), str(path))


def checked(content: Any, where: str) -> Ceilings:
    """The record as `Ceilings`; raises a ForerunError if it is not a valid record."""
    from forerun.measure.core.ceilings import VERSION

    parts = [content.get(name) for name in ("device", "peaks")] if isinstance(content, dict) else [None]
    if not all(isinstance(part, dict) for part in parts) or content.get("ceilings") != VERSION:
        raise ForerunError(f"{where} contains no ceilings of a device, or those of another version")
    if utc_time(content.get("measured_at")) is None or not isinstance(content["device"].get("name"), str):
        raise ForerunError(f"{where} is damaged: it is not a complete record of ceilings")
    return Ceilings(content)


def _rounded(value: float) -> float:
    return round(value, _DIGITS - 1 - math.floor(math.log10(value)))


def _scaled(value: Any, factor: float = 1.0) -> float | None:
    number = fields.number(value)
    return None if not number else _rounded(number * factor)


def _as_float(text: Any) -> Any:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None
