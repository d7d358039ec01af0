"""Measured memory limits: the largest batch of a case that ran on a device, and the smallest that did not fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from forerun.data import measured
from forerun.data.store import Store
from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.measure.cases import OPTIMIZERS, model_name, stored_dtype, workload_of
from forerun.measure.core.batch_limit_phase import KIND
from forerun.runtimes.registry import USUAL, filed_under
from forerun.workload import Workload

__all__ = ["KIND", "BatchLimit", "add_graphs", "columns", "find"]

#: A limit does not depend on a batch, so it is stored under the hash of the graph at this batch.
FILED_AT = 8
_SETTINGS = ("mode", "dtype", "amp", "optimizer", "runtime")
_index: dict[tuple[str, int], dict[tuple[Any, ...], dict[str, Any]]] = {}


@dataclass(frozen=True)
class BatchLimit:
    """The measured limit of a case on a device."""

    ran_batch: int  # 0: no batch is known to have run
    oom_batch: int
    measured_at: str

    def fits(self, batch: int) -> bool | None:
        """Whether a batch fits; None between the largest that ran and the smallest that ran out of memory."""
        if batch >= self.oom_batch:
            return False
        return True if batch <= self.ran_batch else None

    @property
    def line(self) -> str:
        if not self.ran_batch:
            return f"measured on {self.measured_at[:10]}: batch {self.oom_batch:,} ran out of memory on this device"
        return (
            f"measured on {self.measured_at[:10]}: batch {self.ran_batch:,} ran on this device, batch "
            f"{self.oom_batch:,} ran out of memory"
        )


def columns(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the measuring core as columns of the table, without the graph hash."""
    case = row["case"]
    ran: list[dict[str, Any]] = [t for t in row["trials"] if t["status"] == "ran"]
    largest = max(ran, key=lambda t: int(t["batch"]), default={})
    return {
        "model": model_name(case), "source": case["source"], "family": case.get("family"), "case": case,
        "case_key": row["key"], "mode": case["mode"], "dtype": stored_dtype(case["dtype"]), "amp": case.get("amp"),
        "optimizer": OPTIMIZERS.get(case.get("optimizer", "sgd")) if case["mode"] == "training" else None,
        "runtime": case.get("runtime", USUAL), "input_shape": case.get("input_shape"),
        "seq_len": case.get("seq_len"), "ran_batch": row["ran_batch"], "oom_batch": row["oom_batch"],
        "memory_mb": largest.get("used_mb"), "memory_reserved_mb": largest.get("reserved_mb"),
        "memory_allocated_mb": largest.get("allocated_mb"), "usable_mb": largest.get("total_mb"),
        "extra": {"trials": [[t["batch"], t["status"]] for t in row["trials"]], "spec": row.get("spec")},
    }  # fmt: skip


def add_graphs(rows: Iterable[dict[str, Any]]) -> None:
    """Adds the graph hash to every row whose model can be captured."""
    from forerun.frontends import load_graphs

    for row in rows:
        work = workload_of({**row["case"], "batch": FILED_AT})
        try:
            graph, scalable = load_graphs(work)
        except ForerunError:
            continue
        row["graph_hash"] = hash_of(scalable or graph, work)


def hash_of(scalable: Graph, workload: Workload) -> str:
    """The hash under which limits of a workload are stored."""
    at = scalable.at(FILED_AT) if scalable.serves(FILED_AT) else scalable
    return filed_under(at, workload)


def find(graph: Graph, scalable: Graph | None, workload: Workload, device: str) -> BatchLimit | None:
    """The measured limit of a case on a device, else this batch if it ran out of memory in a sweep."""
    store = Store()
    rows = _by_case(store) if scalable is not None else {}
    if rows and scalable is not None:
        row = rows.get((device, *(getattr(workload, name) for name in _SETTINGS), hash_of(scalable, workload)))
        if row is not None:
            return BatchLimit(int(row["ran_batch"]), int(row["oom_batch"]), str(row["measured_at"]))
    at = measured.ran_out_at(filed_under(graph, workload), workload, device, store)
    return None if at is None else BatchLimit(0, workload.batch, at)


def _by_case(store: Store) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The newest row by case; reread only when the store's files change."""
    place = store.folder / "batch_limits"
    signature = (str(place), place.stat().st_mtime_ns if place.is_dir() else 0)
    if signature not in _index:
        frame = store.read("batch_limits").sort_values("measured_at")
        both = frame[frame["ran_batch"].notna() & frame["oom_batch"].notna() & frame["graph_hash"].notna()]
        limits = {}
        for row in both.to_dict("records"):
            settings = [None if row[n] is None or row[n] != row[n] else row[n] for n in _SETTINGS]
            limits[(row["device"], *settings, row["graph_hash"])] = row
        _index.clear()
        _index[signature] = limits
    return _index[signature]
