"""Devices that were left out: operators and whole models on a GPU of which no row was seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from forerun.errors import ForerunError
from forerun.evaluate import neusight
from forerun.evaluate.left_out import fingerprint
from forerun.evaluate.metrics import DETAILS, figures
from forerun.evaluate.parts import Progress, kept_parts
from forerun.graph.profile import CLASSES
from forerun.graph.variants import VARIANTS
from forerun.predictors.base import log_ratio
from forerun.predictors.cases import Cases, TrainingCases
from forerun.predictors.conformal import Calibration, device_deviation, out_of_domain_deviation, power_deviation
from forerun.predictors.default import DefaultPredictor
from forerun.predictors.default.fit import device_ms, group_numbers
from forerun.predictors.default.fit_host import nearest_slowness
from forerun.predictors.default.weights import Weights

LEFT_OUT = {"neusight": neusight.GPUS, "aiconfigurator": ("b200",)}
#: Predictors of whole models, and the column of `models_predicted` with the answers of each. A ratio is one number per
#: way of measuring and mode, by the set's other GPUs (by all of the set where none has the mode); that of the GPU
#: itself is not known beforehand and is shown for comparison. The speed of a set's hosts comes from its other GPUs,
#: too: one number per way of measuring, where enough calls show it.
PREDICTORS = {
    "roofline": "roofline_ms", "one ratio": "ratio_ms", "one ratio of the GPU itself": "own_ratio_ms",
    "default": "predicted_ms", "default, hosts of the set": "predicted_set_ms",
}  # fmt: skip
ENOUGH_CALLS = 10  # host-bound calls that are needed to know how slow hosts are
OPERATOR_PREDICTORS = ("roofline", "one ratio per op", "default")
_ELEMENTWISE = ("add", "add_scalar", "div", "div_scalar", "mul", "scale", "gelu", "relu", "tanh", "pow", "pow_scalar")


def operators_left_out(
    cases: TrainingCases, tested: Cases, models: pd.DataFrame, *, predictor: DefaultPredictor,
    keep: Path | None = None, progress: Progress | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Figures of operators on each GPU of LEFT_OUT and of a set's GPUs together, by weights that saw no row of each.

    First single rows (`tested`), then sums of a class over a model, where the store's `models` have them.
    """
    asked = [(dataset, device) for dataset, devices in LEFT_OUT.items() for device in devices]

    def one_device(name: str) -> pd.DataFrame:
        dataset, device = asked[names.index(name)]
        mine = tested.take(((tested.rows["dataset"] == dataset) & (tested.rows["device"] == device)).to_numpy())
        if mine.rows.empty or cases.published_operators is None:
            return pd.DataFrame()
        seen = cases.without_device(device)
        weights = _fitted(predictor, seen)
        return pd.concat([_operators_predicted(mine, seen, weights), neusight.predicted(models, device, weights)])

    names = [f"{dataset}_{device}" for dataset, device in asked]
    place = keep and keep / fingerprint(predictor, cases, "operators-by-device", 0, "gpu")
    every = pd.concat(kept_parts(one_device, names, place, progress), ignore_index=True)
    every = every.sort_values("dataset", key=lambda names: names == neusight.DATASET, kind="stable")
    groups = [(*names, rows) for names, rows in every.groupby(["dataset", "device"], sort=False)]
    groups += [
        (name, "all", rows) for name, rows in every.groupby("dataset", sort=False) if rows["device"].nunique() > 1
    ]
    return pd.DataFrame([line for group in groups for line in _operator_lines(*group)])


def _fitted(predictor: DefaultPredictor, seen: TrainingCases) -> Weights:
    """The weights of a fresh predictor of the same parameters."""
    return DefaultPredictor(**predictor.parameters()).fit(seen).weights


def _operators_predicted(asked: Cases, seen: TrainingCases, weights: Weights) -> pd.DataFrame:
    """Rows with the answers of each of OPERATOR_PREDICTORS."""
    public, networks = seen.published_operators, weights.networks["gpu"]
    assert public is not None
    # How a set measures follows from its other devices: a ratio per operator, or what its timing adds to a launch.
    least = asked.roofline_ms
    floor_us = networks.floor_us(group_numbers(asked, weights.timing_groups))
    answers = (least, least * _ratio_per_op(public, asked.rows), device_ms(networks, asked) + floor_us / 1e3)
    group = asked.rows["op"].where(~asked.rows["op"].isin(_ELEMENTWISE), "elementwise")
    named = dict(zip(OPERATOR_PREDICTORS, answers, strict=True))
    return asked.rows[["dataset", "device", "device_ms"]].assign(op=group, **named)


