"""Training on many devices is predicted from a submitter's smallest system; submitters and benchmarks are held out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forerun.cli import run as forerun
from forerun.data import importers
from forerun.data.store import Store
from forerun.errors import ForerunError
from forerun.evaluate import mlperf_scaling

#: Milliseconds of a step beside the samples, and of a sample on one device.
FIXED = {"resnet": (3.5, 0.14), "unet3d": (5.5, 13.4), "retinanet": (5.5, 3.4)}


def run(submitter: str, benchmark: str, devices: int, batch: int, rate: float, **more: Any) -> dict[str, Any]:
    return {
        "round": "v4.0", "submitter": submitter, "system_name": f"{submitter}-{devices}", "benchmark": benchmark,
        "run": 0, "submission_division": "closed", "seed": float(devices + len(submitter)), "global_batch_size": batch,
        "gradient_accumulation_steps": 1.0, "final_eval": "0.72", "train_samples": 1e6, "status": "success",
        "time_to_train_s": 4e6 / rate, "tracked_throughput_median": rate,
        "sys_accelerator_model_name": "NVIDIA H100-SXM5-80GB", "sys_accelerators_per_node": 8,
        "sys_number_of_nodes": devices // 8, "sys_accelerator_interconnect": "NVLINK Gen4",
        "sys_host_processor_model_name": "Intel(R) Xeon(R) Platinum 8480+ @ 2.00GHz",
        "sys_framework": "NGC PyTorch 24.04", "sys_host_networking": None, "sys_division": "closed",
        "max_sequence_length": None, "lora_rank": None, **more,
    }  # fmt: skip


def vision(submitter: str, benchmark: str, devices: int, batch: int, **more: Any) -> dict[str, Any]:
    fixed, sample = FIXED[benchmark]
    return run(submitter, benchmark, devices, batch, 1e3 * batch / (fixed + sample * batch / devices), **more)


def gpt3(submitter: str, devices: int, accumulated: int, tokens: float) -> dict[str, Any]:
    return run(submitter, "gpt3", devices, 2048, tokens, gradient_accumulation_steps=float(accumulated),
               time_to_train_s=9e3)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with runs of three submitters on 8 to 4,096 devices."""
    folder = tmp_path_factory.mktemp("mlperf")
    rows = [vision(name, benchmark, devices, batch) for name in ("one", "four", "three")
            for benchmark in FIXED for devices, batch in ((8, 400), (64, 800), (512, 2048))]  # fmt: skip
    rows += [gpt3("one", 512, 128, 345_000.0), gpt3("four", 512, 128, 340_000.0)]
    rows += [gpt3("one", 4096, 16, 2_350_000.0), gpt3("four", 4096, 16, 2_300_000.0)]
    slower = vision("four", "resnet", 512, 2048, run=1, seed=1.0)  # a repeat that went wrong, and one as the first
    rows += [slower | {"tracked_throughput_median": 100.0}, slower | {"run": 2, "seed": 2.0}]
    # Neither the batch of a graph network nor a card without a known network is judged.
    rows += [run("four", "rgat", devices, 512, 1e4 * devices) for devices in (8, 64)]
    rows += [vision("four", "resnet", devices, 400, sys_accelerator_model_name="NVIDIA A30") for devices in (8, 64)]
    pd.DataFrame(rows).to_parquet(folder / "runs.parquet")
    Store(folder / "store", shipped=False).replace("mlperf_training", importers.load("mlperf_training", folder).tables)
    return folder / "store"


def test_pairs_are_of_one_submitter_and_repeats_are_one_system(folder: Path) -> None:
    rows = mlperf_scaling.measured(Store(folder, shipped=False))
    assert len(rows) == 3 * 3 * 2 + 2 and rows["largest"].sum() == 3 * 3 + 2
    assert set(rows["benchmark"]) == {*FIXED, "gpt3"} and set(rows["device"]) == {"h100-sxm"}
    repeated = rows[(rows["submitter"] == "four") & (rows["benchmark"] == "resnet") & (rows["devices"] == 512)]
    assert repeated["step_ms"].item() == pytest.approx(3.5 + 0.14 * 4, rel=0.01)
    steps = rows[(rows["benchmark"] == "gpt3") & (rows["submitter"] == "one")]
    assert steps["step_ms"].item() == pytest.approx(1e3 * 2048 * 2048 / 2.35e6)  # tokens, not samples


@pytest.mark.parametrize("part", ["submitter", "benchmark"])
def test_a_fixed_time_and_bubbles_are_foreseen(folder: Path, part: str) -> None:
    judged = mlperf_scaling.held_out(mlperf_scaling.measured(Store(folder, shipped=False)), part)
    law, linear = ((judged["step_ms"] / judged[name] - 1).abs().mean() for name in ("law", "linear"))
    assert law < 0.15 < linear and (judged["law"] > judged["linear"]).all()
    # Eight times the replicas have an eighth of the microbatches, and the same pipeline to fill.
    bubbles = judged[judged["benchmark"] == "gpt3"]
    assert ((bubbles["law"] / bubbles["linear"]).between(1.05, 1.4)).all()


def test_the_command_prints_the_largest_systems(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORERUN_STORE", str(folder))
    assert forerun(["evaluate", "--mlperf-scaling", "--json"]) == 0
    lines = {(line["held out"], line["benchmark"]): line for line in json.loads(capsys.readouterr().out)}
    everything = lines["submitter", "all"]
    assert everything["n"] == 11 and everything["target"] == 0.2
    assert everything["mape"] < 0.1 and everything["mape"] < everything["linear"]
    assert lines["submitter", "language models"]["n"] == 2 and 0 <= everything["interval_coverage"] <= 1


def test_an_empty_store_says_what_to_import(tmp_path: Path) -> None:
    with pytest.raises(ForerunError, match="forerun data import mlperf_training"):
        mlperf_scaling.measured(Store(tmp_path, shipped=False))


def test_one_submitter_leaves_nothing_to_fit(folder: Path) -> None:
    rows = mlperf_scaling.measured(Store(folder, shipped=False))
    with pytest.raises(ForerunError, match="only one submitter"):
        mlperf_scaling.section(rows[rows["submitter"] == "one"])
