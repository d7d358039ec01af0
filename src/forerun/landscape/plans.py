"""What is known of a training before it begins, a row per model: arithmetic, chips and their facts, the date of
publication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from forerun.device import Device, load_device
from forerun.device.kinds import TPU

if TYPE_CHECKING:
    from forerun.landscape.schema import Tables

#: Forward and backward pass: two and four operations for each parameter and token.
FLOP_PER_PARAMETER_AND_TOKEN = 6.0
#: Columns of the hardware table that hold a peak for training, the fastest unit first.
_PEAKS = ("tensor_fp16_flops", "fp16_flops", "tf32_flops", "fp32_flops")
LANGUAGE = "Language"


def flop_of(parameters: float, tokens: float) -> float:
    """6 N D: the arithmetic of a dense transformer's training."""
    return FLOP_PER_PARAMETER_AND_TOKEN * parameters * tokens


def year_of(when: Any) -> float:
    """A date as a year with its fraction; NaN where there is none."""
    if when is None or pd.isna(when):
        return float("nan")
    moment = pd.Timestamp(when)
    return float(moment.year + (moment.day_of_year - 1) / 365.25)


def peak_flops(device: Device) -> float | None:
    """FLOP/s at half precision where the chip has it, at fp32 otherwise."""
    peaks = [device.peak(dtype) for dtype in ("fp16", "bf16", "fp32")]
    known = [peak for peak in peaks if peak]
    return max(known) * 1e12 if known else None


def chip_facts(device: Device) -> dict[str, Any]:
    """What a plan needs to know of a chip of the catalogue; NaN where the catalogue does not."""
    released = device.release_date
    return {
        "peak_flops": peak_flops(device) or np.nan, "tdp_w": device.tdp_w or np.nan,
        "chip_price_usd": device.launch_price_usd or np.nan,
        "chip_year": year_of(released if released and len(released) > 4 else f"{released}-07-01") if released
        else np.nan,
        "memory_bytes": device.memory_gb * 2**30 if device.memory_gb else np.nan,
        "bandwidth": device.bandwidth_gbs * 1e9 if device.bandwidth_gbs else np.nan,
        "tpu": float(device.traits is TPU),
    }  # fmt: skip


@cache
def _catalogued(device_id: str) -> Mapping[str, Any]:
    return chip_facts(load_device(device_id))


def hardware_facts(hardware: pd.DataFrame) -> pd.DataFrame:
    """The hardware table with a plan's columns, by name; missing values come from the catalogue."""
    peaks = hardware.reindex(columns=list(_PEAKS)).apply(pd.to_numeric, errors="coerce").max(axis=1)
    out = pd.DataFrame({
        "hardware": hardware["hardware"], "device": hardware["device"], "peak_flops": peaks,
        "tdp_w": pd.to_numeric(hardware["tdp_w"]), "chip_price_usd": pd.to_numeric(hardware["price_usd"]),
        "chip_year": [year_of(when) for when in hardware["released"]],
        "memory_bytes": pd.to_numeric(hardware["memory_bytes"]), "bandwidth": pd.to_numeric(hardware["bandwidth"]),
        "tpu": hardware["hardware"].str.contains("TPU", na=False).astype(float),
    })  # fmt: skip
    none = dict.fromkeys(_FACTS, np.nan)
    listed = pd.DataFrame(
        [_catalogued(device) if isinstance(device, str) else none for device in out["device"]], out.index
    )
    for name in _FACTS:
        # The catalogue's peaks are dense and checked against datasheets; of the rest, the table comes first.
        first, second = (listed, out) if name in ("peak_flops", "tpu") else (out, listed)
        out[name] = first[name].astype(float).fillna(second[name].astype(float))
    return out.drop_duplicates("hardware").set_index("hardware")


_FACTS = ("peak_flops", "tdp_w", "chip_price_usd", "chip_year", "memory_bytes", "bandwidth", "tpu")


