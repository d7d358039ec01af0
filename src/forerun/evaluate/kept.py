"""Left-out predictions, kept beside the weights they judge, so that the scoreboard can be printed without fitting."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from forerun.errors import ForerunError
from forerun.predictors.saved import weights_hash

#: File name by part of the rows: models on GPUs, on CPUs and in onnxruntime, each without its family; and models on
#: GPUs without any network of their kind.
FILES = {
    "gpu": "left_out.parquet", "cpu": "left_out_cpu.parquet", "onnxruntime": "left_out_onnxruntime.parquet",
    "kind": "left_out_kind.parquet",
}  # fmt: skip
#: The splits of models on GPUs whose predictions are kept, and the part they are kept as.
KEPT_SPLITS = {"family": "gpu", "kind": "kind"}
#: Columns that are long and not needed to score a prediction.
_LONG = ("extra", "case", "software", "reason", "host", "row_id")
_WEIGHTS = "weights"
#: Figures of published times on the exam's GPU.
_FIGURES = "exam_gpu.json"


def keep_left_out(folder: Path, left_out: pd.DataFrame, part: str = "gpu") -> None:
    """Writes left-out predictions into the folder of the weights, marked with the hash of these."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kept = [c for c in left_out.columns if c not in _LONG]
    table = pa.Table.from_pandas(left_out[kept], preserve_index=False)
    marked = table.replace_schema_metadata({**(table.schema.metadata or {}), _WEIGHTS: weights_hash(folder)})
    pq.write_table(marked, folder / FILES[part], compression="zstd")


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
    return table.to_pandas()


def keep_figures(folder: Path, figures: dict[str, float]) -> None:
    """Writes the figures of the exam's GPU; the published rows behind them are not ours to pass on."""
    (folder / _FIGURES).write_text(json.dumps({_WEIGHTS: weights_hash(folder), **figures}, indent=1) + "\n")


def kept_figures(folder: Path) -> dict[str, float] | None:
    """What `keep_figures` wrote of these weights, or None."""
    path = folder / _FIGURES
    found = json.loads(path.read_text()) if path.exists() else {}
    return found if found.pop(_WEIGHTS, None) == weights_hash(folder) else None
