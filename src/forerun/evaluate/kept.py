"""Left-out predictions, kept beside the weights they judge, so that the scoreboard can be printed without fitting."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forerun.errors import ForerunError
from forerun.predictors.base import TARGETS
from forerun.predictors.saved import weights_hash

#: File name by part of the rows: models on GPUs, on CPUs and in onnxruntime, each without its family; models on GPUs
#: without any network of their kind; and without the rows of the same fold only.
FILES = {
    "gpu": "left_out.parquet", "cpu": "left_out_cpu.parquet", "onnxruntime": "left_out_onnxruntime.parquet",
    "kind": "left_out_kind.parquet", "random": "left_out_random.parquet",
}  # fmt: skip
#: The splits of models on GPUs whose predictions are kept, and the part they are kept as. Where all rows are of one
#: family, its networks are left out (split model) and kept as a family's would be.
KEPT_SPLITS = {"family": "gpu", "model": "gpu", "kind": "kind", "random": "random"}
#: Columns that are long and not needed to score a prediction.
_LONG = ("extra", "case", "software", "reason", "host", "row_id")
#: Columns that a prediction is scored by, and those that every predictor by columns is fitted to.
SCORED = (
    "case_key", "repeat", "device", "device_kind", "model", "source", "family", "graph_hash", "mode", "batch", "dtype",
    "seq_len", "optimizer", "amp", "runtime", "status", "roofline_ms", *TARGETS,
)  # fmt: skip
#: Of these, what is kept where it was predicted.
_SOMETIMES = ("memory_mb", "memory_allocated_mb")
_WEIGHTS = "weights"
#: Figures of published times on the exam's GPU, and on all other GPUs, each left out.
_FIGURES, _DEVICES = "exam_gpu.json", "left_out_device.json"


def keep_left_out(folder: Path, left_out: pd.DataFrame, part: str = "gpu", only: Sequence[str] | None = None) -> None:
    """Writes left-out predictions into the folder of the weights, marked with the hash of these.

    `only`: columns of the rows beside those that are needed to score a prediction; all without it. The file is then
    a small one: numbers have five digits.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    kept = [c for c in left_out.columns if c not in _LONG]
    how: dict[str, Any] = {}
    if only is not None:
        kept = [c for c in kept if c in SCORED or c in only or is_prediction(c)]
        kept = [c for c in kept if c not in _SOMETIMES or f"predicted_{c}" in left_out]
        left_out = _rounded(left_out[kept])
        numbers = [c for c in kept if left_out[c].dtype == "float32" and left_out[c].nunique() > len(left_out) / 4]
        how = {"compression_level": 19, "use_byte_stream_split": numbers,
               "use_dictionary": [c for c in kept if c not in numbers]}  # fmt: skip
    table = pa.Table.from_pandas(left_out[kept], preserve_index=False)
    marked = table.replace_schema_metadata({**(table.schema.metadata or {}), _WEIGHTS: weights_hash(folder)})
    pq.write_table(marked, folder / FILES[part], compression="zstd", **how)


def _rounded(rows: pd.DataFrame) -> pd.DataFrame:
    """Real numbers with 16 bits of mantissa, and hashes of graphs, which only part the rows, by their first digits."""
    real = {c: rows[c].to_numpy(dtype=float) for c in rows if rows[c].dtype == "float64"}
    parts = {c: np.frexp(values) for c, values in real.items()}
    short = {c: np.ldexp(np.round(m * 2**16) / 2**16, e).astype("float32") for c, (m, e) in parts.items()}
    return rows.assign(graph_hash=rows["graph_hash"].str[:12], **short)


def is_prediction(column: str) -> bool:
    """Whether a predictor filled a column."""
    return column.startswith("predicted_") or column == "host_slowness"


def kept_left_out(folder: Path, part: str = "gpu") -> pd.DataFrame:
    """What `keep_left_out` wrote; a ForerunError where there is nothing, or where it judges other weights."""
    import pyarrow.parquet as pq

    path = folder / FILES[part]
    again = f"run forerun train {folder.name} --out FOLDER"
    try:
        table = pq.read_table(path)
    except OSError as error:
        raise ForerunError(f"{folder} keeps no left-out predictions ({FILES[part]}): {again}") from error
    marked = (table.schema.metadata or {}).get(_WEIGHTS.encode(), b"").decode()
    if marked != weights_hash(folder):
        raise ForerunError(f"the left-out predictions in {folder} judge other weights: {again}")
    found = table.to_pandas()
    found = found.astype({c: "float64" for c in found if found[c].dtype == "float32"})
    return found.assign(**{target: np.nan for target in TARGETS if target not in found})


def keep_figures(folder: Path, figures: dict[str, float]) -> None:
    """Writes the figures of the exam's GPU; the published rows behind them are not ours to pass on."""
    _write(folder / _FIGURES, dict(figures))


def kept_figures(folder: Path) -> dict[str, float] | None:
    """What `keep_figures` wrote of these weights, or None."""
    return _read(folder / _FIGURES)


def keep_device_lines(folder: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Writes figures by target, mode and GPU that was left out (`same_rows.device_lines`)."""
    known = [{name: None if value != value else value for name, value in line.items()} for line in lines]
    _write(folder / _DEVICES, {"lines": known})


def kept_device_lines(folder: Path) -> list[dict[str, Any]]:
    """What `keep_device_lines` wrote of these weights; none where there are no such."""
    return (_read(folder / _DEVICES) or {"lines": []})["lines"]


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps({_WEIGHTS: weights_hash(path.parent), **content}, indent=1) + "\n")


def _read(path: Path) -> dict[str, Any] | None:
    found = json.loads(path.read_text()) if path.exists() else {}
    return found if found.pop(_WEIGHTS, None) == weights_hash(path.parent) else None
