"""Predictors side by side on the same rows.

Published predictors cover different rows: one image classifiers in inference, another training steps of small networks.
So each is scored on the rows that it predicts, and the default predictor, the roofline and trivial baselines on exactly
the same rows. The families and the GPU of the test set are excluded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from forerun.data.summary import repeats
from forerun.errors import ForerunError
from forerun.evaluate.collect import KEYS, from_rows, stored_frame
from forerun.evaluate.held_out import held_out
from forerun.evaluate.metrics import figures
from forerun.evaluate.scoreboard import first_of_cases, regimes, with_intervals
from forerun.evaluate.stored import SCORED
from forerun.evaluate.test_set import GPU, in_test_set
from forerun.predictors.base import Predictor
from forerun.predictors.cases import TrainingCases
from forerun.predictors.registry import predictor_class

#: The baselines of every predictor; FITTED_BASELINES are fitted to the rows that it predicts and nothing else.
STORED_BASELINES = ("default", "roofline")
FITTED_BASELINES = ("one-ratio", "dummy")
BASELINES = (*STORED_BASELINES, *FITTED_BASELINES)
#: The splits whose predictions are stored. Where a baseline has none of a split, those by family are shown instead.
SPLITS = ("random", "model", "family")

Ends = tuple[np.ndarray, ...]


@dataclass
class StoredPredictions:
    """Stored predictions and their intervals, each read and computed once."""

    frames: dict[tuple[str, str], pd.DataFrame | None] = field(default_factory=dict)
    intervals: dict[tuple[str, str, str], Ends] = field(default_factory=dict)

    def frame(self, name: str, split: str) -> pd.DataFrame | None:
        """The predictions of a predictor, by name or folder, under a split, or None."""
        if (name, split) not in self.frames:
            self.frames[name, split] = stored_frame(name, split)
        return self.frames[name, split]

    def ends(self, name: str, split: str, target: str) -> Ends:
        """Low and high of the 90 % interval of every prediction; nothing for a predictor that learns none."""
        key, frame, predictor = (name, split, target), self.frame(name, split), predictor_class(name)()
        if key not in self.intervals:
            learns = frame is not None and predictor.calibrates
            self.intervals[key] = with_intervals(frame, target, predictor, split=split) if learns else ()
        return self.intervals[key]


def scored(frame: pd.DataFrame, target: str) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are scored (eager calls, the first of every case, without the test set) and which of them have a
    prediction."""
    measured = frame[target].to_numpy(dtype=float)
    eligible = regimes(frame)["all"] & first_of_cases(frame, measured) & ~in_test_set(frame).to_numpy()
    return eligible, eligible & np.isfinite(frame[f"predicted_{target}"].to_numpy(dtype=float))


def split_lines(stored: StoredPredictions, name: str, split: str, targets: Sequence[str]) -> list[dict[str, Any]]:
    """The lines of the rows of one predictor under one split; none where its predictions are not stored."""
    frame = stored.frame(name, split)
    if frame is None or (split == "random" and not predictor_class(name).needs_fit):
        return []
    out: list[dict[str, Any]] = []
    fitted: dict[tuple[str, bytes], pd.DataFrame | None] = {}
    for target in targets:
        if f"predicted_{target}" not in frame:
            continue
        eligible, answered = scored(frame, target)
        if answered.sum() < 5:
            continue
        rows = frame[answered]
        about = {"rows of": name, "target": target, "split": split, "noise_floor": _floor(frame, rows, target)}
        own_line = _line(frame, target, answered, stored.ends(name, split, target))
        out.append({**about, "predictor": name, **own_line, "coverage": answered.sum() / eligible.sum()})
        for other in STORED_BASELINES:
            if other != name and (line := _stored_line(stored, other, rows, target, split)):
                out.append({**about, **line})
        for baseline in (predictor_class(name)() for name in FITTED_BASELINES):
            key = (baseline.name, answered.tobytes())
            if key not in fitted:
                fitted[key] = _fitted(baseline, rows, split)
            fitted_frame = fitted[key]
            if target in baseline.targets and fitted_frame is not None:
                ends = with_intervals(fitted_frame, target, baseline, split=split)
                every = np.ones(len(fitted_frame), dtype=bool)
                out.append({**about, "predictor": baseline.name, **_line(fitted_frame, target, every, ends)})
    return out


