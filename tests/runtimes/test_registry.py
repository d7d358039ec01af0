"""Runtimes by name: those of forerun, and one that is registered in this process."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import forerun
from forerun.errors import ForerunError
from forerun.predictors.laws.host import COUNTED, HostCosts
from forerun.runtimes import registry
from forerun.runtimes.base import LaunchCosts, Runtime
from forerun.workload import Workload

MODEL = "cnn:depth=2,filters=16,classes=10"


class Notebook(Runtime):
    name = "notebook"
    launch = LaunchCosts(host_share=0.1, call_us=30.0)
    host_us = (30.0, 4.0)


@pytest.fixture
def notebook() -> Iterator[Runtime]:
    yield registry.register(Notebook())
    del registry._registered["notebook"]


def test_every_runtime_is_an_entry_point_of_its_own_name() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"][registry.GROUP] == registry.BUILT_IN
    assert [registry.runtime(name).name for name in registry.BUILT_IN] == list(registry.BUILT_IN)
    assert Workload(MODEL).runtime == registry.USUAL


@pytest.mark.parametrize(("name", "hint"), [
    ("ort", "Did you mean onnxruntime?"), ("compil", "Did you mean compile"), ("zzz", "Choose from eager, cudagraph"),
])  # fmt: skip
def test_an_unknown_name_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(ForerunError, match=f"runtime '{name}' is not known") as caught:
        forerun.predict(MODEL, "h200", runtime=name)
    assert hint in str(caught.value)


def test_one_that_is_registered_answers_in_this_process(notebook: Runtime) -> None:
    eager, mine = (forerun.predict(MODEL, "h200", runtime=run) for run in ("eager", "notebook"))
    assert mine.host_ms is not None and eager.host_ms is not None
    assert mine.host_ms.value < eager.host_ms.value / 2
    assert registry.names()[-2:] == ("notebook", "tensorrt")


def test_a_name_is_taken_once(notebook: Runtime) -> None:
    class Other(Runtime):
        name = "notebook"

    class Second(Runtime):
        name = "eager"

    for taken in (Other(), Second()):
        with pytest.raises(ForerunError, match=f"there is a runtime called {taken.name} already"):
            registry.register(taken)
    with pytest.raises(ForerunError, match="not a Runtime"):
        registry.register(Other)  # type: ignore[arg-type]


def test_rows_without_a_runtime_or_of_an_unknown_one_count_as_eager() -> None:
    rows = pd.DataFrame({"runtime": [None, "eager", "compile", "an-engine-of-others"]})
    assert registry.names_of(rows).tolist() == ["eager", "eager", "compile", "an-engine-of-others"]
    assert registry.is_usual(rows).tolist() == [True, True, False, False]
    assert registry.is_usual(pd.DataFrame({"model": ["a", "b"]})).tolist() == [True, True]
    assert [registry.of_row(run).name for run in (None, float("nan"), "an-engine-of-others", "compile")] == [
        *["eager"] * 3,
        "compile",
    ]
    assert registry.replays(np.array(["cudagraph", "eager", "nan", "compile-reduce-overhead"])).tolist() == [
        True, False, False, True,
    ]  # fmt: skip


def test_costs_of_its_own_are_kept_with_the_weights_by_its_name(notebook: Runtime) -> None:
    counts = np.ones((1, len(COUNTED)))
    plain = HostCosts(np.ones(len(COUNTED)), 0.7, 4.0)
    fitted = HostCosts(plain.cost_us, 0.7, 4.0, own={"notebook_us": (60.0, 8.0), "replay_us": (7.0, 0.1)})
    again = HostCosts.from_scalars(fitted.cost_us, fitted.scalars())
    assert again.own == fitted.own and again.lead_us == fitted.lead_us
    assert again.host_ms(counts, "notebook")[0] == pytest.approx(2 * plain.host_ms(counts, "notebook")[0])
    assert plain.of(registry.runtime("cudagraph")) == (20.0, 0.3)
    assert again.of(registry.runtime("cudagraph")) == (7.0, 0.1)
