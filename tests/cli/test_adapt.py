"""`forerun adapt`: a device of one's own, corrected by a handful of rows, as a user does it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import forerun
from forerun._util import documents
from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.measure import sweep
from forerun.measure.cases import model_name
from forerun.measure.core import specs
from forerun.predictors.registry import load_predictor
from forerun.training.adapting import planning
from forerun.workload import Workload

Run = Callable[..., subprocess.CompletedProcess[str]]
CHIP = {"id": "chip", "vendor": "NVIDIA", "architecture": "turing", "fp32_tflops": 6, "fp16_tflops": 24,
        "memory_gb": 8, "bandwidth_gbs": 200, "tdp_w": 80}  # fmt: skip
MODELS = ("cnn:depth=2,filters=16,classes=10", "cnn:depth=5,filters=48,classes=10", "cnn:depth=8,filters=32,classes=10")
CASES = [(model, batch) for model in MODELS for batch in (1, 64, 2048)]
TIMES = 1.6  # longer than predicted


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """What a chip measures that is slower than its spec sheet says, and draws less."""
    found = []
    for model, batch in CASES:
        p = forerun.predict(model, CHIP, batch=batch)
        assert p.energy_j is not None
        found.append({"model": model, "batch": batch, "latency_ms": TIMES * p.latency_ms.value,
                      "energy_j": 0.7 * TIMES * p.energy_j.value, "memory_mb": p.memory_mb.value + 300})  # fmt: skip
    return pd.DataFrame(found)


@pytest.fixture
def chip(tmp_path: Path, rows: pd.DataFrame) -> Path:
    """chip.yaml and rows.csv in the folder where commands run."""
    (tmp_path / "chip.yaml").write_text(json.dumps(CHIP))
    rows.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path


def test_an_adapted_device_is_a_folder_that_predicts_as_its_rows_say(chip: Path, run_forerun: Run) -> None:
    done = run_forerun("adapt", "--device", "chip.yaml", "--rows", "rows.csv", "--out", "my_chip/", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["after"]["mape"] < 12 < said["before"]["mape"] and said["notes"] == []
    assert {p.name for p in (chip / "my_chip").iterdir()} == {
        "device.yaml", "adaptation.yaml", "adaptation.safetensors", "README.md", "rows.jsonl"
    }  # fmt: skip
    model = "cnn:depth=6,filters=32,classes=10"
    done = run_forerun("predict", model, "--device", "my_chip/", "--batch", "512", "--json")
    assert done.returncode == 0, done.stderr
    adapted, plain = json.loads(done.stdout), forerun.predict(model, CHIP, batch=512)
    assert adapted["basis"] == "adapted (9 rows)" and adapted["device"] == "chip"
    latency = adapted["latency_ms"]
    assert latency["value"] == pytest.approx(TIMES * plain.latency_ms.value, rel=0.15)
    assert latency["high"] / latency["low"] < plain.latency_ms.high / plain.latency_ms.low
    assert adapted["memory_mb"]["value"] == pytest.approx(plain.memory_mb.value + 270, abs=5)
    assert adapted["energy_j"]["value"] == pytest.approx(0.7 * TIMES * plain.energy_j.value, rel=0.2)
    compared = forerun.compare(model, [CHIP | {"id": "plain"}, chip / "my_chip"], batch=512)
    assert set(compared["basis"]) == {"learned", "adapted (9 rows)"}


def test_rows_of_a_store_and_its_own_rows_adapt_it_alike(chip: Path, rows: pd.DataFrame, run_forerun: Run) -> None:
    Store(chip / "store").append("models", rows.assign(device="chip", mode="inference", dtype="fp32", status="ok"))
    Store(chip / "store").append("models", rows.assign(device="t4", latency_ms=1.0))  # another's rows do not count
    run_forerun("adapt", "--device", "chip.yaml", "--rows", "store", "--out", "my_chip")
    first = (chip / "my_chip" / "adaptation.yaml").read_text()
    done = run_forerun("adapt", "--device", "my_chip", "--rows", "my_chip/rows.jsonl", "--out", "my_chip")
    assert done.returncode == 0 and "Written to my_chip" in done.stdout, done.stderr
    assert (chip / "my_chip" / "adaptation.yaml").read_text() == first
    assert [p.name for p in chip.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.iloc[:0], "has no rows of models with a latency_ms"),
        (lambda rows: rows.drop(columns="latency_ms"), "no column latency_ms"),
        (lambda rows: rows.assign(device=["a", "b", "c"] * 3), "rows of 3 devices (a, b, c), none of them chip"),
        (lambda rows: rows.assign(device=["a"] * 5 + ["b"] * 4), "rows of 2 devices (a, b), none of them chip"),
        (lambda rows: rows[rows["model"] == MODELS[0]], "all rows are of one model (cnn:depth=2"),
        (lambda rows: rows.assign(latency_ms=rows["latency_ms"] / 1e3), "looks like seconds"),
        (lambda rows: rows.assign(latency_ms=rows["latency_ms"] * 1e3), "looks like microseconds"),
        (lambda rows: rows.assign(model="no-such-model-here"), "none of the rows can be used"),
    ],
)
def test_rows_that_nothing_can_be_learned_from(
    chip: Path, rows: pd.DataFrame, run_forerun: Run, change: Callable[[pd.DataFrame], pd.DataFrame], said: str
) -> None:
    change(rows).to_csv(chip / "rows.csv", index=False)
    done = run_forerun("adapt", "--device", "chip.yaml", "--rows", "rows.csv", "--out", "my_chip")
    assert (done.returncode, done.stdout) == (2, "") and said in done.stderr.splitlines()[-1]
    assert sorted(p.name for p in chip.iterdir()) == ["chip.yaml", "rows.csv"]  # nothing was begun


def test_rows_that_contradict_are_named(chip: Path, rows: pd.DataFrame, run_forerun: Run) -> None:
    wrong = rows.copy()
    wrong.loc[4, "latency_ms"] *= 4
    wrong.loc[8, "latency_ms"] /= 1000
    repeated = pd.concat([wrong, wrong.iloc[[0]].assign(latency_ms=3 * wrong["latency_ms"][0])])
    repeated.to_csv(chip / "rows.csv", index=False)
    done = run_forerun("adapt", "--device", "chip.yaml", "--rows", "rows.csv")
    notes = [line for line in done.stdout.splitlines() if line.startswith("Note:")]
    assert done.returncode == 0 and "Nothing was written" in done.stdout, done.stderr
    for words in (f"{MODELS[1]}, batch 64", f"{MODELS[2]}, batch 2048", f"{MODELS[0]}, batch 1:"):
        assert any(words in line for line in notes), (words, notes)


def test_folders_of_other_versions_are_refused(chip: Path, run_forerun: Run) -> None:
    run_forerun("adapt", "--device", "chip.yaml", "--rows", "rows.csv", "--out", "my_chip")
    place = chip / "my_chip" / "adaptation.yaml"
    written = place.read_text()
    for old, new, said in (
        ("format: 2", "format: 7", "was adapted by another version (format 7, this forerun reads 2)"),
        ("predictor: ", "predictor: x", "was adapted with other weights"),
    ):
        place.write_text(written.replace(old, new, 1))
        done = run_forerun("predict", MODELS[0], "--device", "my_chip")
        assert done.returncode == 2 and said in done.stderr.splitlines()[-1]
    place.write_text(written)
    (chip / "my_chip" / "adaptation.safetensors").write_bytes(b"nothing")
    with pytest.raises(ForerunError, match="no whole adapted device"):
        load_device(chip / "my_chip")
    run_forerun("adapt", "--device", "chip.yaml", "--rows", "rows.csv", "--out", "my_chip")
    with pytest.raises(ForerunError, match="knows nothing of adapted devices"):
        forerun.predict(MODELS[0], chip / "my_chip", predictor="roofline")


def test_what_is_asked_must_be_one_thing(chip: Path, run_forerun: Run) -> None:
    (chip / "full").mkdir()
    (chip / "full" / "thesis.tex").write_text("years of work")
    for words, said in (
        (("--rows", "rows.csv"), "--device says which device"),
        (("--device", "chip.yaml"), "give --rows"),
        (("--device", "chip.yaml", "--rows", "rows.csv", "--plan", "5"), "one of the two"),
        (("--device", "chip.yaml", "--rows", "none.csv"), "there is no store or file none.csv"),
        (("--device", "chip.yaml", "--rows", "chip.yaml"), "rows are a store (a folder) or"),
        (("--device", "chip.yaml", "--rows", "rows.csv", "--out", "full"), "is not empty and no adapted device"),
    ):
        done = run_forerun("adapt", *words)
        assert done.returncode == 2 and said in done.stderr, (words, done.stderr)
    assert (chip / "full" / "thesis.tex").exists()


def test_a_new_kind_of_network_is_a_predictor_for_every_device(chip: Path, run_forerun: Run) -> None:
    lines = []
    for device, (model, batch) in [(d, case) for d in ("h200", "t4") for case in CASES]:
        p = forerun.predict(model, device, batch=batch, measured=False)
        lines.append({"device": device, "model": model, "batch": batch, "latency_ms": 1.25 * p.latency_ms.value})
    (chip / "family.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    done = run_forerun("adapt", "--architectures", "family.jsonl", "--out", "my_family")
    assert done.returncode == 0 and "use it with --predictor my_family" in done.stdout, done.stderr
    for device in ("a100-sxm4-40gb", "t4"):
        model = "cnn:depth=6,filters=32,classes=10"
        plain = forerun.predict(model, device, batch=512)
        adapted = forerun.predict(model, device, batch=512, predictor=chip / "my_family")
        assert adapted.basis == "adapted (18 rows)"
        assert adapted.latency_ms.value == pytest.approx(1.25 * plain.latency_ms.value, rel=0.1)
    explained = forerun.explain(model, "t4", batch=512, predictor=chip / "my_family")
    assert adapted.device_ms is not None
    assert explained.device_ms == pytest.approx(adapted.device_ms.value, rel=0.02)
    place = chip / "my_family" / "adaptation.yaml"
    place.write_text(place.read_text().replace("predictor: ", "predictor: x", 1))
    with pytest.raises(ForerunError, match="this kind of network was adapted with other weights"):
        forerun.predict(model, "t4", predictor=chip / "my_family")
    done = run_forerun("adapt", "--architectures", "rows.csv", "--out", "other")
    assert done.returncode == 2 and "name no device" in done.stderr and not (chip / "other").exists()


SMALL = [
    {"name": "cnn:depth=2,filters=16,classes=10", "family": "cnn", "source": "cnn",
     "draw": {"depth": [2], "filters": [16], "classes": [10]}},
    {"name": "cnn:depth=8,filters=32,classes=10", "family": "cnn", "source": "cnn",
     "draw": {"depth": [8], "filters": [32], "classes": [10]}},
]  # fmt: skip


def test_a_plan_is_a_sweep_of_what_tells_most_in_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.yaml").write_text(json.dumps(SMALL))
    monkeypatch.setattr(planning, "CANDIDATES", tmp_path / "small.yaml")
    device, predictor = load_device(CHIP), load_predictor("default")
    chosen = planning.plan(device, predictor, 5, 1200)
    assert len(chosen.cases) == 5 and chosen.after < 0.8 * chosen.before and chosen.seconds < 1200
    times = [case.latency_ms for case in chosen.cases]
    assert times == sorted(times) and len({case.workload.model for case in chosen.cases}) == 2
    planning.write(tmp_path / "plan.yaml", planning.sweep_of(device, chosen))
    assert len({key for key, _ in sweep.wanted(sweep.load(tmp_path / "plan.yaml"), seed=0)}) == 5
    with pytest.raises(ForerunError, match="too short for two models"):
        planning.plan(device, predictor, 5, 10)


def test_every_candidate_is_a_case_of_a_sweep() -> None:
    entries = documents.read_yaml(planning.CANDIDATES)
    for entry in entries:
        case = planning.Case(Workload(entry["name"], batch=8), entry, 1.0)
        spec = planning.sweep_of(load_device(CHIP), planning.Plan((case,), 60.0, 1.0, 0.5))
        (found,) = specs.cases(spec)
        assert model_name(found) == entry["name"] and found["batch"] == 8
