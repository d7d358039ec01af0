"""Ranking accuracy: devices that were measured on the same case, ordered by prediction and by measurement."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from forerun.api.predict import predict_many
from forerun.data.importers import importers
from forerun.device import device_ids
from forerun.measure.cases import workload_of
from forerun.training.published import published_rows

COLUMNS = ("case", "device", "measured_ms", "predicted_ms", "low_ms", "high_ms")


@dataclass(frozen=True)
class Judgement:
    """One line per case, and the sums over all of them."""

    cases: pd.DataFrame
    pairs: int
    pairs_right: int
    distinct: int  # pairs whose intervals do not overlap
    distinct_right: int
    best_chosen: int  # cases in which the device with the least predicted latency has the least measured one
    best_within_interval: int  # cases in which the intervals do not rule out the device that was measured fastest

    @property
    def share_right(self) -> float:
        """Of the pairs that differ by more than their intervals, those in the right order; NaN where there is none."""
        return self.distinct_right / self.distinct if self.distinct else float("nan")


def measured_together(rows: pd.DataFrame, count: int, seed: int = 0, least: int = 2) -> pd.DataFrame:
    """Published rows of `count` cases that `least` or more devices of the catalogue were measured on, drawn by a seed
    and as evenly from the data sets as they have them; column `case` names them."""
    return _drawn(published_rows(rows), count, seed, least)


def shipped_together(rows: pd.DataFrame, count: int, seed: int = 0) -> pd.DataFrame:
    """The same of the rows that come with the package, except for ONNX files, which are not there to be read."""
    shipped = rows["dataset"].str.startswith("forerun-") & rows["source"].ne("onnx") & (rows["status"] == "ok")
    return _drawn(rows[shipped].assign(copy_ms=0.0), count, seed, 2)


def _drawn(able: pd.DataFrame, count: int, seed: int, least: int) -> pd.DataFrame:
    able = able[able["device"].isin(device_ids())]
    able = able.assign(measured_case=able["case"], case=case_names(able))
    able = able.sort_values(["case", "device"]).drop_duplicates(["case", "device"])
    enough = able.groupby("case")["device"].transform("nunique") >= least
    names = able[enough].groupby("dataset")["case"].unique()
    rng = np.random.default_rng(seed)
    piles = [list(rng.permutation(np.sort(case_ids))) for case_ids in names]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*piles))
    chosen = [name for name in turns if name is not None][:count]
    return able[able["case"].isin(chosen)].reset_index(drop=True)


def case_names(rows: pd.DataFrame) -> pd.Series:
    """Protocol and program, as one name: equal for rows that can be compared."""
    return rows["protocol"].astype(str) + "|" + rows["case_key"].astype(str)


def predicted(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of `measured_together` with what is predicted for them, never from the store; COLUMNS."""
    known = importers()
    parts = []
    for case, group in rows.groupby("case", sort=False):
        first = group.iloc[0].to_dict()
        importer = known.get(str(first["dataset"]))
        workload = importer.workload(first) if importer else workload_of(json.loads(first["measured_case"]))
        answers = predict_many([workload], group["device"].tolist())
        # The time to copy inputs is part of the times of some sets, and known from the size of the inputs.
        without_copy = (group["latency_ms"] - group["copy_ms"]).astype(float)
        measured: Mapping[str, float] = dict(zip(group["device"], without_copy, strict=True))
        if "latency_ms" not in answers:  # a model that cannot be read here
            continue
        answers = answers[answers["latency_ms"].notna()]
        names = {"latency_ms": "predicted_ms", "latency_low_ms": "low_ms", "latency_high_ms": "high_ms"}
        parts.append(answers.rename(columns=names).assign(case=case, measured_ms=answers["device"].map(measured)))
    return pd.concat(parts, ignore_index=True)[list(COLUMNS)] if parts else pd.DataFrame(columns=list(COLUMNS))


def judge(frame: pd.DataFrame) -> Judgement:
    """How often the order of devices is right, over all pairs and over those whose intervals do not overlap."""
    lines = []
    for case, group in frame.groupby("case", sort=False):
        if len(group) < 2:
            continue
        one, two = map(list, zip(*itertools.combinations(range(len(group)), 2), strict=True))
        value, measured, low, high = (
            group[name].to_numpy(dtype=float) for name in ("predicted_ms", "measured_ms", "low_ms", "high_ms")
        )
        right = (value[one] < value[two]) == (measured[one] < measured[two])
        distinct = (high[one] < low[two]) | (high[two] < low[one])
        chosen, best = int(np.argmin(value)), int(np.argmin(measured))
        lines.append({
            "case": case, "devices": len(group), "pairs": len(right), "right": int(right.sum()),
            "distinct": int(distinct.sum()), "distinct_right": int((right & distinct).sum()),
            "chosen": group["device"].iloc[chosen], "best": group["device"].iloc[best],
            "lost": measured[chosen] / measured[best] - 1, "open": bool(low[best] <= high[chosen]),
        })  # fmt: skip
    cases = pd.DataFrame(lines, columns=[
        "case", "devices", "pairs", "right", "distinct", "distinct_right", "chosen", "best", "lost", "open",
    ])  # fmt: skip
    sums = {name: int(cases[name].sum()) for name in ("pairs", "right", "distinct", "distinct_right", "open")}
    return Judgement(
        cases, pairs=sums["pairs"], pairs_right=sums["right"], distinct=sums["distinct"],
        distinct_right=sums["distinct_right"], best_chosen=int((cases["chosen"] == cases["best"]).sum()),
        best_within_interval=sums["open"],
    )  # fmt: skip
