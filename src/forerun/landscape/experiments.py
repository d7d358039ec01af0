"""The whole study: estimators by every split, the published experiments, what matters, the years after 2024, fills."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from forerun._util.extras import require
from forerun._util.parallel import side_by_side
from forerun.landscape import judge
from forerun.landscape.encode import ENCODINGS, Arrays, encoded
from forerun.landscape.explain import Explained, explain
from forerun.landscape.fill.filled import Options
from forerun.landscape.fill.judge import FillStudy, judge_fills
from forerun.landscape.fill.reading import ReadingStudy, judge_reading
from forerun.landscape.joined import METHODS, Fitted, fit, predict
from forerun.landscape.joined import TARGETS as QUANTITIES
from forerun.landscape.learn import ESTIMATORS, SPACES, tune
from forerun.landscape.plans import plans_of
from forerun.landscape.rows import TARGETS, Rows, rows_of
from forerun.landscape.schema import Tables
from forerun.landscape.trends import Trends, trends

Report = Callable[[int, int], None]
#: What the study uses beside PyTorch and pandas.
_PACKAGES = ("sklearn", "optuna", "shap", "lime", "umap", "plotly", "matplotlib", "pint")
#: The target of the published experiments.
PUBLISHED_TARGET = "cost_2023_usd"
#: The best R² that were published, by experiment, and the estimator that reached it.
PUBLISHED = {
    "standard scaler": (0.9482, "random forest"), "min-max": (0.9258, "gradient boosting"),
    "embeddings with clusters": (0.9226, "gradient boosting"), "PCA 15": (0.8858, "gradient boosting"),
    "noise": (0.9477, "gradient boosting"),
}  # fmt: skip
#: Models that are explained one by one, where the tables state their target.
SINGLE = ("GPT-3 175B (davinci)", "PaLM (540B)", "Llama 3.1-405B")
#: Years from which on models are predicted by the combined estimate, from earlier ones.
CUTS = (2024.0, 2025.0)
TRIALS = 12
#: Which of the later models are judged: all that a method predicts, or those that every method predicts.
ALL, PLANNED = "all that a method answers", "plans that physics answers"
#: The estimators for all other encodings and targets.
FEW = ("ridge", "lasso", "decision tree", "random forest", "gradient boosting")
#: Shares of the work, for progress: judging, tuning, costs, explaining, fills.
_WORK = {"judge": 55, "tune": 10, "costs": 5, "explain": 10, "fill": 20}


@dataclass(frozen=True)
class Later:
    """Models published from a year on, predicted from those before it."""

    cut: float
    fitted: Fitted
    models: pd.DataFrame  # plans with what they state
    predicted: pd.DataFrame  # columns (target, method, value | low | high)
    figures: pd.DataFrame  # target, rows, method, n, within 2, coverage, decades


@dataclass(frozen=True)
class Study:
    """Everything that the document shows."""

    tables: Tables
    compared: pd.DataFrame  # target, encoding, protocol, estimator and the figures of it
    tuned: pd.DataFrame
    costs: pd.DataFrame
    explained: Explained
    later: list[Later]
    trends: Trends
    fills: FillStudy
    fitted: Fitted
    processor_s: float  # of this process and those that it started
    reading: ReadingStudy | None = None  # a language model beside the rules that read notes


class _Progress:
    """Adds up the shares of several stages for a bar of 100."""

    def __init__(self, report: Report | None) -> None:
        self.report, self.before = report, 0.0

    def part(self, stage: str, share: float) -> None:
        if self.report:
            self.report(round(self.before + _WORK[stage] * share), sum(_WORK.values()))

    def done(self, stage: str) -> None:
        self.part(stage, 1.0)
        self.before += _WORK[stage]


def run(tables: Tables, report: Report | None = None, *, trials: int = TRIALS, reader: Options | None = None) -> Study:
    """The study of the tables; some minutes. `reader` may name a language model to score."""
    began = _processor_s()
    progress = _Progress(report)
    require("the landscape study", *_PACKAGES, extra="landscape")
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # forked children must not wait for threads of this process
        compared = _compared(tables, lambda share: progress.part("judge", share))
        progress.done("judge")
        tuned = _tuned(tables, trials)
        progress.done("tune")
        costs = _costs(tables)
        progress.done("costs")
        whole = rows_of(tables, PUBLISHED_TARGET, multiplied=False)
        stated = set(whole.model)
        explained = explain(whole, [name for name in SINGLE if name in stated])
        progress.done("explain")
        plans = plans_of(tables)
        later = [_later(plans, cut) for cut in CUTS if (plans["year"] >= cut).any()]
        fills = judge_fills(tables, options=Options(progress=lambda _, share: progress.part("fill", share)))
        progress.done("fill")
        reading = judge_reading(tables, reader) if reader and reader.llm_url else None
    return Study(tables, compared, tuned, costs, explained, later, trends(tables), fills, fit(plans),
                 _processor_s() - began, reading)  # fmt: skip


def _processor_s() -> float:
    """Seconds of processor time so far: a busy machine stretches the clock, not these."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def questions() -> list[tuple[str, str, str, str]]:
    """(target, encoding, protocol, estimator) of every comparison: cost by every encoding, the rest by the first."""
    first = next(iter(ENCODINGS))
    of_cost = [
        (PUBLISHED_TARGET, encoding, protocol, name)
        for encoding in ENCODINGS for protocol in judge.PROTOCOLS
        for name in (ESTIMATORS if encoding == first else FEW)
    ]  # fmt: skip
    return of_cost + [
        (target, first, protocol, name)
        for target in TARGETS if target != PUBLISHED_TARGET
        for protocol in judge.PROTOCOLS for name in FEW
    ]  # fmt: skip


