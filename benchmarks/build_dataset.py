"""Adds files of the measuring core's rows to the data set that comes with the package.

    python benchmarks/build_dataset.py forerun-h200 rows.jsonl …
    python benchmarks/build_dataset.py forerun-h200 --refile      (hours: every graph is captured again)
    python benchmarks/build_dataset.py forerun-onnxruntime rows.jsonl FOLDER      (with the ONNX files of the rows)

Rows that are already there are not added twice; every new model row is filed under the hash of its graph. `--refile`
does that for the rows that were there, too: needed when the recorder changes what `Graph.work_hash` covers. Rows added
with `--no-graphs` wait for it: they can be learned from, but `predict` does not find them.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from rich.progress import track

from forerun.data import saved_graphs, schema
from forerun.data.intake import add_graphs, take_in
from forerun.data.places import shipped_devices, shipped_folder
from forerun.data.store import LEAN, Store, write_file


def shipped_form(table: str, rows: pa.Table, dataset: str) -> tuple[pa.Table, dict[str, object]]:
    """Rows as they are shipped, and what the file says of itself: operators without what follows from their columns."""
    if table != "operators":
        return rows, {"dataset": dataset}
    return schema.without_derived(table, rows), {"dataset": dataset, LEAN: True}


def main() -> None:
    dataset, *given = (word for word in sys.argv[1:] if not word.startswith("--"))
    files = [word for word in given if not Path(word).is_dir()]
    onnx_files = [path for word in given for path in sorted(Path(word).rglob("*.onnx"))]
    refile = "--refile" in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder, shipped=False)
        for table in schema.TABLES:
            kept = shipped_folder(table) / table / f"{dataset}.parquet"
            if kept.exists():
                (store.folder / table).mkdir(parents=True, exist_ok=True)
                shutil.copy(kept, store.folder / table / kept.name)
        kept_graphs = shipped_folder("graphs") / saved_graphs.PLACE
        if kept_graphs.exists():
            (store.folder / saved_graphs.PLACE).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(kept_graphs, store.folder / saved_graphs.PLACE)
        counts = take_in(
            files,
            store,
            dataset,
            graphs="--no-graphs" not in sys.argv,
            progress=lambda rows, n: track(rows, "graphs", total=n),
            onnx_files=onnx_files,
            trust_remote_code=True,
        )
        for table, columns in schema.TABLES.items():
            whole = pa.Table.from_pandas(store.read(table), schema=columns, preserve_index=False)
            if whole.num_rows:
                place = shipped_folder(table) / table
                place.mkdir(parents=True, exist_ok=True)
                whole = whole.sort_by("measured_at")
                if table == "models" and refile:
                    whole = refiled(whole, onnx_files, store)
                path = write_file(place / f"{dataset}.parquet", table, *shipped_form(table, whole, dataset), level=19)
                size = path.stat().st_size / 2**20
                if table == "models":
                    known = {*shipped_devices(), *whole["device"].to_pylist()}
                    (shipped_folder() / "devices.json").write_text(json.dumps(sorted(known)) + "\n")
                print(f"{table}: {counts.get(table, 0):,} new, {whole.num_rows:,} rows, {size:.2f} MB")
        if (store.folder / saved_graphs.PLACE).exists():
            kept_graphs.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(store.folder / saved_graphs.PLACE, kept_graphs)


def refiled(models: pa.Table, onnx_files: list[Path], store: Store) -> pa.Table:
    rows = [row | {"case": json.loads(row["case"])} for row in models.drop_columns(["key"]).to_pylist()]
    saved_graphs.save(store, add_graphs(rows, lambda todo, n: track(todo, "filing", total=n), onnx_files))
    return schema.conform("models", rows)


if __name__ == "__main__":
    main()
