"""Collects what ADAPT.md says of a kind of network and of a GPU that the weights have not seen.

    python benchmarks/adaptation/held_out.py OUT [SETS]     OUT: the folder of collect.py; the same store

vision-transformers: rows of our H200. Their times are those that weights fitted without any image classifier predicted
(the stored held-out predictions, split by kind); only how a time divides among parts follows the weights that ship.
spec-sheet: what the datasheet alone says, arithmetic at its peaks, bytes at its bandwidth, and round numbers for
launches: of our H200's rows (device time) and of published rows of RTX cards (latency). Nothing in it is fitted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))
from collect import ZOO, device

from forerun.api.questions import problem, profiled
from forerun.data.importers import importers
from forerun.data.store import Store
from forerun.device import Device
from forerun.errors import ForerunError
from forerun.evaluate.collect import stored_frame
from forerun.graph.profile import Profile, profile
from forerun.predictors.laws.adaptation import (
    GROUP_OF_CLASS,
    GROUPS,
    HALF_UNITS,
    RESOURCES,
    Calls,
    host_parts,
    join_calls,
)
from forerun.predictors.laws.specs import op_roofline_s
from forerun.predictors.registry import load_predictor
from forerun.training.adapting.rows import workload_of_row

VISION_TRANSFORMERS = (
    "vit", "deit", "swin", "swinv2", "pvt", "eva", "twins", "xcit", "beit", "cait", "crossvit", "tiny_vit", "davit",
    "levit", "coat", "maxvit", "nest", "visformer", "mvitv2", "pit", "convit", "vit_relpos", "gcvit", "vit_hybrid",
)  # fmt: skip
RTX = ("rtx2080ti", "rtx3090", "rtx4060ti-16gb")
SEED, CASES = 38, {"vision-transformers": 120, "spec-sheet": 120}  # drawn of those of our H200
#: Round numbers: what launching an operation takes on a GPU and on its host.
ON_DEVICE_MS, ON_HOST_MS = 0.003, 0.01


def frame(split: str) -> pd.DataFrame:
    """Held-out predictions of inference on our H200, one row for each case, with the case itself."""
    found = stored_frame("default", split)
    assert found is not None
    found = found[(found["mode"] == "inference") & (found["runtime"] == "eager") & (found["device"] == "h200")]
    cases = Store(shipped=True).read("models", columns=["case_key", "case", "dataset"])
    cases = cases[cases["dataset"] == "forerun-h200"].drop_duplicates("case_key")[["case_key", "case"]]
    return found.drop_duplicates("case_key").merge(cases, on="case_key").sort_values("case_key", ignore_index=True)


def some(rows: pd.DataFrame, count: int) -> pd.DataFrame:
    return rows.iloc[np.random.default_rng(SEED).permutation(len(rows))[:count]]


def vision_transformers() -> tuple[pd.DataFrame, Calls]:
    rows = frame("kind")
    rows = some(rows[rows["family"].isin(VISION_TRANSFORMERS)], CASES["vision-transformers"])
    # The predictor whose weights know other vision transformers, of this family none: the ceiling.
    others = frame("family").set_index("case_key")["predicted_device_ms"]
    on, predictor = device("h200"), load_predictor("default")
    kept, calls = [], []
    for row in rows.to_dict("records"):
        try:
            workload = workload_of_row(row)
            one = predictor.calls(profiled(workload).columns, on, workload)
        except ForerunError:
            continue
        assert one is not None
        now = one.parts_ms.sum() + one.idle_ms.sum()
        calls.append(replace(
            one, parts_ms=one.parts_ms * row["predicted_device_ms"] / now,
            idle_ms=one.idle_ms * row["predicted_device_ms"] / now,
            host_ms=one.host_ms * row["predicted_host_ms"] / one.host_ms.sum(),
        ))  # fmt: skip
        kept.append({**row, "known": others.get(row["case_key"], np.nan)})
    return pd.DataFrame(kept), join_calls(calls)


def by_spec_sheet(columns: Profile, on: Device) -> Calls:
    """The parts of a call as the datasheet has them; op by op, the longer of arithmetic and bytes."""
    compute, memory, _ = (each[0] for each in op_roofline_s(columns, [on]))
    first, counts = compute >= memory, columns.repeat[:, None]
    half = HALF_UNITS[columns.units][:, None]
    launching = np.full(compute.shape, ON_DEVICE_MS / 1e3)
    parts = np.zeros((compute.shape[1], len(GROUPS), len(RESOURCES)))
    resources = (compute * first * ~half, compute * first * half, memory * ~first, launching)
    for place, each in enumerate(resources):
        np.add.at(parts[:, :, place].T, GROUP_OF_CLASS[columns.classes], each * counts * 1e3)
    launched = np.zeros((compute.shape[1], len(GROUPS) + 1))
    np.add.at(launched.T, GROUP_OF_CLASS[columns.classes], np.broadcast_to(counts * ON_HOST_MS, compute.shape))
    flat = parts.reshape(compute.shape[1], -1)
    return Calls(flat, np.zeros(len(flat)), host_parts(launched, bool(half.any())))


def h200_by_spec_sheet() -> tuple[pd.DataFrame, Calls]:
    rows, on, predictor = some(frame("family"), CASES["spec-sheet"]), device("h200"), load_predictor("default")
    kept, calls = [], []
    for row in rows.to_dict("records"):
        try:
            workload = workload_of_row(row)
            if problem(workload, on, predictor) is None:
                calls.append(by_spec_sheet(profiled(workload).columns, on))
                kept.append({**row, "known": row["predicted_device_ms"]})
        except ForerunError:
            continue
    return pd.DataFrame(kept), join_calls(calls)


def rtx_by_spec_sheet(name: str) -> tuple[pd.DataFrame, Calls]:
    importer, on = importers()[ZOO], device(name)
    rows = Store().read("models", filters=[("dataset", "=", ZOO)])
    cases = importer.model_rows(rows[(rows["devices"] == 1) & (rows["device"] == name)])
    assert cases is not None
    kept, calls = [], []
    for row in cases.sort_values("case_key").to_dict("records"):
        try:
            workload = importer.workload(row)
            calls.append(by_spec_sheet(profile(importer.graph(workload, row["software"]), workload.dtype), on))
        except ForerunError:
            continue
        kept.append({**row, "latency_ms": row["latency_ms"] - row["copy_ms"], "known": np.nan})
    return pd.DataFrame(kept), join_calls(calls)


def save(folder: Path, name: str, rows: pd.DataFrame, calls: Calls) -> None:
    known = (rows["latency_ms"] > 0).to_numpy()
    rows, calls = rows[known], calls.take(known)
    device_ms = rows["device_ms"] if "device_ms" in rows else pd.Series(np.nan, rows.index)
    np.savez_compressed(
        folder / f"{name}.npz", models=rows["model"].to_numpy(dtype=str),
        settings=(rows["dtype"] + ", batch " + rows["batch"].astype(str)).to_numpy(dtype=str),
        measured=rows["latency_ms"].to_numpy(dtype=float), device_ms=device_ms.to_numpy(dtype=float),
        known=rows["known"].to_numpy(dtype=float), parts_ms=calls.parts_ms, idle_ms=calls.idle_ms,
        host_ms=calls.host_ms, sharpness=calls.sharpness,
    )  # fmt: skip


def main(folder: Path, sets: Sequence[str] = tuple(CASES)) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if "vision-transformers" in sets:
        save(folder, "h200.vision-transformers", *vision_transformers())
    if "spec-sheet" in sets:
        for name in RTX:
            save(folder, f"{name}.spec-sheet", *rtx_by_spec_sheet(name))
        save(folder, "h200.spec-sheet", *h200_by_spec_sheet())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or tuple(CASES))
