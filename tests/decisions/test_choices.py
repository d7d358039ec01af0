"""Whether choices are right is judged on cases that several devices were measured on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import warm

import forerun
from forerun.data.store import Store
from forerun.evaluate.choices import (
    COLUMNS,
    judge,
    measured_together,
    predicted,
    shipped_together,
)
from forerun.workload import Workload


def measured(device: str, ms: float, **more: Any) -> dict[str, Any]:
    row = {"dataset": "pytorch_gpu_benchmark", "source": "torchvision", "model": "torchvision/squeezenet1_1",
           "family": "squeezenet", "device": device, "mode": "inference", "dtype": "fp32", "amp": None,
           "runtime": "eager", "batch": 12, "input_shape": "[3,224,224]", "devices": 1, "latency_ms": ms,
           "software": None, "protocol": "pytorch_gpu_benchmark", "status": "ok"}  # fmt: skip
    return row | more


ROWS = [
    measured("titan-xp", 20.0), measured("rtx3090", 7.0), measured("a100-sxm4-40gb", 6.0),
    measured("titan-xp", 60.0, mode="training"), measured("rtx3090", 90.0, mode="training"),
    measured("titan-xp", 22.0, dtype="fp16"),  # on one device alone
]  # fmt: skip


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    store = Store(Path(tmp_path_factory.mktemp("choices")), shipped=False)
    store.append("models", pd.DataFrame(ROWS))
    return measured_together(store.read("models"), 10)


def test_only_cases_of_several_devices_are_taken(rows: pd.DataFrame) -> None:
    assert sorted(rows.groupby("case")["device"].nunique()) == [2, 3]
    assert set(rows["dtype"]) == {"fp32"}


def test_cases_are_predicted_without_the_store_and_judged(rows: pd.DataFrame) -> None:
    frame = predicted(rows)
    assert len(frame) == 5
    of_inference = frame[frame["case"].str.contains("inference")]
    workload = Workload("torchvision/squeezenet1_1", batch=12, input_shape=(3, 224, 224))
    answers = forerun.predict_many([workload], of_inference["device"].tolist())
    assert of_inference["predicted_ms"].tolist() == pytest.approx(answers["latency_ms"].tolist())
    result = judge(frame)
    assert result.pairs == 3 + 1
    assert result.pairs_right <= 3  # no titan-xp beats an rtx3090 in training, as was written
    assert result.cases.set_index("case")["best"].str.contains("titan-xp").sum() == 1


def test_pairs_count_as_distinct_when_their_intervals_do_not_overlap() -> None:
    lines = [
        ("a", "x", 1.0, 1.0, 0.9, 1.1), ("a", "y", 2.0, 3.0, 2.5, 3.5), ("a", "z", 1.5, 0.95, 0.8, 1.2),
        ("b", "x", 9.0, 1.0, 0.9, 1.1), ("b", "y", 5.0, 3.0, 2.5, 3.5), ("c", "x", 1.0, 1.0, 0.9, 1.1),
    ]  # fmt: skip
    result = judge(pd.DataFrame(lines, columns=list(COLUMNS)))
    assert (result.pairs, result.pairs_right) == (4, 2)
    assert (result.distinct, result.distinct_right) == (3, 2)
    assert result.share_right == pytest.approx(2 / 3)
    assert (result.best_chosen, result.best_within_interval) == (0, 1)
    assert result.cases["lost"].tolist() == pytest.approx([0.5, 0.8])


def test_rows_that_ship_are_judged_where_several_devices_have_the_same_case() -> None:
    rows = shipped_together(Store().read("models"), 3)
    assert rows.groupby("case")["device"].nunique().tolist() == [2, 2, 2]
    result = judge(predicted(rows))
    assert (result.pairs, result.pairs_right) == (3, 3)  # a GPU and a CPU


def test_without_published_sets_the_benchmark_says_how_to_import_them(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "recommend_measured.py"
    env = {**os.environ, "FORERUN_STORE": str(tmp_path / "store")}
    done = warm.run([str(script), "--cases", "2"], env=env)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "forerun data import timm" in done.stdout.splitlines()[-1]


def test_nothing_to_judge_is_not_a_success() -> None:
    assert np.isnan(judge(pd.DataFrame(columns=list(COLUMNS))).share_right)
