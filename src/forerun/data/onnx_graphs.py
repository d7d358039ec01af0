"""The graphs of measured ONNX files, kept beside their rows: the files are needed to measure, not to learn."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from forerun.data.store import Store
from forerun.graph.ir import Graph

_PLACE = ("graphs", "onnx.parquet")


def keep(folder: Path, graphs: Mapping[str, Graph]) -> None:
    """Adds graphs, by the hash that their rows are filed under, to those of a store's folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not graphs:
        return
    path = folder.joinpath(*_PLACE)
    texts = _texts([path]) | {name: json.dumps(graph.to_dict()) for name, graph in graphs.items()}
    # Neighbours of one model differ in few places, which is what makes them small together.
    ordered = sorted(texts.items(), key=lambda item: (json.loads(item[1])["name"], item[0]))
    table = pa.table({"graph_hash": [name for name, _ in ordered], "graph": [text for _, text in ordered]})
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    pq.write_table(table, part, compression="zstd", compression_level=12)
    os.replace(part, path)


def kept(store: Store) -> dict[str, Graph]:
    """Every graph that came with the package or is in the store, by the hash of its rows."""
    paths = [folder.joinpath(*_PLACE) for folder in (store.shipped, store.folder) if folder]
    return {name: Graph.from_dict(json.loads(text)) for name, text in _texts(paths).items()}


def _texts(paths: Iterable[Path]) -> dict[str, str]:
    import pyarrow.parquet as pq

    found: dict[str, str] = {}
    for path in paths:
        if path.is_file():
            rows = pq.read_table(path).to_pydict()
            found.update(zip(rows["graph_hash"], rows["graph"], strict=True))
    return found
