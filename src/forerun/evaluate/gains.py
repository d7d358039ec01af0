"""Measured pairs: two calls of one model that differ in a change, with the gain as predicted and as measured.

The predictions are the stored ones of held-out families. Both calls of a pair ran on equally fast hosts, so that a slow
hour is not taken for a change. An eager row gives one more call, its replay as a CUDA graph.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forerun.measure.core.case_fields import CHANNELS_LAST
from forerun.predictors.laws import gain_errors
from forerun.predictors.laws.conformal import Calibration, calibrate
from forerun.runtimes.cudagraph import CudaGraph
from forerun.runtimes.registry import USUAL, is_usual, names_of, of_row

#: Quantities whose gains are calibrated.
TARGETS = ("latency_ms", "energy_j", "memory_mb")
#: Hosts within this of each other, in logarithms, count as equally fast.
SAME_HOST = 0.1
#: What arithmetic is done in, each a change of those before it.
_NUMBERS = {
    "fp32-ieee": 0, "fp32": 1, "tf32": 2, "amp fp16": 3, "amp bf16": 3, "fp16": 4, "bf16": 4, "int8": 5, "int4": 6,
}  # fmt: skip
_KIND_OF_NUMBER = {
    "tf32": "tf32", "amp fp16": "amp", "amp bf16": "amp", "fp16": "half", "bf16": "half", "int8": "weight-only",
    "int4": "weight-only",
}  # fmt: skip
#: The settings of a case that a change may change; the rest identifies the call.
_CHANGED = ("batch", "dtype", "amp", "layout", "runtime", "family", "kind")
_COLUMNS = (
    "model", "family", "mode", "batch", "seq_len", "number", "layout", "runtime", "host_over_device", "case_key",
    "host_slowness", "device", "device_kind", "measured_at", *TARGETS, *(f"predicted_{t}" for t in TARGETS),
)  # fmt: skip


def calls(held_out: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Held-out predictions with the measurements, one line a call; `rows` are the store's, which have the cases."""
    own_rows = rows[rows["case"].notna()]  # published rows have none
    cases = own_rows.drop_duplicates("case_key").set_index("case_key")["case"].map(json.loads)
    host = held_out.reindex(columns=["predicted_host_ms", "predicted_device_ms"])
    pace = (host["predicted_host_ms"] / host["predicted_device_ms"]).fillna(0.0)  # as for predictors without a host
    out = described(held_out.assign(host_over_device=pace), held_out["case_key"].map(cases))
    out = out.reindex(columns=[*dict.fromkeys(("call", *_COLUMNS)), "graph_ms", "predicted_graph_ms"])
    return pd.concat([out, replayed(out)], ignore_index=True).drop(columns=["graph_ms", "predicted_graph_ms"])


def described(rows: pd.DataFrame, cases: pd.Series) -> pd.DataFrame:
    """Measured rows with the name of their call, and with the settings that a change may change."""
    return rows.assign(
        call=cases.map(_call), layout=cases.map(lambda case: case.get("layout") or ""),
        number=np.where(rows["amp"].notna(), "amp " + rows["amp"].fillna(""), rows["dtype"]),
        runtime=names_of(rows),
    )  # fmt: skip


def _call(case: dict[str, Any]) -> str:
    """All that two calls of a pair have in common."""
    return json.dumps({name: value for name, value in case.items() if name not in _CHANGED}, sort_keys=True)


def replayed(rows: pd.DataFrame) -> pd.DataFrame:
    """Every eager call that was also replayed as a CUDA graph, as a call of its own."""
    eager = rows[is_usual(rows) & rows["graph_ms"].notna()]
    out = eager.assign(
        runtime=CudaGraph.name, host_over_device=0.0, latency_ms=eager["graph_ms"], energy_j=np.nan, memory_mb=np.nan
    )
    return out.assign(predicted_latency_ms=eager["predicted_graph_ms"]) if "predicted_graph_ms" in eager else out