def _stored_line(
    stored: StoredPredictions, name: str, rows: pd.DataFrame, target: str, split: str
) -> dict[str, Any] | None:
    """The figures of another predictor's stored predictions on the same rows, and the share of rows that have one: rows
    measured after it was fitted have none. None where less than half of the rows have one."""
    label = name
    if stored.frame(name, split) is None:
        label, split = f"{name} (families held out)", "family"
    frame = stored.frame(name, split)
    if frame is None or f"predicted_{target}" not in frame:
        return None
    chosen = pd.MultiIndex.from_frame(frame[KEYS]).isin(pd.MultiIndex.from_frame(rows[KEYS]))
    if chosen.sum() < len(rows) / 2:
        return None
    scores = _line(frame, target, chosen, stored.ends(name, split, target))
    return {"predictor": label, **scores, "coverage": scores["coverage"] * chosen.sum() / len(rows)}


def _fitted(baseline: Predictor, rows: pd.DataFrame, split: str) -> pd.DataFrame | None:
    """Held-out predictions of a baseline that is fitted to these rows alone; None where there is nothing to learn
    from."""
    try:
        return held_out(baseline, from_rows(rows[[c for c in rows if c in SCORED]]), split)
    except ForerunError:
        return None


def _line(frame: pd.DataFrame, target: str, chosen: np.ndarray, ends: Ends) -> dict[str, float]:
    """The figures of the predictions on chosen rows."""
    predicted, measured = (frame[c].to_numpy(dtype=float)[chosen] for c in (f"predicted_{target}", target))
    return figures(predicted, measured, *(end[chosen] for end in ends))


def _floor(frame: pd.DataFrame, rows: pd.DataFrame, target: str) -> float:
    """The mean difference of repeated measurements of these cases; NaN where none was repeated."""
    return float(repeats(frame[frame["case_key"].isin(rows["case_key"])], target)["difference"].mean())


def device_lines(predictor: Predictor, unseen: pd.DataFrame, cases: TrainingCases) -> list[dict[str, Any]]:
    """Figures of published rows on held-out GPUs, by target, mode and GPU, without the test set's GPU; those of the
    roofline and of the median of all other rows beside them, on the rows that the predictor predicts."""
    others = {name: held_out(predictor_class(name)(), cases, "device") for name in ("roofline", "dummy")}
    frames: Mapping[str, pd.DataFrame] = {predictor.name: unseen, **others}
    out = []
    for target in predictor.targets:
        if target not in unseen or f"predicted_{target}" not in unseen:
            continue
        measured = unseen[target].to_numpy(dtype=float)
        eligible = (measured > 0) & (unseen["device"] != GPU).to_numpy()
        answered = eligible & np.isfinite(unseen[f"predicted_{target}"].to_numpy(dtype=float))
        for name, frame in frames.items():
            one: Predictor = predictor if name == predictor.name else predictor_class(name)()
            if f"predicted_{target}" not in frame:
                continue
            calibrated = one.calibrates and answered.any()
            ends = with_intervals(frame, target, one, split="device") if calibrated else ()
            predicted = frame[f"predicted_{target}"].to_numpy(dtype=float)
            for mode in ("all", *sorted(unseen["mode"].unique())):
                for device in ("all", *sorted(unseen["device"].unique())):
                    selected = (unseen["mode"] == mode) | (mode == "all")
                    selected &= (unseen["device"] == device) | (device == "all")
                    chosen = selected.to_numpy() & (eligible if one is predictor else answered)
                    if chosen.any():
                        scores = figures(predicted[chosen], measured[chosen], *(end[chosen] for end in ends))
                        out.append({"predictor": name, "target": target, "mode": mode, "device": device, **scores})
    return out
