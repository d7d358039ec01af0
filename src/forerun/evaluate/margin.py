"""Cross-validation of the memory margin.

The margin of `fits` was chosen on the same limits that it is evaluated on. Here it is chosen on half of the families,
relatives together, and evaluated on the other half: both ways round.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from forerun.data import splits
from forerun.data.store import Store
from forerun.device import Device, load_device
from forerun.errors import ForerunError
from forerun.evaluate.results import Section
from forerun.frontends import load_graphs
from forerun.graph.memory import simulate
from forerun.measure.cases import workload_of
from forerun.predictors.laws.memory import MARGIN, available_mb, context_mb, cublas_handles, workspace_mb
from forerun.predictors.laws.workspaces import library_workspaces, with_reserves

#: Margins that are tried, in per cent.
PERCENT = range(16)
#: The recall that the margin is chosen for on its half: the share of out-of-memory trials predicted not to fit.
RECALL = 0.95


@dataclass(frozen=True)
class Trial:
    """A batch tried on a device, with the largest margin, in per cent, at which it is predicted to fit (-1: none)."""

    family: str
    ran: bool
    most_percent: int

    def refused(self, percent: int) -> bool:
        return percent > self.most_percent


def trials(store: Store) -> list[Trial]:
    """Every trial of every case with a measured limit from both sides."""
    rows = store.read("batch_limits")
    tried = []
    for row in rows[rows["ran_batch"].notna() & rows["oom_batch"].notna()].to_dict("records"):
        try:
            graph, scalable = load_graphs(workload_of({**json.loads(row["case"]), "batch": 1}))
            device = load_device(row["device"])
        except ForerunError:
            continue
        if scalable is None:
            continue
        reserved, working, handles = with_reserves(scalable), library_workspaces(device), cublas_handles(graph)
        beside = context_mb(device) + workspace_mb(handles, device)
        rooms = [max(0.0, _available_mb(device, percent) - beside) for percent in PERCENT]
        for batch, status in json.loads(row["extra"])["trials"]:
            if status in ("ran", "oom"):
                at, low = reserved.at(int(batch)), -1
                high = len(rooms)
                while high - low > 1:
                    middle = (low + high) // 2
                    fits = simulate(at, rooms[middle], working).fits
                    low, high = (middle, high) if fits else (low, middle)
                tried.append(Trial(row["family"], status == "ran", low))
    return tried


def chosen(subset: Sequence[Trial]) -> int:
    """The smallest margin, in per cent, at which enough of the trials that ran out of memory are predicted not to
    fit."""
    out = [one for one in subset if not one.ran]
    reached = (p for p in PERCENT if sum(one.refused(p) for one in out) >= RECALL * len(out))
    return next(reached, PERCENT[-1])


def halves(tried: Sequence[Trial], rows: pd.DataFrame) -> tuple[set[str], set[str]]:
    """The families of the trials in two halves of about as many trials that ran out of memory; relatives are in one."""
    group = dict(zip(rows["family"], splits.independent(rows), strict=True))
    ran_out: dict[str, int] = {}
    for one in tried:
        name = str(group.get(one.family, one.family))
        ran_out[name] = ran_out.get(name, 0) + (not one.ran)
    sides: tuple[set[str], set[str]] = (set(), set())
    filled = [0, 0]
    for name in sorted(ran_out, key=lambda n: (-ran_out[n], n)):  # the largest first, each to the emptier half
        side = int(filled[1] < filled[0])
        filled[side] += ran_out[name]
        sides[side].update(one.family for one in tried if group.get(one.family, one.family) == name)
    return sides


def section(tried: Sequence[Trial], rows: pd.DataFrame) -> Section:
    """Chosen on one half, evaluated on the other; `rows` are held-out predictions of cases that ran."""
    sides = halves(tried, rows)
    needed = rows[rows["predicted_memory_mb"].notna()]
    lines = []
    for split in (sides, sides[::-1]):
        percent = chosen([one for one in tried if one.family in split[0]])
        judged = [one for one in tried if one.family in split[1]]
        out, ran = ([one.refused(percent) for one in judged if one.ran is did] for did in (False, True))
        others = needed[~needed["family"].isin(split[0])]
        have = {name: _available_mb(load_device(name), percent) for name in others["device"].unique()}
        refused = sum(ran) + int((others["predicted_memory_mb"] > others["device"].map(have)).sum())
        lines.append({
            "chosen on": ", ".join(sorted(split[0])), "margin": f"{percent} %", "judged on": f"{len(split[1])} others",
            "ran out of memory": len(out), "said not to fit": sum(out),
            "recall": f"{sum(out) / len(out):.1%}" if out else "", "ran": len(ran) + len(others),
            "of these refused": refused,
            "share refused": f"{refused / (len(ran) + len(others)):.2%}" if len(ran) + len(others) else "",
        })  # fmt: skip
    title = "The margin of memory chosen on half of the families (relatives together), judged on the others"
    return Section("margin", title, pd.DataFrame(lines))


def _available_mb(device: Device, percent: int) -> float:
    """The memory that one process may use of a device with this margin in place of the default one."""
    default = available_mb(device)
    return float("inf") if default is None else default / (1 - MARGIN) * (1 - percent / 100)
