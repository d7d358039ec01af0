"""Cost, time and power by physics, by a learned model, and by both combined, each with an interval; stored as
numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forerun.errors import ForerunError
from forerun.landscape.intervals import conformal
from forerun.landscape.lines import Line, fit_line
from forerun.landscape.physics import Laws, fit_laws, least_hours, log_of, physics

TARGETS = ("cost_2023_usd", "training_hours", "power_w")
METHODS = ("physics", "learned", "joined")
#: The first year whose models are predicted from earlier ones, for model selection and errors.
FIRST_YEAR = 2018
#: Years of such errors that an interval is based on: the newest ones, since the field changes.
WINDOW = 3
#: The least half-width of an interval: Epoch's power is its own estimate, and a law that recovers it is no better than
#: that.
LEAST_WIDTH = 0.1
_RIDGE = 1.0
#: Weights of the learned model in the combined logarithm; the best on models predicted from earlier ones is taken.
_SHARES = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
_LOGS = {
    "log_flop": "flop", "log_total": "total_flop", "log_parameters": "parameters", "log_tokens": "tokens",
    "log_chips": "chips", "log_peak": "peak_flops", "log_tdp": "tdp_w", "log_price": "chip_price_usd",
}  # fmt: skip
_PLAIN = ("year", "chip_age", "tpu", "language", "tuned")
_ABSENT = ("chips", "peak_flops", "parameters")
FEATURES = (*_LOGS, *_PLAIN, *(f"no_{name}" for name in _ABSENT))
FORMAT = 1
SHIPPED = Path(__file__).parent / "shipped" / "estimate.json"


def plan_features(plans: pd.DataFrame) -> pd.DataFrame:
    """The features of a plan: logarithms, the year, and indicators of missing values."""
    features = {name: log_of(plans[column]) for name, column in _LOGS.items()}
    features |= {name: plans[name].to_numpy(dtype=float) for name in _PLAIN}
    features |= {f"no_{name}": plans[name].isna().to_numpy(dtype=float) for name in _ABSENT}
    return pd.DataFrame(features, index=plans.index)


@dataclass(frozen=True)
class Fitted:
    """Laws, lines and errors from models published before a year."""

    laws: Laws
    lines: dict[str, Line]
    shares: dict[str, float]  # weight of the learned model in the combined logarithm
    widths: dict[str, dict[str, float]]  # half an interval as a logarithm, by target and method
    rows: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        widths = {of: {name: round(width, 4) for name, width in by_name.items()} for of, by_name in self.widths.items()}
        return {
            "format": FORMAT, "laws": self.laws.to_dict(), "lines": {of: x.to_dict() for of, x in self.lines.items()},
            "shares": self.shares, "widths": widths, "rows": self.rows,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Fitted:
        """What `to_dict` gave."""
        lines = {of: Line.from_dict(x) for of, x in content["lines"].items()}
        return cls(Laws.from_dict(content["laws"]), lines, content["shares"], content["widths"], content["rows"])


def fit(plans: pd.DataFrame, before: float = np.inf) -> Fitted:
    """Everything from models published before a year; shares and intervals from predicting each year by the earlier."""
    known = plans[plans["year"] < before]
    laws, lines = _fit_parts(known, before)
    last = int(np.ceil(min(before, known["year"].max() + 1)))
    errors = {target: _errors(known, target, range(FIRST_YEAR, last)) for target in TARGETS}
    shares = {target: _share(errors_of) for target, errors_of in errors.items()}
    widths = {target: _widths(errors[target], shares[target]) for target in TARGETS}
    rows = {target: int(_usable(known, target).sum()) for target in TARGETS}
    return Fitted(laws, lines, shares, widths, rows)


def predict(fitted: Fitted, plans: pd.DataFrame) -> pd.DataFrame:
    """Columns (target, method, value | low | high), NaN where a method does not predict.

    No time is shorter than the chips' peaks allow. The learned model is clipped to that before it is combined: far from
    the published models its line gives months on a single chip for what thousands of chips take months for.
    """
    by_physics = physics(plans, fitted.laws)
    seen = plan_features(plans)
    least = log_of(least_hours(plans))
    out: dict[tuple[str, str, str], np.ndarray] = {}
    for target in TARGETS:
        law = log_of(by_physics[target])
        line = np.where(_answerable(plans, target), fitted.lines[target].predict(seen), np.nan)
        bound = np.where(np.isfinite(least), least, -np.inf) if target == "training_hours" else -np.inf
        line = np.maximum(line, bound)
        for method, logs in (("physics", law), ("learned", line), ("joined", _join(law, line, fitted.shares[target]))):
            alone = "learned" if method == "joined" else method
            wide = np.where(np.isfinite(law), fitted.widths[target][method], fitted.widths[target][alone])
            for part, moved in (("value", 0.0), ("low", -1.0), ("high", 1.0)):
                out[target, method, part] = np.exp(np.maximum(logs + moved * wide, bound))
    return pd.DataFrame(out, index=plans.index).sort_index(axis=1)


def save(fitted: Fitted, path: Path) -> None:
    """Writes the numbers as JSON, all or nothing."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(fitted.to_dict(), indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def load(path: Path) -> Fitted:
    """What `save` wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ForerunError(
                f"{path.name} is of another version; write it again: forerun landscape experiments --numbers"
            )
        return Fitted.from_dict(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ForerunError(
            f"{path} does not hold numbers that forerun landscape experiments --numbers wrote"
        ) from error


def shipped() -> Fitted:
    """The shipped coefficients."""
    return load(SHIPPED)


def _fit_parts(known: pd.DataFrame, before: float) -> tuple[Laws, dict[str, Line]]:
    seen = plan_features(known)
    lines = {}
    for target in TARGETS:
        usable = _usable(known, target)
        lines[target] = fit_line(seen[usable], log_of(known.loc[usable, target]), FEATURES, _RIDGE)
    return fit_laws(known, before), lines


def _usable(plans: pd.DataFrame, target: str) -> pd.Series:
    """Rows that state the target, and that a plan can be made of."""
    return plans[target].notna() & _answerable(plans, target)


def _answerable(plans: pd.DataFrame, target: str) -> pd.Series:
    """Rows whose plan is complete enough: the arithmetic or, for power, the chips."""
    return plans["chips"].notna() if target == "power_w" else plans["flop"].notna()


def _errors(known: pd.DataFrame, target: str, years: Iterable[int]) -> pd.DataFrame:
    """Log errors of physics and of the learned model, for models of each year predicted from earlier ones."""
    parts = []
    for year in years:
        earlier = known[known["year"] < year]
        judged = known[(known["year"] >= year) & (known["year"] < year + 1) & _usable(known, target)]
        if judged.empty or _usable(earlier, target).sum() < len(FEATURES):
            continue
        laws, lines = _fit_parts(earlier, year)
        truth = log_of(judged[target])
        parts.append(pd.DataFrame({
            "year": year, "physics": truth - log_of(physics(judged, laws)[target]),
            "learned": truth - lines[target].predict(plan_features(judged)),
        }))  # fmt: skip
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["year", "physics", "learned"])


def _join(law: np.ndarray, line: np.ndarray, share: float) -> np.ndarray:
    """A weighted mean of both logarithms; the line alone where there is no law."""
    return np.where(np.isfinite(law), (1 - share) * law + share * line, line)


def _share(errors: pd.DataFrame) -> float:
    """The weight with the least mean error where both predict; a half where there are no errors."""
    both = errors.dropna()
    if both.empty:
        return 0.5
    mean = [float(np.abs((1 - s) * both["physics"] + s * both["learned"]).mean()) for s in _SHARES]
    return _SHARES[int(np.argmin(mean))]


def _widths(errors: pd.DataFrame, share: float) -> dict[str, float]:
    """The 90 % quantile of the newest errors, by method, with the correction for few of them."""
    newest = errors[errors["year"] > errors["year"].max() - WINDOW]
    joined = (1 - share) * newest["physics"] + share * newest["learned"]
    return {
        "physics": _quantile(newest["physics"]), "learned": _quantile(newest["learned"]), "joined": _quantile(joined),
    }  # fmt: skip


def _quantile(errors: pd.Series) -> float:
    """Half an interval from errors; a factor of 10 where there are none."""
    known = errors.dropna().to_numpy(dtype=float)
    return max(conformal(known), LEAST_WIDTH) if len(known) else float(np.log(10))
