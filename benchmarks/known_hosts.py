"""Prints how slow known hosts are beside the reference host: the numbers of device/catalog/hosts.yaml.

Our own host by its probes, which ship (table `hosts`); hosts behind published sets by their host-bound calls, where the
store has the sets (docs/DATASET.md). A host-bound call here is one whose host time is predicted to be twice its device
time or more, and whose latency was measured as that: such a call shows the host and little else. The answer is the
slowness that makes the errors over all such calls of a card smallest (`nearest_slowness`); in brackets stands what a
tenth of the probes, or of single calls, say less or more than. The test set is excluded.

    FORERUN_STORE=FOLDER python benchmarks/known_hosts.py
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import pandas as pd

from forerun.data.store import Store
from forerun.errors import ForerunError
from forerun.evaluate.test_set import GPU, in_test_set
from forerun.measure.host import REFERENCE_US
from forerun.predictors.default import DefaultPredictor
from forerun.predictors.default.fit import device_ms
from forerun.predictors.default.fit_host import CANDIDATES, nearest_slowness
from forerun.predictors.laws.host import HostCosts
from forerun.training.published import published_cases

HOST_BOUND = 2.0  # host time over device time from which on a call shows the host
ENOUGH_CALLS = 10


@dataclass(frozen=True)
class Line:
    """One host: slowness, what a tenth of single calls or probes say less or more than, and how many there are."""

    host: str
    slowness: float
    low: float
    high: float
    rows: str
    error: float | None = None  # of latency over these calls, by this slowness

    def __str__(self) -> str:
        off = "" if self.error is None else f", mean error {self.error:.0%}"
        return f"{self.host}: {self.slowness:.2f} ({self.low:.2f} to {self.high:.2f}), {self.rows}{off}"


def probed(store: Store, dataset: str = "forerun-h200") -> Line:
    """Our own host: the median over its probes, each the median over the kinds of launch."""
    rows = store.read("hosts")
    rows = rows[(rows["dataset"] == dataset) & rows["op"].isin(list(REFERENCE_US)) & (rows["status"] == "ok")]
    ratio = rows["launch_us"] / rows["op"].map(REFERENCE_US)
    each = ratio.groupby([rows["session"], rows["measured_at"]]).median()
    dates = f"{rows['measured_at'].min()[:10]} to {rows['measured_at'].max()[:10]}"
    low, middle, high = each.quantile([0.1, 0.5, 0.9])
    return Line(dataset, middle, low, high, f"{len(each)} probes, {dates}")


def published(store: Store) -> list[Line]:
    """The host of every card of the published sets that has enough host-bound calls."""
    cases, weights = published_cases(store), DefaultPredictor.shipped().weights
    law, busy = weights.host, device_ms(weights.networks["gpu"], cases)
    measured = (cases.rows["latency_ms"] - cases.rows["copy_ms"].fillna(0.0)).to_numpy(dtype=float)
    launching = law.host_ms(cases.launches)
    shows = (launching > HOST_BOUND * busy) & (measured > HOST_BOUND * busy)
    shows &= ((cases.rows["device"] != GPU) & ~in_test_set(cases.rows)).to_numpy()
    out = []
    for (way, device), part in cases.rows.groupby(["protocol", "device"]):
        mine = np.zeros(len(cases.rows), dtype=bool)
        mine[cases.rows.index.get_indexer(part.index)] = True
        mine &= shows
        if mine.sum() >= ENOUGH_CALLS:
            out.append(
                _line(f"{way}, {device}", law, cases.launches[mine], busy[mine], measured[mine], cases.rows[mine])
            )
    return out


def _line(
    name: str, law: HostCosts, launches: np.ndarray, busy: np.ndarray, measured: np.ndarray, rows: pd.DataFrame
) -> Line:
    slow = nearest_slowness(law, launches, busy, measured)
    single = [
        nearest_slowness(law, launches[i : i + 1], busy[i : i + 1], measured[i : i + 1]) for i in range(len(busy))
    ]
    low, high = np.quantile(single, [0.1, 0.9])
    error = float(np.mean(np.abs(law.latency_ms(launches, busy, slow) / measured - 1)))
    modes = ", ".join(f"{n} {mode}" for mode, n in rows["mode"].value_counts().items())
    edge = " (at the edge of what is tried)" if slow in (CANDIDATES[0], CANDIDATES[-1]) else ""
    return Line(name, slow, float(low), float(high), f"{len(busy)} calls: {modes}{edge}", error)


def main() -> None:
    store = Store()
    print(probed(store))
    try:
        for line in published(store):
            print(line)
    except ForerunError as error:
        print(error, file=sys.stderr)


if __name__ == "__main__":
    main()
