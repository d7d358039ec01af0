"""Predictors side by side on the same rows.

Published predictors answer different questions: one image classifiers in inference, another training steps of small
networks. So each is scored on the rows that it answers, and the default predictor, the roofline and trivial baselines on
exactly these rows beside it. The exam's families and GPU stay out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from forerun.data.summary import repeats
from forerun.errors import ForerunError
from forerun.evaluate.collect import KEYS, from_rows, kept_frame
from forerun.evaluate.exam import GPU, exam_rows
from forerun.evaluate.left_out import left_out
from forerun.evaluate.metrics import figures
from forerun.evaluate.scoreboard import first_of_cases, regimes, with_intervals
from forerun.predictors.base import Predictor
from forerun.predictors.cases import TrainingCases
from forerun.predictors.dummy import DummyPredictor
from forerun.predictors.one_ratio import OneRatioPredictor
from forerun.predictors.registry import predictor_class
from forerun.predictors.roofline import RooflinePredictor

#: What stands beside every predictor; those by columns are fitted to the rows that it answers and nothing else.
KEPT_BASELINES = ("default", "roofline")
FITTED_BASELINES: tuple[type[Predictor], ...] = (OneRatioPredictor, DummyPredictor)
BASELINES = (*KEPT_BASELINES, *(kind.name for kind in FITTED_BASELINES))
#: The splits of rows that are kept. Where a baseline kept no answers of a split, those without the family stand in.
SPLITS = ("random", "family")


def split_lines(name: str, split: str, targets: Sequence[str]) -> list[dict[str, Any]]:
    """The lines of the rows of one predictor under one split; none where its answers were not kept."""
    frame = kept_frame(name, split)
    if frame is None or (split == "random" and not predictor_class(name).needs_fit):
        return []
    predictor = predictor_class(name)()
    out: list[dict[str, Any]] = []
    for target in targets:
        if f"predicted_{target}" not in frame:
            continue
        measured = frame[target].to_numpy(dtype=float)
        asked = regimes(frame)["all"] & first_of_cases(frame, measured) & ~exam_rows(frame).to_numpy()
        answered = asked & np.isfinite(frame[f"predicted_{target}"].to_numpy(dtype=float))
        if answered.sum() < 5:
            continue
        floor = _floor(frame, answered, target)
        about = {"rows of": name, "target": target, "split": split, "noise_floor": floor}
        own = _line(predictor, frame, answered, target, split)
        out.append({**about, "predictor": name, **own, "coverage": answered.sum() / asked.sum()})
        for label, line in _beside(name, frame, answered, target, split).items():
            out.append({**about, "predictor": label, **line})
    return out


def _beside(name: str, frame: pd.DataFrame, answered: np.ndarray, target: str, split: str) -> dict[str, dict[str, Any]]:
    """The baselines on the rows that a predictor answered, by how they are called."""
    rows = frame[answered].reset_index(drop=True)
    everywhere = np.ones(len(rows), dtype=bool)
    out = {}
    for other in KEPT_BASELINES:
        kind, label, used = predictor_class(other), other, split
        found = None if other == name else kept_frame(other, split)
        if found is None and other != name:
            found, used, label = kept_frame(other, "family"), "family", f"{other}, family left out"
        column = f"predicted_{target}"
        if found is None or column not in found:
            continue
        merged = rows[KEYS].merge(found, on=KEYS, how="inner", validate="one_to_one")
        if len(merged) == len(rows):  # else it was fitted before some of the rows were measured
            out[label] = _line(kind(), merged, everywhere, target, used)
    for baseline in FITTED_BASELINES:
        if target in baseline.targets and baseline.name != name:
            try:
                found = left_out(baseline(), from_rows(rows), split)
            except ForerunError:  # one family, of which nothing is left to learn from
                continue
            out[baseline.name] = _line(baseline(), found, everywhere, target, split)
    return out


def _line(predictor: Predictor, frame: pd.DataFrame, chosen: np.ndarray, target: str, split: str) -> dict[str, float]:
    """The figures of a predictor's answers on chosen rows; intervals come from the errors on all that it answered."""
    ends = with_intervals(frame, target, predictor, split=split) if predictor.calibrates else ()
    predicted, measured = (frame[c].to_numpy(dtype=float)[chosen] for c in (f"predicted_{target}", target))
    return figures(predicted, measured, *(end[chosen] for end in ends))


def _floor(frame: pd.DataFrame, answered: np.ndarray, target: str) -> float:
    """How far repeating a measurement of these cases moves it, on average; NaN where none was repeated."""
    cases = set(frame["case_key"][answered])
    return float(repeats(frame[frame["case_key"].isin(cases)], target)["difference"].mean())


def device_lines(predictor: Predictor, unseen: pd.DataFrame, cases: TrainingCases) -> list[dict[str, Any]]:
    """Figures of published rows on GPUs that were left out, by target, mode and GPU, without the exam's GPU; those of
    the roofline and of the median of all other rows beside them, on the rows that the predictor answered."""
    others = {one.name: left_out(one, cases, "device") for one in (RooflinePredictor(), DummyPredictor())}
    frames: Mapping[str, pd.DataFrame] = {predictor.name: unseen, **others}
    out = []
    for target in predictor.targets:
        if target not in unseen or f"predicted_{target}" not in unseen:
            continue
        measured = unseen[target].to_numpy(dtype=float)
        asked = (measured > 0) & (unseen["device"] != GPU).to_numpy()
        answered = asked & np.isfinite(unseen[f"predicted_{target}"].to_numpy(dtype=float))
        for name, frame in frames.items():
            one: Predictor = predictor if name == predictor.name else predictor_class(name)()
            if f"predicted_{target}" not in frame:
                continue
            calibrated = one.calibrates and answered.any()
            ends = with_intervals(frame, target, one, split="device") if calibrated else ()
            predicted = frame[f"predicted_{target}"].to_numpy(dtype=float)
            for mode in ("all", *sorted(unseen["mode"].unique())):
                for device in ("all", *sorted(unseen["device"].unique())):
                    mine = (unseen["mode"] == mode) | (mode == "all")
                    mine &= (unseen["device"] == device) | (device == "all")
                    chosen = mine.to_numpy() & (asked if one is predictor else answered)
                    if chosen.any():
                        found = figures(predicted[chosen], measured[chosen], *(end[chosen] for end in ends))
                        out.append({"predictor": name, "target": target, "mode": mode, "device": device, **found})
    return out
