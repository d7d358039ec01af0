"""A device: what a datasheet says about the hardware a model runs on, and the catalogue to look one up in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from forerun.device import fields
from forerun.device.reading import CATALOG, key, read_yaml, source_line, unknown
from forerun.errors import ForerunError, did_you_mean

_USER = "given by the user"


@dataclass(frozen=True)
class Device:
    """One accelerator or processor as software sees it. What is not known is None, and absent from `peak_tflops`."""

    id: str
    name: str
    vendor: str | None = None
    kind: str = "gpu"  # one of fields.KINDS
    architecture: str | None = None
    compute_capability: float | None = None  # NVIDIA only
    # Dense peaks by dtype as listed, in TFLOP/s (TOP/s for integers), on the fastest unit, fp16 with fp32 accumulation.
    # For what a framework can reach, ask peak().
    peak_tflops: Mapping[str, float] = field(default_factory=dict, hash=False)
    unsupported: tuple[str, ...] = ()  # dtypes for which the chip certainly has no units
    memory_gb: float | None = None
    bandwidth_gbs: float | None = None
    l2_cache_mb: float | None = None
    sm_count: float | None = None
    boost_clock_mhz: float | None = None
    tdp_w: float | None = None
    idle_w: float | None = None
    interconnect_gbs: float | None = None  # sum of both directions, to all peers
    pcie_gbs: float | None = None  # one direction
    release_date: str | None = None
    launch_price_usd: float | None = None
    note: str | None = None
    calibrated: Mapping[str, float] = field(default_factory=dict, hash=False)  # measured, kept apart from the datasheet
    provenance: Mapping[str, str] = field(default_factory=dict, hash=False)  # field -> "source title, date"

    @property
    def memory_mb(self) -> float | None:
        """Memory in MB of 2**20 bytes: vendors' 'GB' of device memory are 2**30 bytes.

        An A100-40GB shows 40960 MiB. A few MB to 2 % may be held back: an H200 of 141 GB shows 143771, not 144384.
        """
        return None if self.memory_gb is None else self.memory_gb * 1024

    def supports(self, dtype: str) -> bool | None:
        """True: it has units for this dtype (a peak is known). False: it certainly has none. None: not known."""
        if dtype not in fields.DTYPES:
            raise ForerunError(f"unknown dtype {dtype!r}.{did_you_mean(dtype, fields.DTYPES)}")
        if dtype in self.peak_tflops:
            return True
        return False if dtype in self.unsupported else None

    def peak(self, dtype: str) -> float | None:
        """The TFLOP/s that a framework's kernels can reach in this dtype, or None when that is not known.

        Without fast units of its own, fp16, bf16 or tf32 is computed on the fp32 units, which every matrix library
        does: a GTX 1080 lists 0.14 TFLOP/s in native fp16 arithmetic, and runs fp16 models at its fp32 rate, 8.9.
        """
        supported = self.supports(dtype)
        own = self.peak_tflops.get(dtype)
        if dtype in ("fp16", "bf16", "tf32") and (own is not None or supported is False):
            return max(own or 0.0, self.peak_tflops.get("fp32", 0.0)) or None
        return own

    def missing(self, *names: str) -> list[str]:
        """Which of these are unknown. Names are those of the catalogue: 'memory_gb', 'fp16_tflops', ..."""
        return [name for name in names if self._value(name) is None]

    def _value(self, name: str) -> Any:
        if name in fields.PEAKS:
            return self.peak_tflops.get(fields.peak_dtype(name))
        if name not in _NAMES:
            raise ForerunError(fields.unknown_field(name, [*_NAMES, *fields.PEAKS]))
        return getattr(self, name)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values for JSON; unknown is None."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}


_NAMES = frozenset(f.name for f in dataclasses.fields(Device))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def load_device(spec: str | Path | Device | Mapping[str, Any]) -> Device:
    """A device from its id or alias ('h200', 'NVIDIA H200'), a MIG slice of one ('h200/1g.18gb'), a YAML file, a dict.

    Names match exactly, but for case and for space, underscore and dash; a near miss is an error with suggestions.
    """
    if isinstance(spec, Device):
        return spec
    if isinstance(spec, Mapping):
        return _from_user(dict(spec), "device", default_id=None)
    if isinstance(spec, Path) or str(spec).lower().endswith((".yaml", ".yml")):
        path = Path(spec)
        return _from_user(read_yaml(path), path.name, default_id=path.stem)
    if not isinstance(spec, str) or not spec.strip():
        raise ForerunError(f"a device is a name, a .yaml file or a mapping of fields, got {spec!r}")
    devices, names = _catalogue()
    if found := names.get(key(spec)):
        return devices[found]
    parent, slash, profile = spec.rpartition("/")
    if slash and key(parent) in names:
        from forerun.device.mig import slice_device

        return slice_device(devices[names[key(parent)]], profile)
    raise unknown("device", spec, names, "List them with forerun devices, or give a .yaml file of your own.")


def device_ids() -> list[str]:
    """The ids of the catalogue, sorted."""
    return sorted(_catalogue()[0])


def all_devices() -> list[Device]:
    """Every device of the catalogue, sorted by id."""
    devices = _catalogue()[0]
    return [devices[name] for name in sorted(devices)]


def aliases() -> dict[str, str]:
    """Every other name a device answers to, in the form names are compared in, and its id."""
    devices, names = _catalogue()
    return {name: found for name, found in sorted(names.items()) if name not in devices}


@cache
def _catalogue() -> tuple[dict[str, Device], dict[str, str]]:
    """All devices by id, and every name (ids, product names, aliases) to its id. A name used twice is an error."""
    devices: dict[str, Device] = {}
    names: dict[str, str] = {}
    for path in sorted((CATALOG / "devices").glob("*.yaml")):
        content = read_yaml(path)
        for device_id, entry in content["devices"].items():
            problems: list[str] = []
            device, cells = _build(str(device_id), entry, problems, content["sources"])
            for name, found in cells.items():
                if found.source is None:
                    problems.append(f"{name} has no source")
            if problems or device is None:
                raise ForerunError(f"{path.name}: {device_id}: {'; '.join(problems)}")
            provenance = {
                name: source_line(content["sources"], found.source or "", found.date) for name, found in cells.items()
            }
            devices[device.id] = dataclasses.replace(device, provenance=provenance)
            for name in dict.fromkeys(map(key, (device.id, device.name, *entry.get("aliases", ())))):
                if name in names:
                    raise ForerunError(f"{path.name}: {name} names both {names[name]} and {device.id}")
                names[name] = device.id
    return devices, names


def _from_user(content: Any, where: str, default_id: str | None) -> Device:
    """A device from a user's own mapping: flat, or with `datasheet:`, or a catalogue file with one device."""
    if not isinstance(content, dict):
        raise ForerunError(f"{where}: a device is a mapping of fields such as memory_gb: 24, got {content!r:.60}")
    sources: Mapping[str, Any] = {}
    if isinstance(content.get("devices"), dict):
        if len(content["devices"]) != 1:
            raise ForerunError(f"{where}: one device per file, got {len(content['devices'])}")
        if isinstance(content.get("sources"), dict):
            sources = content["sources"]
        ((default_id, content),) = content["devices"].items()
        if not isinstance(content, dict):
            raise ForerunError(f"{where}: {default_id} must be a mapping of fields, got {content!r:.60}")
    problems: list[str] = []
    base: Device | None = None
    if "base" in content:
        named = content["base"]
        try:
            if not isinstance(named, str) or named.lower().endswith((".yaml", ".yml")):  # no chains, so no loops
                raise ForerunError(f"must be the name of a catalogued device, got {named!r:.60}")
            base = load_device(named)
        except ForerunError as error:
            problems.append(f"base: {error}")
    fallback = default_id if default_id is not None else content.get("name")
    device, cells = _build(str(content.get("id") or fallback or "device"), content, problems, sources, base)
    if device is not None and ("base" not in content or base is not None):  # a wrong base is problem enough
        problems += _required(device, content)
    if problems or device is None:
        raise ForerunError(f"{where}: {'; '.join(problems)}")
    provenance = {name: _cell_line(found, sources) for name, found in cells.items()}
    return dataclasses.replace(device, provenance={**device.provenance, **provenance})