def _operator_lines(dataset: str, device: str, rows: pd.DataFrame) -> list[dict[str, object]]:
    out: list[dict[str, object]] = []
    summed = dataset == neusight.DATASET
    for op in [*([] if summed else ["all"]), *sorted(rows["op"].unique())]:
        mine = rows[(rows["op"] == op) | (op == "all")]
        for name in neusight.PREDICTORS if summed else OPERATOR_PREDICTORS:
            errors = figures(mine[name].to_numpy(dtype=float), mine["device_ms"].to_numpy(dtype=float))
            out.append({"data set": dataset, "device": device, "op": op, "predictor": name, **errors})
    return out


def _ratio_per_op(public: Cases, rows: pd.DataFrame) -> np.ndarray:
    """Median ratio of measured to roofline on the devices that were seen, by operator and way of measuring."""
    ratio = pd.Series(public.rows["device_ms"].to_numpy(dtype=float) / public.roofline_ms)
    known = public.rows.reset_index(drop=True)
    by = ratio.groupby([known["timing_group"], known["op"]]).median()
    return np.array([by.get(key, 1.0) for key in zip(rows["timing_group"], rows["op"], strict=True)], dtype=float)


def models_left_out(
    cases: TrainingCases, *, predictor: DefaultPredictor, calibration: Calibration | None = None,
    keep: Path | None = None, progress: Progress | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Published models on each of their GPUs, by weights that saw no row of that GPU: figures by set and mode.

    Intervals are of `calibration`, or of the weights that ship.
    """
    predicted = models_predicted(cases, predictor=predictor, calibration=calibration, keep=keep, progress=progress)
    return model_lines(predicted)


def models_predicted(
    cases: TrainingCases, *, predictor: DefaultPredictor, calibration: Calibration | None = None,
    keep: Path | None = None, progress: Progress | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Every published row with what was predicted for it; published rows of the other GPUs were learned from, too."""
    published = cases.published_models
    if not published:
        raise ForerunError("the store has no published times of models: see forerun data import timm")
    scores = calibration or DefaultPredictor.shipped().weights.calibration

    def one_device(device: str) -> pd.DataFrame:
        asked, known = published.take((published.rows["device"] == device).to_numpy()), published.without_device(device)
        weights = _fitted(predictor, cases.without_device(device))
        mine, others = _predicted(asked, weights), _predicted(known, weights)
        mine = mine.assign(
            ratio_ms=mine["roofline_ms"] * _ratio(mine, others),
            own_ratio_ms=mine["roofline_ms"] * _ratio(mine, mine),
            predicted_set_ms=_with_hosts_of_set(asked, mine, known, others, weights),
        )
        return mine.assign(beyond=_beyond(asked, weights))

    place = keep and keep / fingerprint(predictor, cases, "models-by-device", 0, "gpu")
    names = sorted(published.rows["device"].unique())
    return _with_intervals(pd.concat(kept_parts(one_device, names, place, progress), ignore_index=True), scores)


def _predicted(cases: Cases, weights: Weights) -> pd.DataFrame:
    """Rows with their roofline and the default's times, without what copying the inputs takes."""
    found = DefaultPredictor.of(weights).predict_cases(cases)
    return cases.rows.assign(
        roofline_ms=cases.roofline_ms, predicted_ms=found["predicted_latency_ms"],
        **{f"predicted_{name}": found[f"predicted_{name}"] for name in ("device_ms", "host_ms", "disagreement")},
    )  # fmt: skip


def _ratio(asked: pd.DataFrame, known: pd.DataFrame) -> np.ndarray:
    """Median of measured to roofline over known rows measured in the same way and mode; of the set where there are
    none."""
    ratio = (known["latency_ms"] - known["copy_ms"]) / known["roofline_ms"]
    by_mode = ratio.groupby([known["protocol"], known["mode"]]).median()
    by_set = ratio.groupby(known["dataset"]).median()
    return np.array([
        by_mode.get((way, mode), by_set.get(name, 1.0))
        for name, way, mode in zip(asked["dataset"], asked["protocol"], asked["mode"], strict=True)
    ])  # fmt: skip


def _with_hosts_of_set(
    asked: Cases, mine: pd.DataFrame, known: Cases, others: pd.DataFrame, weights: Weights
) -> np.ndarray:
    """The default's latency with the speed of hosts that host-bound calls on other GPUs show, measured the same way."""
    host = weights.host
    slow = np.full(len(mine), host.default_slowness)
    eager = others["runtime"].fillna("eager") == "eager"
    host_bound = (others["predicted_host_ms"] > others["predicted_device_ms"]) & eager
    for way in mine["protocol"].unique():
        there = (host_bound & (others["protocol"] == way)).to_numpy()
        if there.sum() >= ENOUGH_CALLS:
            measured = (others["latency_ms"] - others["copy_ms"]).to_numpy(dtype=float)[there]
            busy = others["predicted_device_ms"].to_numpy(dtype=float)[there]
            slow[mine["protocol"] == way] = nearest_slowness(host, known.launches[there], busy, measured)
    return DefaultPredictor.of(weights).predict_cases(asked, slow)["predicted_latency_ms"].to_numpy(dtype=float)


def _beyond(cases: Cases, weights: Weights) -> np.ndarray:
    """What is in doubt about every case beside its device: a standard deviation, in logarithms."""
    familiar = set(weights.domain["ops"])
    pairs = zip(cases.ops.classes, cases.ops.variants, strict=True)
    unseen = [f"{CLASSES[c]}/{VARIANTS[v]}" not in familiar for c, v in pairs]
    any_unseen = np.bincount(cases.case, unseen, minlength=len(cases.rows)) > 0
    slowed = np.ones(len(cases.rows))
    np.maximum.at(slowed, cases.case, cases.ops.power_slowdown)
    return np.hypot(any_unseen * out_of_domain_deviation(["ops"]), power_deviation(slowed))


def _with_intervals(rows: pd.DataFrame, calibration: Calibration) -> pd.DataFrame:
    """The default's 90 % interval as on an unmeasured device; how much that widens comes from the other devices."""
    predicted, disagreement = (rows[c].to_numpy(dtype=float) for c in ("predicted_ms", "predicted_disagreement"))
    named = rows.assign(predicted_latency_ms=rows["predicted_ms"] + rows["copy_ms"])
    groups = np.array(DefaultPredictor().calibration_groups(named, "latency_ms"), dtype=object)
    scores = log_ratio(named, "latency_ms")
    low, high = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for device in rows["device"].unique():
        mine = (rows["device"] == device).to_numpy()
        wider = device_deviation(calibration, groups[~mine].tolist(), scores[~mine], disagreement[~mine])
        made = replace(calibration, unseen_device=wider)
        for group in np.unique(groups[mine]):
            some = mine & (groups == group)
            doubt = np.hypot(made.deviation(["device"]), rows["beyond"].to_numpy(dtype=float)[some])
            low[some], high[some] = made.intervals(group, 0.9, doubt, disagreement[some])
    bound = np.where(rows["predicted_host_ms"] > rows["predicted_device_ms"], "host", "device")
    least = np.minimum(rows["roofline_ms"], predicted)
    return rows.assign(bound=bound, low_ms=np.maximum(predicted * low, least), high_ms=predicted * high)


def model_lines(predicted: pd.DataFrame) -> pd.DataFrame:
    """Figures of `models_predicted` by set, GPU, mode and what is predicted to set the pace; and of all sets."""
    lines = []
    alone = [(*name, rows) for name, rows in predicted.groupby(["dataset", "device"])]
    together = [(name, "all", rows) for name, rows in predicted.groupby("dataset")]
    for dataset, device, rows in [*alone, *together, ("all", "all", predicted)]:
        for mode in ("all", *sorted(rows["mode"].unique())):
            for bound in ("all", "device", "host"):
                mine = rows[((rows["mode"] == mode) | (mode == "all")) & ((rows["bound"] == bound) | (bound == "all"))]
                if mine.empty:
                    continue
                # What copying takes is known from the inputs, to every predictor.
                measured, copied = mine["latency_ms"].to_numpy(dtype=float), mine["copy_ms"].to_numpy(dtype=float)
                low, high = (mine[c].to_numpy(dtype=float) + copied for c in ("low_ms", "high_ms"))
                for name, column in PREDICTORS.items():
                    edges = (low, high) if name == "default" else ()
                    answers = mine[column].to_numpy(dtype=float) + copied
                    lines.append({"data set": dataset, "device": device, "mode": mode, "bound": bound,
                                  "predictor": name, **figures(answers, measured, *edges)})  # fmt: skip
    return pd.DataFrame(lines)


def shown(lines: pd.DataFrame) -> pd.DataFrame:
    """What a page shows of `model_lines`: sets by GPU, all modes together; all GPUs by what sets the pace, too."""
    kept = lines[(lines["mode"] == "all") & ((lines["bound"] == "all") | (lines["device"] == "all"))]
    regime = kept["bound"].replace({"device": "device-bound", "host": "host-bound"})
    return kept.assign(bound=regime).rename(columns={"bound": "regime"}).drop(columns=["mode", "coverage", *DETAILS])
