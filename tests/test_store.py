"""The store: atomic appends, two writers, broken files, migrations, queries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forerun.data import places, schema
from forerun.data.store import MERGE_FILES, Store, write_file
from forerun.errors import ForerunError

WRITER = """
import sys
from forerun.data.store import Store
store = Store(sys.argv[1], shipped=False)
for i in range(int(sys.argv[3])):
    store.append("models", [{"model": f"{sys.argv[2]}-{i}", "batch": i, "latency_ms": i / 2, "status": "ok",
                             "row_id": f"{sys.argv[2]}-{i}", "software": {"torch": "2"}}])
"""


def row(**said: Any) -> dict[str, Any]:
    return {"model": "resnet18", "mode": "inference", "batch": 1, "dtype": "fp32", "device": "h200", "status": "ok",
            "latency_ms": 2.0, "protocol": "forerun/2", "dataset": "own", **said}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", shipped=False)


def test_rows_come_back_as_they_went_in(store: Store) -> None:
    assert store.append("models", [row(), row(batch=4, latency_ms=3.5, extra={"why": "it's"})]) == 2
    found = store.query("select model, batch, latency_ms, extra, energy_j from models order by batch")
    assert list(found["batch"]) == [1, 4]
    assert list(found["latency_ms"]) == [2.0, 3.5]
    assert json.loads(found["extra"][1]) == {"why": "it's"}
    assert found["energy_j"].isna().all()
    assert store.query("select count(*) as n from operators")["n"][0] == 0


def test_keys_tell_cases_apart_and_repeats_together(store: Store) -> None:
    store.append("models", [row(), row(latency_ms=2.2), row(batch=2), row(device="a100"), row(software={"torch": "3"})])
    found = store.read("models")
    assert found["key"].nunique() == 4
    assert found["row_id"].nunique() == 5


def test_two_writers_of_500_rows_each(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    command = [sys.executable, "-c", WRITER, str(folder)]
    writers = [subprocess.Popen([*command, name, "500"]) for name in ("a", "b")]
    assert [w.wait(300) for w in writers] == [0, 0]
    store = Store(folder, shipped=False)
    found = store.read("models")
    assert len(found) == 1000
    assert set(found["row_id"]) == {f"{name}-{i}" for name in "ab" for i in range(500)}
    assert (found["latency_ms"] == found["batch"] / 2).all()
    assert store.set_aside == []
    assert len(store.files("models")) < 4 * MERGE_FILES  # small files were merged on the way


def test_a_half_written_file_is_set_aside(store: Store) -> None:
    store.append("models", [row()])
    store.append("models", [row(batch=2)])
    broken = store.files("models")[0]
    broken.write_bytes(broken.read_bytes()[:-40])
    (broken.parent / "nonsense.parquet").write_bytes(b"not a parquet file")
    (broken.parent / ".x.parquet.1234.part").write_bytes(b"what a killed writer leaves")
    again = Store(store.folder, shipped=False)
    assert len(again.read("models")) == 1
    assert {f.name for f in again.set_aside} == {broken.name, "nonsense.parquet"}
    assert all(f.exists() and f.parent.name == "set_aside" for f in again.set_aside)
    assert len(Store(store.folder, shipped=False).read("models")) == 1


def test_a_merge_cut_short_counts_nothing_twice(store: Store) -> None:
    store.append("models", [row(row_id="one")])
    old = store.files("models")[0]
    kept = old.read_bytes()
    whole = pa.concat_tables([pq.read_table(old)])
    write_file(old.parent / "merged.parquet", "models", whole, {"replaces": [old.name]})
    assert old.exists()  # the kill came before the old file was removed
    assert list(store.read("models")["row_id"]) == ["one"]
    for i in range(MERGE_FILES):
        store.append("models", [row(row_id=str(i))])
    assert len(store.read("models")) == MERGE_FILES + 1
    assert kept


def test_append_new_takes_no_row_twice(store: Store) -> None:
    assert store.append_new("models", [row(row_id="a"), row(row_id="b", batch=2)]) == 2
    assert store.append_new("models", [row(row_id="b", batch=2), row(row_id="c", batch=3)]) == 1
    assert sorted(store.read("models")["row_id"]) == ["a", "b", "c"]


def test_importing_again_replaces(store: Store) -> None:
    store.append("models", [row(row_id="own")])
    store.replace("timm", {"models": pd.DataFrame([row(dataset="timm"), row(dataset="timm", batch=2)])})
    store.replace("timm", {"models": pd.DataFrame([row(dataset="timm", latency_ms=1.0)])})
    found = store.read("models")
    assert sorted(found["dataset"]) == ["own", "timm"]
    assert list(found[found["dataset"] == "timm"]["latency_ms"]) == [1.0]


def test_older_files_are_migrated_and_newer_ones_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("models", [row()])
    monkeypatch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)

    def double(table: str, data: pa.Table) -> pa.Table:
        return data.set_column(data.schema.get_field_index("latency_ms"), "latency_ms", pa.array([4.0]))

    monkeypatch.setitem(schema.MIGRATIONS, schema.SCHEMA_VERSION - 1, double)
    assert list(store.read("models")["latency_ms"]) == [4.0]
    assert list(store.read("models")["latency_ms"]) == [4.0]  # migrated once, not at every look
    monkeypatch.undo()
    with pytest.raises(ForerunError, match="newer forerun"):
        store.read("models")


def test_mistakes_are_one_sentence(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ForerunError, match="no column colour"):
        store.append("models", [row(colour="red")])
    with pytest.raises(ForerunError, match="latency_ms holds something else"):
        store.append("models", [row(latency_ms="fast")])
    with pytest.raises(ForerunError, match="the query failed"):
        store.query("select nothing from nowhere")
    assert len(store.read("models")) == 0
    (tmp_path / "file").write_text("")
    with pytest.raises(ForerunError, match="cannot be written"):
        Store(tmp_path / "file", shipped=False).append("models", [row()])


def test_which_devices_have_rows_is_told_without_opening_the_store(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path))
    assert places.shipped_devices() == set(Store().read("models")["device"])
    assert places.may_hold("h200") and not places.may_hold("rtx3080")
    Store().append("models", [{"row_id": "1", "device": "rtx3080", "status": "ok", "protocol": "forerun/2"}])
    assert places.may_hold("rtx3080")
