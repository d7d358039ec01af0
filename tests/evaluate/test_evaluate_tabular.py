"""The law of tabular models is found again in rows that follow it, and judged with models held out."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy")

from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate import tabular
from forerun.frontends.tabular import kinds
from forerun.predictors.laws import tabular as law
from forerun.predictors.laws import tabular_work

MACHINE = "xeon-emr-2vcpu"
TRUE = law.TabularLaw(
    costs={
        "training/xgboost": {"serial tree": 3e5, "parallel summed": 0.8, "parallel split": 1.5},
        "training/lightgbm": {"serial tree": 2e5, "parallel summed": 0.5, "parallel split": 1.0},
    },
    efficiency={"training/xgboost": 0.7, "training/lightgbm": 0.5},
    memory={"training/xgboost": {"table": 1.0, "bins": 2.0, "label": 3.0, "model": 1.0, "histograms": 0.5}},
    measured_on=(MACHINE,),
)  # fmt: skip


def made() -> list[tabular.Measured]:
    noise = np.random.default_rng(0)
    out = []
    for kind, trees, rows, columns, threads in itertools.product(
        ("xgboost", "lightgbm"), (10, 100, 1000), (3_000, 30_000, 300_000), (8, 40), (1, 2)
    ):
        model = kinds.parse(f"tabular:{kind},trees={trees},rows={rows},columns={columns}")
        device = tabular.on_threads(load_device(MACHINE), threads)
        real = TRUE.ms(model, "training", rows, device) * float(np.exp(0.05 * noise.standard_normal()))
        size = TRUE.working_mb(model, "training", rows)
        out.append(tabular.Measured(model, model, "training", rows, device, real, size, f"{model.name}/{threads}"))
    return out


def test_the_law_is_found_again() -> None:
    cases = made()
    found = tabular.fitted(cases)
    assert found.measured_on == (MACHINE,) and found.rows == len(cases)
    off = [found.ms(c.asked, c.mode, c.rows, c.device) / c.latency_ms - 1 for c in cases]
    assert np.mean(np.abs(off)) < 0.08
    assert found.efficiency["training/xgboost"] == pytest.approx(0.7, abs=0.15)
    lines = tabular.held_out(cases)
    shown = tabular.table(lines).set_index("what")
    whole = shown.loc["latency_ms, training"]
    assert whole["mape"] < 0.15 < whole["one ratio"] and whole["n"] == len(cases)
    assert 0.8 <= whole["interval_coverage"] <= 1 and whole["high / low"] < 2
    assert shown.loc["memory_mb, training"]["mape"] < 0.1
    calibrated = tabular.with_intervals(found, lines)
    again = law.TabularLaw(**json.loads(json.dumps(calibrated.to_json())))
    time = again.time(cases[0].asked, "training", cases[0].rows, cases[0].device)
    assert time.low < time.value < time.high


def test_rows_of_older_sweeps_are_predicted_as_fitted_models() -> None:
    cases = [case for case in tabular.measured(Store()) if "rows=" not in case.asked.name or case.asked.facts]
    assert {case.asked.kind for case in cases} >= {"random_forest", "xgboost"}
    trees = next(case for case in cases if case.asked.kind == "xgboost")
    assert trees.asked.facts and tabular_work.trees(trees.asked).nodes == pytest.approx(trees.asked.facts["nodes"])
    assert {law.threads_of(case.device) for case in cases} == {1, 2}


def test_an_empty_store_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ForerunError, match=r"forerun sweep sweeps/tabular\.yaml"):
        tabular.measured(Store(tmp_path, shipped=False))


def test_no_prediction_is_faster_than_its_products() -> None:
    model = kinds.parse("tabular:mlp,layers=3,width=4096,epochs=1,rows=1e6,columns=100")
    device = load_device("epyc-7763")
    free = law.TabularLaw(costs={"training/mlp": {}}, measured_on=(MACHINE,))
    least = 6 * 1e6 * tabular_work.weights(model) / (device.peak_tflops["fp32"] * 1e9)
    assert free.ms(model, "training", 10**6, device) >= least > 0
