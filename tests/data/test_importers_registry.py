"""How importers are found, also in packages outside the repository, and what they state about their sets."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forerun.data.importers import dataset_hash, importer, importers, missing_sets
from forerun.data.store import Store
from forerun.errors import ForerunError

Run = Callable[..., subprocess.CompletedProcess[str]]

OUTSIDE = '''
from pathlib import Path

import pandas as pd

from forerun.data.importers import Importer, Loaded


class BenchImporter(Importer):
    """Times of one matmul."""

    name = "NAME"
    about = "one matmul on a T4"
    licence = "CC0-1.0"
    source = "https://example.org/someone/bench"
    commit = "0123abc"
    operator_rows = 7

    def load(self, folder: Path) -> Loaded:
        loaded = Loaded({})
        raw = pd.read_csv(folder / "times.csv")
        raw = loaded.drop(raw, raw["us"] <= 0, "no time")
        shape = '{"k":' + raw["k"].astype(str) + ',"m":' + raw["m"].astype(str) + ',"n":' + raw["n"].astype(str) + "}"
        loaded.tables["operators"] = pd.DataFrame({
            "device": "t4", "op": "linear", "shape": shape, "dtype": "fp32", "direction": "forward",
            "runtime": "eager", "protocol": "NAME", "device_ms": raw["us"] / 1000,
        })
        return loaded
'''


def install(folder: Path, package: str, name: str, target: str = "bench:BenchImporter") -> Path:
    """A package as pip would install it: a module, and metadata with its entry point."""
    site = folder / f"site-{package}"
    about = site / f"{package}-1.0.dist-info"
    about.mkdir(parents=True)
    module, _, cls = target.partition(":")
    (site / f"{package}_{module}.py").write_text(OUTSIDE.replace("NAME", name))
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[forerun.importers]\n{name} = {package}_{module}:{cls}\n")
    return site


def with_path(*places: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([*map(str, places), os.environ.get("PYTHONPATH", "")])}


def test_an_importer_of_another_package(run_forerun: Run, tmp_path: Path) -> None:
    site = install(tmp_path, "someone", "my_bench")
    data = tmp_path / "data"
    data.mkdir()
    (data / "times.csv").write_text("m,n,k,us\n8,16,32,25\n8,16,64,50\n8,16,64,0\n")
    env = with_path(site) | {"FORERUN_STORE": str(tmp_path / "store")}
    done = run_forerun("data", "import", "my_bench", str(data), "--json", **env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"rows": {"operators": 2}, "dropped": {"no time": 1}}
    rows = Store(tmp_path / "store", shipped=False).read("operators")
    assert rows["dataset"].tolist() == ["my_bench"] * 2 and rows["status"].tolist() == ["ok"] * 2
    assert rows["device_ms"].tolist() == [0.025, 0.05]
    assert json.loads(rows["shape"][1]) == {"m": 8, "n": 16, "k": 64}
    missing = run_forerun("data", "import", "my_bench", str(tmp_path), **env)
    assert missing.returncode == 2 and "times.csv is missing" in missing.stderr + missing.stdout


@pytest.mark.parametrize("name", ["timm", "twin"])
def test_two_importers_of_one_name(run_forerun: Run, tmp_path: Path, name: str) -> None:
    packages = ["someone", "other"] if name == "twin" else ["someone"]
    env = with_path(*(install(tmp_path, package, name) for package in packages))
    done = run_forerun("data", "import", name, str(tmp_path), **env)
    message = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2
    assert f"two importers are called {name}" in message
    others = ["other_bench:BenchImporter"] if name == "twin" else ["forerun.data.importers.timm:TimmImporter"]
    for place in ("someone_bench:BenchImporter", *others):
        assert place in message.replace(" ", "")


def test_an_importer_that_cannot_be_used_is_named(run_forerun: Run, tmp_path: Path) -> None:
    site = install(tmp_path, "someone", "my_bench", "bench:NoSuchClass")
    done = run_forerun("data", "import", "timm", str(tmp_path), **with_path(site))
    assert done.returncode == 2 and "someone_bench:NoSuchClass" in (done.stdout + done.stderr).replace("\n", "")


def test_every_set_states_where_it_comes_from() -> None:
    result = importers()
    assert list(result) == sorted(result)
    for name, one in result.items():
        assert one.name == name and one.about and one.licence in ("MIT", "Apache-2.0", "BSD-3-Clause")
        for source in one.sources:
            assert source.repository.startswith("https://github.com/") and len(source.commit) >= 8
            assert source.clone.endswith(f"git -C {source.folder} checkout {source.commit}")
        assert one.command.startswith(f"forerun data import {name} ")
    with pytest.raises(ForerunError, match="Did you mean neusight"):
        importer("neusihgt")


def test_what_training_uses() -> None:
    result = importers()
    assert {name: one.operator_rows for name, one in result.items() if one.operator_rows} == {
        "aiconfigurator": 400, "neusight": 300, "vidur": 300,
    }  # fmt: skip
    assert {name for name, one in result.items() if one.models_in_training} == {"pytorch_gpu_benchmark", "timm"}
    engines = pd.DataFrame({"runtime": ["vllm", "trt-llm", "sglang", None]}, index=[4, 5, 6, 7])
    groups = {name: result[name].timing_group(engines) for name in ("aiconfigurator", "neusight", "vidur", "timm")}
    assert groups["aiconfigurator"].to_dict() == {4: "vllm", 5: "trt-llm", 6: "other", 7: "other"}
    assert set(groups["neusight"]) == {"neusight"} and set(groups["vidur"]) == {"vidur"}
    assert set(groups["timm"]) == {""} == set(result["pytorch_gpu_benchmark"].timing_group(engines))


def row(**values: Any) -> dict[str, Any]:
    return {"dataset": "timm", "model": "resnet18", "device": "t4", "status": "ok", "latency_ms": 2.5, "batch": 1,
            **values}  # fmt: skip


def test_the_hash_of_a_set_depends_on_its_rows_alone(tmp_path: Path) -> None:
    rows = [row(), row(), row(batch=8, latency_ms=0.1 + 0.2), row(batch=None)]
    operators = [{"dataset": "timm", "op": "linear", "status": "ok", "device_ms": 0.5}]

    def hashed(name: str, models: list[dict[str, Any]], *, one_by_one: bool = False) -> str:
        store = Store(tmp_path / name, shipped=False)
        store.append("models", [row(dataset="other")])
        for part in [[one] for one in models] if one_by_one else [models]:
            store.append("models", part)
        store.append("operators", operators)
        return dataset_hash(store, "timm")

    first = hashed("a", rows)
    assert hashed("b", rows[::-1]) == first == hashed("c", rows, one_by_one=True)
    assert len(first) == 64
    different = [rows[1:], [*rows, row()], [*rows[:2], row(batch=8, latency_ms=0.3), rows[3]], [row(software="x")]]
    assert len({first, *(hashed(f"d{i}", subset) for i, subset in enumerate(different))}) == 5
    assert dataset_hash(Store(tmp_path / "a", shipped=False), "nothing") == dataset_hash(
        Store(tmp_path / "empty", shipped=False), "timm"
    )


def test_training_sets_that_are_missing(tmp_path: Path) -> None:
    store = Store(tmp_path, shipped=False)
    assert [one.name for one in missing_sets(store)] == [
        "aiconfigurator", "neusight", "pytorch_gpu_benchmark", "timm", "vidur",
    ]  # fmt: skip
    store.append("models", [row()])
    store.append("operators", [{"dataset": "vidur", "op": "linear", "status": "ok"}])
    left = {one.name: one for one in missing_sets(store)}
    assert set(left) == {"aiconfigurator", "neusight", "pytorch_gpu_benchmark"}
    assert left["neusight"].command == "forerun data import neusight NeuSight"
    assert left["neusight"].fetch == (importers()["neusight"].sources[0].clone,)