def _cell_line(found: fields.Cell, sources: Mapping[str, Any]) -> str:
    """Where one field of a user's device comes from: the source it names, in full if the file lists it."""
    listed = sources.get(found.source or "")
    if isinstance(listed, Mapping):
        parts = (listed.get("title", found.source), found.date or listed.get("date"))
        return ", ".join(str(part) for part in parts if part)
    return ", ".join(part for part in (found.source or _USER, found.date) if part)


def _required(device: Device, content: Mapping[str, Any]) -> list[str]:
    """What a user's device must say before anything can be predicted on it. A wrong value is reported as that, once."""
    written = {**content, **(content["datasheet"] if isinstance(content.get("datasheet"), dict) else {})}
    problems = [
        f"{name} is missing"
        for name in ("memory_gb", "bandwidth_gbs")
        if device.missing(name) and not written.get(name)
    ]
    if not device.peak_tflops and not any(name in fields.PEAKS for name in written):
        problems.append("a peak is missing (at least one of fp32_tflops, fp16_tflops, bf16_tflops, ...)")
    return problems


def _build(
    device_id: str, entry: Any, problems: list[str], sources: Mapping[str, Any], base: Device | None = None
) -> tuple[Device | None, dict[str, fields.Cell]]:
    """A device from one entry, on top of `base`; every wrong field is noted once in `problems`."""
    if not isinstance(entry, dict):
        problems.append(f"must be a mapping of fields, got {entry!r:.60}")
        return None, {}
    values: dict[str, Any] = {}
    for name, value in entry.items():
        if name in fields.TEXTS and value is not None:
            if not isinstance(value, str) or not value.strip():
                problems.append(f"{name} must be text, got {value!r}")
            elif name == "kind" and value not in fields.KINDS:
                problems.append(f"kind must be one of {', '.join(fields.KINDS)}, got {value!r}")
            elif name != "id":
                values[name] = value
        elif name not in fields.ENTRY and name not in fields.DATASHEET:
            problems.append(fields.unknown_field(name, (*fields.ENTRY, *fields.DATASHEET)))
    if (capability := entry.get("compute_capability")) is not None:
        if isinstance(capability, bool) or not isinstance(capability, (int, float)) or not 1 <= capability < 20:
            problems.append(f"compute_capability must be a number such as 9.0, got {capability!r}")
        else:
            values["compute_capability"] = float(capability)
    for name, allowed in (("aliases", None), ("unsupported", fields.DTYPES)):
        if entry.get(name) is None:
            continue
        if problem := fields.text_list_problem(name, entry[name], allowed):
            problems.append(problem)
        elif name == "unsupported":
            values[name] = tuple(entry[name])
    cells = _cells(entry, problems, sources)
    values |= {name: found.value for name, found in cells.items() if name not in fields.PEAKS}
    peaks = {fields.peak_dtype(name): found.value for name, found in cells.items() if name in fields.PEAKS}
    unsupported = values.get("unsupported", base.unsupported if base else ())
    if both := [dtype for dtype in fields.DTYPES if dtype in peaks and dtype in unsupported]:
        problems.append(f"{', '.join(both)} has a peak and is also listed as unsupported")
    if "idle_w" in values and "tdp_w" in values and values["idle_w"] >= values["tdp_w"]:
        problems.append(f"idle_w {values['idle_w']:g} must be below tdp_w {values['tdp_w']:g}")
    values["calibrated"] = _calibrated(entry.get("calibrated"), problems)
    for name, value in values["calibrated"].items():
        written = entry["calibrated"][name]
        if isinstance(written, dict):
            cells[name] = fields.Cell(value, written.get("source"), written.get("date"))
    if base is not None:
        values["calibrated"] = {**base.calibrated, **values["calibrated"]}
        values |= {"id": device_id, "peak_tflops": {**base.peak_tflops, **peaks}}
        values.setdefault("name", f"{base.name} ({device_id})")
        return dataclasses.replace(base, **values), cells
    return Device(**{"name": device_id, **values, "id": device_id, "peak_tflops": peaks}), cells


def _cells(entry: dict[str, Any], problems: list[str], sources: Mapping[str, Any]) -> dict[str, fields.Cell]:
    """The datasheet fields of an entry, whether written flat or under `datasheet:`."""
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
        problems.append(f"datasheet must be a mapping of fields, got {datasheet!r:.60}")
    cells = {name: fields.cell(name, value, problems, sources) for name, value in written.items()}
    return {name: found for name, found in cells.items() if found is not None}


def _calibrated(written: Any, problems: list[str]) -> dict[str, float]:
    """Measured values: any name, a number each (bare or {value, source, date})."""
    if written is None:
        return {}
    if not isinstance(written, dict):
        problems.append(f"calibrated must be a mapping of names to numbers, got {written!r:.60}")
        return {}
    numbers: dict[str, float] = {}
    for name, value in written.items():
        number = value.get("value") if isinstance(value, dict) else value
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            problems.append(f"calibrated {name} must be a number, got {number!r}")
        else:
            numbers[str(name)] = float(number)
    return numbers
