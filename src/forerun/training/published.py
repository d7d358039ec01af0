"""Published times of whole models as training cases: the rows that importers declare to teach, on other GPUs than ours.

What a row means (which rows are taken, what was run, what the timed program was) is the importer's business
(data/importers/base.py); here the rows of all sets become cases, and those whose time the host sets are left out.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd

from forerun.data.importers import importers
from forerun.data.importers._cases import eager_on_one_gpu
from forerun.data.store import Store
from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.predictors.host import idle_ms
from forerun.training.cases import Cases, Progress, workload_cases
from forerun.training.fit_host import HostFit
from forerun.workload import Workload

#: How far the roofline of the device must lie above the host's time for a row to show the device's time.
CLEARLY, CREDIBLE = 1.0, 0.7


def published_cases(store: Store, progress: Progress | None = None) -> Cases:
    """Rows of every set that teaches, with `latency_ms` and `copy_ms` (part of it); what cannot be captured is left
    out."""
    rows = published_rows(store.read("models"))
    known = importers()
    workloads = [known[str(row["dataset"])].workload(row) for row in rows.to_dict("records")]
    # Two sets may have timed different programs under equal workloads, so each is asked for its own.
    timed_by = {id(one): known[name] for one, name in zip(workloads, rows["dataset"], strict=True)}

    def graph(workload: Workload, software: object) -> Graph:
        return timed_by[id(workload)].graph(workload, software)

    return workload_cases(rows, workloads, progress, load=graph)


def published_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a case of every set that teaches, sorted by case and device."""
    able = eager_on_one_gpu(rows)
    parts = []
    for name, importer in importers().items():
        chosen = importer.model_rows(able[able["dataset"] == name]) if importer.teaches_models else None
        if chosen is not None and len(chosen):
            parts.append(chosen)
    if not parts:
        raise ForerunError("the store has no published times of models: see forerun data import timm")
    return pd.concat(parts).sort_values(["case_key", "device"], ignore_index=True)


def has_any(rows: pd.DataFrame) -> bool:
    """Whether model rows of a set that teaches are among these."""
    return bool(rows["dataset"].isin([name for name, one in importers().items() if one.teaches_models]).any())


def device_bound(published: Cases, host: HostFit) -> Cases:
    """Cases whose time the device sets, by roofline and well above the host's; that time as `device_ms`."""
    rows = published.rows
    roofline_ms = published.light_ms
    measured = (rows["latency_ms"] - rows["copy_ms"]).to_numpy(dtype=float)
    busy = measured - idle_ms(published.launches, host.lead_us, host.gap_us)
    # Rows far below their roofline show that the spec sheet lacks something (tensor cores of a Titan V).
    sure = (roofline_ms > CLEARLY * host.host_ms(published.launches)) & (busy > CREDIBLE * roofline_ms)
    kept = published.take(sure)
    return replace(kept, rows=kept.rows.assign(device_ms=busy[sure]))


def other_families(published: Cases, asked: pd.DataFrame) -> Cases:
    """Without the families of the rows that are asked for, whatever each set calls them."""
    families, stems = set(asked["family"].dropna()), {_stem(name) for name in asked["model"]}
    known = published.rows["family"].isin(families) | published.rows["model"].map(_stem).isin(stems)
    return published.take(~known.to_numpy())


def _stem(model: str) -> str:
    """resnet of timm/resnet50d?layers=[2,2]: the letters before the first digit or underscore."""
    return re.split(r"[\d_?:]", model.rpartition("/")[2] or model)[0]
