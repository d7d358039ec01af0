"""Devices by name, from the catalogue, and from a user's own file or mapping."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from forerun._util import documents
from forerun._util.readable import short
from forerun._util.remembered import remembered
from forerun.device import fields
from forerun.device.adapted import DEVICE, is_adapted, read_adaptation
from forerun.device.building import build
from forerun.device.device import Device
from forerun.device.mig import slice_device
from forerun.device.reading import CATALOG, key, read_yaml, source_line, unknown
from forerun.device.threads import named, with_threads
from forerun.errors import ForerunError

_USER = "given by the user"
#: What a notebook added, by id.
_registered: dict[str, Device] = {}


def load_device(spec: str | Path | Device | Mapping[str, Any]) -> Device:
    """A device from its id or alias ('h200', 'NVIDIA H200'), a MIG slice of one ('h200/1g.18gb'), some cores of a CPU
    ('epyc-7763-8-threads'), a YAML file, a folder that `forerun adapt` wrote, a dict.

    Names match exactly, but for case and for space, underscore and dash; a near miss is an error with suggestions.
    """
    if isinstance(spec, Device):
        return spec
    if isinstance(spec, Mapping):
        return _from_user(dict(spec), "device", default_id=None)
    if (folder := adapted_folder(spec)) is not None:
        plain = _from_user(documents.read_yaml(folder / DEVICE), f"{folder.name}/{DEVICE}", default_id=folder.name)
        return dataclasses.replace(plain, adaptation=read_adaptation(folder))
    if isinstance(spec, Path) or str(spec).lower().endswith((".yaml", ".yml")):
        path = Path(spec)
        return _from_user(documents.read_yaml(path), path.name, default_id=path.stem)
    if not isinstance(spec, str) or not spec.strip():
        raise ForerunError(f"a device is a name, a .yaml file or a mapping of fields, got {short(spec)}")
    devices, names = _catalogue()
    if device := names.get(key(spec)):
        return devices[device]
    parent, slash, profile = spec.rpartition("/")
    if slash and key(parent) in names:
        return slice_device(devices[names[key(parent)]], profile)
    part = named(spec)
    if part is not None and key(part[0]) in names:
        return with_threads(devices[names[key(part[0])]], part[1])
    raise unknown("device", spec, names, "List them with forerun devices, or give a .yaml file of your own.")


def adapted_folder(spec: Any) -> Path | None:
    """The folder of an adapted device that is named: a path, never a bare name of the catalogue."""
    if not isinstance(spec, (str, Path)) or not 0 < len(str(spec)) < 1000:
        return None
    if isinstance(spec, str) and ("\0" in spec or key(spec) in _catalogue()[1]):
        return None
    folder = Path(spec)
    return folder if is_adapted(folder) else None


def register_device(device: Device) -> None:
    """Adds a device to the catalogue of this process; one that was added before by the same id is replaced."""
    _, names = _shipped()
    for name in dict.fromkeys((device.id, device.name)):
        if taken := names.get(key(name)):
            raise ForerunError(f"{name} is a name of {taken} in the catalogue: register yours by another id and name")
    _registered[device.id] = device


def device_ids() -> list[str]:
    """The ids of the catalogue, sorted."""
    return sorted(_catalogue()[0])


def all_devices() -> list[Device]:
    """Every device of the catalogue, sorted by id."""
    devices = _catalogue()[0]
    return [devices[name] for name in sorted(devices)]


def aliases() -> dict[str, str]:
    """Every alias of a device in normalised form, with the device's id."""
    devices, names = _catalogue()
    return {name: device_id for name, device_id in sorted(names.items()) if name not in devices}


def _catalogue() -> tuple[dict[str, Device], dict[str, str]]:
    """Shipped and registered devices by id, and ids by name."""
    devices, names = _shipped()
    if not _registered:
        return devices, names
    registered = {key(name): device.id for device in _registered.values() for name in (device.name, device.id)}
    return {**devices, **_registered}, {**names, **registered}


@cache
def _shipped() -> tuple[dict[str, Device], dict[str, str]]:
    """All devices that ship by id, and every name (ids, product names, aliases) to its id, as they were checked once
    for these files and this code."""
    files = sorted((CATALOG / "devices").glob("*.yaml"))
    by = [*files, CATALOG / "generations.yaml", *Path(__file__).parent.glob("*.py")]
    catalogue = remembered("catalogue/checked", by, lambda: _checked(files))
    devices = [Device(**{**entry, "unsupported": tuple(entry["unsupported"])}) for entry in catalogue["devices"]]
    return {device.id: device for device in devices}, catalogue["names"]


