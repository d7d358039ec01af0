"""Whole families at once: the same answers as one by one, from a handful of captures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import forerun
from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.graph.family import learn
from forerun.workload import Workload


def alone(model: object, member: pd.Series, **workload: object) -> forerun.Prediction:
    return forerun.predict(model, "a100", batch=int(member["batch"]), predictor="default", **workload)  # type: ignore[arg-type]


def check(found: pd.DataFrame, models: list[object], rows: list[int], **workload: object) -> None:
    for row, model in zip(rows, models, strict=True):
        p = alone(model, found.loc[row], **workload)
        assert p.latency_ms is not None and p.device_ms is not None and p.energy_j is not None
        got = found.loc[row, ["latency_ms", "latency_low_ms", "device_ms", "energy_j", "flops", "bytes"]]
        want = [p.latency_ms.value, p.latency_ms.low, p.device_ms.value, p.energy_j.value, p.flops, p.bytes]
        np.testing.assert_allclose(got.to_numpy(dtype=float), want, rtol=1e-5)  # single precision, in other sums


def test_a_population_gets_the_answers_of_its_members() -> None:
    rng = np.random.default_rng(0)
    settings = {
        "depth": rng.choice([2, 5], 60),
        "filters": rng.integers(8, 100, 60),
        "batch": rng.integers(1, 200, 60),
    }
    settings["batch"][3] = 1
    found = forerun.predict_population("cnn:depth={depth},filters={filters}", settings, "a100")
    assert len(found) == 60 and list(found["batch"]) == list(settings["batch"])
    rows = [0, 3, 17, 59]
    names: list[object] = [f"cnn:depth={found.at[r, 'depth']},filters={found.at[r, 'filters']}" for r in rows]
    check(found, names, rows)


def test_a_function_may_make_the_members_and_sizes_need_not_follow_a_law() -> None:
    """Widths are a law; `groups` decides the structure and `image` is rounded by the stride."""

    def make(width: int, groups: int, image: int) -> torch.nn.Module:
        side = (image + 2) // 3
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 8 * groups, 3, stride=3, padding=1),
            torch.nn.Conv2d(8 * groups, 8, 1, groups=groups),
            torch.nn.Flatten(),
            torch.nn.Linear(8 * side * side, width),
        )

    # The image is part of what is asked, so every size is a population of its own here.
    for image in (10, 11):
        settings = {"width": [16, 32, 48, 80, 96], "groups": [1, 1, 2, 2, 2], "batch": [4, 8, 2, 16, 32]}
        found = forerun.predict_population(
            lambda width, groups, image=image: make(width, groups, image),
            settings,
            "a100",
            input_shape=(3, image, image),
        )
        models = [make(int(found.at[r, "width"]), int(found.at[r, "groups"]), image) for r in (0, 4)]
        check(found, models, [0, 4], input_shape=(3, image, image))


def test_members_that_run_different_kernels_are_predicted_by_their_own() -> None:
    """A window of one pixel, or four channels, is another kernel than a larger one."""

    def make(kernel: int, channels: int) -> torch.nn.Module:
        first = torch.nn.Conv2d(16, channels, 3, padding=1)
        return torch.nn.Sequential(first, torch.nn.Conv2d(channels, 16, kernel, padding=kernel // 2))

    settings = {"kernel": [1, 3, 5, 7, 1, 3], "channels": [4, 4, 8, 16, 32, 64], "batch": [2, 4, 6, 8, 10, 12]}
    found = forerun.predict_population(make, settings, "a100", input_shape=(16, 24, 24))
    models: list[object] = [make(int(r["kernel"]), int(r["channels"])) for _, r in found.iterrows()]
    check(found, models, list(found.index), input_shape=(16, 24, 24))


def test_settings_that_only_go_together() -> None:
    """Least and largest values of two settings need not make a model together."""

    def make(dim: int, heads: int) -> torch.nn.Module:
        layer = torch.nn.TransformerEncoderLayer(dim, heads, 2 * dim, batch_first=True)
        return torch.nn.Sequential(torch.nn.Linear(32, dim), layer)

    settings = {"dim": [96, 160, 192, 256], "heads": [3, 5, 6, 8]}
    found = forerun.predict_population(make, settings, "a100", input_shape=(16, 32), batch=4)
    models: list[object] = [make(int(r["dim"]), int(r["heads"])) for _, r in found.iterrows()]
    check(found.assign(batch=4), models, list(found.index), input_shape=(16, 32))


def test_training_and_compiled_members() -> None:
    settings = {"filters": [8, 16, 24, 40, 64], "batch": [16, 16, 32, 64, 8]}
    for workload in ({"mode": "training", "optimizer": "adamw"}, {"runtime": "compile"}):
        found = forerun.predict_population("cnn:depth=3,filters={filters}", settings, "a100", **workload)
        check(found, ["cnn:depth=3,filters=40"], [3], **workload)


def test_a_law_that_does_not_hold_is_not_used() -> None:
    def capture(some: object) -> object:
        assert isinstance(some, dict)
        return load_graph(Workload(f"cnn:depth=2,filters={8 * some['x'] ** 2}"))

    found = learn(capture, {"x": (1, 4)})  # type: ignore[arg-type]
    assert found is not None  # a square and a line agree at two points
    assert not found.agrees(load_graph(Workload("cnn:depth=2,filters=32")), [2])
    assert found.agrees(load_graph(Workload("cnn:depth=2,filters=128")), [4])
    squared = forerun.predict_population(
        lambda x: load_graph(Workload(f"cnn:depth=2,filters={8 * x * x}")), {"x": [1, 2, 3, 4]}, "a100"
    )
    p = forerun.predict("cnn:depth=2,filters=32", "a100")
    assert p.device_ms is not None
    assert squared.at[1, "device_ms"] == pytest.approx(p.device_ms.value, rel=1e-5)


def test_a_request_that_has_no_answer_is_refused_in_one_sentence() -> None:
    with pytest.raises(ForerunError, match="no column"):
        forerun.predict_population("cnn:depth=2,filters={filters}", {"depth": [1, 2]}, "a100")
    with pytest.raises(ForerunError, match="whole numbers"):
        forerun.predict_population("cnn:depth=2,filters={filters}", {"filters": [1.5, 2.0]}, "a100")
    assert forerun.predict_population("cnn:depth=2,filters={filters}", {"filters": []}, "a100").empty
