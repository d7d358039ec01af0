"""Trends of the field: medians and records by year, domain or maker, growth a year, the price of a chip hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from forerun.errors import ForerunError, did_you_mean
from forerun.landscape.physics import fit_laws, log_of, price_of, usd_per_chip_hour
from forerun.landscape.plans import plans_of
from forerun.landscape.schema import Tables

#: What models can be grouped by.
GROUPS = ("year", "domain", "country", "organisation", "category", "hardware")
QUANTITIES = {
    "parameters": "parameters", "tokens": "data points seen", "total_flop": "training compute, FLOP",
    "training_hours": "training time, h", "chips": "chips", "cost_2023_usd": "cost, 2023 USD", "power_w": "power, W",
}  # fmt: skip
#: Years that growth is measured over: those of deep learning.
SINCE = 2012
#: The share of models, by training compute at their time, that are at the frontier.
FRONT = 0.1
#: Groups with fewer models are dropped.
LEAST_MODELS = 3


@dataclass(frozen=True)
class Trends:
    """Medians by group, growth a year of all and of the largest models, and prices of chip hours."""

    by: tuple[str, ...]
    groups: pd.DataFrame
    growth: pd.DataFrame
    prices: pd.DataFrame
    models: pd.DataFrame  # what is drawn: a row per model

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; unknown is None."""
        tables = {"groups": self.groups, "growth": self.growth, "prices": self.prices}
        return {"by": list(self.by), **{name: _records(table) for name, table in tables.items()}}


def trends(tables: Tables, by: Sequence[str] = ("year",)) -> Trends:
    """The trends of the imported tables; numbers as stated, none filled."""
    for name in by:
        if name not in GROUPS:
            raise ForerunError(f"models cannot be grouped by {name!r}.{did_you_mean(name, GROUPS)} "
                               f"Known: {', '.join(GROUPS)}")  # fmt: skip
    if not by:
        raise ForerunError(f"name what to group by: {', '.join(GROUPS)}")
    plans = plans_of(tables)
    models = plans.assign(year_of=plans["year"], year=np.floor(plans["year"]).astype("Int64"))
    return Trends(tuple(by), _groups(models, list(by)), _growth(plans), _prices(plans), models)


def _groups(models: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """The number of models of each group, and the median of every quantity that its models state."""
    grouped = models.dropna(subset=by).groupby(by)
    medians = grouped[list(QUANTITIES)].median()
    medians.insert(0, "models", grouped.size())
    return medians[medians["models"] >= LEAST_MODELS].reset_index()


def _growth(plans: pd.DataFrame) -> pd.DataFrame:
    """Factors a year by a line through logarithms since 2012, of all models and of those at the frontier."""
    recent = plans[plans["year"] >= SINCE]
    # At the frontier: the largest tenth of the models of the year around it.
    compute = recent["total_flop"].to_numpy(dtype=float)
    year = recent["year"].to_numpy(dtype=float)
    front = np.array([
        np.isfinite(own) and own >= np.nanquantile(compute[np.abs(year - when) <= 0.5], 1 - FRONT)
        for own, when in zip(compute, year, strict=True)
    ], dtype=bool)  # fmt: skip
    lines = []
    for name, words in QUANTITIES.items():
        for which, chosen in (("all", np.ones(len(recent), dtype=bool)), ("front", front)):
            logs = np.log10(np.where(recent[name] > 0, recent[name], np.nan))
            good = chosen & np.isfinite(logs)
            if good.sum() < 10:
                continue
            slope = float(np.polyfit(year[good], logs[good], 1)[0])
            doubling = 12 * np.log10(2) / slope if slope > 0 else float("nan")
            lines.append({"quantity": words, "models": which, "n": int(good.sum()), "factor a year": 10**slope,
                          "doubles in, months": doubling})  # fmt: skip
    return pd.DataFrame(lines, columns=["quantity", "models", "n", "factor a year", "doubles in, months"])


def _prices(plans: pd.DataFrame) -> pd.DataFrame:
    """What an hour of a chip cost: as the rows state it (cost over chips and hours), and by the law of its age."""
    laws = fit_laws(plans)
    hourly = plans["cost_2023_usd"] / plans["training_hours"] / plans["chips"]
    prices = plans[["model", "year", "hardware", "chip_age"]].assign(
        chip_price_usd=price_of(plans, np.inf),
        stated_usd_per_hour=hourly,
        law_usd_per_hour=usd_per_chip_hour(plans, laws),
    )
    return prices[np.isfinite(log_of(hourly)) & prices["hardware"].notna()].sort_values("year", ignore_index=True)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {name: None if pd.isna(value) else (value.item() if hasattr(value, "item") else value)
         for name, value in row.items()}
        for row in table.to_dict(orient="records")
    ]  # fmt: skip
