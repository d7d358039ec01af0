"""Import of our own measurements: conversion of the measuring core's JSON lines to rows of the tables, and back."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from forerun.data import batch_limits, saved_graphs, schema, serving
from forerun.data.sql import matching
from forerun.data.store import Store
from forerun.device import aliases
from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.measure.cases import OPTIMIZERS, model_name, stored_dtype, workload_of
from forerun.measure.core import python_file
from forerun.measure.core.rows import NOT_PROFILED, merge, read
from forerun.measure.machine import name_of, plain_name
from forerun.runtimes.registry import USUAL

PROTOCOL = "forerun/"
_SPREAD = {"median": "latency_median_ms", "min": "latency_min_ms", "p90": "latency_p90_ms", "p99": "latency_p99_ms"}
_SAME = ("latency_ms", "loop_ms", "graph_ms", "first_call_ms", "weights_mb", "energy_j", "power_w", "sm_clock_mhz",
         "kernels", "copies", "parameters")  # fmt: skip
#: Stored as JSON in `extra`: reasons for missing values, and details. `pulse_…`: probes of older rows.
_EXTRA = ("graph_ms_reason", "kernel_ms_reason", "energy_reason", "kernel_classes", "top_kernels", "quantised_by",
          "attention", "load", "others_share", "loop_calls", "timed_calls", "temperature_c", "spec", "nodes",
          "max_depth", "mean_depth", "trees", "iterations", "support_vectors", "searches_tree",
          "second_call_ms", "first_token_calls", "bare_token_ms", "bare_token_reason",
          "compile_s", "compiled_from_cache", "graph_breaks",
          "host_probe_before", "host_probe_after", "pulse_before", "pulse_after")  # fmt: skip


def take_in(files: Iterable[str | Path], store: Store, dataset: str = "own", *, graphs: bool = True,
            progress: Callable[[Iterable[Any], int], Iterable[Any]] | None = None,
            onnx_files: Iterable[str | Path] = (), trust_remote_code: bool = False) -> dict[str, int]:  # fmt: skip
    """Adds the rows of the files that the store does not have yet; returns their number by table.

    Graphs of rows of ONNX files come from `onnx_files`, and those of Python files from running them, see `add_graphs`.
    """
    tables: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        if not Path(file).is_file():
            raise ForerunError(f"there is no file {file}")
        lines = read(file)
        if not lines:
            raise ForerunError(f"{file} contains no rows of the measuring core (one JSON object per line)")
        for table, rows in tables_of(lines, dataset).items():  # each with the kernels of its own sweep
            tables.setdefault(table, []).extend(rows)
    tables = tables or tables_of((), dataset)
    # GPU rows without kernels yet are postponed, since stored rows are not updated. Of whole generations few have any.
    tables["models"] = [
        row
        for row in tables["models"]
        if row["extra"].get("kernel_ms_reason") != NOT_PROFILED or row["reason"] or row["mode"] == "generate"
    ]
    if graphs:
        saved_graphs.save(store, add_graphs(tables["models"], progress, onnx_files, trust_remote_code))
        batch_limits.add_graphs(tables["batch_limits"])
    for table in ("models", "operators", "serving"):
        _number_repeats(tables[table], store, table)
    return {table: store.append_new(table, rows) for table, rows in tables.items() if rows}


def _number_repeats(rows: list[dict[str, Any]], store: Store, table: str) -> None:
    """Renumbers repeats of a case that exist on the device already, since every sweep counts from 0. Failed rows have
    no number."""
    known = store.read(table, columns=["row_id", "case_key", "device", "repeat", "status"])
    known = known[known["case_key"].isin({row["case_key"] for row in rows}) & (known["status"] == "ok")]
    taken = set(known[["case_key", "device", "repeat"]].itertuples(index=False, name=None))
    there = set(known["row_id"])
    for row in rows:
        if row["row_id"] in there or row["status"] != "ok":
            continue
        there.add(row["row_id"])
        while (row["case_key"], row["device"], row["repeat"]) in taken:
            row["repeat"] += 1
        taken.add((row["case_key"], row["device"], row["repeat"]))


def tables_of(lines: Iterable[dict[str, Any]], dataset: str) -> dict[str, list[dict[str, Any]]]:
    """The core's lines as rows, by table."""
    out: dict[str, list[dict[str, Any]]] = {
        "models": [], "operators": [], "curves": [], "hosts": [], "batch_limits": [], "serving": [],
    }  # fmt: skip
    for row in merge(lines):
        kind = row.get("kind")
        if kind in ("model", "op", "curve", serving.KIND) and "case" not in row:
            raise ForerunError("these rows only list what is done (forerun data export); there is nothing to take in")
        if kind == "model":
            out["models"].append(model_row(row, dataset))
        elif kind == "op":
            out["operators"].append(_operator_row(row, dataset))
        elif kind == "curve":
            out["curves"] += _curve_rows(row, dataset)
        elif kind == "host":
            out["hosts"] += _host_rows(row, dataset)
        elif kind == batch_limits.KIND:
            out["batch_limits"].append({**_origin(row, dataset), **batch_limits.columns(row)})
        elif kind == serving.KIND:
            out["serving"].append({**_origin(row, dataset), **serving.columns(row)})
    return out


