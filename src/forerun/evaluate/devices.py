"""Held-out devices: operators and whole models on a GPU of which no row was in training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from forerun.device.kinds import GPU
from forerun.errors import ForerunError
from forerun.evaluate import neusight
from forerun.evaluate.held_out import fingerprint
from forerun.evaluate.metrics import DETAILS, figures
from forerun.evaluate.parts import Progress, cached_parts
from forerun.predictors.base import Predictor, disagreement_of, log_ratio
from forerun.predictors.cases import Cases, TrainingCases
from forerun.predictors.laws.conformal import Calibration, device_deviation
from forerun.runtimes.registry import is_usual

HELD_OUT = {"neusight": neusight.GPUS, "aiconfigurator": ("b200",)}
#: The baselines of a predictor of whole models, and the column of `models_predicted` with the predictions of each. A
#: ratio is one number per protocol and mode, fitted to the set's other GPUs (to all modes of the set where none has the
#: mode); that of the GPU itself would not be known beforehand and is shown for comparison.
BASELINES = {
    "roofline": "roofline_ms", "one ratio": "ratio_ms", "one ratio of the GPU itself": "own_ratio_ms",
}  # fmt: skip
#: The predictor itself and, where it models hosts, the predictor given the speed of a set's hosts as fitted to the
#: other GPUs: one number per protocol, where there are enough host-bound calls.
OWN = {"{}": "predicted_ms", "{}, hosts of the set": "predicted_set_ms"}
ENOUGH_CALLS = 10  # host-bound calls that are needed to fit the speed of hosts
OPERATOR_BASELINES = ("roofline", "one ratio per op")
_PREDICTED = ("predicted_ms", "predicted_device_ms", "predicted_host_ms", "predicted_disagreement")
_ELEMENTWISE = ("add", "add_scalar", "div", "div_scalar", "mul", "scale", "gelu", "relu", "tanh", "pow", "pow_scalar")


def knows_operators(predictor: Predictor) -> bool:
    """Whether a predictor predicts single operators."""
    return type(predictor).predict_operators is not Predictor.predict_operators


def operators_held_out(
    cases: TrainingCases, tested: Cases, models: pd.DataFrame, *, predictor: Predictor,
    keep: Path | None = None, progress: Progress | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Figures of operators on each GPU of HELD_OUT and of a set's GPUs together, by predictors fitted without each.

    First single rows (`tested`), then sums of a class over a model, where the store's `models` have them.
    """
    pairs = [(dataset, device) for dataset, devices in HELD_OUT.items() for device in devices]

    def one_device(name: str) -> pd.DataFrame:
        dataset, device = pairs[names.index(name)]
        selected = tested.take(((tested.rows["dataset"] == dataset) & (tested.rows["device"] == device)).to_numpy())
        if selected.rows.empty or cases.published_operators is None:
            return pd.DataFrame()
        seen = cases.without_device(device)
        fitted = _fitted(predictor, seen)
        return pd.concat([_operators_predicted(selected, seen, fitted), neusight.predicted(models, device, fitted)])

    names = [f"{dataset}_{device}" for dataset, device in pairs]
    place = keep and keep / fingerprint(predictor, cases, "operators-by-device", 0, GPU.part)
    every = pd.concat(cached_parts(one_device, names, place, progress), ignore_index=True)
    if every.empty:
        return every
    every = every.sort_values("dataset", key=lambda names: names == neusight.DATASET, kind="stable")
    groups = [(*names, rows) for names, rows in every.groupby(["dataset", "device"], sort=False)]
    groups += [
        (name, "all", rows) for name, rows in every.groupby("dataset", sort=False) if rows["device"].nunique() > 1
    ]
    return pd.DataFrame([line for group in groups for line in _operator_lines(predictor.name, *group)])


def _fitted(predictor: Predictor, seen: TrainingCases) -> Predictor:
    """A fresh predictor of the same parameters, fitted."""
    return type(predictor)(**predictor.parameters()).fit(seen)


def _operators_predicted(test: Cases, seen: TrainingCases, fitted: Predictor) -> pd.DataFrame:
    """Rows with the predictions of each of OPERATOR_BASELINES and of a predictor."""
    public = seen.published_operators
    assert public is not None
    least = test.roofline_ms
    answers = (least, least * _ratio_per_op(public, test.rows), fitted.predict_operators(test))
    group = test.rows["op"].where(~test.rows["op"].isin(_ELEMENTWISE), "elementwise")
    named = dict(zip((*OPERATOR_BASELINES, fitted.name), answers, strict=True))
    return test.rows[["dataset", "device", "device_ms"]].assign(op=group, **named)


