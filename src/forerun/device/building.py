"""Builds a device from an entry of the catalogue or of a user, and reports every invalid field."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

from forerun._util.readable import short
from forerun.device import fields, kinds, processors
from forerun.device.capacity import MB_PER_GB
from forerun.device.device import Device


def build(
    device_id: str, entry: Any, problems: list[str], sources: Mapping[str, Any], base: Device | None = None
) -> tuple[Device | None, dict[str, fields.Cell]]:
    """A device from one entry on top of `base`; every invalid field is added once to `problems`."""
    if not isinstance(entry, dict):
        problems.append(f"must be a mapping of fields, got {short(entry)}")
        return None, {}
    for part in (entry, entry.get("datasheet"), entry.get("calibrated")):
        if isinstance(part, dict) and len(part) > fields.MOST_FIELDS:
            problems.append(f"has {len(part):,} fields, and a device has at most {fields.MOST_FIELDS}")
            return None, {}
    values: dict[str, Any] = {}
    for name, value in entry.items():
        if name in fields.TEXTS and value is not None:
            if not isinstance(value, str) or not value.strip():
                problems.append(f"{name} must be text, got {short(value)}")
            elif len(value) > fields.LONGEST_TEXT:
                problems.append(f"{name} has {len(value):,} letters, and at most {fields.LONGEST_TEXT:,} are read")
            elif name == "kind" and not kinds.is_kind(value):
                problems.append(f"kind must be one of {', '.join(kinds.names())}, got {short(value)}")
            elif name != "id":
                values[name] = value
        elif name not in fields.ENTRY and name not in fields.DATASHEET:
            problems.append(fields.unknown_field(name, (*fields.ENTRY, *fields.DATASHEET)))
    if (capability := entry.get("compute_capability")) is not None:
        known = fields.number(capability)
        if known is None or not 1 <= known < 20:
            problems.append(f"compute_capability must be a number such as 9.0, got {short(capability)}")
        else:
            values["compute_capability"] = known
    if (ecc := entry.get("inline_ecc")) is not None:
        if isinstance(ecc, bool):
            values["inline_ecc"] = ecc
        else:
            problems.append(f"inline_ecc must be true or false, got {short(ecc)}")
    for name, allowed in (("aliases", None), ("unsupported", fields.DTYPES)):
        if entry.get(name) is None:
            continue
        if problem := fields.text_list_problem(name, entry[name], allowed):
            problems.append(problem)
        elif name == "unsupported":
            values[name] = tuple(entry[name])
    cells = _cells(entry, problems, sources, values.get("kind") or (base.kind if base else kinds.USUAL))
    if entry.get("processor") is not None:
        cells = {**_of_processor(entry, values.get("architecture"), cells, problems), **cells}
    values |= {name: cell.value for name, cell in cells.items() if name not in fields.PEAKS}
    peaks = {fields.peak_dtype(name): cell.value for name, cell in cells.items() if name in fields.PEAKS}
    unsupported = values.get("unsupported", ())
    if both := [dtype for dtype in fields.DTYPES if dtype in peaks and dtype in unsupported]:
        problems.append(f"{', '.join(both)} has a peak and is also listed as unsupported")
    if "idle_w" in values and "tdp_w" in values and values["idle_w"] >= values["tdp_w"]:
        problems.append(f"idle_w {values['idle_w']:g} must be below tdp_w {values['tdp_w']:g}")
    problems += _memory_problems(values)
    values["calibrated"] = _calibrated(entry.get("calibrated"), problems)
    for name, value in values["calibrated"].items():
        written = entry["calibrated"][name]
        if isinstance(written, dict):
            cells[name] = fields.Cell(value, written.get("source"), written.get("date"))
    if base is not None:
        of_base = {name: value for name, value in base.calibrated.items() if name not in fields.CEILINGS}
        values["calibrated"] = {**of_base, **values["calibrated"]}
        values |= {"id": device_id, "peak_tflops": {**base.peak_tflops, **peaks}}
        values = _without_old_capacity(values)
        values.setdefault("name", f"{base.name} ({device_id})")
        device = dataclasses.replace(base, **values)
    else:
        device = Device(**{"name": device_id, **values, "id": device_id, "peak_tflops": peaks})
    return (device if "unsupported" in values else _by_generation(device)), cells


def _without_old_capacity(values: dict[str, Any]) -> dict[str, Any]:
    """The values that override a base; stated memory capacities do not apply to another memory size."""
    sizes = ("memory_gb", "inline_ecc", "driver_memory_mb", "usable_memory_mb")  # each decides those after it
    first = next((at for at, name in enumerate(sizes) if name in values), len(sizes))
    return {**dict.fromkeys(n for n in sizes[first:] if n.endswith("_mb")), **values}


def _memory_problems(values: Mapping[str, Any]) -> list[str]:
    """Contradictory memory sizes; vendors' GB are 2**30 bytes, sometimes rounded down."""
    stated = [("memory_gb", values.get("memory_gb", 0) * MB_PER_GB * 1.02)]
    stated += [(name, values.get(name, 0)) for name in ("driver_memory_mb", "usable_memory_mb")]
    known = [(name, size) for name, size in stated if size]
    return [
        f"{name} {size:g} is more than {above} says"
        for (above, most), (name, size) in itertools.pairwise(known)
        if size > most
    ]