def model_row(row: dict[str, Any], dataset: str) -> dict[str, Any]:
    """One measured case as a row of `models`, without the graph hash, see `add_graphs`."""
    case = row["case"]
    spread, memory = row.get("wall_ms") or {}, row.get("memory") or {}
    training = case["mode"] == "training"
    return {
        **_origin(row, dataset), "model": model_name(case), "source": case["source"], "family": case.get("family"),
        "case": case, "case_key": row["key"], "repeat": row.get("repeat", 0), "runtime": case.get("runtime", USUAL),
        "devices": 1, "mode": case["mode"], "batch": case["batch"], "amp": case.get("amp"),
        "dtype": stored_dtype(case["dtype"]), "quantised": row.get("quantised_by"),
        "optimizer": OPTIMIZERS.get(case.get("optimizer", "sgd")) if training else None, "seq_len": case.get("seq_len"),
        "tokens_out": case.get("new_tokens"), "ttft_ms": row.get("first_token_ms"), "tpot_ms": row.get("token_ms"),
        "input_shape": case.get("input_shape"), "event_ms": (row.get("event_ms") or {}).get("mean"),
        "device_ms": row.get("kernel_ms"), "memory_mb": memory.get("used_mb"),
        "memory_reserved_mb": memory.get("reserved_mb"), "memory_allocated_mb": memory.get("allocated_mb"),
        **{name: row.get(name) for name in _SAME}, **{ours: spread.get(theirs) for theirs, ours in _SPREAD.items()},
        "extra": {name: row[name] for name in _EXTRA if row.get(name) is not None} | _threads(case),
    }  # fmt: skip


def add_graphs(
    rows: list[dict[str, Any]],
    progress: Callable[[Iterable[Any], int], Iterable[Any]] | None = None,
    onnx_files: Iterable[str | Path] = (),
    trust_remote_code: bool = False,
) -> dict[str, Graph]:
    """Adds graph hash and FLOPs to every row whose model can be captured.

    A row of an ONNX file has only the file's hash: the file is searched among `onnx_files` and at the path in the row.
    A row of a Python file names it: it is code, and runs only with `trust_remote_code`.
    The graphs of such rows are returned by hash, to be saved (`saved_graphs`).
    """
    from forerun.frontends.base import file_hash
    from forerun.frontends.loading import load_graphs
    from forerun.graph.cost import totals
    from forerun.runtimes.registry import filed_under

    alone = [row for row in rows if row["source"] != "tabular" and row["mode"] != "generate"]  # of one call each
    todo = [row for row in alone if row["status"] in ("ok", "oom")]
    named = {case["path"] for case in (row["case"] for row in todo) if case["source"] == "onnx"}
    here = {file_hash(Path(file)): str(file) for file in [*named, *onnx_files] if Path(file).is_file()}
    known: dict[str, tuple[str, float]] = {}
    graphs_of: dict[str, Graph] = {}
    scalable: dict[str, Graph | None] = {}  # of Python files, by all of a case but its batch: no cache has them
    for row in progress(todo, len(todo)) if progress else todo:
        if row["case_key"] not in known:
            file = here.get(row["case"].get("sha256", ""))
            if row["source"] == "onnx" and file is None:
                continue
            try:
                work = workload_of(row["case"], file, trust_remote_code)
                settings = json.dumps({**row["case"], "batch": None}, sort_keys=True)
                other = scalable.get(settings)
                if other is not None and other.serves(work.batch):
                    graph = other.at(work.batch)
                else:
                    graph, other = load_graphs(work)
                    scalable[settings] = other if row["source"] == python_file.SOURCE else None
            except ForerunError:
                continue
            known[row["case_key"]] = (filed_under(graph, work), float(totals(graph).flops))
            if row["source"] in saved_graphs.SOURCES:
                graphs_of[known[row["case_key"]][0]] = graph
        row["graph_hash"], row["flops"] = known[row["case_key"]]
    return graphs_of


