"""Evaluation of `fits` and `largest batch` against batches that ran out of memory on the device.

A search on the device (sweeps of kind batch_limit) gives the largest batch that ran and the smallest that did not, each
tried in a fresh process. Every trial is a case: one that ran out of memory should be predicted not to fit (recall), and
one that ran should be predicted to fit. All other rows of the device ran.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from forerun.advice.fit import fit
from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate import margin
from forerun.evaluate.results import Section
from forerun.evaluate.stored import stored_predictions
from forerun.frontends import load_graphs
from forerun.measure.cases import workload_of
from forerun.predictors.laws.memory import available_mb, estimate
from forerun.predictors.saved import SHIPPED


@dataclass(frozen=True)
class Limit:
    """The measured limit of one case and the predicted one."""

    model: str
    mode: str
    device: str
    ran_batch: int
    oom_batch: int
    predicted: int
    trials: tuple[tuple[int, bool], ...]  # batch, whether it ran

    @property
    def off(self) -> float:
        """Relative error of the predicted limit against the largest batch that ran; negative: below."""
        return self.predicted / self.ran_batch - 1


def limits(store: Store) -> list[Limit]:
    """Every case with a measured limit from both sides, and the limit predicted for it."""
    rows = store.read("batch_limits")
    rows = rows[rows["ran_batch"].notna() & rows["oom_batch"].notna()]
    measured = []
    for row in rows.to_dict("records"):
        predicted = _predicted(row["case"], row["device"])
        if predicted is not None:
            trials = json.loads(row["extra"])["trials"]
            ran = tuple((int(batch), status == "ran") for batch, status in trials if status in ("ran", "oom"))
            ends = int(row["ran_batch"]), int(row["oom_batch"])
            measured.append(Limit(row["model"], row["mode"], row["device"], *ends, predicted, ran))
    return measured


@functools.cache
def _predicted(case: str, device: str) -> int | None:
    """The largest batch that is predicted to fit; None for a model or a device that is not known here."""
    try:
        work, chosen = workload_of({**json.loads(case), "batch": 1}), load_device(device)
        graph, scalable = load_graphs(work)
    except ForerunError:
        return None
    answer = fit(graph, scalable, chosen, estimate(graph, chosen))
    return None if answer is None else answer.largest_batch


def refused_rows(held_out: pd.DataFrame) -> tuple[int, int]:
    """Of the held-out rows of GPUs, all of which ran: how many are predicted not to fit, and how many rows there
    are."""
    needed = held_out[held_out["predicted_memory_mb"].notna()]
    have = {name: available_mb(load_device(name)) or float("inf") for name in needed["device"].unique()}
    return int((needed["predicted_memory_mb"] > needed["device"].map(have)).sum()), len(needed)


def sections(store: Store) -> list[Section]:
    """All tables for the default predictor."""
    measured = limits(store)
    if not measured:
        raise ForerunError("the store has no measured limits of memory: forerun sweep sweeps/h200_batch_limits.yaml")
    held_out = stored_predictions(SHIPPED / "default")
    rows = refused_rows(held_out)
    return [
        Section("fits", f"Does it fit: batches that ran out of memory, {len(measured)} cases", table(measured, rows)),
        Section("largest_batch", "Predicted largest batch, against the largest that ran", by_mode(measured)),
        margin.section(margin.trials(store), held_out),
    ]


def table(measured: Sequence[Limit], rows: tuple[int, int] = (0, 0)) -> pd.DataFrame:
    """Recall of out-of-memory trials, and the share of trials that ran but are predicted not to fit: over all cases and
    near the limit."""
    tried = [(one, batch, ran) for one in measured for batch, ran in one.trials]
    out = [batch > one.predicted for one, batch, ran in tried if not ran]
    refused = [batch > one.predicted for one, batch, ran in tried if ran]
    lines = [
        _line("all trials and all rows that ran", out, sum(refused) + rows[0], len(refused) + rows[1]),
        _line("all trials, near the limit", out, sum(refused), len(refused)),
    ]
    for name, share in (("at the limit", 0.0), ("5 % from the limit", 0.05), ("10 % from the limit", 0.1)):
        above = [one.oom_batch * (1 + share) > one.predicted for one in measured]
        below = [one.ran_batch * (1 - share) > one.predicted for one in measured]
        lines.append(_line(f"{name}: smallest batch that ran out, largest that ran", above, sum(below), len(below)))
    return pd.DataFrame(lines)


def by_mode(measured: Sequence[Limit]) -> pd.DataFrame:
    """Relative error of the predicted largest batch, margin included."""
    lines = []
    for mode, group in pd.DataFrame([{"mode": one.mode, "off": one.off} for one in measured]).groupby("mode"):
        off = group["off"].sort_values()
        lines.append({"mode": mode, "cases": len(off), "median": f"{off.median():+.1%}",
                      "lowest": f"{off.iloc[0]:+.1%}", "highest": f"{off.iloc[-1]:+.1%}"})  # fmt: skip
    return pd.DataFrame(lines)


def _line(what: str, out: Sequence[bool], refused: int, ran: int) -> dict[str, object]:
    flagged = sum(out)
    return {
        "cases": what, "ran out of memory": len(out), "said not to fit": flagged,
        "recall": f"{flagged / len(out):.1%}" if out else "", "ran": ran, "of these refused": refused,
        "share refused": f"{refused / ran:.2%}" if ran else "",
    }  # fmt: skip