def _by_generation(device: Device) -> Device:
    """The device with the unsupported dtypes of its generation; a stated peak overrides the generation."""
    lacking = device.generation.unsupported if device.generation else ()
    return dataclasses.replace(device, unsupported=tuple(d for d in lacking if d not in device.peak_tflops))


def _cells(
    entry: dict[str, Any], problems: list[str], sources: Mapping[str, Any], kind: str
) -> dict[str, fields.Cell]:  # fmt: skip
    """The datasheet fields of an entry, either flat or under `datasheet:`."""
    written = {name: value for name, value in entry.items() if name in fields.DATASHEET}
    datasheet = entry.get("datasheet")
    if isinstance(datasheet, dict):
        for name, value in datasheet.items():
            if name in written:
                problems.append(f"{name} is given twice")
            elif name in fields.DATASHEET:
                written[name] = value
            else:
                problems.append(fields.unknown_field(name, fields.DATASHEET))
    elif datasheet is not None:
        problems.append(f"datasheet must be a mapping of fields, got {short(datasheet)}")
    cells = {name: fields.cell(name, value, problems, sources, kind) for name, value in written.items()}
    return {name: cell for name, cell in cells.items() if cell is not None}


def _of_processor(
    entry: dict[str, Any], architecture: str | None, stated: Mapping[str, fields.Cell], problems: list[str]
) -> dict[str, fields.Cell]:
    """What follows from the facts under `processor`: peaks, bandwidth, cache and idle power."""
    facts = entry["processor"]
    if problem := processors.facts_problem(facts):
        problems.append(problem)
        return {}
    source = facts.get("source")
    cells = {
        name: fields.Cell(value, source, None, how)
        for name, (value, how) in processors.derived(facts, architecture).items()
    }
    if "tdp_w" in stated:
        watts = processors.idle_w(stated["tdp_w"].value, architecture)
        cells["idle_w"] = fields.Cell(watts, stated["tdp_w"].source, stated["tdp_w"].date, processors.IDLE_SOURCE)
    return cells


def _calibrated(written: Any, problems: list[str]) -> dict[str, float]:
    """Measured values: any name, a number each (bare or {value, source, date})."""
    if written is None:
        return {}
    if not isinstance(written, dict):
        problems.append(f"calibrated must be a mapping of names to numbers, got {short(written)}")
        return {}
    numbers: dict[str, float] = {}
    for name, value in written.items():
        number = value.get("value") if isinstance(value, dict) else value
        if (parsed := fields.number(number)) is None:
            problems.append(
                f"calibrated {name if isinstance(name, str) else short(name)} must be a number, got {short(number)}"
            )
        else:
            numbers[str(name)] = parsed
    return numbers