def pairs(known: pd.DataFrame) -> pd.DataFrame:
    """Every two calls of one model of which the second is a change of the first: columns of the second end in `_to`,
    `kinds` says what was changed."""
    both = known.merge(known, on=["call", "device", "device_kind"], suffixes=("", "_to"))
    number, other = both["number"].map(_NUMBERS), both["number_to"].map(_NUMBERS)
    run, other_run = both["runtime"].map(_steps), both["runtime_to"].map(_steps)
    host_difference = np.abs(np.log(both["host_slowness"] / both["host_slowness_to"]))
    steps = {
        "number": np.sign(other - number), "layout": (both["layout_to"] == CHANNELS_LAST).astype(int)
        - (both["layout"] == CHANNELS_LAST), "runtime": np.sign(other_run - run),
        "batch": np.sign(both["batch_to"] - both["batch"]),
    }  # fmt: skip
    step = pd.DataFrame(steps)
    sideways = ((step["number"] == 0) & (both["number"] != both["number_to"])) | (
        (step["runtime"] == 0) & (both["runtime"] != both["runtime_to"])
    )
    wanted = (step >= 0).all(axis=1) & (step > 0).any(axis=1) & ~sideways & ~(host_difference > SAME_HOST)
    both, step = both[wanted], step[wanted]
    both = both.assign(
        kinds=[_kinds(*line) for line in zip(both["number_to"], both["runtime_to"], *_true(step), strict=True)],
        side=both[["host_over_device", "host_over_device_to"]].max(axis=1).map(gain_errors.pace),
    )  # fmt: skip
    return both.reset_index(drop=True)


def _steps(runtime: str) -> float:
    """How many steps a runtime is from eager; NaN of one that is no change of another."""
    if runtime == USUAL:
        return 0.0
    change = of_row(runtime).change
    return float("nan") if change is None else float(change.steps)


def _true(step: pd.DataFrame) -> list[list[bool]]:
    return [(step[name] > 0).tolist() for name in ("number", "layout", "runtime", "batch")]


def _kinds(number: str, runtime: str, by_number: bool, layout: bool, by_runtime: bool, batch: bool) -> tuple[str, ...]:
    """The changes between two calls, by the names that `optimise` gives to their kinds."""
    changed = {
        _KIND_OF_NUMBER.get(number, number): by_number,
        "channels-last": layout,
        runtime: by_runtime,
        "batch": batch,
    }
    return tuple(kind for kind, is_changed in changed.items() if is_changed)


def scores(matched: pd.DataFrame, target: str) -> np.ndarray:
    """log(measured gain / predicted gain) of every pair."""
    with np.errstate(invalid="ignore", divide="ignore"):
        measured = matched[target] / matched[f"{target}_to"]
        predicted = matched[f"predicted_{target}"] / matched[f"predicted_{target}_to"]
        return np.log((measured / predicted).to_numpy(dtype=float))


def calibrated(matched: pd.DataFrame) -> Calibration:
    """Errors of gains by kind of change. A kind with fewer than ENOUGH_PAIRS pairs that differ in it alone takes the
    pairs that differ in other settings too: those have the errors of both."""
    groups: list[str] = []
    values: list[np.ndarray] = []
    count = matched["kinds"].map(len)
    names = sorted({kind for kinds in matched["kinds"] for kind in kinds})
    for target in TARGETS:
        score = scores(matched, target)
        there = np.isfinite(score)
        for device_kind in sorted(set(matched["device_kind"])):
            selected = there & (matched["device_kind"] == device_kind).to_numpy()
            chosen = {gain_errors.SEVERAL: selected & (count > 1).to_numpy()}
            for name in names:
                has = selected & matched["kinds"].map(lambda kinds, name=name: name in kinds).to_numpy()
                alone = has & (count == 1).to_numpy()
                chosen[name] = alone if alone.sum() >= gain_errors.ENOUGH_PAIRS else has
            for name, which in chosen.items():
                groups += [gain_errors.group(target, name, device_kind, side) for side in matched["side"][which]]
                values.append(score[which])
    return calibrate(groups, np.concatenate(values)) if groups else Calibration({}, {})


def keep_gains(folder: Path, frames: dict[str, pd.DataFrame], rows: pd.DataFrame) -> None:
    """Writes the errors of gains beside the weights whose held-out predictions are in the frames."""
    matched = pairs(pd.concat([calls(frame, rows) for frame in frames.values()], ignore_index=True))
    about = {
        "pairs": len(matched), "models": int(matched["model"].nunique()), "families": int(matched["family"].nunique()),
        "last_measured": str(matched["measured_at"].max())[:10] if len(matched) else None,
    }  # fmt: skip
    gain_errors.write(folder, calibrated(matched), about)
