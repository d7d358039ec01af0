"""Cost, time and power of a training by arithmetic: FLOP over the chips' peak at a usual utilisation, chip hours at
their price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from forerun.landscape.chip_prices import nearest_price
from forerun.landscape.lines import Line, fit_line

SECONDS_PER_HOUR = 3600.0
#: The fewest rows that a law is fitted to.
FEW = 3
#: The defaults with fewer rows.
USUAL_UTILISATION = 0.35


@dataclass(frozen=True)
class Laws:
    """Laws of chips at work; each is fitted to the published rows that state its quantity."""

    utilisation: float  # model FLOP over peak FLOP, the median of the rows that state it
    before: float  # fitted to earlier years only
    hourly: Line  # log (USD of a chip hour over the chip's price) from its age
    usd_per_flop: Line  # log USD per FLOP by year, where no chip is named
    watts_per_tdp: Line  # log watts of a server and its building for a watt of its chips' TDP, by year
    rows: dict[str, int]  # how many rows each law is based on

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "utilisation": round(self.utilisation, 5), "before": None if np.isinf(self.before) else self.before,
            "hourly": self.hourly.to_dict(), "usd_per_flop": self.usd_per_flop.to_dict(),
            "watts_per_tdp": self.watts_per_tdp.to_dict(), "rows": self.rows,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Laws:
        """What `to_dict` gave."""
        lines = {name: Line.from_dict(content[name]) for name in ("hourly", "usd_per_flop", "watts_per_tdp")}
        return cls(**{**content, **lines, "before": np.inf if content["before"] is None else content["before"]})


_HOURLY_FEATURES = ("chip_age", "tpu")


def stated_utilisation(plans: pd.DataFrame) -> pd.Series:
    """Model FLOP utilisation as stated; a hardware utilisation (with recomputation) times the usual ratio of both."""
    both = (plans["mfu"] / plans["hfu"]).dropna()
    return plans["mfu"].fillna(plans["hfu"] * (both.median() if len(both) else 1.0))


def fit_laws(plans: pd.DataFrame, before: float = np.inf) -> Laws:
    """The laws from plans (`plans_of`) that were published before a year."""
    known = plans[plans["year"] < before]
    stated = stated_utilisation(known).dropna()
    hourly_usd = known["cost_2023_usd"] / known["training_hours"] / known["chips"]
    rate = log_of(hourly_usd / price_of(known, before))
    per_flop = log_of(known["cost_2023_usd"] / known["total_flop"])
    draw = log_of(known["power_w"] / known["chips"] / known["tdp_w"])
    return Laws(
        utilisation=float(stated.median()) if len(stated) >= FEW else USUAL_UTILISATION, before=before,
        hourly=fit_line(known, rate, _HOURLY_FEATURES, ridge=1.0),
        usd_per_flop=fit_line(known, per_flop, ("year",), ridge=1.0),
        watts_per_tdp=fit_line(known, draw, ("year",), ridge=1.0),
        rows={
            "utilisation": len(stated), "price of a chip hour": int(np.isfinite(rate).sum()),
            "USD per FLOP": int(np.isfinite(per_flop).sum()),
            "power": int(np.isfinite(draw).sum()),
        },
    )  # fmt: skip


def price_of(plans: pd.DataFrame, before: float) -> pd.Series:
    """The price of a chip as stated or, where it is not, as of the chips nearest to it."""
    return plans["chip_price_usd"].fillna(nearest_price(plans, before))


def usd_per_chip_hour(plans: pd.DataFrame, laws: Laws) -> pd.Series:
    """What an hour of the chip cost its owner at the time, 2023 USD: the chip's price, written off with its age."""
    return price_of(plans, laws.before) * np.exp(laws.hourly.predict(plans))


def chip_hours(flop: pd.Series, plans: pd.DataFrame, laws: Laws) -> pd.Series:
    """Chip time: FLOP over the peak at the usual utilisation."""
    return flop / (plans["peak_flops"] * laws.utilisation) / SECONDS_PER_HOUR


def least_chip_hours(plans: pd.DataFrame) -> pd.Series:
    """FLOP over the full peak: no training takes less."""
    return plans["flop"] / plans["peak_flops"] / SECONDS_PER_HOUR


def least_hours(plans: pd.DataFrame) -> pd.Series:
    """The same with all chips at once; NaN where their number is not known."""
    return least_chip_hours(plans) / plans["chips"]


def physics(plans: pd.DataFrame, laws: Laws) -> pd.DataFrame:
    """Hours, USD and watts by arithmetic; NaN where a plan lacks an input."""
    cost = chip_hours(plans["total_flop"], plans, laws) * usd_per_chip_hour(plans, laws)
    trend = plans["total_flop"] * np.exp(laws.usd_per_flop.predict(plans))
    return pd.DataFrame({
        "cost_2023_usd": cost.fillna(trend), "training_hours": chip_hours(plans["flop"], plans, laws) / plans["chips"],
        "power_w": plans["chips"] * plans["tdp_w"] * np.exp(laws.watts_per_tdp.predict(plans)),
    })  # fmt: skip


def log_of(values: Any) -> np.ndarray:
    """Natural logarithms; NaN where a value is unknown or not positive."""
    numbers = np.asarray(values, dtype=float)
    return np.log(np.where(numbers > 0, numbers, np.nan))
