"""Fits the law of tabular models to measured rows, and judges it with models, and then whole kinds, held out.

A row is predicted from the name of its model alone, as a user asks. Only rows of older sweeps, whose names do not say
how many rows a model was fitted to, are predicted as fitted estimators are: with the nodes of their trees.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forerun._util.extras import needed
from forerun.data.intake import model_row
from forerun.data.store import Store
from forerun.device import Device, load_device
from forerun.errors import ForerunError
from forerun.frontends.tabular import kinds
from forerun.measure.core.rows import merge, read
from forerun.predictors.laws import tabular as law
from forerun.predictors.laws import tabular_work
from forerun.predictors.laws.conformal import Calibration, calibrate
from forerun.predictors.laws.tabular import TabularLaw

SOURCE = "tabular"
TARGETS = ("latency_ms", "memory_mb")
#: Columns of the table that are shares.
SHARE_COLUMNS = ("mape", "median", "one ratio", "kind held out, median", "interval_coverage", "repeats differ by")
#: Facts of fitted models that rows keep.
_FACTS = ("nodes", "trees", "mean_depth", "max_depth", "iterations", "support_vectors")
_LEAST_MB = 16.0  # of memory that a call adds; less is what allocators round
_EFFICIENCIES = [n / 20 for n in range(0, 21)]
#: A kind that is held out takes the costs of the first of these that was measured.
_RELATIVES = {
    "decision_tree": ("random_forest", "extra_trees"), "random_forest": ("extra_trees", "decision_tree"),
    "extra_trees": ("random_forest", "decision_tree"),
    "gradient_boosting": ("random_forest",), "hist_gradient_boosting": ("lightgbm", "xgboost"),
    "xgboost": ("lightgbm", "hist_gradient_boosting"), "lightgbm": ("xgboost", "hist_gradient_boosting"),
    "linear_regression": ("ridge",), "ridge": ("linear_regression",), "logistic_regression": ("ridge",),
    "knn": ("svm",), "svm": ("knn",), "mlp": ("logistic_regression",),
}  # fmt: skip
#: What a unit of work usually costs, in nanoseconds: assumed, and of the weight of a hundredth of a row each, so that a
#: kind with few rows gets costs of the right order where they do not tell.
_USUAL = {
    "fit": 1e6, "tree": 5e4, "node": 1e3, "sorted": 2, "tried": 2, "node column": 100, "tree row": 10, "table": 0.3,
    "binned": 3, "summed": 1, "moved": 5, "split": 2, "column": 1e4, "row": 30, "steps": 0.05, "losses": 20,
    "step": 1e5, "squares": 0.02, "solved": 1, "columns": 10, "product": 0.5, "kernel": 5, "uncached": 1,
    "step layer": 5e4, "step weight": 1, "units": 0.1, "started": 1e5, "started tree": 2e3, "started node": 1e3,
    "call": 3e5, "visit": 5, "cold visit": 0.5, "output": 3, "found": 100, "distances": 0.02, "compared": 2, "seen": 1,
    "looked": 2, "descended": 10, "layer": 1e4,
}  # fmt: skip
_USUAL_GEMM = 0.02  # nanoseconds of a floating-point operation
_USUAL_WEIGHT = 0.1


@dataclass(frozen=True)
class Measured:
    """One row: what was asked, the model as its name says it and as it was fitted, what was measured."""

    asked: kinds.Tabular
    fitted: kinds.Tabular
    mode: str
    rows: int
    device: Device
    latency_ms: float
    memory_mb: float
    case_key: str

    @property
    def group(self) -> str:
        return law.group_of(self.mode, self.asked.kind)

    def value(self, target: str) -> float:
        return float(getattr(self, target))


def measured(store: Store, files: Iterable[str | Path] = ()) -> list[Measured]:
    """The rows of tabular models in the store and in files of a sweep; raises where there are none."""
    known = store.read("models", filters=[("source", "==", SOURCE)])
    rows = [dict(row) for row in known.to_dict("records")]
    for file in files:
        rows += [model_row(row, "own") for row in merge(read(file)) if row.get("kind") == "model"]
    cases = [case for row in rows if row["status"] == "ok" and (case := _case(row)) is not None]
    if not cases:
        raise ForerunError("the store has no tabular models: forerun sweep sweeps/tabular.yaml")
    return cases


def on_threads(device: Device, threads: int) -> Device:
    """A virtual machine of two cores of which a case had some."""
    share = threads / law.MEASURED_THREADS
    if share >= 1:
        return device
    bandwidth = device.bandwidth_gbs and min(device.bandwidth_gbs, threads * law.CORE_GBS)
    peaks = {dtype: peak * share for dtype, peak in device.peak_tflops.items()}
    return dataclasses.replace(device, sm_count=float(threads), peak_tflops=peaks, bandwidth_gbs=bandwidth)


def fitted(cases: Sequence[Measured]) -> TabularLaw:
    """The law with the least relative error of the rows; its intervals come from held-out rows (`with_intervals`)."""
    costs: dict[str, dict[str, float]] = {}
    efficiency: dict[str, float] = {}
    memory: dict[str, dict[str, float]] = {}
    largest: dict[str, float] = {}
    on = tuple(sorted({case.device.id for case in cases}))
    for group, own in _grouped(cases):
        costs[group], efficiency[group] = _costs(own, on)
        memory[group] = _shares(own)
        largest[group] = max(law.table_size(case.asked, case.mode, case.rows) for case in own)
    return TabularLaw(costs, efficiency, memory, largest, on, rows=len(cases))


def held_out(cases: Sequence[Measured], folds: int = 5) -> pd.DataFrame:
    """A line for every row and quantity: predicted by a law that was fitted without its model, by the same law times
    one ratio alone, and with no row of its kind."""
    names = sorted({case.asked.name for case in cases})
    fold = {name: place % folds for place, name in enumerate(np.random.default_rng(0).permutation(names))}
    laws = [fitted([case for case in cases if fold[case.asked.name] != one]) for one in range(folds)]
    whole = fitted(cases)
    ratios = [_ratios([case for case in cases if fold[case.asked.name] != one]) for one in range(folds)]
    lines = []
    for case in cases:
        part = fold[case.asked.name]
        used = laws[part]
        if case.group not in used.costs:
            continue
        for target in TARGETS:
            real = case.value(target)
            if not np.isfinite(real) or real <= 0:
                continue
            value = _predicted(used, case, target)
            lines.append({
                "target": target, "mode": case.mode, "kind": case.asked.kind, "group": f"{target}/{case.group}",
                "name": case.asked.name, "measured": real, "law": value, "error": abs(value / real - 1),
                "score": np.log(real / value), "case_key": case.case_key,
                "one ratio": abs(_simple(case, target) * ratios[part].get(f"{target}/{case.group}", np.nan) / real - 1),
                "kind held out": abs(_without_kind(whole, case, target) / real - 1),
            })  # fmt: skip
    return pd.DataFrame(lines)


def with_intervals(made: TabularLaw, lines: pd.DataFrame) -> TabularLaw:
    """The law with the intervals that held-out errors call for."""
    return dataclasses.replace(made, calibration=_calibrated(lines).to_dict())


def table(lines: pd.DataFrame) -> pd.DataFrame:
    """Errors by quantity and mode, then of the time of every kind."""
    lines = lines.assign(**_intervals(lines))
    out = []
    for (target, mode), own in lines.groupby(["target", "mode"], sort=False):
        out.append(_line(f"{target}, {mode}", own))
    for (mode, kind), own in lines[lines["target"] == "latency_ms"].groupby(["mode", "kind"]):
        out.append(_line(f"latency_ms, {mode}, {kind}", own))
    return pd.DataFrame(out)


def shapes(cases: Sequence[Measured]) -> pd.DataFrame:
    """Nodes of fitted trees beside those that are expected from the name."""
    lines = []
    for case in cases:
        if case.fitted.facts and "nodes" in case.fitted.facts and case.asked.facts is None:
            there, here = tabular_work.trees(case.fitted), tabular_work.trees(case.asked)
            numbers = not case.asked.settings.get("classes", 0)
            lines.append({"kind": case.asked.kind, "numbers": numbers, "name": case.asked.name,
                          "leaves": there.leaves, "expected": here.leaves, "path": there.path})  # fmt: skip
    return pd.DataFrame(lines).drop_duplicates("name") if lines else pd.DataFrame(lines)


def _case(row: dict[str, Any]) -> Measured | None:
    """A row as a case; None where nobody knows its device."""
    case, extra = _read(row["case"]), _read(row["extra"])
    try:
        model, device = kinds.parse(row["model"]), load_device(row["device"])
    except ForerunError:
        return None
    facts = {name: float(extra[name]) for name in _FACTS if extra.get(name) is not None}
    fitted_ = kinds.Tabular(model.kind, model.settings, facts or None)
    started, used = row.get("weights_mb"), row.get("memory_mb")
    grown = float(used) - float(started) if used is not None and started is not None else np.nan
    told = "rows=" in row["model"]
    return Measured(
        asked=model if told else fitted_, fitted=fitted_, mode=row["mode"], rows=int(row["batch"]),
        device=on_threads(device, int(case.get("threads") or law.MEASURED_THREADS)),
        latency_ms=float(row["latency_ms"]), memory_mb=grown if told and grown > _LEAST_MB else np.nan,
        case_key=row["case_key"],
    )  # fmt: skip


def _read(given: Any) -> dict[str, Any]:
    return json.loads(given) if isinstance(given, str) else dict(given or {})


def _grouped(cases: Sequence[Measured]) -> list[tuple[str, list[Measured]]]:
    found: dict[str, list[Measured]] = {}
    for case in cases:
        found.setdefault(case.group, []).append(case)
    return sorted(found.items())


def _costs(own: Sequence[Measured], on: tuple[str, ...]) -> tuple[dict[str, float], float]:
    """The costs of each unit of work and the efficiency of a thread with the least error."""
    real = 1e6 * np.array([case.latency_ms for case in own])
    names = sorted({key for case in own for key in _amounts(case)})
    best: tuple[float, dict[str, float], float] | None = None
    usual = np.array([_USUAL_GEMM if sort == "gemm" else _USUAL[name] for sort, name in names])
    several = len({law.threads_of(case.device) for case in own}) > 1
    for each in _EFFICIENCIES if several else [1.0]:
        trial = TabularLaw(efficiency={own[0].group: each}, measured_on=on)
        terms = np.array([_terms(trial, case, names) for case in own])
        found = _least_error(terms, real, usual)
        off = float(np.mean(np.abs(terms @ found / real - 1)))
        if best is None or off < best[0]:
            best = off, {f"{sort} {name}": float(c) for (sort, name), c in zip(names, found, strict=True) if c}, each
    assert best is not None
    return best[1], best[2]


def _amounts(case: Measured) -> tabular_work.Amounts:
    return law.amounts(case.fitted, case.mode, case.rows, law.threads_of(case.device))


def _terms(trial: TabularLaw, case: Measured, names: Sequence[tuple[str, str]]) -> list[float]:
    amounts = _amounts(case)
    scale = law.scales(case.device, trial.measured_on)
    speed_up = trial.speed_up(case.fitted, case.mode, case.device)
    shared = {"parallel": speed_up}
    return [amounts.get(key, 0.0) * scale[key[0]] / shared.get(key[0], 1.0) for key in names]


def _shares(own: Sequence[Measured]) -> dict[str, float]:
    """What each array takes, as a share of the bytes that it was counted with."""
    known = [case for case in own if np.isfinite(case.memory_mb)]
    if not known:
        return {}
    sizes = [tabular_work.bytes_of(case.fitted, case.mode, case.rows) for case in known]
    names = sorted({name for each in sizes for name in each})
    terms = np.array([[each.get(name, 0.0) / law.MB for name in names] for each in sizes])
    found = _least_error(terms, np.array([case.memory_mb for case in known]), np.ones(len(names)))
    return dict(zip(names, found.tolist(), strict=True))


def _least_error(terms: np.ndarray, real: np.ndarray, usual: np.ndarray) -> np.ndarray:
    """The non-negative costs with the least relative error, whose squares are weighted anew; a little drawn to what is
    usual."""
    with needed("fitting the law of tabular models", "evaluate"):
        from scipy.optimize import nnls

    scaled = terms * usual
    weight, found = 1 / real, np.ones(len(usual))
    for _ in range(15):
        drawn = _USUAL_WEIGHT / np.maximum(found, 1)  # what is many times the usual is drawn no more than what is twice
        rows = np.vstack((scaled * weight[:, None], np.diag(drawn)))
        found, _ = nnls(rows, np.concatenate((real * weight, drawn)), maxiter=10_000)
        made = scaled @ found
        off = np.abs(np.log(np.maximum(made, 1e-12 * real) / real))
        weight = 1 / np.sqrt(real * np.maximum(made, 0.05 * real)) / np.sqrt(np.maximum(off, 0.05))
    return np.asarray(found * usual)


def _predicted(used: TabularLaw, case: Measured, target: str) -> float:
    if target == "memory_mb":
        return used.working_mb(case.asked, case.mode, case.rows)
    return used.ms(case.asked, case.mode, case.rows, case.device)


def _simple(case: Measured, target: str) -> float:
    """What one ratio multiplies: the numbers of the table times the trees, layers or iterations, or its bytes."""
    got = case.asked.settings
    size = law.table_size(case.asked, case.mode, case.rows)
    if target == "memory_mb":
        return size
    passes = got.get("trees", 1) * got.get("layers", 1) * (got.get("epochs", 1) if case.mode == "training" else 1)
    return size * passes


def _ratios(cases: Sequence[Measured]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for case in cases:
        for target in TARGETS:
            if np.isfinite(case.value(target)):
                found.setdefault(f"{target}/{case.group}", []).append(case.value(target) / _simple(case, target))
    return {group: float(np.median(values)) for group, values in found.items()}


def _without_kind(whole: TabularLaw, case: Measured, target: str) -> float:
    """The prediction with the costs of the nearest other kind for the work that both count."""
    for other in _RELATIVES[case.asked.kind]:
        theirs, own = law.group_of(case.mode, other), case.group
        if theirs in whole.costs:
            borrowed = dataclasses.replace(
                whole, costs={own: whole.costs[theirs]}, efficiency={own: whole.efficiency[theirs]},
                memory={own: whole.memory.get(theirs, {})},
            )  # fmt: skip
            return _predicted(borrowed, case, target)
    return np.nan


def _calibrated(lines: pd.DataFrame) -> Calibration:
    return calibrate(lines["group"], lines["score"].to_numpy())


def _intervals(lines: pd.DataFrame, folds: int = 5) -> dict[str, np.ndarray]:
    """Whether each row lies in the interval that other models' errors call for, and how wide it is."""
    names = sorted(lines["name"].unique())
    fold = {name: place % folds for place, name in enumerate(np.random.default_rng(1).permutation(names))}
    of = lines["name"].map(fold).to_numpy()
    inside, width = np.zeros(len(lines), dtype=bool), np.full(len(lines), np.nan)
    score, groups = lines["score"].to_numpy(), lines["group"].to_numpy()
    for one in range(folds):
        made = _calibrated(lines[of != one])
        for place in np.flatnonzero(of == one):
            low, high = made.factors(groups[place])
            inside[place], width[place] = np.log(low) <= score[place] <= np.log(high), high / low
    return {"inside": inside, "width": width}


def _line(name: str, own: pd.DataFrame) -> dict[str, Any]:
    again = own.groupby("case_key")["measured"]
    spread = (again.max() / again.min() - 1)[again.size() > 1]
    return {
        "what": name, "n": len(own), "models": own["name"].nunique(), "mape": own["error"].mean(),
        "median": own["error"].median(), "one ratio": own["one ratio"].mean(),
        "kind held out, median": own["kind held out"].median(),
        "interval_coverage": own["inside"].mean(), "high / low": own["width"].median(),
        "repeats differ by": spread.mean() if len(spread) else np.nan,
    }  # fmt: skip
