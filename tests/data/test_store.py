"""The store: atomic appends, two writers, broken files, migrations, queries."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from forerun.data import places, schema
from forerun.data.sql import matching
from forerun.data.store import LEAN, MERGE_FILES, Store, write_file
from forerun.errors import ForerunError

WRITER = """
import sys
from forerun.data.store import Store
store = Store(sys.argv[1], shipped=False)
for i in range(int(sys.argv[3])):
    store.append("models", [{"model": f"{sys.argv[2]}-{i}", "batch": i, "latency_ms": i / 2, "status": "ok",
                             "row_id": f"{sys.argv[2]}-{i}", "software": {"torch": "2"}}])
"""


def row(**values: Any) -> dict[str, Any]:
    return {"model": "resnet18", "mode": "inference", "batch": 1, "dtype": "fp32", "device": "h200", "status": "ok",
            "latency_ms": 2.0, "protocol": "forerun/2", "dataset": "own", **values}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", shipped=False)


def test_rows_come_back_as_they_went_in(store: Store) -> None:
    assert store.append("models", [row(), row(batch=4, latency_ms=3.5, extra={"why": "it's"})]) == 2
    rows = store.query("select model, batch, latency_ms, extra, energy_j from models order by batch")
    assert list(rows["batch"]) == [1, 4]
    assert list(rows["latency_ms"]) == [2.0, 3.5]
    assert json.loads(rows["extra"][1]) == {"why": "it's"}
    assert rows["energy_j"].isna().all()
    assert store.query("select count(*) as n from operators")["n"][0] == 0


def test_keys_tell_cases_apart_and_repeats_together(store: Store) -> None:
    store.append("models", [row(), row(latency_ms=2.2), row(batch=2), row(device="a100"), row(software={"torch": "3"})])
    rows = store.read("models")
    assert rows["key"].nunique() == 4
    assert rows["row_id"].nunique() == 5


def test_two_writers_of_500_rows_each(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    command = [sys.executable, "-c", WRITER, str(folder)]
    writers = [subprocess.Popen([*command, name, "500"]) for name in ("a", "b")]
    assert [w.wait(300) for w in writers] == [0, 0]
    store = Store(folder, shipped=False)
    rows = store.read("models")
    assert len(rows) == 1000
    assert set(rows["row_id"]) == {f"{name}-{i}" for name in "ab" for i in range(500)}
    assert (rows["latency_ms"] == rows["batch"] / 2).all()
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
    full = pa.concat_tables([pq.read_table(old)])
    write_file(old.parent / "merged.parquet", "models", full, {"replaces": [old.name]})
    assert old.exists()  # the kill came before the old file was removed
    assert list(store.read("models")["row_id"]) == ["one"]
    for i in range(MERGE_FILES):
        store.append("models", [row(row_id=str(i))])
    assert not old.exists()  # removed before the merged file could be merged again, else it would count once more
    assert sorted(store.read("models")["row_id"]) == sorted(["one", *map(str, range(MERGE_FILES))])


def test_append_new_takes_no_row_twice(store: Store) -> None:
    assert store.append_new("models", [row(row_id="a"), row(row_id="b", batch=2)]) == 2
    assert store.append_new("models", [row(row_id="b", batch=2), row(row_id="c", batch=3)]) == 1
    assert sorted(store.read("models")["row_id"]) == ["a", "b", "c"]


def test_importing_again_replaces(store: Store) -> None:
    store.append("models", [row(row_id="own")])
    store.replace("timm", {"models": pd.DataFrame([row(dataset="timm"), row(dataset="timm", batch=2)])})
    store.replace("timm", {"models": pd.DataFrame([row(dataset="timm", latency_ms=1.0)])})
    rows = store.read("models")
    assert sorted(rows["dataset"]) == ["own", "timm"]
    assert list(rows[rows["dataset"] == "timm"]["latency_ms"]) == [1.0]


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


def as_version_1(file: Path, table: str) -> None:
    """Rewrites a file of the store as the first version of the schema had it."""
    data = pq.read_table(file)
    data = data.rename_columns(["device_said" if name == "device_reported" else name for name in data.column_names])
    meta = {b"forerun": json.dumps({"schema": 1, "table": table}).encode()}
    pq.write_table(data.replace_schema_metadata(meta), file)


def test_the_first_version_called_a_reported_device_otherwise(store: Store) -> None:
    store.append("models", [row(device_reported="NVIDIA H200")])
    (file,) = store.files("models")
    as_version_1(file, "models")
    assert store.query("select device_reported from models")["device_reported"].tolist() == ["NVIDIA H200"]
    assert "device_reported" in pq.read_schema(file).names  # rewritten, so that it is done once


def test_rows_that_a_predictor_made_are_read_by_request_alone(store: Store) -> None:
    """Files from before there were such rows are read, and stay as they are."""
    store.append("models", [row(model="measured")])
    (file,) = store.files("models")
    older = pq.read_table(file).drop(["simulated"])
    meta = {b"forerun": json.dumps({"schema": 2, "table": "models"}).encode()}
    pq.write_table(older.replace_schema_metadata(meta), file)
    stored = file.read_bytes()
    store.replace("simulated", {"models": pd.DataFrame([row(model="made", dataset="simulated", simulated="default")])})
    assert store.read("models")["model"].tolist() == ["measured"]
    assert store.read("models", filters=[("batch", "=", 1)])["model"].tolist() == ["measured"]
    assert sorted(store.read("models", simulated=True)["model"]) == ["made", "measured"]
    assert store.query("select model from models")["model"].tolist() == ["measured"]
    assert matching(store, "models", "batch > 0")["model"].tolist() == ["measured"]
    assert store.query("select model, simulated from simulated_models").values.tolist() == [["made", "default"]]
    assert file.read_bytes() == stored


def test_shipped_files_of_an_older_version_are_read_and_left_as_they_are(tmp_path: Path, monkeypatch: Any) -> None:
    shipped = tmp_path / "shipped"
    made = Store(shipped, shipped=False)
    made.append("models", [row(device_reported="NVIDIA H200"), row(device_reported="NVIDIA L4", device="l4")])
    (file,) = made.files("models")
    as_version_1(file, "models")
    stored = file.read_bytes()
    monkeypatch.setattr("forerun.data.store.shipped_folder", lambda table: shipped)
    store = Store(tmp_path / "own")
    store.append("models", [row(device_reported="Tesla T4", device="t4")])
    assert store.read("models")["device_reported"].tolist() == ["NVIDIA H200", "NVIDIA L4", "Tesla T4"]
    chosen = store.read("models", columns=["device_reported"], filters=[("device", "=", "l4")])
    assert chosen["device_reported"].tolist() == ["NVIDIA L4"]
    rows = store.query("select device_reported, latency_ms from models order by device")
    assert rows["device_reported"].tolist() == ["NVIDIA H200", "NVIDIA L4", "Tesla T4"]
    assert file.read_bytes() == stored


def test_a_shipped_file_without_hashes_is_completed_once(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))
    shipped, made = tmp_path / "shipped", Store(tmp_path / "made", shipped=False)
    intake = {"case_key": "c", "session": "s", "measured_at": "2026-11-19T00:00:00Z"}
    made.append("models", [row(**intake, repeat=n, row_id=schema.row_id("c", n, "s", intake["measured_at"], "own"))
                           for n in range(3)])  # fmt: skip
    whole = pa.concat_tables(pq.read_table(file) for file in made.files("models"))
    lean = schema.without_derived("models", whole)
    (shipped / "models").mkdir(parents=True)
    file = write_file(shipped / "models" / "set.parquet", "models", lean, {"dataset": "set", LEAN: True})
    stored = file.read_bytes()
    monkeypatch.setattr("forerun.data.store.shipped_folder", lambda table: shipped)
    store, derived = Store(tmp_path / "own"), schema.with_derived
    assert lean["row_id"].null_count == 3
    assert store.read("models", columns=["repeat"])["repeat"].tolist() == [0, 1, 2]
    assert not (tmp_path / "cache").exists()  # nothing derived was asked for
    for _ in range(2):
        assert store.read("models").equals(whole.to_pandas())
        assert store.query("select row_id from models")["row_id"].tolist() == whole["row_id"].to_pylist()
        monkeypatch.setattr(schema, "with_derived", None)  # the second time, nothing is computed
    monkeypatch.setattr(schema, "with_derived", derived)
    write_file(file, "models", lean.slice(1), {"dataset": "set", LEAN: True})  # another version of the package
    assert store.column("models", "row_id") == whole["row_id"].to_pylist()[1:]
    assert len(list((tmp_path / "cache").rglob("*.parquet"))) == 1
    monkeypatch.setenv("FORERUN_CACHE", str(file))  # no folder can be made there
    assert store.column("models", "row_id") == whole["row_id"].to_pylist()[1:]
    assert file.read_bytes() != stored and list(shipped.rglob("*")) == [shipped / "models", file]


def test_a_held_lock_makes_others_wait_but_not_those_who_only_append(store: Store) -> None:
    store.append("models", [row(row_id="first")])
    lock = FileLock(store.folder / "models" / ".lock")
    lock.acquire()
    waiting = threading.Thread(target=store.append_new, args=("models", [row(row_id="waited")]))
    waiting.start()
    for i in range(MERGE_FILES + 1):
        store.append("models", [row(row_id=str(i))])
    assert waiting.is_alive() and "waited" not in store.column("models", "row_id")
    assert len(store.files("models")) == MERGE_FILES + 2  # nothing was merged meanwhile
    lock.release()
    waiting.join(30)
    assert not waiting.is_alive()
    assert len(store.read("models")) == MERGE_FILES + 3


HIDDEN = """
import sys, warnings
sys.modules["fcntl"] = None  # as on Windows
from forerun.data import measured, places
from forerun.data.store import Store
from forerun.measure.core.rows import Rows, read
store = Store(sys.argv[1], shipped=False)
assert store.append_new("models", [{"row_id": "a", "device": "t4", "status": "ok", "protocol": "forerun/2"}]) == 1
assert store.append_new("models", [{"row_id": "a"}]) == 0
assert places.may_hold("h200")
assert measured.Store is Store
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    with Rows(sys.argv[1] + "/rows.jsonl") as rows:
        rows.append({"kind": "op"})
assert read(sys.argv[1] + "/rows.jsonl") == [{"kind": "op"}]
print([str(one.message) for one in found if "not locked" in str(one.message)])
"""


def test_a_platform_without_fcntl(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", HIDDEN, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert "rows.jsonl is not locked on this platform: run one writer at a time" in run.stdout


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


def test_which_devices_have_rows_is_known_without_opening_the_store(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path))
    assert places.shipped_devices() == set(Store().read("models")["device"])
    assert places.may_hold("h200") and not places.may_hold("rtx3080")
    Store().append("models", [{"row_id": "1", "device": "rtx3080", "status": "ok", "protocol": "forerun/2"}])
    assert places.may_hold("rtx3080")
