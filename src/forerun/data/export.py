"""Export of rows as a file: Parquet or CSV, or JSON lines for the measuring core."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

from forerun.data import intake, schema
from forerun.data.sql import matching
from forerun.data.store import Store
from forerun.errors import ForerunError


def write(store: Store, path: Path, table: str = "models", where: str = "true") -> int:
    """Writes the selected rows atomically; returns their number."""
    kind = path.suffix.lower()
    if kind not in (".parquet", ".csv", ".jsonl"):
        raise ForerunError(f"{path.name}: rows are written as .parquet, .csv or .jsonl")
    if table not in schema.TABLES:
        raise ForerunError(f"there is no table {table!r}; choose from {', '.join(schema.TABLES)}")
    if not path.parent.is_dir():
        raise ForerunError(f"there is no folder {path.parent}")
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        if kind == ".jsonl":
            rows = intake.to_core(store, where=where)
            part.write_text("".join(json.dumps(row) + "\n" for row in rows))
            count = len(rows)
        else:
            frame = matching(store, table, where)
            frame.to_parquet(part, index=False) if kind == ".parquet" else frame.to_csv(part, index=False)
            count = len(frame)
        os.replace(part, path)
    except OSError as error:
        raise ForerunError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
    return count