def _operator_lines(judged: str, dataset: str, device: str, rows: pd.DataFrame) -> list[dict[str, object]]:
    out: list[dict[str, object]] = []
    summed = dataset == neusight.DATASET
    for op in [*([] if summed else ["all"]), *sorted(rows["op"].unique())]:
        selected = rows[(rows["op"] == op) | (op == "all")]
        for name in (*(neusight.PREDICTORS if summed else OPERATOR_BASELINES), judged):
            errors = figures(selected[name].to_numpy(dtype=float), selected["device_ms"].to_numpy(dtype=float))
            out.append({"data set": dataset, "device": device, "op": op, "predictor": name, **errors})
    return out


def _ratio_per_op(public: Cases, rows: pd.DataFrame) -> np.ndarray:
    """Median ratio of measured to roofline on the devices in training, by operator and way of timing."""
    ratio = pd.Series(public.rows["device_ms"].to_numpy(dtype=float) / public.roofline_ms)
    known = public.rows.reset_index(drop=True)
    by = ratio.groupby([known["timing_group"], known["op"]]).median()
    return np.array([by.get(key, 1.0) for key in zip(rows["timing_group"], rows["op"], strict=True)], dtype=float)


def models_held_out(
    cases: TrainingCases, *, predictor: Predictor, calibration: Calibration | None = None,
    keep: Path | None = None, progress: Progress | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Published models on each of their GPUs, by predictors fitted without that GPU: figures by set and mode.

    Intervals are those of `calibration`, or of the predictor itself.
    """
    predicted = models_predicted(cases, predictor=predictor, calibration=calibration, keep=keep, progress=progress)
    return model_lines(predicted, predictor.name)


def models_predicted(
    cases: TrainingCases, *, predictor: Predictor, calibration: Calibration | None = None,
    keep: Path | None = None, progress: Progress | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Every published row with its prediction; published rows of the other GPUs are in training too."""
    published = cases.published_models
    if not published:
        raise ForerunError("the store has no published times of models: see forerun data import timm")
    predictor.prepare(cases)

    def one_device(device: str) -> pd.DataFrame:
        test, known = published.take((published.rows["device"] == device).to_numpy()), published.without_device(device)
        fitted = _fitted(predictor, cases.without_device(device))
        selected, others = _predicted(test, fitted), _predicted(known, fitted)
        selected = selected.assign(
            ratio_ms=selected["roofline_ms"] * _ratio(selected, others),
            own_ratio_ms=selected["roofline_ms"] * _ratio(selected, selected),
            beyond=fitted.ood_sigma_of_cases(test),
        )
        if "host" in fitted.supports:
            selected["predicted_set_ms"] = _with_hosts_of_set(test, selected, known, others, fitted)
        return selected

    place = keep and keep / fingerprint(predictor, cases, "models-by-device", 0, GPU.part)
    names = sorted(published.rows["device"].unique())
    quick = predictor.hold_out.cheap_to_fit
    rows = pd.concat(cached_parts(one_device, names, place, progress, in_moments=quick), ignore_index=True)
    scores = (calibration or predictor.calibration) if predictor.calibrates else None
    return rows if scores is None else _with_intervals(rows, scores, predictor)


def _predicted(cases: Cases, fitted: Predictor) -> pd.DataFrame:
    """Rows with their roofline and the predictor's times, without the time to copy inputs."""
    predictions = fitted.predict_cases(cases).rename(columns={"predicted_latency_ms": "predicted_ms"})
    columns = {name: predictions[name] for name in _PREDICTED if name in predictions}
    return cases.rows.assign(roofline_ms=cases.roofline_ms, **columns)


def _ratio(test: pd.DataFrame, known: pd.DataFrame) -> np.ndarray:
    """Median of measured to roofline over known rows of the same protocol and mode; of the whole set where there are
    none."""
    ratio = (known["latency_ms"] - known["copy_ms"]) / known["roofline_ms"]
    by_mode = ratio.groupby([known["protocol"], known["mode"]]).median()
    by_set = ratio.groupby(known["dataset"]).median()
    return np.array([
        by_mode.get((way, mode), by_set.get(name, 1.0))
        for name, way, mode in zip(test["dataset"], test["protocol"], test["mode"], strict=True)
    ])  # fmt: skip


def _with_hosts_of_set(
    test: Cases, selected: pd.DataFrame, known: Cases, others: pd.DataFrame, fitted: Predictor
) -> np.ndarray:
    """Latency with the speed of hosts that is fitted to host-bound calls on other GPUs under the same protocol."""
    slow = np.full(len(selected), np.nan)
    eager = is_usual(others)
    host_bound = (others["predicted_host_ms"] > others["predicted_device_ms"]) & eager
    for way in selected["protocol"].unique():
        there = (host_bound & (others["protocol"] == way)).to_numpy()
        if there.sum() >= ENOUGH_CALLS:
            measured = (others["latency_ms"] - others["copy_ms"]).to_numpy(dtype=float)[there]
            busy = others["predicted_device_ms"].to_numpy(dtype=float)[there]
            slowness = fitted.best_host_slowness(known.take(there), busy, measured)
            slow[selected["protocol"] == way] = np.nan if slowness is None else slowness
    default, shown = selected["predicted_ms"].to_numpy(dtype=float), np.isfinite(slow)
    if not shown.any():
        return default
    with_hosts = fitted.predict_cases(test, np.where(shown, slow, 1.0))["predicted_latency_ms"]
    return np.where(shown, with_hosts.to_numpy(dtype=float), default)


def _with_intervals(rows: pd.DataFrame, calibration: Calibration, predictor: Predictor) -> pd.DataFrame:
    """The 90 % interval of an unmeasured device; how much it is widened is fitted to the other devices."""
    predicted, disagreement = rows["predicted_ms"].to_numpy(dtype=float), disagreement_of(rows, "latency_ms")
    named = rows.assign(predicted_latency_ms=rows["predicted_ms"] + rows["copy_ms"])
    groups = np.array(predictor.calibration_groups(named, "latency_ms"), dtype=object)
    scores = log_ratio(named, "latency_ms")
    low, high = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for device in rows["device"].unique():
        selected = (rows["device"] == device).to_numpy()
        wider = device_deviation(calibration, groups[~selected].tolist(), scores[~selected], disagreement[~selected])
        made = replace(calibration, unseen_device=wider)
        for group in np.unique(groups[selected]):
            subset = selected & (groups == group)
            sigma = np.hypot(made.deviation(["device"]), rows["beyond"].to_numpy(dtype=float)[subset])
            low[subset], high[subset] = made.intervals(group, 0.9, sigma, disagreement[subset])
    least = np.minimum(rows["roofline_ms"], predicted)
    return rows.assign(low_ms=np.maximum(predicted * low, least), high_ms=predicted * high)


def _bound(rows: pd.DataFrame) -> np.ndarray:
    """Predicted to be host-bound or device-bound, as host or device; "" where the predictor does not tell."""
    host, device = (rows.get(f"predicted_{name}", pd.Series(np.nan, rows.index)) for name in ("host_ms", "device_ms"))
    return np.where(host.isna() | device.isna(), "", np.where(host > device, "host", "device"))


def model_lines(predicted: pd.DataFrame, judged: str) -> pd.DataFrame:
    """Figures of `models_predicted` by set, GPU, mode and predicted host- or device-bound; and of all sets."""
    lines = []
    predicted = predicted.assign(bound=_bound(predicted))
    columns = {name.format(judged): column for name, column in OWN.items() if column in predicted}
    alone = [(*name, rows) for name, rows in predicted.groupby(["dataset", "device"])]
    together = [(name, "all", rows) for name, rows in predicted.groupby("dataset")]
    for dataset, device, rows in [*alone, *together, ("all", "all", predicted)]:
        for mode in ("all", *sorted(rows["mode"].unique())):
            for bound in ("all", "device", "host"):
                of_mode = (rows["mode"] == mode) | (mode == "all")
                selected = rows[of_mode & ((rows["bound"] == bound) | (bound == "all"))]
                if selected.empty:
                    continue
                # The time to copy inputs follows from their size, and is given to every predictor.
                measured, copied = (selected[c].to_numpy(dtype=float) for c in ("latency_ms", "copy_ms"))
                ends = [selected[c].to_numpy(dtype=float) + copied for c in ("low_ms", "high_ms") if c in selected]
                for name, column in {**BASELINES, **columns}.items():
                    edges = ends if name == judged else ()
                    answers = selected[column].to_numpy(dtype=float) + copied
                    lines.append({"data set": dataset, "device": device, "mode": mode, "bound": bound,
                                  "predictor": name, **figures(answers, measured, *edges)})  # fmt: skip
    return pd.DataFrame(lines)


def shown(lines: pd.DataFrame) -> pd.DataFrame:
    """The part of `model_lines` that a page shows: sets by GPU, all modes together; all GPUs by regime too."""
    chosen = lines[(lines["mode"] == "all") & ((lines["bound"] == "all") | (lines["device"] == "all"))]
    regime = chosen["bound"].replace({"device": "device-bound", "host": "host-bound"})
    return chosen.assign(bound=regime).rename(columns={"bound": "regime"}).drop(columns=["mode", "coverage", *DETAILS])
