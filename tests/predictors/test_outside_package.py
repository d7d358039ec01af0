"""A package outside the repository brings a predictor, a frontend and an importer; forerun's own files stay so.

Importers and meters of such packages have further tests: test_importers_registry.py, test_meters.py. What a notebook
registers: test_extend_notebook.py.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import warm

import forerun

Run = Callable[..., subprocess.CompletedProcess[str]]
MODELS = (
    "cnn:depth=2,filters=16,classes=10", "unet:base=24,levels=2,outputs=1",
    "autoencoder:image=32,width=16,levels=3,latent=64,variational=1",
)  # fmt: skip
WHERE = f"device = 'h200' and model in {MODELS}"

PREDICTOR = '''
"""Latency as a power law of the roofline and the batch size, by least squares."""

import numpy as np
import pandas as pd

from forerun.predictors.base import Predictor, Times
from forerun.predictors.laws.specs import roofline_ms


def power_law(coefficients, least_ms, batch):
    constant, by_work, by_batch = coefficients
    found = np.exp(constant) * least_ms**by_work * batch**by_batch
    return np.maximum(found, least_ms)


class LogLinearPredictor(Predictor):
    name = "log-linear"
    targets = ("latency_ms",)
    reads_graphs = False

    def __init__(self):
        self.coefficients_ = None

    def fit(self, cases):
        rows = cases.models.rows
        columns = [np.ones(len(rows)), np.log(rows["roofline_ms"]), np.log(rows["batch"].astype(float))]
        found = np.linalg.lstsq(np.column_stack(columns), np.log(rows["latency_ms"]), rcond=None)[0]
        self.coefficients_ = found
        return self

    def times(self, profile, devices, workload):
        least = roofline_ms(profile, devices)
        unknown = np.full(least.shape, np.nan)
        latency = power_law(self.coefficients_, least, np.asarray(profile.batches, dtype=float)[:, None])
        return Times(latency_ms=latency, device_ms=unknown, host_ms=unknown, roofline_ms=least, energy_j=unknown)

    def predict_cases(self, cases, host_slowness=None):
        rows = cases.rows
        latency = power_law(self.coefficients_, rows["roofline_ms"].to_numpy(), rows["batch"].to_numpy(dtype=float))
        return pd.DataFrame({"predicted_latency_ms": latency})
'''

FRONTEND = '''
"""Files ending in .layers: one line each for the sizes of a fully connected network."""

from pathlib import Path

from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.frontends import load_graph
from forerun.frontends.base import Frontend, file_hash, inference_only
from forerun.workload import Workload


class LayersFrontend(Frontend):
    takes = "a .layers file"
    priority = 100
    suffixes = (".layers",)

    def matches(self, model):
        return self.claims(model)

    def key(self, model, workload):
        return {"file": file_hash(Path(model))}

    def load(self, model, workload):
        import torch

        inference_only(workload, "a .layers file")
        try:
            sizes = [int(line) for line in Path(model).read_text().split()]
        except (OSError, ValueError) as error:
            raise ForerunError(f"{model} is no list of sizes") from error
        network = torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])))
        batches = {workload.batch, 1}
        return [load_graph(Workload(network, batch=b, input_shape=(sizes[0],), dtype=workload.dtype)) for b in batches]
'''

IMPORTER = """
from pathlib import Path

import pandas as pd

from forerun.data.importers import Importer, Loaded, one_row_a_case


class AcmeImporter(Importer):
    name = "acme_times"
    about = "small networks on three GPUs"
    licence = "CC0-1.0"
    source = "https://example.org/acme/times"
    commit = "0123abc"

    def load(self, folder: Path) -> Loaded:
        raw = pd.read_csv(folder / "times.csv")
        same = {"mode": "inference", "dtype": "fp32", "runtime": "eager", "devices": 1, "protocol": "acme"}
        return Loaded({"models": raw.rename(columns={"ms": "latency_ms"}).assign(**same)})

    def model_rows(self, rows):
        return one_row_a_case(rows)
"""

CHECK = """
import sys
from pathlib import Path

import torch

from acme_layers import LayersFrontend
from forerun.evaluate.check import check_predictor
from forerun.frontends.check import Example, check_frontend
from forerun.predictors.registry import load_predictor

print(len(check_predictor(lambda: load_predictor(sys.argv[1]))))
same = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 10))
example = Example(Path(sys.argv[2]), same_as=same, same_settings={"input_shape": (64,)})
print(len(check_frontend(LayersFrontend(), [example])))
"""


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The package as pip would install it (modules, and metadata with entry points), and a store of its own."""
    site = tmp_path_factory.mktemp("site")
    about = site / "acme-1.0.dist-info"
    about.mkdir()
    (site / "acme_predictor.py").write_text(PREDICTOR)
    (site / "acme_layers.py").write_text(FRONTEND)
    (site / "acme_times.py").write_text(IMPORTER)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[forerun.predictors]\nlog-linear = acme_predictor:LogLinearPredictor\n\n"
        "[forerun.frontends]\nlayers = acme_layers:LayersFrontend\n\n"
        "[forerun.importers]\nacme_times = acme_times:AcmeImporter\n"
    )
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": path, "FORERUN_STORE": str(tmp_path_factory.mktemp("store"))}


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "small.layers"
    path.write_text("64\n256\n10\n")
    return path


@pytest.fixture(scope="module")
def trained(acme: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights") / "mine"
    before = own_files()
    words = ["train", "log-linear", "--no-public", "--where", WHERE, "--folds", "3", "--out", str(folder)]
    done = warm.run(["-m", "forerun", *words], env={**os.environ, **acme})
    assert done.returncode == 0, done.stderr
    assert own_files() == before
    return folder


def own_files() -> dict[str, int]:
    """Every file of forerun with the time of its last change."""
    package = Path(forerun.__file__).parent
    kept = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path): path.stat().st_mtime_ns for path in kept}