def to_core(store: Store, *, where: str = "true") -> list[dict[str, Any]]:
    """Our rows of the store in the core's format, with what a later sweep needs to skip finished cases."""
    out: list[dict[str, Any]] = []
    for table, kind in (("models", "model"), ("operators", "op"), ("curves", "curve"), ("serving", serving.KIND)):
        rows = matching(store, table, f"protocol like '{PROTOCOL}%' and case_key is not null and (\n{where}\n)")
        machines = rows[["session", "device_reported"]].drop_duplicates()
        for session, device in machines.itertuples(index=False):
            out.append({"kind": "session", "session": session, "device": {"name": device}})
        if kind == "curve":
            rows = rows.drop_duplicates("case_key").assign(repeat=0)
        for row in rows.to_dict("records"):
            about = {"key": row["case_key"], "repeat": int(row["repeat"]), "session": row["session"],
                     "protocol": int(row["protocol"].removeprefix(PROTOCOL))}  # fmt: skip
            line = {"kind": kind, **about, "status": row["status"]}
            if kind == "model":
                extra = json.loads(row["extra"] or "{}")
                line |= {"case": json.loads(row["case"]), "latency_ms": row["latency_ms"],
                         "graph_ms_reason": extra.get("graph_ms_reason", "")}  # fmt: skip
                if row["device_ms"] == row["device_ms"] or "kernel_ms_reason" in extra:
                    out.append({"kind": "kernels", **about})
            out.append(line)
    return out


def machine(row: dict[str, Any]) -> tuple[str, str]:
    """The id of the device of a row, and its name as the machine reports it."""
    host, case = row.get("host") or {}, row.get("case") or {}
    if case.get("source") == "onnx":  # onnxruntime was limited to as many cores as threads
        host = {**host, "cores": case["threads"]}
    reported = name_of(row.get("device") or {}, host)
    return device_id(reported), reported


@functools.cache
def device_id(reported: str) -> str:
    """Our id of a device by its reported name; the plain name if the catalogue does not have it."""
    bare = plain_name(reported)
    return aliases().get(bare, bare)


def _origin(row: dict[str, Any], dataset: str) -> dict[str, Any]:
    device, reported = machine(row)
    return {
        "row_id": schema.row_id(row["key"], row.get("repeat", 0), row.get("session"), row.get("time"), dataset),
        "dataset": dataset, "device": device,
        "device_reported": reported, "host": (row.get("host") or {}).get("cpu"), "software": row.get("software"),
        "protocol": f"{PROTOCOL}{row['protocol']}", "measured_at": row.get("time"), "session": row.get("session"),
        "status": row.get("status", "ok"), "reason": row.get("reason"),
    }  # fmt: skip


def _threads(case: dict[str, Any]) -> dict[str, Any]:
    return {"threads": case["threads"]} if "threads" in case else {}


def _operator_row(row: dict[str, Any], dataset: str) -> dict[str, Any]:
    case = row["case"]
    return {
        **_origin(row, dataset), "op": case["op"], "family": case.get("family"), "shape": case["shape"],
        "dtype": case["dtype"], "direction": case["direction"], "runtime": USUAL, "case_key": row["key"],
        "repeat": row.get("repeat", 0), "devices": 1, "kernels": row.get("kernels"),
        **{name: row.get(name) for name in ("device_ms", "device_min_ms", "device_max_ms")},
        "extra": {name: row[name] for name in ("method", "kernel_names", "copies", "calls") if row.get(name)},
    }  # fmt: skip


def _curve_rows(row: dict[str, Any], dataset: str) -> list[dict[str, Any]]:
    origin, case = _origin(row, dataset), row["case"]
    same = {"model": model_name(case), "case": case, "case_key": row["key"], "batch": case["batch"]}
    return [
        {**origin, **same, **epoch, "row_id": f"{origin['row_id']}-{epoch['epoch']}"} for epoch in row.get("epochs", ())
    ]


def _host_rows(row: dict[str, Any], dataset: str) -> list[dict[str, Any]]:
    origin = _origin(row, dataset)
    return [
        {**origin, "op": op, "launch_us": us, "launch_min_us": row["launch_min_us"].get(op), "load": row["load"][0],
         "row_id": f"{origin['row_id']}-{op}"}
        for op, us in row["launch_us"].items()
    ]  # fmt: skip
