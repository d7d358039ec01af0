"""Lookup of measurements of the same case as a workload."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forerun.data.store import Store
from forerun.prediction import DEVICE_BOUND, Estimate, deviations
from forerun.runtimes.registry import names
from forerun.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

_SETTINGS = ("mode", "batch", "dtype", "amp", "optimizer", "runtime")
_RESULTS = ("latency_ms", "device_ms", "energy_j", "power_w", "memory_mb", "memory_allocated_mb")
_ABOUT = ("measured_at", "software", "host", "dataset")

#: The 90 % quantile of the deviation of repeated measurements (docs/DATASET.md), for device-bound and host-bound cases:
#: the uncertainty of a single row.
NOISE = {
    "latency_ms": (0.15, 0.60), "device_ms": (0.02, 0.02), "energy_j": (0.08, 0.50), "power_w": (0.08, 0.30),
    "memory_mb": (0.04, 0.04), "memory_allocated_mb": (0.01, 0.01),
}  # fmt: skip

Key = tuple[Any, ...]
_index: dict[tuple[str, int], _Filed] = {}


@dataclass(frozen=True)
class Measured:
    """Mean, minimum and maximum over the rows of a case (None for missing quantities), and their origin."""

    values: dict[str, float | None]
    spans: dict[str, tuple[float, float]]
    rows: int
    measured_at: str
    software: str
    host: str

    @property
    def host_bound(self) -> bool:
        """Whether the case is host-bound; without a device time it is assumed to be."""
        device, latency = self.values["device_ms"], self.values["latency_ms"]
        return latency is not None and (device is None or device < DEVICE_BOUND * latency)

    def estimate(self, name: str, unit: str, confidence: float = 0.9) -> Estimate | None:
        """The mean with an interval that covers every row and repeat noise."""
        value = self.values[name]
        if value is None:
            return None
        noise = 1 + NOISE[name][self.host_bound]
        low, high = self.spans[name]
        factor = noise if confidence == 0.9 else noise ** (deviations(confidence) / deviations(0.9))
        return Estimate(value, min(low, value / factor), max(high, value * factor), unit)

    @property
    def line(self) -> str:
        """'measured 2 times, last on 2026-11-15, torch 2.11.0, host Intel Xeon'."""
        times = "once" if self.rows == 1 else f"{self.rows} times, last"
        versions = json.loads(self.software) if self.software.startswith("{") else {}
        library = next((name for name in (*names(), "torch") if versions.get(name)), None)
        known = ", ".join(name for name, value in self.values.items() if value is not None)
        where = (f", {library} {versions[library]}" if library else "") + f", host {self.host}"
        return f"measured {times} on {self.measured_at}{where}: {known}"


def find(graph_hash: str, workload: Workload, device: str, store: Store | None = None) -> Measured | None:
    """The measurements of a case under our protocol on the same device; None if there are none."""
    place = store or Store()
    rows = [row for row in _rows(graph_hash, workload, device, place) if row["status"] == "ok"]
    if not rows:
        return None
    values: dict[str, float | None] = {}
    spans: dict[str, tuple[float, float]] = {}
    for name in _RESULTS:
        known = [row[name] for row in rows if row[name] is not None and row[name] == row[name]]
        values[name] = sum(known) / len(known) if known else None
        if known:
            spans[name] = (min(known), max(known))
    last = max(rows, key=lambda row: str(row["measured_at"]))
    return Measured(
        values, spans, len(rows), str(last["measured_at"])[:10], str(last["software"]), str(last["host"])
    )  # fmt: skip


def ran_out_at(graph_hash: str, workload: Workload, device: str, store: Store) -> str | None:
    """The date on which the case ran out of memory on this device, if every measurement of it did."""
    rows = _rows(graph_hash, workload, device, store)
    return max(str(row["measured_at"]) for row in rows) if rows and all(r["status"] == "oom" for r in rows) else None


def _rows(graph_hash: str, workload: Workload, device: str, store: Store) -> list[dict[str, Any]]:
    case = (device, *(getattr(workload, name) for name in _SETTINGS))
    return _filed(store).cases(graph_hash).get(case, [])


class _Filed:
    """Rows of our protocol, found by the hash of their graph. They are taken apart when a graph is asked for: a process
    asks for few of them."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self._rows = rows
        self._cases: dict[str, dict[Key, list[dict[str, Any]]]] = {}
        self._places = rows.groupby("graph_hash", sort=False).indices

    def cases(self, graph_hash: str) -> dict[Key, list[dict[str, Any]]]:
        """The rows of a graph by device and settings."""
        if graph_hash not in self._places:
            return {}
        if graph_hash not in self._cases:
            cases: dict[Key, list[dict[str, Any]]] = {}
            for row in self._rows.iloc[self._places[graph_hash]].to_dict("records"):
                cases.setdefault((row["device"], *(_plain(row[name]) for name in _SETTINGS)), []).append(row)
            self._cases[graph_hash] = cases
        return self._cases[graph_hash]


def _filed(store: Store) -> _Filed:
    """What is in the store; reread only when its files change."""
    from pyarrow import compute

    place = store.folder / "models"
    # Every append moves a file into the folder, which changes its modification time.
    signature = (str(place), place.stat().st_mtime_ns if place.is_dir() else 0)
    if signature not in _index:
        wanted = ["graph_hash", "device", "status", "protocol", "quantised", *_SETTINGS, *_RESULTS, *_ABOUT]
        filed = compute.field("status").isin(["ok", "oom"]) & compute.field("graph_hash").is_valid()
        frame = store.read("models", columns=wanted, filters=filed)
        rows = _Filed(frame[frame["protocol"].str.startswith("forerun/") & in_priced_format(frame)])
        _index.clear()
        _index[signature] = rows
    return _index[signature]


def in_priced_format(rows: pd.DataFrame) -> pd.Series:
    """Rows with the weight format that predictions assume for their dtype (graph/quantise.py): NF4 for int4, cast
    weights for int8. Other rows were measured with other kernels."""
    how = rows["quantised"].fillna("")
    other = ((rows["dtype"] == "int4") & ~how.str.contains("nf4")) | how.str.contains("LLM.int8")
    return ~other


def _plain(value: Any) -> Any:
    if value is None or value != value:
        return None
    return value if isinstance(value, str) else int(value)
