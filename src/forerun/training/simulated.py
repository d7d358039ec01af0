"""Simulated rows: what the default predictor says of measured workloads on devices without measurements.

A published predictor that was fitted to them predicts such devices too. They are marked in the store (`simulated` in
data/schema.py) and are never judged as truth: what they teach is judged on published measurements of the devices.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from forerun.data.schema import row_id
from forerun.data.store import Store
from forerun.device import Device, load_device
from forerun.errors import ForerunError
from forerun.predictors.base import TARGETS, Predictor
from forerun.predictors.cases import Cases, TrainingCases
from forerun.predictors.laws.memory import available_mb
from forerun.predictors.registry import load_predictor
from forerun.training.cases import Progress, workload_cases

#: The data set and the protocol of simulated rows.
DATASET = "simulated"
PROTOCOL = f"{DATASET}/1"
#: The predictor that makes them.
SOURCE = "default"
#: Columns that say what ran; all others of a measured row are what came out, and where.
_WHAT = (
    "model", "source", "family", "graph_hash", "case", "case_key", "parameters", "mode", "dtype", "amp", "optimizer",
    "runtime", "quantised", "input_shape", "parallel", "batch", "seq_len", "tokens_out", "devices",
)  # fmt: skip


def chosen_devices(names: str, predictor: Predictor, store: Store) -> list[Device]:
    """The devices of `--simulated`; a sentence where one is measured, or where rows of it would teach nothing."""
    if not predictor.learns_simulated:
        raise ForerunError(f"the predictor {predictor.name} learns nothing from simulated rows: leave --simulated out")
    devices = [load_device(load_device(name.strip()).id) for name in names.split(",") if name.strip()]
    if not devices:
        raise ForerunError("--simulated names no device: give ids of the catalogue, separated by commas")
    rows = store.read("models", columns=["device", "protocol"])
    measured = set(rows["device"][rows["protocol"].fillna("").str.startswith("forerun/")])
    source = load_predictor(SOURCE)
    for device in devices:
        if device.id in measured:
            raise ForerunError(f"{device.id} is measured: --simulated is for devices of which there is no row")
        if not device.traits.is_board:
            raise ForerunError(f"{device.id} is no GPU: rows are simulated of GPUs")
        if source.basis_for(device) == "roofline":
            raise ForerunError(f"the predictor {SOURCE} knows the roofline of {device.id} alone: nothing to simulate")
    return list({device.id: device for device in devices}.values())


def with_simulated(
    cases: TrainingCases, devices: Sequence[Device], predictor: Predictor, store: Store,
    progress: Progress | None = None,
) -> TrainingCases:  # fmt: skip
    """The cases with simulated rows of the devices, which replace those of an earlier fit of this predictor in the
    store. Published rows of such chips are left out: what is learned is judged on them."""
    made = simulated_cases(cases, devices, predictor, progress)
    store.replace(f"{DATASET}/{predictor.name}", {"models": _stored(made.rows)})
    published = cases.published_models
    if published is not None:
        published = published.take(~of_such_chips(published.rows, devices))
    return replace(cases, simulated_models=made, published_models=published)


def of_such_chips(rows: pd.DataFrame, devices: Sequence[Device]) -> np.ndarray:
    """Which rows are of these devices, or of others of their compute capability (A100s on PCIe)."""
    known = {device.compute_capability for device in devices} - {None}
    ids = {device.id for device in devices}
    such = {name: name in ids or _capability(name) in known for name in rows["device"].unique()}
    return rows["device"].map(such).to_numpy(dtype=bool)


def _capability(name: str) -> float | None:
    try:
        return load_device(name).compute_capability
    except ForerunError:
        return None


def simulated_cases(
    cases: TrainingCases, devices: Sequence[Device], predictor: Predictor, progress: Progress | None = None
) -> Cases:
    """Every measured workload that a predictor learns from, on every device that it fits, as the default predictor
    answers it. Memory is simulated (predictors/laws/memory.py)."""
    source = load_predictor(SOURCE)
    own = cases.models
    wanted = predictor.answers_row(own.rows) & ~own.rows["case_key"].duplicated().to_numpy()
    rows, places = own.rows[wanted], np.flatnonzero(wanted)
    asked = pd.concat([rows[[n for n in _WHAT if n in rows]].assign(device=device.id) for device in devices])
    asked = asked.reset_index(drop=True).assign(
        software=rows["software"].tolist() * len(devices), repeat=0, dataset=DATASET, protocol=PROTOCOL, status="ok",
        simulated=json.dumps({"predictor": SOURCE, "weights": source.stamp}), **dict.fromkeys(TARGETS, np.nan),
        loop_ms=np.nan,
    )  # fmt: skip
    workloads = [own.workloads[place] for _ in devices for place in places]
    made = workload_cases(asked, workloads, progress, load=own.load)
    room = {device.id: available_mb(device) for device in devices}
    answered = np.array([
        source.problem(workload, device) is None and needed <= (room[device.id] or np.inf)
        for workload, device, needed in zip(
            made.workloads, made.devices, made.rows["simulated_memory_mb"], strict=True
        )
    ], dtype=bool)  # fmt: skip
    if not answered.any():
        raise ForerunError(f"no measured workload of the predictor {predictor.name} fits {devices[0].id}")
    made = replace(made.take(answered), made=own.made)  # graphs are those of the measured rows
    found = source.predict_cases(made)
    known = {target: found[f"predicted_{target}"].to_numpy(dtype=float) for target in TARGETS}
    known["latency_ms"] = np.maximum(known["latency_ms"], made.rows["roofline_ms"].to_numpy(dtype=float))
    return replace(made, rows=made.rows.assign(**known))


def _stored(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows as the store keeps them."""
    names = (*_WHAT, *TARGETS, "device", "software", "repeat", "dataset", "protocol", "status", "simulated", "flops")
    kept = rows[[name for name in names if name in rows]]
    ids = [
        row_id(str(key), 0, str(made), str(device), DATASET)
        for key, made, device in zip(kept["case_key"], kept["simulated"], kept["device"], strict=True)
    ]
    return kept.assign(row_id=ids)
