"""`forerun evaluate --collectives` on rows whose law is known."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from forerun.data.store import Store
from forerun.evaluate.collectives import fitted, measured
from forerun.predictors.laws.collectives import CollectiveLaw

Run = Callable[..., subprocess.CompletedProcess[str]]
RATES = {"a100-sxm4-80gb": 300.0, "h100-sxm": 450.0, "h200": 450.0, "b200": 900.0}
FLOORS = {2: 6.0, 4: 9.0, 8: 15.0}


def filled(folder: Path) -> Store:
    """A store of all-reduces that reach 80 % of every link after a floor."""
    store = Store(folder, shipped=False)
    rows = []
    for device, rate in RATES.items():
        for count, floor in FLOORS.items():
            for power in range(9, 30, 2):
                sent = 2 * (count - 1) / count * 2**power / (0.8 * rate) / 1e3
                us = floor + sent + (floor * sent) ** 0.5
                rows.append({
                    "device": device, "device_reported": device, "op": "all_reduce", "family": "collective",
                    "shape": {"bytes": 2**power, "nodes": 1}, "dtype": "fp16", "direction": "forward",
                    "runtime": "nccl", "protocol": "aiconfigurator/nccl", "devices": count, "device_ms": us / 1e3,
                    "status": "ok", "dataset": "aiconfigurator",
                })  # fmt: skip
    store.append("operators", rows)
    return store


def test_constants_come_back_and_are_read_again(tmp_path: Path) -> None:
    law = fitted(measured(filled(tmp_path)))
    one = law.constants["fabric", "nccl", "all_reduce"]
    assert one.floor_us == pytest.approx(list(FLOORS.values()), rel=0.02)
    assert one.efficiency == pytest.approx([0.8] * 3, rel=0.03) and one.bend == pytest.approx(1.0, rel=0.05)
    again = CollectiveLaw.from_json(json.loads(json.dumps(law.to_json())))
    assert again.constants["fabric", "nccl", "all_reduce"].us(100.0, 4, "hopper") == one.us(100.0, 4, "hopper")
    assert again.errors == law.errors


def test_a_held_out_system_is_predicted_by_the_others(run_forerun: Run, tmp_path: Path) -> None:
    filled(tmp_path / "store")
    done = run_forerun("evaluate", "--collectives", "--json", FORERUN_STORE=str(tmp_path / "store"))
    lines = {line["size"]: line for line in json.loads(done.stdout) if line["kernel"] == "nccl"}
    for line in lines.values():
        assert line["mape"] < 0.03 < line["one ratio"] < line["roofline"]
        assert line["n"] == 4 * 3 * (4 if line["size"] == "up to 64 KB" else 7)


def test_without_rows_it_says_which_sets_to_import(run_forerun: Run, tmp_path: Path) -> None:
    done = run_forerun("evaluate", "--collectives", FORERUN_STORE=str(tmp_path / "none"))
    assert done.returncode == 2
    assert "the store has no collectives: forerun data import aiconfigurator FOLDER" in done.stderr
