"""Measured serving runs: rows of the table `serving`, and how far a repeated run is from the first."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from forerun.data.store import Store
from forerun.data.summary import repeats
from forerun.measure.cases import model_name, stored_dtype
from forerun.measure.core.serving_cases import KIND

__all__ = ["KIND", "columns", "iterations", "noise", "rows", "trace"]

ENGINE = "transformers"  # the engine that our measuring core drives: its continuous batching
QUANTITIES = ("ttft_ms", "ttft_p90_ms", "itl_ms", "itl_p90_ms", "tpot_ms", "e2e_ms", "output_tokens_per_s", "power_w")
_CASE = ("arrivals", "rate", "concurrency", "prompt", "output", "spread")
_SETTINGS = ("block_size", "num_blocks", "max_batch_tokens", "max_requests_per_batch")
_SPREADS = [f"{name}{part}_ms" for name in ("ttft", "itl", "tpot", "e2e") for part in ("", "_p50", "_p90", "_p99")]
_SAME = (
    *_SPREADS, "window_s", "requests", "arrived", "completed", "requests_per_s", "output_tokens_per_s",
    "prompt_tokens_per_s", "iteration_ms", "prepare_ms", "step_ms", "update_ms", "busy", "running", "waiting",
    "context_tokens", "used_blocks", "most_used_blocks", "submit_lag_ms", "power_w", "energy_j", "sm_clock_mhz",
    "attention", "parameters",
)  # fmt: skip
#: Stored as JSON in `extra`.
_EXTRA = (
    "engine_facts", "attention_refused", "energy_reason", "temperature_c", "spec", "load", "started_s", "ttft_n",
    "itl_n", "tpot_n", "e2e_n", "host_probe_before", "host_probe_after",
)  # fmt: skip
#: Columns of a request in `trace`. Times are seconds since the run began.
TRACE = ("arrival_s", "prompt", "output", "first_token_s", "last_token_s", "tokens")


def columns(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the measuring core as columns of the table."""
    case, facts = row["case"], row.get("engine_facts") or {}
    named = {name: facts.get(name) for name in _SETTINGS}
    return {
        "model": model_name(case), "source": case["source"], "family": case.get("family"), "case": case,
        "case_key": row["key"], "repeat": row.get("repeat", 0), "devices": 1, "dtype": stored_dtype(case["dtype"]),
        "engine": ENGINE, **{name: case.get(name) for name in _CASE}, **named,
        "iterations": row.get("iterations_n"), **{name: row.get(name) for name in _SAME},
        "memory_mb": row.get("memory_used_mb"), "memory_reserved_mb": row.get("memory_reserved_mb"),
        "memory_allocated_mb": row.get("memory_allocated_mb"),
        "trace": _packed(row.get("trace"), window=row.get("window"), columns=TRACE),
        "iteration_times": _packed(row.get("iterations"), columns=row.get("iteration_columns")),
        "extra": {name: row[name] for name in _EXTRA if row.get(name) is not None},
    }  # fmt: skip


def rows(store: Store, dataset: str = "") -> pd.DataFrame:
    """The runs that were completed, of data sets whose names begin with `dataset`."""
    frame = store.read("serving")
    return frame[(frame["status"] == "ok") & frame["dataset"].fillna("").str.startswith(dataset)]


def trace(row: Any) -> tuple[pd.DataFrame, tuple[float, float]]:
    """The requests of a run (columns TRACE), and the begin and end of its steady window, in seconds."""
    held = json.loads(row["trace"])
    begin, end = held["window"]
    return pd.DataFrame(held["rows"], columns=held["columns"]), (begin, end)


def iterations(row: Any) -> pd.DataFrame:
    """The engine's iterations of a run: begin, times of their parts, and what each computed."""
    held = json.loads(row["iteration_times"])
    return pd.DataFrame(held["rows"], columns=held["columns"])


def noise(frame: pd.DataFrame) -> pd.DataFrame:
    """By quantity: repeated runs, and mean, median and 90th percentile of their relative difference to the first."""
    lines = []
    for quantity in QUANTITIES:
        moved = repeats(frame, quantity)["difference"]
        if len(moved):
            p90 = moved.quantile(0.9)
            lines.append((quantity, len(moved), moved.mean(), moved.median(), p90))
    return pd.DataFrame(lines, columns=["quantity", "runs", "mean", "median", "p90"])


def _packed(table: list[list[float | None]] | None, **about: Any) -> str | None:
    """A table of numbers as JSON, with five digits each."""
    if table is None:
        return None
    short = [[None if value is None else float(f"{value:.5g}") for value in line] for line in table]
    whole = [[int(value) if value is not None and value == int(value) else value for value in line] for line in short]
    return json.dumps({**about, "rows": whole}, separators=(",", ":"))
