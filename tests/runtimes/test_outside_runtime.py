"""A package outside the repository brings two runtimes; forerun's own files stay as they are.

`acme` runs on every device and shares its measured rows with eager PyTorch; `acme-edge` is for CPUs and has rows, a
network and errors of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import warm

import forerun

Run = Callable[..., subprocess.CompletedProcess[str]]
CPU, MODEL = "xeon-clx-2vcpu", "cnn:depth=2,filters=16,classes=10"
#: Networks of families that the shipped store has rows of on an H200, by family.
MODELS = {
    "cnn": MODEL, "unet": "unet:base=24,levels=2,outputs=1",
    "autoencoder": "autoencoder:image=32,width=16,levels=3,latent=64,variational=1",
}  # fmt: skip
WHERE = f"device in ('h200', '{CPU}') and model in {tuple(MODELS.values())}"
TRAIN = ("train", "default", "--no-public", "--where", WHERE, "--operators", "60", "--steps", "10", "--folds", "3")

RUNTIME = '''
"""Activations run within the convolution or matmul before them, and generated code launches the rest."""

from forerun.runtimes.base import Change, LaunchCosts, Runtime
from forerun.runtimes.fuse import with_kernels


class Acme(Runtime):
    name = "acme"
    also_called = ("acme-rt",)
    change = Change("Acme", "model = acme.optimised(model)", "answers are rounded")
    launch = LaunchCosts(host_share=0.1, call_us=30.0)
    host_us = (30.0, 4.0, 500.0, 5.0)
    keeps_mb = 256.0

    def problem(self, run):
        return "runtime acme trains nothing" if run.mode == "training" else None

    def made_of(self, graph):
        kernels, ops = [], graph.ops
        for i in range(1, len(ops)):
            reads = set(ops[i].inputs) & set(ops[i - 1].outputs)
            if reads and ops[i].kind == "elementwise" and ops[i - 1].kind in ("conv", "matmul"):
                kernels.append([i - 1, i])
        return with_kernels(graph, kernels)

    def called(self, module):
        return Optimised(module)


class AcmeEdge(Acme):
    name = "acme-edge"
    also_called = ()
    devices = ("cpu",)
    change = None
    part = "acme-edge"


class Optimised:
    calls = 0

    def __init__(self, module):
        self.module = module

    def __call__(self, *inputs):
        Optimised.calls += 1
        return self.module(*inputs)
'''

MEASURE = """
import json
import sys

from acme_runtime import Optimised
from forerun.data.intake import add_graphs, model_row
from forerun.data.store import Store
from forerun.measure.once import measure_workload
from forerun.workload import Workload

cpu, models, store, rows = sys.argv[1], json.loads(sys.argv[2]), Store(), []
for runtime in ("acme", "acme-edge"):
    for family, model in models.items():
        before = Optimised.calls
        row = model_row({**measure_workload(Workload(model, runtime=runtime)), "status": "ok"}, "own")
        assert Optimised.calls > before, "the module was not called under the runtime"
        rows.append({**row, "device": cpu, "family": family})
add_graphs(rows)
store.append("models", rows)
print(json.dumps([[row["runtime"], row["model"], row["latency_ms"], row["graph_hash"]] for row in rows]))
"""

ASK = """
import json

import forerun
from forerun.api.questions import workload_from
from forerun.frontends import load_graph
from forerun.runtimes.registry import as_run, filed_under, names
from forerun.web.requests import PredictRequest

workload = workload_from({"model": MODEL, "runtime": "Acme"})
plain = load_graph(workload)
answers = {run: forerun.predict(MODEL, "h200", runtime=run) for run in ("eager", "acme")}
fused = as_run(plain, "acme")
print(json.dumps({
    "names": names(), "asked": PredictRequest(model=MODEL, device="h200", runtime="acme").runtime,
    "ops": [len(plain.ops), len(fused.ops)],
    "same_rows": filed_under(plain, workload) == filed_under(fused, workload),
    "table": forerun.predict_many([{"model": MODEL, "runtime": "acme"}], ["h200", "t4"])["latency_ms"].tolist(),
    "options": [line.name for line in forerun.optimise(MODEL, "h200", goal="latency").lines],
    **{run: answer.to_dict() for run, answer in answers.items()},
}))
"""


@dataclass(frozen=True)
class Acme:
    """The environment that has the package, the rows that were measured, and the folder of what was fitted to them."""

    env: dict[str, str]
    rows: list[list[Any]]
    folder: Path


def run(env: dict[str, str], *command: str) -> str:
    done = warm.run(command, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The package as pip would install it (a module, and metadata with entry points), and a store of its own."""
    site = tmp_path_factory.mktemp("site")
    about = site / "acme-1.0.dist-info"
    about.mkdir()
    (site / "acme_runtime.py").write_text(RUNTIME)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    points = "[forerun.runtimes]\nacme = acme_runtime:Acme\nacme-edge = acme_runtime:AcmeEdge\n"
    (about / "entry_points.txt").write_text(points)
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": path, "FORERUN_STORE": str(tmp_path_factory.mktemp("store"))}


