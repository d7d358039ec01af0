"""Training rows: for each target the models (or chips) that state it: numbers, names, words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from forerun.landscape.physics import SECONDS_PER_HOUR, log_of
from forerun.landscape.plans import hardware_facts, plans_of, year_of
from forerun.landscape.schema import HARDWARE, Tables, exploded, numbers

#: The targets: the column, in words.
TARGETS = {
    "cost_2023_usd": "training cost, 2023 USD", "training_hours": "training time, h", "power_w": "power draw, W",
    "compute_flop": "training compute, FLOP", "price_usd": "release price of hardware, USD",
}  # fmt: skip
_NUMBERS = (
    "parameters", "dataset_size", "epochs", "training_hours", "chips", "mfu", "cost_2023_usd", "power_w",
    "compute_flop", "finetune_flop", "batch_size",
)  # fmt: skip
_CHIP = ("peak_flops", "tdp_w", "chip_price_usd", "memory_bytes", "bandwidth")
#: Columns from which a target follows by arithmetic alone, so that nothing would be learned.
_SAME = {"compute_flop": ("finetune_flop", "flop_6nd"), "price_usd": ()}
CATEGORIES = ("organisation", "country", "domain", "chip", "category", "accessibility", "confidence", "format")


@dataclass(frozen=True)
class Rows:
    """Rows of one target: `frame` has the features.

    `known` are the decimal logarithms of the target as stated, never filled.
    """

    target: str
    frame: pd.DataFrame
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    words: tuple[str, ...]  # one text per row, for embeddings
    known: np.ndarray
    model: np.ndarray
    organisation: np.ndarray
    year: np.ndarray

    def __len__(self) -> int:
        return len(self.known)


def rows_of(tables: Tables, target: str, *, multiplied: bool) -> Rows:
    """The rows of a target; multiplied: one per organisation, country, chip and domain, as in the published study."""
    return _hardware_rows(tables) if target == "price_usd" else _model_rows(tables, target, multiplied)


def _model_rows(tables: Tables, target: str, multiplied: bool) -> Rows:
    plans = plans_of(tables)
    counted = 6 * plans["parameters"] * plans["tokens"]
    given: dict[str, Any] = {name: log_of(plans[name]) for name in (*_NUMBERS[:6], *_CHIP, *_NUMBERS[6:-1])}
    given |= {"batch_size": log_of(tables.models["batch_size"]), "flop_6nd": log_of(counted)}
    given |= _at_peak(plans, target)
    given |= {"year": plans["year"], "chip_year": plans["chip_year"], "tuned": plans["tuned"]}
    dropped = {target, *_SAME.get(target, ())}
    given = {name: values for name, values in given.items() if name not in dropped}
    frame = pd.DataFrame(given).apply(pd.to_numeric)
    models = tables.models.reset_index(drop=True)
    frame = frame.assign(
        category=plans["category"], accessibility=models["accessibility"], confidence=models["confidence"],
        format=models["numerical_format"], place=np.arange(len(frame)),
    )  # fmt: skip
    single = exploded(models.assign(place=np.arange(len(models)))) if multiplied else models.assign(
        place=np.arange(len(models)), organisation=plans["organisation"], country=plans["country"],
        domain=plans["domain"], chip=plans["hardware"],
    )  # fmt: skip
    joined = single[["place", "organisation", "country", "domain", "chip"]].merge(frame, on="place")
    known = np.log10(plans[target].to_numpy(dtype=float))[joined["place"]]
    chosen = np.isfinite(known)
    joined, known = joined[chosen].reset_index(drop=True), known[chosen]
    origin = joined["place"].to_numpy()
    texts = _texts(models)
    return Rows(
        target, joined.drop(columns="place"), tuple(given), CATEGORIES, tuple(texts[at] for at in origin), known,
        models["model"].to_numpy(dtype=str)[origin],
        plans["organisation"].fillna("unknown").to_numpy(dtype=str)[origin],
        plans["year"].to_numpy(dtype=float)[origin],
    )  # fmt: skip


def _at_peak(plans: pd.DataFrame, target: str) -> dict[str, np.ndarray]:
    """The target by arithmetic at the chips' full peak, without fitted numbers; empty where there is none."""
    chip_hours = plans["flop"] / plans["peak_flops"] / SECONDS_PER_HOUR
    if target == "training_hours":
        return {"physics": log_of(chip_hours / plans["chips"])}
    if target == "cost_2023_usd":
        return {"physics": log_of(chip_hours * plans["chip_price_usd"])}
    return {"physics": log_of(plans["chips"] * plans["tdp_w"])} if target == "power_w" else {}


def _texts(models: pd.DataFrame) -> list[str]:
    """What a model is, in words: its domains and tasks, who made it, on what, and the beginning of its abstract."""
    parts = ("domains", "tasks", "organisations", "hardware")
    cells = zip(*(models[name] for name in parts), models["abstract"], strict=True)
    return [
        "; ".join([", ".join(map(str, cell)) for cell in several if len(cell)] + ([str(text)[:300]] if text else []))
        for *several, text in cells
    ]


def _hardware_rows(tables: Tables) -> Rows:
    hardware = tables.hardware.reset_index(drop=True)
    named = [name for name in numbers(HARDWARE) if name != "price_usd"]
    frame = pd.DataFrame({name: log_of(hardware[name]) for name in named})
    facts = hardware_facts(hardware).reindex(hardware["hardware"]).reset_index(drop=True)
    frame["peak_flops"] = log_of(facts["peak_flops"])
    frame["year"] = [year_of(when) for when in hardware["released"]]
    numeric = tuple(frame.columns)
    categories = ("manufacturer", "kind", "foundry")
    frame = frame.assign(**{name: hardware[name] for name in categories})
    known = np.log10(hardware["price_usd"].to_numpy(dtype=float))
    chosen = np.isfinite(known)
    names = hardware["hardware"].to_numpy(dtype=str)[chosen]
    makers = hardware["manufacturer"].fillna("unknown").to_numpy(dtype=str)[chosen]
    return Rows(
        "price_usd", frame[chosen].reset_index(drop=True), numeric, categories, tuple(names), known[chosen], names,
        makers, frame["year"].to_numpy(dtype=float)[chosen],
    )  # fmt: skip
