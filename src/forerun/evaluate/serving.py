"""Published serving runs, predicted with their model or their device held out.

What is fitted (serving_fit.py) is fitted to the other models, or the other devices, of the same set. The baselines know
the same runs: the roofline of weights, caches and logits, and that times one constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from forerun.data.store import Store
from forerun.evaluate import serving_requests
from forerun.evaluate.results import Section
from forerun.evaluate.serving_fit import NAMES, fit, predicted
from forerun.evaluate.serving_rows import NO_ROOM, runs

#: Terms of the energy of a token.
ENERGY = ("waiting", "working", "work")
#: Columns of the table that are shares.
SHARE_COLUMNS = ("median error", "MAPE", "one ratio", "roofline", "in 90 % interval", "target")
#: With fewer other units than this, their held-out errors say too little: half to twice is assumed.
_UNITS = 3
_ASSUMED = (0.5, 2.0)


@dataclass(frozen=True)
class Study:
    """One question asked of a set: which column is held out, and the error that it was given as a target."""

    name: str
    by: str
    target: float
    names: tuple[str, ...] = NAMES
    ttft: float | None = None  # and for the median error of TTFT, where requests are simulated


STUDIES = (
    Study("serving_end_to_end", "model", 0.15, ttft=0.3), Study("serving_end_to_end", "device", 0.20, ttft=0.3),
    Study("splitwise", "model", 0.15), Study("llm_inference_bench", "device", 0.25),
    Study("ml_energy", "model", 0.18, ENERGY),
)  # fmt: skip


def held_out(rows: pd.DataFrame, unit: pd.Series, names: tuple[str, ...] = NAMES) -> pd.DataFrame:
    """The runs with what is predicted by factors fitted to the other units, and by one ratio of theirs."""
    rows, parts = rows.assign(unit=unit), []
    for one in sorted(rows["unit"].unique()):
        own, rest = rows[rows["unit"] == one], rows[rows["unit"] != one]
        if rest.empty:
            continue
        found = fit(rest, names)
        ratio = np.exp(np.log(rest["measured"] / rest["roofline"]).groupby(rest["target"]).median())
        parts.append(own.assign(law=predicted(own, found, names), one_ratio=own["roofline"] * own["target"].map(ratio)))
    found = pd.concat(parts, ignore_index=True)
    return with_intervals(found.assign(log_ratio=np.log(found["measured"] / found["law"])))


def with_intervals(rows: pd.DataFrame) -> pd.DataFrame:
    """The runs with the 90 % interval that the held-out errors of the other units give each."""
    ends = pd.DataFrame(index=rows.index, columns=["low", "high"], dtype=float)
    for (one, _), own in rows.groupby(["unit", "target"]):
        others = rows[(rows["unit"] != one) & (rows["target"] == own["target"].iloc[0])]
        known = others["unit"].nunique() >= _UNITS
        ends.loc[own.index, ["low", "high"]] = quantiles(others) if known else np.log(_ASSUMED)
    return rows.assign(low=np.exp(ends["low"]), high=np.exp(ends["high"]))


def quantiles(rows: pd.DataFrame) -> tuple[float, float]:
    """The 5th and the 95th percentile of logarithmic errors, every unit weighing the same."""
    ordered = rows.sort_values("log_ratio")
    share = (1 / ordered.groupby("unit")["log_ratio"].transform("size")).cumsum()
    place = np.minimum(np.searchsorted(share / share.iloc[-1], [0.05, 0.95]), len(ordered) - 1)
    low, high = ordered["log_ratio"].to_numpy()[place]
    return float(low), float(high)


def _line(study: Study, target: str, rows: pd.DataFrame) -> dict[str, object]:
    def miss(column: str) -> pd.Series:
        """Errors; those of a throughput, which goes with one over the time."""
        ratio = rows[column] / rows["measured"]
        return (1 / ratio - 1).abs() if target.startswith("throughput") else (ratio - 1).abs()

    inside = rows["log_ratio"].between(np.log(rows["low"]), np.log(rows["high"]))
    return {
        "set": study.name, "held out": study.by, "what": target, "n": len(rows), "units": rows["unit"].nunique(),
        "median error": float(miss("law").median()), "MAPE": float(miss("law").mean()), "target": study.target,
        "one ratio": float(miss("one_ratio").mean()), "roofline": float(miss("roofline").mean()),
        "in 90 % interval": float(inside.mean()), "width": float((rows["high"] / rows["low"]).median()),
    }  # fmt: skip


def judged(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The table of all studies, from the runs of every set."""
    lines = []
    for study in STUDIES:
        rows = tables[study.name]
        unit = rows["device"] if study.by == "device" else rows["unit"]
        found = held_out(rows, unit, study.names)
        lines += [_line(study, str(target), one) for target, one in found.groupby("target")]
        if study.ttft is not None:
            found = with_intervals(serving_requests.held_out(rows, unit))
            asked = {"TTFT": study.ttft}
            lines += [
                _line(replace(study, target=asked.get(target, study.target)), target, one)
                for target, one in found.groupby("target")
            ]
    return pd.DataFrame(lines)


def read(store: Store, progress: Callable[[str], None] = lambda _: None) -> tuple[dict[str, pd.DataFrame], str]:
    """The runs of every set, and sentences on those that were left out."""
    tables, said, refused = {}, [], 0
    for name in dict.fromkeys(study.name for study in STUDIES):
        progress(name)
        tables[name], left = runs(store, name)
        refused += left.get(NO_ROOM, 0)
        if left:
            said.append(f"{name}: " + ", ".join(f"{count:,} ({reason})" for reason, count in sorted(left.items())))
    kinds = [rows["target"].str.split(",").str[0] for rows in tables.values()]  # several numbers of a run
    asked = refused + sum(int(kind.value_counts().max()) for kind in kinds)
    fits = f"All of these runs ran; of {asked:,}, {refused:,} ({refused / asked:.1%}) are said not to fit"
    return tables, f"{'; '.join(said)}. {fits}"


def section(store: Store) -> Section:
    """The table, with what was left out below it."""
    tables, left = read(store)
    return Section("serving", "Published serving runs, held out", judged(tables), f"{WORDS} Left out: {left}.")


WORDS = (
    "Runs as published, each predicted by factors that were fitted to the other models, or devices, of its set. `MAPE` "
    "is the mean error, `target` the most that was asked for (of TTFT, for the median); `one ratio` is the roofline of "
    "weights, caches and logits, for TTFT of the prompt's matmuls, times one constant of the other runs, `roofline` "
    "that alone (both mean errors). Intervals come from the held-out errors of the other units, every unit weighing "
    "the same; `width` is their upper over their lower end."
)
