"""Held-out predictions, stored beside the weights, so that the scoreboard can be printed without fitting."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forerun._util.companion import MODULE, companion
from forerun._util.extras import missing, needed
from forerun.device.kinds import GPU
from forerun.errors import ForerunError
from forerun.predictors.base import TARGETS
from forerun.predictors.saved import SHIPPED, weights_hash

#: The splits of models on GPUs whose predictions are stored, and the part they are stored as. Where all rows are of one
#: family, its networks are held out (split model) and stored as a family's would be.
STORED_SPLITS = {"family": GPU.part, "model": GPU.part, "kind": "kind", "name": "name", "random": "random"}
#: Columns that neither a score nor a table nor a predictor that reads columns alone needs.
_UNREAD = frozenset(
    "extra case software reason host row_id key event_ms latency_min_ms latency_median_ms latency_p90_ms "
    "latency_p99_ms first_call_ms memory_reserved_mb weights_mb sm_clock_mhz device_reported ttft_ms tpot_ms "
    "tokens_out simulated time_to_train_s throughput_unit throughput power_limit_w parallel mfu epoch_s".split()
)
#: Columns that a prediction is scored by, and those that every predictor that reads columns alone is fitted to.
SCORED = (
    "case_key", "repeat", "device", "device_kind", "model", "source", "family", "graph_hash", "block", "mode",
    "batch", "dtype", "seq_len", "optimizer", "amp", "runtime", "status", "roofline_ms", *TARGETS,
)  # fmt: skip
#: Of these, the ones that are stored only where they were predicted.
_SOMETIMES = ("memory_mb", "memory_allocated_mb")
_WEIGHTS = "weights"
#: Figures of published times on the test set's GPU, and on all other GPUs, each held out.
_FIGURES, _DEVICES = "exam_gpu.json", "left_out_device.json"


def file_of(part: str) -> str:
    """File name by part of the rows: models on GPUs, on CPUs and of each runtime that is learned apart, all with their
    family and its relatives held out; models on GPUs with their kind of network (kind), their family by name alone
    (name), or single rows (random) held out."""
    return "left_out.parquet" if part == GPU.part else f"left_out_{part}.parquet"


def store_predictions(
    folder: Path, held_out: pd.DataFrame, part: str = GPU.part, only: Sequence[str] | None = None
) -> None:
    """Writes held-out predictions into the folder of the weights, marked with the hash of the weights; numbers that are
    not scored are in single precision.

    `only` names the columns that are stored beside those needed to score a prediction; without it, all columns that
    anything reads. With it the file is small: numbers have five digits.
    """
    with needed("keeping held-out predictions"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    columns = [c for c in held_out.columns if c not in _UNREAD]
    if only is not None:
        columns = [c for c in columns if c in SCORED or c in only or is_prediction(c)]
        columns = [c for c in columns if c not in _SOMETIMES or f"predicted_{c}" in held_out]
    scored = [c for c in columns if c in TARGETS or is_prediction(c)]  # ties between them change ranks
    rows = _rounded(held_out[columns], 16) if only is not None else _rounded(held_out[columns], 24, scored)
    numbers = [c for c in columns if rows[c].dtype.kind == "f" and rows[c].nunique() > len(rows) / 4]
    words = [c for c in columns if c not in numbers]
    table = pa.Table.from_pandas(rows, preserve_index=False)
    marked = table.replace_schema_metadata({**(table.schema.metadata or {}), _WEIGHTS: weights_hash(folder)})
    pq.write_table(
        marked, _place(folder, file_of(part)), compression="zstd", compression_level=19, use_byte_stream_split=numbers,
        use_dictionary=words,
    )  # fmt: skip


def _rounded(rows: pd.DataFrame, bits: int, exact: Sequence[str] = ()) -> pd.DataFrame:
    """Rows with floats rounded to `bits` bits of mantissa, except in the columns `exact`, and with the first digits of
    the hashes of graphs, which only have to tell rows apart."""
    real = {c: rows[c].to_numpy(dtype=float) for c in rows if rows[c].dtype == "float64" and c not in exact}
    parts = {c: np.frexp(values) for c, values in real.items()}
    short = {c: np.ldexp(np.round(m * 2**bits) / 2**bits, e).astype("float32") for c, (m, e) in parts.items()}
    return rows.assign(graph_hash=rows["graph_hash"].str[:12], **short)


def is_prediction(column: str) -> bool:
    """Whether a predictor filled a column."""
    return column.startswith("predicted_") or column == "host_slowness"


def stored_predictions(folder: Path, part: str = GPU.part) -> pd.DataFrame:
    """What `store_predictions` wrote; a ForerunError where there is nothing, or where it belongs to other weights."""
    with needed("the scoreboard"):
        import pyarrow.parquet as pq
    path = _place(folder, file_of(part))
    if companion() is None and not path.is_file() and path.parent.parent == SHIPPED:
        raise missing("the scoreboard", MODULE)
    again = f"run forerun train {folder.name} --out FOLDER"
    try:
        table = pq.read_table(path)
    except OSError as error:
        raise ForerunError(f"{folder} has no held-out predictions ({file_of(part)}): {again}") from error
    marked = (table.schema.metadata or {}).get(_WEIGHTS.encode(), b"").decode()
    if marked != weights_hash(folder):
        raise ForerunError(f"the held-out predictions in {folder} belong to other weights: {again}")
    frame = table.to_pandas()
    frame = frame.astype({c: "float64" for c in frame if frame[c].dtype == "float32"})
    return frame.assign(**{target: np.nan for target in TARGETS if target not in frame})


def _place(folder: Path, name: str) -> Path:
    """The path of a file for evaluation: beside the weights; for those that come with the package, in forerun-data."""
    apart = companion() if folder.resolve().parent == SHIPPED else None
    return apart / "predictors" / folder.name / name if apart else folder / name


def store_figures(folder: Path, figures: dict[str, float]) -> None:
    """Writes the figures of the test set's GPU; the licence of the published rows behind them may forbid passing these
    on."""
    _write(folder, _FIGURES, dict(figures))


def stored_figures(folder: Path) -> dict[str, float] | None:
    """What `store_figures` wrote of these weights, or None."""
    return _read(folder, _FIGURES)


def store_device_lines(folder: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Writes figures by target, mode and held-out GPU (`same_rows.device_lines`)."""
    known = [{name: None if value != value else value for name, value in line.items()} for line in lines]
    _write(folder, _DEVICES, {"lines": known})


def stored_device_lines(folder: Path) -> list[dict[str, Any]]:
    """What `store_device_lines` wrote of these weights; none where there are no such."""
    return (_read(folder, _DEVICES) or {"lines": []})["lines"]


def _write(folder: Path, name: str, content: dict[str, Any]) -> None:
    _place(folder, name).write_text(json.dumps({_WEIGHTS: weights_hash(folder), **content}, indent=1) + "\n")


def _read(folder: Path, name: str) -> dict[str, Any] | None:
    path = _place(folder, name)
    content = json.loads(path.read_text()) if path.exists() else {}
    return content if content.pop(_WEIGHTS, None) == weights_hash(folder) else None
