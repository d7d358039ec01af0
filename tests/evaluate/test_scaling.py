"""The law of DataParallel: constants come back from rows that follow it, and each GPU type is held out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from forerun.advice.data_parallel import OneProcess, in_one_process, one_process
from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate import scaling
from forerun.prediction import Estimate

LAW = OneProcess(0.7, 2.5, (0.8, 1.25))


def steps() -> pd.DataFrame:
    """Steps of ten networks on three GPU types, as LAW has them."""
    rng = np.random.default_rng(0)
    rows = []
    for gpu, gbs in (("rtx2080ti", 16.0), ("rtx3090", 32.0), ("a100-sxm4-40gb", 300.0)):
        for model in range(10):
            alone, host, size = rng.uniform(20, 200), rng.uniform(5, 40), rng.uniform(10, 500)
            rows += [
                {"device": gpu, "devices": n, "model": f"m{model}", "alone_ms": alone, "host_ms": host, "gbs": gbs,
                 "weights_mb": size, "step_ms": LAW.step_ms(alone, host, size, gbs, n)}
                for n in (2, 3, 4)
            ]  # fmt: skip
    return pd.DataFrame(rows)


def test_constants_come_back() -> None:
    made = scaling.law(steps())
    assert (made.python, made.copies) == (pytest.approx(0.7, rel=1e-3), pytest.approx(2.5, rel=1e-3))
    assert made.errors == (pytest.approx(1, abs=1e-3), pytest.approx(1, abs=1e-3))


def test_the_table_holds_every_gpu_out_and_shows_the_baselines() -> None:
    table = scaling.section(steps()).table
    last = table.iloc[-1]
    assert list(table["GPU"].unique()) == ["a100-sxm4-40gb", "rtx2080ti", "rtx3090", "all"]
    assert last["n"] == 90 and last["mape"] < 0.001 < last["one ratio"] < last["ideal"]


def test_one_process_costs_host_time_for_every_gpu() -> None:
    step, device = Estimate(50.0, 45.0, 55.0, "ms"), load_device("rtx3090")
    assert in_one_process(step, 20.0, 100.0, device, 1) == step
    two, four = (in_one_process(step, 20.0, 100.0, device, n) for n in (2, 4))
    assert step.value < two.value < four.value and two.low < two.value < two.high
    assert four.value - two.value == pytest.approx(2 * one_process().python * 20.0, rel=0.2)


def test_without_rows_it_says_which_set_to_import(tmp_path: object) -> None:
    with pytest.raises(ForerunError, match="the store has no steps on several GPUs: forerun data import pytorch_gpu_"):
        scaling.measured(Store(tmp_path, shipped=False))  # type: ignore[arg-type]
