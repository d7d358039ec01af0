"""What carries the latency from one device to another: parts that add up, equal to those that shap computes."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import forerun
from forerun.api.contributions import HOST, contributions, shapley
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.workload import Workload

WORKLOAD = Workload("cnn:depth=3,filters=32", batch=64)


def test_parts_add_up_to_the_difference_of_the_predictions() -> None:
    found = contributions(WORKLOAD, load_device("t4"), load_device("h100-sxm"))
    ends = [
        forerun.predict(WORKLOAD.model, device, batch=64, measured=False).latency_ms for device in ("t4", "h100-sxm")
    ]
    assert found.reference_ms == pytest.approx(ends[0].value, rel=1e-5)
    assert found.device_ms == pytest.approx(ends[1].value, rel=1e-5)
    assert sum(part.ms for part in found.parts) == pytest.approx(found.device_ms - found.reference_ms, rel=1e-9)


def test_a_single_difference_has_the_whole_share() -> None:
    one = load_device("h200")
    other = dataclasses.replace(one, id="narrow", bandwidth_gbs=1000.0)
    found = contributions(WORKLOAD, one, other)
    assert [part.name for part in found.parts] == ["memory bandwidth"]
    assert found.parts[0].ms == pytest.approx(found.device_ms - found.reference_ms)
    assert (found.parts[0].before, found.parts[0].after) == ("4,800 GB/s", "1,000 GB/s")


def test_another_host_is_a_part_of_its_own() -> None:
    device = load_device("h200")
    found = contributions(WORKLOAD, device, device, reference_host="reference", host=4.0)
    assert [part.name for part in found.parts] == [HOST]
    assert found.parts[0].ms > 0


def test_devices_of_different_kinds_are_refused() -> None:
    device = dataclasses.replace(load_device("h200"), id="chip", kind="tpu")
    with pytest.raises(ForerunError, match="compare like with like"):
        contributions(WORKLOAD, load_device("h200"), device)


_BY_SHAP = """
import json, sys
import numpy as np, shap
values = np.array(json.load(sys.stdin))
many = lambda rows: np.array([values[tuple(row.astype(int))] for row in rows])
explain = shap.explainers.Exact(many, shap.maskers.Independent(np.zeros((1, 5))))
print(json.dumps(explain(np.ones((1, 5))).values[0].tolist()))
"""


def test_shares_are_those_of_shap() -> None:
    pytest.importorskip("shap")
    values = np.random.default_rng(0).normal(size=(2,) * 5)
    # Compiling shap's loops takes longer than 32 sums of five; numba reads the switch once in a process.
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    given = json.dumps(values.tolist())
    ran = subprocess.run([sys.executable, "-c", _BY_SHAP], input=given, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert shapley(5, lambda chosen: float(values[chosen])) == pytest.approx(json.loads(ran.stdout))
