"""What the margin of memory is worth on cases that it was not chosen on.

The margin of `fits` was chosen on the very limits that judge it. Here it is chosen on half of the families, relatives
together, and judged on the others: both ways round.
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
#: What the margin is chosen to reach on its half: this share of what ran out of memory is said not to fit.
RECALL = 0.95


@dataclass(frozen=True)
class Trial:
    """A batch that was tried on a device; the largest margin, in per cent, at which it is said to fit (-1: none)."""

    family: str
    ran: bool
    most_percent: int

    def refused(self, percent: int) -> bool:
        return percent > self.most_percent


def trials(store: Store) -> list[Trial]:
    """Every trial of every case whose limit was found from both sides."""
    rows = store.read("batch_limits")
    found = []
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
                found.append(Trial(row["family"], status == "ran", low))
    return found


def chosen(some: Sequence[Trial]) -> int:
    """The smallest margin, in per cent, that says of enough trials that ran out of memory that they do not fit."""
    out = [one for one in some if not one.ran]
    reached = (p for p in PERCENT if sum(one.refused(p) for one in out) >= RECALL * len(out))
    return next(reached, PERCENT[-1])


def halves(found: Sequence[Trial], rows: pd.DataFrame) -> tuple[set[str], set[str]]:
    """The families of the trials in two halves of about as many trials that ran out of memory; relatives are in one."""
    group = dict(zip(rows["family"], splits.independent(rows), strict=True))
    many: dict[str, int] = {}
    for one in found:
        name = str(group.get(one.family, one.family))
        many[name] = many.get(name, 0) + (not one.ran)
    sides: tuple[set[str], set[str]] = (set(), set())
    filled = [0, 0]
    for name in sorted(many, key=lambda n: (-many[n], n)):  # the largest first, each to the emptier half
        side = int(filled[1] < filled[0])
        filled[side] += many[name]
        sides[side].update(one.family for one in found if group.get(one.family, one.family) == name)
    return sides


def section(found: Sequence[Trial], rows: pd.DataFrame) -> Section:
    """Chosen on one half, judged on the other; `rows` ran, and are predictions for cases that were held out."""
    sides = halves(found, rows)
    needed = rows[rows["predicted_memory_mb"].notna()]
    lines = []
    for mine in (sides, sides[::-1]):
        percent = chosen([one for one in found if one.family in mine[0]])
        judged = [one for one in found if one.family in mine[1]]
        out, ran = ([one.refused(percent) for one in judged if one.ran is did] for did in (False, True))
        others = needed[~needed["family"].isin(mine[0])]
        have = {name: _available_mb(load_device(name), percent) for name in others["device"].unique()}
        refused = sum(ran) + int((others["predicted_memory_mb"] > others["device"].map(have)).sum())
        lines.append({
            "chosen on": ", ".join(sorted(mine[0])), "margin": f"{percent} %", "judged on": f"{len(mine[1])} others",
            "ran out of memory": len(out), "said not to fit": sum(out),
            "recall": f"{sum(out) / len(out):.1%}" if out else "", "ran": len(ran) + len(others),
            "of these refused": refused,
            "share refused": f"{refused / (len(ran) + len(others)):.2%}" if len(ran) + len(others) else "",
        })  # fmt: skip
    title = "The margin of memory chosen on half of the families (relatives together), judged on the others"
    return Section("margin", title, pd.DataFrame(lines))


def _available_mb(device: Device, percent: int) -> float:
    """What one process may use of a device with this margin in place of the usual one."""
    usual = available_mb(device)
    return float("inf") if usual is None else usual / (1 - MARGIN) * (1 - percent / 100)