def _facts_of(
    names: Iterable[str], devices: Iterable[str | None], known: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """The facts of a row's chips: the geometric mean where several are named."""
    per_row: list[dict[str, float]] = []
    for name, device in zip(names, devices, strict=False):
        facts = dict(known.get(name, {}))
        if isinstance(device, str):
            facts = {**_catalogued(device), **{k: v for k, v in facts.items() if pd.notna(v)}}
        if facts:
            per_row.append({k: float(v) for k, v in facts.items()})
    if not per_row:
        return dict.fromkeys(_FACTS, float("nan"))
    if len(per_row) == 1:
        return per_row[0]
    values = {name: np.array([facts[name] for facts in per_row]) for name in _FACTS}
    values = {name: known[np.isfinite(known)] for name, known in values.items()}
    logs = {name: _mean(np.log(values[name])) for name in _FACTS if name not in ("chip_year", "tpu")}
    return {
        **{name: float(np.exp(log)) for name, log in logs.items()}, "chip_year": _mean(values["chip_year"]),
        "tpu": float(values["tpu"].max(initial=0.0)),
    }  # fmt: skip


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def plans_of(tables: Tables) -> pd.DataFrame:
    """A row per model: what a plan knows, then the targets as the table states them, never filled."""
    models = tables.models.reset_index(drop=True)
    known = hardware_facts(tables.hardware)[list(_FACTS)].to_dict(orient="index")
    facts = pd.DataFrame([_facts_of(_list(h), _list(d), known)
                          for h, d in zip(models["hardware"], models["devices"], strict=True)])  # fmt: skip
    number = {name: pd.to_numeric(models[name], errors="coerce").astype(float) for name in (
        "parameters", "dataset_size", "epochs", "chips", "mfu", "hfu", "compute_flop", "finetune_flop",
        "training_hours", "cost_2023_usd", "power_w")}  # fmt: skip
    out = pd.DataFrame({"model": models["model"], "year": [year_of(when) for when in models["published"]], **number})
    out = pd.concat([out, facts], axis=1)
    out["organisation"] = [_first(cell) for cell in models["organisations"]]
    out["category"] = [_first(cell) for cell in models["categories"]]
    out["country"] = [_first(cell) for cell in models["countries"]]
    out["domain"] = [_first(cell) for cell in models["domains"]]
    out["language"] = [float(LANGUAGE in _list(cell)) for cell in models["domains"]]
    out["hardware"] = [_first(cell) for cell in models["hardware"]]
    out["tuned"] = models["base_model"].notna().astype(float)  # compute may count the base model's training
    return with_arithmetic(out)


def with_arithmetic(plans: pd.DataFrame) -> pd.DataFrame:
    """The plans with tokens, the FLOP of the run and their source, and the age of the chip.

    A fine-tuned model's hours are those of its tuning, while its stated cost belongs to its stated compute, which
    counts the base model: `flop` is of the run, `total_flop` includes the base model.
    """
    tokens = plans["dataset_size"] * plans["epochs"].fillna(1.0)
    counted = (FLOP_PER_PARAMETER_AND_TOKEN * plans["parameters"] * tokens).where(plans["language"] > 0)
    own = plans["finetune_flop"].where(plans["tuned"] > 0)
    flop = own.fillna(plans["compute_flop"]).fillna(counted)
    basis = np.select([own.notna(), plans["compute_flop"].notna(), counted.notna()], ["tuning", "stated", "6ND"], "")
    total = plans["compute_flop"].fillna(flop)
    age = (plans["year"] - plans["chip_year"]).clip(0, 12)
    return plans.assign(tokens=tokens, flop=flop, total_flop=total, basis=basis, chip_age=age)


def plan(
    *, flop: float, basis: str, parameters: float | None, tokens: float | None, device: Device, chips: float | None,
    when: date, domain: str = LANGUAGE,
) -> pd.DataFrame:  # fmt: skip
    """The plan of one training run: one row with the columns of `plans_of`."""
    row = {
        "model": "", "year": year_of(when), "parameters": parameters or np.nan, "tokens": tokens or np.nan,
        "flop": flop, "total_flop": flop, "basis": basis, "chips": chips or np.nan, "domain": domain,
        "language": float(domain == LANGUAGE), "tuned": 0.0, **chip_facts(device),
    }  # fmt: skip
    out = pd.DataFrame([row])
    return out.assign(chip_age=(out["year"] - out["chip_year"]).clip(0, 12))


def _list(cell: Any) -> list[Any]:
    if isinstance(cell, (list, tuple, np.ndarray)):
        return list(cell)
    return [] if cell is None or pd.isna(cell) else [cell]


def _first(cell: Any) -> str | None:
    values = _list(cell)
    return str(values[0]) if values else None
