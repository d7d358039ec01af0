"""Published times of whole models, on other GPUs than ours, as training cases.

The importer of each set decides which rows are taken, what was run and what the timed program was
(data/importers/base.py); here the rows of all sets become cases.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd

from forerun.data.importers import importers
from forerun.data.importers._cases import on_one_gpu
from forerun.data.splits import relatives
from forerun.data.store import Store
from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.predictors.cases import Cases
from forerun.training.cases import Progress, with_timing_group, workload_cases
from forerun.workload import Workload


def published_cases(store: Store, progress: Progress | None = None) -> Cases:
    """Rows of every training set, with `latency_ms` and `copy_ms` (part of it), without those that cannot be
    captured."""
    return cases_of(published_rows(store.read("models")), progress)


def cases_of(rows: pd.DataFrame, progress: Progress | None = None) -> Cases:
    """Published rows as cases, each with the program that its set timed."""
    known, names = importers(), [str(name) for name in rows["dataset"]]
    workloads = [known[name].workload(row) for name, row in zip(names, rows.to_dict("records"), strict=True)]
    return workload_cases(rows, workloads, progress, load=_AsTimed(workloads, names))


class _AsTimed:
    """Loads the program that a row's own set timed: two sets may have timed different ones under equal workloads."""

    def __init__(self, workloads: Sequence[Workload], names: Sequence[str]) -> None:
        self._made_of = (workloads, names)
        self._by_workload = {id(one): name for one, name in zip(workloads, names, strict=True)}

    def __reduce__(self) -> tuple[type[_AsTimed], tuple[Sequence[Workload], Sequence[str]]]:
        return _AsTimed, self._made_of

    def __call__(self, workload: Workload, software: object) -> Graph:
        return importers()[self._by_workload[id(workload)]].graph(workload, software)


def published_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a case of every training set, sorted by case and device."""
    able = on_one_gpu(rows)
    parts = []
    for name, importer in importers().items():
        chosen = importer.model_rows(able[able["dataset"] == name]) if importer.models_in_training else None
        if chosen is not None and len(chosen):
            parts.append(chosen)
    if not parts:
        raise ForerunError("the store has no published times of models: see forerun data import timm")
    return with_timing_group(pd.concat(parts, ignore_index=True)).sort_values(["case_key", "device"], ignore_index=True)


def has_any(rows: pd.DataFrame) -> bool:
    """Whether model rows of a training set are among these."""
    return bool(rows["dataset"].isin([name for name, one in importers().items() if one.models_in_training]).any())


def other_families(published: Cases, test_rows: pd.DataFrame, *, by_name: bool = False) -> Cases:
    """Without the families of the held-out rows, under whatever name a set has them, and without their relatives unless
    families are held out `by_name`."""
    families, stems = set(test_rows["family"].dropna()), {_stem(name) for name in test_rows["model"]}
    known = published.rows["family"].isin(families) | published.rows["model"].map(_stem).isin(stems)
    if not by_name:
        known |= relatives(published.rows, test_rows)
    return published.take(~known.to_numpy())


def _stem(model: str) -> str:
    """resnet of timm/resnet50d?layers=[2,2]: the letters before the first digit or underscore."""
    return re.split(r"[\d_?:]", model.rpartition("/")[2] or model)[0]
