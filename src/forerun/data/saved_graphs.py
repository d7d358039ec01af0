"""Graphs stored beside the rows of ONNX files and of Python files, so that training needs neither the files nor the
packages that they import."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from forerun._util.extras import needed
from forerun.data.places import shipped_folder
from forerun.data.store import Store
from forerun.graph.ir import Graph

#: Sources of rows whose graphs are saved: a row alone is not enough to capture them anew.
SOURCES = ("onnx", "python")
PLACE = Path("graphs") / "rows.parquet"  # in the folder of a store
_EARLIER = Path("graphs") / "onnx.parquet"  # where versions that saved graphs of ONNX files alone put them


def save(store: Store, graphs: Mapping[str, Graph]) -> None:
    """Adds graphs, by the hash in their rows, to those of a store."""
    if not graphs:
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    with needed("the store of measurements"):
        from filelock import FileLock

    path = store.folder / PLACE
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        rows = _rows([store.folder / _EARLIER, path]) | {
            name: (graph.name, json.dumps(graph.to_dict())) for name, graph in graphs.items()
        }
        # Graphs of one model differ in few places, so that they compress well together.
        ordered = sorted(rows.items(), key=lambda row: (row[1][0], row[0]))
        columns = zip(*((name, model, text) for name, (model, text) in ordered), strict=True)
        table = pa.table(dict(zip(("graph_hash", "model", "graph"), map(list, columns), strict=True)))
        part = path.with_suffix(".part")
        pq.write_table(table, part, compression="zstd", compression_level=19)
        os.replace(part, path)


def load(store: Store, only: Collection[str] | None = None) -> dict[str, Graph]:
    """Every graph (or those of `only`) of the package and the store, by the hash in its rows."""
    folders = [shipped_folder("graphs"), store.folder] if store.shipped else [store.folder]
    rows = _rows(folder / place for folder in folders for place in (_EARLIER, PLACE))
    names = rows if only is None else only
    return {name: Graph.from_dict(json.loads(text)) for name, (_, text) in rows.items() if name in names}


def _rows(paths: Iterable[Path]) -> dict[str, tuple[str, str]]:
    """Model and graph by hash."""
    import pyarrow.parquet as pq

    graph_of: dict[str, tuple[str, str]] = {}
    for path in paths:
        if path.is_file():
            rows = pq.read_table(path).to_pydict()
            pairs = zip(rows["model"], rows["graph"], strict=True)
            graph_of.update(zip(rows["graph_hash"], pairs, strict=True))
    return graph_of
