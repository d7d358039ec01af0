"""Writes an adapted device as a folder, all of it or nothing."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forerun._util.version import __version__
from forerun.device import Device
from forerun.device.adapted import ARRAYS, CARD, CORRECTIONS, DEVICE, FORMAT, ROWS, Adaptation
from forerun.device.fields import DATASHEET, PEAKS
from forerun.errors import ForerunError
from forerun.predictors.saved import FILE
from forerun.training.adapting.fitting import Fitted, Score
from forerun.training.adapting.rows import Measured

_TEXTS = ("id", "name", "vendor", "kind", "architecture", "compute_capability", "note")


def write(folder: Path, fitted: Fitted, cases: Sequence[Measured], notes: Sequence[str]) -> None:
    """The folder is written elsewhere and moved into place; an adapted device that is there is replaced."""
    import yaml
    from safetensors.numpy import save

    check_place(folder)
    adaptation = fitted.adaptation
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise ForerunError(f"{folder} cannot be written: {error.strerror or error}") from error
    try:
        if fitted.device is None:
            about = {"predictor": "default", "corrects": adaptation.predictor}
            (made / FILE).write_text(json.dumps(about) + "\n")
        else:
            fields = fields_of(fitted.device)
            (made / DEVICE).write_text(yaml.safe_dump(fields, sort_keys=False, allow_unicode=True))
        (made / CORRECTIONS).write_text(yaml.safe_dump(_plain(adaptation), sort_keys=False, allow_unicode=True))
        (made / ARRAYS).write_bytes(save(dict(adaptation.arrays)))
        lines = (json.dumps(case.row, default=str) for case in cases)
        (made / ROWS).write_text("".join(f"{line}\n" for line in lines))
        (made / CARD).write_text(card(folder.name, fitted, cases, notes))
        os.chmod(made, 0o755)
        if folder.is_dir():
            old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            os.replace(folder, old / "old")
            os.replace(made, folder)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(made, folder)
    except OSError as error:
        raise ForerunError(f"{folder} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def check_place(folder: Path) -> None:
    """Refuses a folder that holds something else, before any work is done."""
    if folder.is_dir() and not (folder / CORRECTIONS).is_file() and any(folder.iterdir()):
        raise ForerunError(f"{folder} is not empty and no adapted device: give another --out")
    if folder.exists() and not folder.is_dir():
        raise ForerunError(f"{folder} is a file: --out is a folder")


def fields_of(device: Device) -> dict[str, Any]:
    """A device as a file of one's own that describes it in full."""
    plain: dict[str, Any] = {name: getattr(device, name) for name in _TEXTS if getattr(device, name) is not None}
    for name in DATASHEET:
        dtype = name.partition("_")[0]
        value = device.peak_tflops.get(dtype) if name in PEAKS else getattr(device, name)
        if value is not None:
            plain[name] = value
    if device.inline_ecc:
        plain["inline_ecc"] = True
    if device.unsupported:
        plain["unsupported"] = list(device.unsupported)
    if device.calibrated:
        plain["calibrated"] = {name: float(value) for name, value in device.calibrated.items()}
    return plain


def _plain(adaptation: Adaptation) -> Mapping[str, Any]:
    about = {"format": FORMAT, "forerun": __version__, "predictor": adaptation.predictor, "rows": adaptation.rows}
    return {**about, **adaptation.values}


def card(name: str, fitted: Fitted, cases: Sequence[Measured], notes: Sequence[str]) -> str:
    """README.md of the folder."""
    device = fitted.device
    title = f"{device.name}, adapted" if device is not None else "A kind of network, adapted"
    option = "device" if device is not None else "predictor"
    what = "spec sheet alone" if device is not None else "not adapted"
    models = len({str(case.row["model"]) for case in cases})
    lines = [
        f"# {title}",
        "",
        f"`forerun predict MODEL --{option} {name}/` predicts with corrections from {len(cases)} measured cases of "
        f"{models} models.",
        "",
        "| held out, a model at a time | mean error | within 10 % | Kendall's tau | 90 % intervals cover |",
        "|---|---|---|---|---|",
        f"| {what} | {_cells(fitted.before)} |",
        f"| adapted | {_cells(fitted.after)} |",
        "",
        "## Corrections",
        "",
        "How many times longer a part takes than predicted without them; deviations are in logarithms.",
        "",
        "| part | times | ± |",
        "|---|---|---|",
        *(f"| {name} | {factor:.2f} | {deviation:.2f} |" for name, (factor, deviation) in fitted.corrections.items()),
        *(f"| {name} power | {factor:.2f} | |" for name, factor in fitted.power.items()),
        "",
    ]
    said = [*fitted.named, *notes]
    if said:
        lines += ["## Rows to look at", "", *(f"- {one}" for one in said), ""]
    return "\n".join(lines)


def _cells(score: Score) -> str:
    tau = f"{score.tau:.2f}" if score.tau == score.tau else "unknown"
    inside = f"{score.coverage:.0f} %" if score.coverage == score.coverage else "none"
    return f"{score.mape:.0f} % | {score.within_10:.0f} % | {tau} | {inside}"