def _checked(files: list[Path]) -> dict[str, Any]:
    """The devices of these files, field by field, and their names. A name used twice is an error."""
    devices: dict[str, Device] = {}
    names: dict[str, str] = {}
    for path in files:
        content = read_yaml(path)
        for device_id, entry in content["devices"].items():
            problems: list[str] = []
            device, cells = build(str(device_id), entry, problems, content["sources"])
            for name, cell in cells.items():
                if cell.source is None:
                    problems.append(f"{name} has no source")
            if problems or device is None:
                raise ForerunError(f"{path.name}: {device_id}: {'; '.join(problems)}")
            provenance = {
                name: cell.of(source_line(content["sources"], cell.source or "", cell.date))
                for name, cell in cells.items()
            }
            devices[device.id] = dataclasses.replace(device, provenance=provenance)
            for name in dict.fromkeys(map(key, (device.id, device.name, *entry.get("aliases", ())))):
                if name in names:
                    raise ForerunError(f"{path.name}: {name} names both {names[name]} and {device.id}")
                names[name] = device.id
    plain = [{f.name: getattr(device, f.name) for f in dataclasses.fields(device)} for device in devices.values()]
    return {"devices": plain, "names": names}


def _from_user(content: Any, where: str, default_id: str | None) -> Device:
    """A device from a user's own mapping: flat, or with `datasheet:`, or a catalogue file with one device."""
    if not isinstance(content, dict):
        raise ForerunError(f"{where}: a device is a mapping of fields such as memory_gb: 24, got {short(content)}")
    sources: Mapping[str, Any] = {}
    if isinstance(content.get("devices"), dict):
        if len(content["devices"]) != 1:
            raise ForerunError(f"{where}: one device per file, got {len(content['devices'])}")
        if isinstance(content.get("sources"), dict):
            sources = content["sources"]
        ((default_id, content),) = content["devices"].items()
        if not isinstance(content, dict):
            raise ForerunError(f"{where}: {default_id} must be a mapping of fields, got {short(content)}")
    problems: list[str] = []
    base: Device | None = None
    if "base" in content:
        named = content["base"]
        try:
            if not isinstance(named, str) or named.lower().endswith((".yaml", ".yml")):  # no chains, so no loops
                raise ForerunError(f"must be the name of a catalogued device, got {short(named)}")
            base = load_device(named)
        except ForerunError as error:
            problems.append(f"base: {error}")
    fallback = default_id if default_id is not None else content.get("name")
    device, cells = build(str(content.get("id") or fallback or "device"), content, problems, sources, base)
    if device is not None and ("base" not in content or base is not None):  # a wrong base is problem enough
        problems += _required(device, content)
    if problems or device is None:
        raise ForerunError(f"{where}: {fields.as_sentence(problems)}")
    provenance = {name: _cell_line(cell, sources) for name, cell in cells.items()}
    return dataclasses.replace(device, provenance={**device.provenance, **provenance})


def _cell_line(cell: fields.Cell, sources: Mapping[str, Any]) -> str:
    """Where one field of a user's device comes from: the source it names, in full if the file lists it."""
    listed = sources.get(cell.source or "")
    if isinstance(listed, Mapping):
        parts = (listed.get("title", cell.source), cell.date or listed.get("date"))
        return cell.of(", ".join(str(part) for part in parts if part))
    return cell.of(", ".join(part for part in (cell.source or _USER, cell.date) if part))


def _required(device: Device, content: Mapping[str, Any]) -> list[str]:
    """The fields that a prediction needs and that a user's device lacks. A wrong value is reported elsewhere, once."""
    written = {**content, **(content["datasheet"] if isinstance(content.get("datasheet"), dict) else {})}
    problems = [
        f"{name} is missing"
        for name in ("memory_gb", "bandwidth_gbs")
        if device.missing(name) and not written.get(name)
    ]
    if not device.peak_tflops and not any(name in fields.PEAKS for name in written):
        problems.append("a peak is missing (at least one of fp32_tflops, fp16_tflops, bf16_tflops, ...)")
    return problems
