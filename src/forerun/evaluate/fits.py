"""Does it fit: `fits` and `largest batch` against batches that really ran out of memory.

A search on the device (sweeps of kind batch_limit) gives the largest batch that ran and the smallest that did not, each
tried in a fresh process. Every trial is a case: one that ran out of memory should be said not to fit (recall), one that
ran should not be refused. All other rows of the device ran, too.
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
from forerun.evaluate.kept import kept_left_out
from forerun.evaluate.results import Section
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
        """How far the predicted limit lies from the largest batch that ran; negative: below."""
        return self.predicted / self.ran_batch - 1


def limits(store: Store) -> list[Limit]:
    """Every case whose limit was found from both sides, with the limit that is predicted for it."""
    rows = store.read("batch_limits")
    rows = rows[rows["ran_batch"].notna() & rows["oom_batch"].notna()]
    found = []
    for row in rows.to_dict("records"):
        predicted = _predicted(row["case"], row["device"])
        if predicted is not None:
            trials = json.loads(row["extra"])["trials"]
            ran = tuple((int(batch), status == "ran") for batch, status in trials if status in ("ran", "oom"))
            ends = int(row["ran_batch"]), int(row["oom_batch"])
            found.append(Limit(row["model"], row["mode"], row["device"], *ends, predicted, ran))
    return found


@functools.cache
def _predicted(case: str, device: str) -> int | None:
    """The largest batch that is said to fit; None for a model or a device that is not known here."""
    try:
        work, chosen = workload_of({**json.loads(case), "batch": 1}), load_device(device)
        graph, scalable = load_graphs(work)
    except ForerunError:
        return None
    answer = fit(graph, scalable, chosen, estimate(graph, chosen))
    return None if answer is None else answer.largest_batch


def refused_rows(kept: pd.DataFrame) -> tuple[int, int]:
    """Of the held-out rows of GPUs, all of which ran: how many are predicted to need more than there is, and how many
    rows there are."""
    needed = kept[kept["predicted_memory_mb"].notna()]
    have = {name: available_mb(load_device(name)) or float("inf") for name in needed["device"].unique()}
    return int((needed["predicted_memory_mb"] > needed["device"].map(have)).sum()), len(needed)


def sections(store: Store) -> list[Section]:
    """All tables for the default predictor."""
    found = limits(store)
    if not found:
        raise ForerunError("the store has no measured limits of memory: forerun sweep sweeps/h200_batch_limits.yaml")
    kept = kept_left_out(SHIPPED / "default")
    rows = refused_rows(kept)
    return [
        Section("fits", f"Does it fit: batches that ran out of memory, {len(found)} cases", table(found, rows)),
        Section("largest_batch", "The largest batch that is said to fit, against the largest that ran", by_mode(found)),
        margin.section(margin.trials(store), kept),
    ]


def table(found: Sequence[Limit], rows: tuple[int, int] = (0, 0)) -> pd.DataFrame:
    """Recall of what ran out of memory and the share of what ran that is refused, over all cases and at the limit."""
    tried = [(one, batch, ran) for one in found for batch, ran in one.trials]
    out = [batch > one.predicted for one, batch, ran in tried if not ran]
    refused = [batch > one.predicted for one, batch, ran in tried if ran]
    lines = [
        _line("all trials and all rows that ran", out, sum(refused) + rows[0], len(refused) + rows[1]),
        _line("all trials, near the limit", out, sum(refused), len(refused)),
    ]
    for name, share in (("at the limit", 0.0), ("5 % from the limit", 0.05), ("10 % from the limit", 0.1)):
        above = [one.oom_batch * (1 + share) > one.predicted for one in found]
        below = [one.ran_batch * (1 - share) > one.predicted for one in found]
        lines.append(_line(f"{name}: smallest batch that ran out, largest that ran", above, sum(below), len(below)))
    return pd.DataFrame(lines)


def by_mode(found: Sequence[Limit]) -> pd.DataFrame:
    """How far the predicted largest batch lies from the measured one, margin included."""
    lines = []
    for mode, some in pd.DataFrame([{"mode": one.mode, "off": one.off} for one in found]).groupby("mode"):
        off = some["off"].sort_values()
        lines.append({"mode": mode, "cases": len(off), "median": f"{off.median():+.1%}",
                      "lowest": f"{off.iloc[0]:+.1%}", "highest": f"{off.iloc[-1]:+.1%}"})  # fmt: skip
    return pd.DataFrame(lines)


def _line(what: str, out: Sequence[bool], refused: int, ran: int) -> dict[str, object]:
    said = sum(out)
    return {
        "cases": what, "ran out of memory": len(out), "said not to fit": said,
        "recall": f"{said / len(out):.1%}" if out else "", "ran": ran, "of these refused": refused,
        "share refused": f"{refused / ran:.2%}" if ran else "",
    }  # fmt: skip