def parts_of(rows: Rows, encoding: str, protocol: str) -> tuple[list[Arrays], np.ndarray | None]:
    """The encoded splits of a protocol, and the years of the training rows where it is by time."""
    splits = [s for s in judge.splits(protocol, rows.model, rows.organisation, rows.year) if len(s[0]) and len(s[1])]
    years = rows.year[splits[0][0]] if protocol == "time" and splits else None
    return [encoded(rows, train, test, ENCODINGS[encoding]) for train, test in splits], years


def _compared(tables: Tables, report: Callable[[float], None]) -> pd.DataFrame:
    """Figures of every comparison; rows are encoded here and estimators fitted side by side."""
    combinations = questions()
    keys = list(dict.fromkeys(combination[:3] for combination in combinations))
    rows = {(target, many): rows_of(tables, target, multiplied=many) for target in TARGETS for many in (False, True)}
    ready = {}
    for done, (target, encoding, protocol) in enumerate(keys):
        ready[target, encoding, protocol] = parts_of(rows[target, protocol == "published"], encoding, protocol)
        report(0.2 * (done + 1) / len(keys))

    def figures(combination: tuple[str, str, str, str]) -> dict[str, float] | None:
        parts, years = ready[combination[:3]]
        return judge.judge(parts, combination[3], {}, years) if parts else None

    # Long ones first, so that the processes end together.
    order = sorted(range(len(combinations)), key=lambda at: -_length(combinations[at], ready))
    results: dict[int, dict[str, float]] = {}
    for done, (at, values) in enumerate(
        zip(order, side_by_side(figures, [combinations[at] for at in order]), strict=True)
    ):
        report(0.2 + 0.8 * (done + 1) / len(combinations))
        if values is not None:
            results[at] = values
    names = ("target", "encoding", "protocol", "estimator")
    return pd.DataFrame([{**dict(zip(names, combinations[at], strict=True)), **results[at]} for at in sorted(results)])


def _length(combination: tuple[str, str, str, str], ready: dict[Any, tuple[list[Arrays], Any]]) -> float:
    """About how long a comparison takes: rows times the estimator's usual cost."""
    slow = {"stacked": 8, "random forest": 3, "gradient boosting": 2, "histogram boosting": 3, "SVR": 1}
    return slow.get(combination[3], 0.2) * sum(len(part.train) for part in ready[combination[:3]][0])


def _tuned(tables: Tables, trials: int) -> pd.DataFrame:
    """Settings by Optuna on validation rows before 2024, judged once on later ones."""
    encoding = next(iter(ENCODINGS.values()))
    lines = []
    for target in ("cost_2023_usd", "training_hours"):
        rows = rows_of(tables, target, multiplied=False)
        train, test = next(judge.splits("time", rows.model, rows.organisation, rows.year))
        if not len(train) or not len(test):
            continue
        part = encoded(rows, train, test, encoding)
        names = list(SPACES)
        settings = list(side_by_side(lambda name: tune(rows, train, name, encoding, trials), names))  # noqa: B023
        for name, chosen in zip(names, settings, strict=True):
            figures = judge.judge([part], name, chosen, rows.year[train])
            words = ", ".join(f"{key} {value:.3g}" for key, value in chosen.items()) or "the defaults"
            lines.append({"target": target, "estimator": name, "settings": words, **figures})
    return pd.DataFrame(lines)


def _costs(tables: Tables) -> pd.DataFrame:
    """Time and memory of every estimator on the rows of the published split, measured one after another."""
    parts, _ = parts_of(rows_of(tables, PUBLISHED_TARGET, multiplied=True), next(iter(ENCODINGS)), "published")
    return pd.DataFrame([{"estimator": name, **judge.costs(parts[0], name, {})} for name in ESTIMATORS])


def _later(plans: pd.DataFrame, cut: float) -> Later:
    """The combined estimate for models published from a year on: on all that state a target, and on complete plans."""
    fitted = fit(plans, cut)
    models = plans[plans["year"] >= cut]
    predicted = predict(fitted, models)
    lines = []
    for target in QUANTITIES:
        stated = models[target].notna()
        planned = stated & predicted[target, "physics", "value"].notna()
        for words, chosen in ((ALL, stated), (PLANNED, planned)):
            for method in METHODS:
                judged = chosen & predicted[target, method, "value"].notna()
                if judged.any():
                    lines.append({"target": target, "rows": words, "method": method,
                                  **_later_figures(models.loc[judged, target], predicted.loc[judged, (target, method)]),
                                  "stated": int(stated.sum())})  # fmt: skip
    return Later(cut, fitted, models, predicted, pd.DataFrame(lines))


def _later_figures(known: pd.Series, predicted: pd.DataFrame) -> dict[str, float]:
    off = np.abs(np.log10(predicted["value"] / known))
    inside = (predicted["low"] <= known) & (known <= predicted["high"])
    return {
        "n": len(known), "within 2": float((off <= np.log10(2)).mean()), "coverage": float(inside.mean()),
        "decades": float(off.mean()), "median decades": float(off.median()),
        "width": float(np.log10(predicted["high"] / predicted["value"]).mean()),
    }  # fmt: skip