def test_it_is_trained_with_intervals_and_a_card(trained: Path) -> None:
    saved = json.loads((trained / "predictor.json").read_text())
    assert saved["predictor"] == "log-linear"
    assert saved["learned"]["calibration_"]["calibration"]["scores"]["latency_ms"]["n"] == 25
    assert saved["learned"]["provenance_"]["rows"] == {"models": {"forerun-h200": 25}}
    assert "# The weights of the predictor log-linear" in (trained / "MODEL_CARD.md").read_text()


def test_it_is_scored_in_one_table_beside_the_default(acme: dict[str, str], run_forerun: Run) -> None:
    words = ("evaluate", "log-linear,default", "--split", "family", "--where", "mode = 'inference'", "--json")
    done = run_forerun(*words, **acme)
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)
    mine, theirs = (
        {line["target"]: line for line in lines if line["predictor"] == name and line["regime"] == "all"}
        for name in ("log-linear", "default")
    )
    assert mine["latency_ms"]["n"] == theirs["latency_ms"]["n"] > 1000
    assert mine["latency_ms"]["coverage"] == 1 and mine["energy_j"]["coverage"] == 0
    assert theirs["latency_ms"]["mape"] < mine["latency_ms"]["mape"] < 1
    assert 0.8 < mine["latency_ms"]["interval_coverage"] < 0.97
    assert {line["regime"] for line in lines} & {"training", "decode"} == set()


def test_it_is_judged_on_gpus_that_were_held_out(acme: dict[str, str], run_forerun: Run, tmp_path: Path) -> None:
    """By rows of a set that the package's own importer reads."""
    times = ["model,family,device,batch,ms"] + [
        f'"cnn:depth=2,filters={many},classes=10",cnn{many},{device},{batch},{slow * (0.2 + 1e-5 * many * batch)}'
        for device, slow in {"t4": 2.0, "a10g": 1.2, "rtx3090": 0.8}.items()
        for many in (16, 24)
        for batch in (8, 64, 256)
    ]
    (tmp_path / "times.csv").write_text("\n".join(times))
    alone = {**acme, "FORERUN_STORE": str(tmp_path / "store"), "COLUMNS": "200"}
    taken = run_forerun("data", "import", "acme_times", str(tmp_path), **alone)
    assert taken.returncode == 0, taken.stderr
    done = run_forerun("evaluate", "log-linear", "--devices", "--parts", "--where", WHERE, **alone)
    assert done.returncode == 0, done.stderr
    judged, _, parts = done.stdout.partition("What each part of log-linear buys")
    lines = [line.split() for line in judged.partition("Models on a held-out GPU")[2].splitlines()]
    found = {line[1]: line for line in lines if line[:1] == ["acme_times"] and "log-linear" in line}
    assert set(found) == {"t4", "a10g", "rtx3090", "all"}
    assert [found[name][4] for name in ("t4", "all")] == ["6", "18"]
    assert not any("hosts of the set" in line for line in judged.splitlines() if line.startswith("acme_times"))
    names = [line.split("  ")[0] for line in parts.splitlines()]
    assert "physics only" in names and "full" in names


def test_what_was_kept_of_it_is_compared_in_a_document(
    trained: Path, acme: dict[str, str], run_forerun: Run, tmp_path: Path
) -> None:
    document = tmp_path / "PREDICTORS.md"
    done = run_forerun("evaluate", f"{trained},default", "--document", str(document), **acme)
    assert done.returncode == 0, done.stderr
    text = document.read_text()
    assert "### Rows of log-linear" in text
    line = next(line for line in text.partition("### Rows of log-linear")[2].splitlines() if "| log-linear |" in line)
    assert "families held out" in line
    assert "| default |" in text and "| one-ratio |" in text


def test_predictor_and_frontend_pass_forerun_s_own_suites(
    trained: Path, layers: Path, acme: dict[str, str], tmp_path: Path
) -> None:
    done = warm.run(["-c", CHECK, str(trained), str(layers)], env={**os.environ, **acme}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [int(n) for n in done.stdout.split()] == [11, 8]


def test_a_file_of_its_format_is_answered_by_its_predictor(
    trained: Path, layers: Path, acme: dict[str, str], run_forerun: Run
) -> None:
    words = ("predict", str(layers), "--device", "a100", "--batch", "32", "--json", "--predictor")
    mine, default = (run_forerun(*words, name, **acme) for name in (str(trained), "default"))
    assert mine.returncode == default.returncode == 0, mine.stderr + default.stderr
    found, other = json.loads(mine.stdout), json.loads(default.stdout)
    assert found["parameters"] == other["parameters"] == 64 * 256 + 256 + 256 * 10 + 10
    assert found["latency_ms"]["low"] < found["latency_ms"]["value"] < found["latency_ms"]["high"]
    assert found["latency_ms"] != other["latency_ms"] and found["memory_mb"]["value"] == other["memory_mb"]["value"]
    assert found["energy_j"] is None and "does not predict it" in found["unknown"]["energy_j"]
    unfit = run_forerun("predict", str(layers), "--device", "a100", "--mode", "training", **acme)
    assert unfit.returncode == 2 and "for inference only" in unfit.stderr


def test_without_the_package_its_words_are_unknown(trained: Path, layers: Path, run_forerun: Run) -> None:
    for words, sentence in (
        ((str(layers),), "small.layers"),
        ((MODELS[0], "--predictor", str(trained)), "no predictor is called 'log-linear'"),
    ):
        done = run_forerun("predict", *words, "--device", "a100")
        assert done.returncode == 2 and sentence in done.stderr