@pytest.fixture(scope="module")
def acme(env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Acme:
    """Measured on this CPU, and fitted."""
    before, folder = own_files(), tmp_path_factory.mktemp("weights") / "mine"
    rows = json.loads(run(env, "-c", MEASURE, CPU, json.dumps(MODELS)).splitlines()[-1])
    run(env, "-c", "from forerun.cli import main; main()", *TRAIN, "--out", str(folder))
    assert own_files() == before
    return Acme(env, rows, folder)


def own_files() -> dict[str, int]:
    """Every file of forerun with the time of its last change."""
    package = Path(forerun.__file__).parent
    stored = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path): path.stat().st_mtime_ns for path in stored}


@pytest.fixture(scope="module")
def asked(env: dict[str, str]) -> dict[str, Any]:
    return dict(json.loads(run(env, "-c", f"MODEL = {MODEL!r}\n{ASK}").splitlines()[-1]))


def test_the_library_answers_with_its_graph_its_costs_and_its_memory(asked: dict[str, Any]) -> None:
    assert asked["names"][-3:] == ["acme", "acme-edge", "tensorrt"] and asked["asked"] == "acme"
    assert asked["ops"][1] < asked["ops"][0] and asked["same_rows"]
    eager, mine = asked["eager"], asked["acme"]
    assert mine["workload"]["runtime"] == "acme" and mine["host_ms"]["value"] < eager["host_ms"]["value"] / 2
    assert mine["latency_ms"]["low"] < mine["latency_ms"]["value"] < eager["latency_ms"]["value"]
    assert mine["memory_parts_mb"]["context"] == eager["memory_parts_mb"]["context"] + 256
    assert any("nothing was measured under runtime acme" in note for note in mine["notes"])
    assert asked["table"][0] == pytest.approx(mine["latency_ms"]["value"]) and asked["table"][1] > 0
    assert "--runtime acme" in mine["check"]


def test_optimise_proposes_it(asked: dict[str, Any]) -> None:
    assert "Acme" in asked["options"]


def test_the_commands_answer_explain_and_compare(env: dict[str, str], run_forerun: Run) -> None:
    for words in (
        ("predict", "--device", "h200"),
        ("explain", "--device", "h200"),
        ("compare", "--devices", "h200,t4"),
    ):
        command, *rest = words
        done = run_forerun(command, MODEL, *rest, "--runtime", "acme", **env)
        assert done.returncode == 0, done.stderr
        assert "h200" in done.stdout
        if command == "predict":
            assert "acme" in done.stdout.splitlines()[0]


@pytest.mark.parametrize(("words", "sentence"), [
    (("--runtime", "acme", "--mode", "training", "--device", "h200"), "runtime acme trains nothing"),
    (("--runtime", "acme-edge", "--device", "h200"), "h200 is a gpu, which acme-edge does not run on"),
    (("--runtime", "acme-edge", "--device", CPU), "without rows of acme-edge"),
    (("--runtime", "acme-rt", "--device", "h200"), "Did you mean acme?"),
    (("--runtime", "acme", "--device", "h200", "--predictor", "one-ratio"), "one-ratio knows runtime eager only"),
])  # fmt: skip
def test_it_is_refused_in_one_sentence(
    words: tuple[str, ...], sentence: str, env: dict[str, str], run_forerun: Run
) -> None:
    done = run_forerun("predict", MODEL, *words, **env)
    assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr


def test_it_is_measured_on_this_cpu(acme: Acme) -> None:
    assert [row[:2] for row in acme.rows] == [[r, m] for r in ("acme", "acme-edge") for m in MODELS.values()]
    assert all(row[2] > 0 for row in acme.rows)
    assert [row[3] for row in acme.rows[:3]] == [row[3] for row in acme.rows[3:]]  # filed under the graph as captured


def test_what_was_fitted_answers_with_rows_of_its_own(acme: Acme, run_forerun: Run) -> None:
    words = ("predict", MODEL, "--device", CPU, "--json", "--no-measured", "--predictor", str(acme.folder), "--runtime")
    for name in ("acme", "acme-edge"):
        done = run_forerun(*words, name, **acme.env)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["latency_ms"]["low"] <= result["latency_ms"]["value"] <= result["latency_ms"]["high"]
        assert not any("nothing was measured under runtime" in note for note in result["notes"])
    learned = json.loads((acme.folder / "predictor.json").read_text())
    assert {"acme", "acme-edge", "eager"} <= set(learned["domain"]["runtimes"])
    assert learned["domain"]["acme-edge"]["devices"] == [CPU]
    assert learned["calibration"]["scores"]["acme-edge/inference"]["n"] == len(MODELS)


def test_it_is_evaluated_and_its_table_is_shown(acme: Acme, run_forerun: Run) -> None:
    import pandas as pd

    rows = pd.read_parquet(acme.folder / "left_out_acme-edge.parquet")
    assert set(rows["runtime"]) == {"acme-edge"} and (rows["predicted_latency_ms"] > 0).all() and len(rows) == 3
    assert "## acme-edge on CPUs, held-out families" in (acme.folder / "MODEL_CARD.md").read_text()
    words = ("evaluate", str(acme.folder), "--split", "family", "--json")
    done = run_forerun(*words, **acme.env)
    assert done.returncode == 0, done.stderr
    assert {line["target"] for line in json.loads(done.stdout)} >= {"latency_ms", "memory_mb"}


def test_without_the_package_its_name_is_unknown(run_forerun: Run) -> None:
    done = run_forerun("predict", MODEL, "--device", "h200", "--runtime", "acme")
    assert done.returncode == 2 and "runtime 'acme' is not known" in done.stderr
