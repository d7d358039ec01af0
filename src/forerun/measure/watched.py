"""What `forerun adapt --watch` keeps in the user's folder: that this machine is watched, and what its rows say.

    watch.json                    since when rows of this machine correct its predictions
    watched/DEVICE.safetensors    the corrections of a device: arrays, and all else as JSON in the header

Each is one file that is moved into place, so that a prediction reads all of it or nothing, and never writes.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forerun._util.documents import read_json, write_json
from forerun.device import Device
from forerun.device.adapted import FORMAT, Adaptation
from forerun.errors import ForerunError
from forerun.measure.saved_host import folder, utc_time

_HEADER = "watched"
#: Fields of a device that predictions follow from: corrections belong to them.
_SPEC = (
    "kind", "architecture", "compute_capability", "peak_tflops", "bandwidth_gbs", "memory_gb", "sm_count",
    "boost_clock_mhz", "l2_cache_mb", "tdp_w",
)  # fmt: skip
#: What was read last, by file, date and size: corrections are solved once for as long as they stay the same.
_read: dict[tuple[str, int, int], Adaptation | None] = {}
#: The device that was corrected last, by what, and how it became: what is remembered of a device is of that object.
_last: list[Any] = []


@dataclass(frozen=True)
class Setting:
    """That this machine is watched."""

    since: str
    fresh: bool  # whether rows from before do not count


def place() -> Path:
    """The file of the setting."""
    return folder() / "watch.json"


def setting() -> Setting | None:
    """The setting of this machine; None where it is not watched, or where another one that shares the folder is."""
    path = place()
    if not os.path.exists(path):
        return None
    try:
        content = read_json(path)
    except ForerunError:
        return None
    if not isinstance(content, dict) or utc_time(content.get("since")) is None:
        return None
    from forerun.measure.core import host_facts

    if content.get("machine") != host_facts.machine():
        return None
    return Setting(str(content["since"]), content.get("fresh") is True)


def start(*, fresh: bool) -> Setting:
    """Watches this machine; with `fresh`, rows from before no longer count."""
    from forerun.measure.core import host_facts

    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    try:
        write_json(place(), {"since": now, "fresh": fresh, "machine": host_facts.machine()})
    except OSError as error:
        raise ForerunError(f"{place()} cannot be written: {error.strerror or error}") from error
    if fresh:
        keep_only([])
    return Setting(now, fresh)


def stop() -> bool:
    """Ends it and forgets the corrections, not the rows; False where nothing was watched."""
    was = place().exists()
    try:
        place().unlink(missing_ok=True)
    except OSError as error:
        raise ForerunError(f"{place()} cannot be removed: {error.strerror or error}") from error
    keep_only([])
    return was


def keep(device: Device, adaptation: Adaptation) -> None:
    """Saves what rows say of a device of this machine."""
    from safetensors.numpy import save

    path = _file(device.id)
    header = {"format": FORMAT, "rows": adaptation.rows, "predictor": adaptation.predictor, "spec": spec_of(device)}
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(
            save(dict(adaptation.arrays), {_HEADER: json.dumps({**header, "values": dict(adaptation.values)})})
        )
        os.replace(part, path)
    except OSError as error:
        raise ForerunError(f"{path} cannot be written: {error.strerror or error}") from error


def keep_only(device_ids: Iterable[str]) -> None:
    """Removes the corrections of all other devices: no rows of them count any longer."""
    kept = {_file(device_id) for device_id in device_ids}
    for path in (folder() / "watched").glob("*.safetensors"):
        if path not in kept:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def corrections(device: Device) -> Adaptation | None:
    """What rows of this machine say of the device; None where it is not watched, or its spec sheet was another one. A
    damaged file counts as none: the next measurement writes it anew."""
    path = _file(device.id)
    if not os.path.exists(path) or setting() is None:
        return None
    try:
        about = os.stat(path)
        key = (str(path), about.st_mtime_ns, about.st_size)
        if key not in _read:
            _read.clear()
            _read[key] = _of(path)
    except OSError:
        return None
    found = _read[key]
    return found if found is not None and found.values.get("spec") == spec_of(device) else None


def corrected(device: Device, predictor: str) -> tuple[Device, tuple[str, ...]]:
    """The device as rows of this machine correct it for weights of a predictor, and what is to be said of them."""
    found = corrections(device)
    if found is None:
        return device, ()
    if found.predictor != predictor:
        return device, (
            "rows of this machine were used with other weights of the predictor: the next forerun measure uses them "
            "again",
        )
    drift = found.values["watched"].get("drift")
    if not (_last and _last[0] is device and _last[1] is found):
        context = found.values["watched"].get("context_mb")
        calibrated = device.calibrated if context is None else {"context_mb": context, **device.calibrated}
        _last[:] = device, found, replace(device, adaptation=found, calibrated=calibrated)
    return _last[2], (() if drift is None else (drift,))


def spec_of(device: Device) -> str:
    """A hash of what predictions for a device follow from."""
    text = json.dumps([getattr(device, name) for name in _SPEC], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _of(path: Path) -> Adaptation | None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            header: dict[str, Any] = json.loads(file.metadata()[_HEADER])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header["format"] != FORMAT or not isinstance(header["values"]["watched"], dict):
            return None
        values = {**header["values"], "spec": header["spec"]}
        return Adaptation(int(header["rows"]), str(header["predictor"]), values, arrays)
    except (OSError, KeyError, TypeError, ValueError, SafetensorError):
        return None


def _file(device_id: str) -> Path:
    return folder() / "watched" / f"{device_id.replace(os.sep, '_')}.safetensors"
