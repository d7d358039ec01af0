"""Every predictor keeps the contract, the suite finds those that do not, and settings are honoured or refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

import forerun
from forerun import predict
from forerun.device import Device, load_device
from forerun.errors import ForerunError
from forerun.evaluate.check import PredictorFault, check_predictor
from forerun.frontends import load_graph
from forerun.graph.profile import CLASSES, Profile, profile
from forerun.predictors.base import Predictor, Times
from forerun.predictors.baselines.roofline import RooflinePredictor
from forerun.predictors.cases import TrainingCases
from forerun.predictors.default import DefaultPredictor
from forerun.predictors.laws.conformal import OUT_OF_DISTRIBUTION, calibrate
from forerun.predictors.laws.energy import (
    START_S,
    SYNCHRONISED_US,
    back_to_back_ms,
    energy_j,
    waiting_w,
)
from forerun.predictors.laws.host import COUNTED
from forerun.predictors.laws.specs import roofline_ms
from forerun.predictors.published.regressors import RegressorsPredictor
from forerun.predictors.registry import load_predictor, predictors
from forerun.predictors.saved import ARRAYS, FILE, SHIPPED
from forerun.workload import Workload

Run = Callable[..., subprocess.CompletedProcess[str]]
CNN = "cnn:depth=4,filters=16,classes=10"
CHECKS = [
    "describes_itself", "deterministic", "above_the_roofline", "below_the_power_limit", "holds_its_tensors",
    "intervals", "confidence", "grows_with_batch", "unseen_op", "refuses_settings", "saved",
]  # fmt: skip
#: Every field of a prediction that has an interval of its own.
ESTIMATES = ("latency_ms", "device_ms", "host_ms", "energy_j", "power_w", "memory_mb", "memory_allocated_mb")


#: All of them come fitted, but one that needs a language model (test_gnn_llm.py).
UNFITTED = ["gnn-llm"]
NAMES = ["default", "dippm", "dummy", "mlp", "one-ratio", "regressors", "roofline", "trappm", "trees"]


def test_every_registered_predictor_is_checked() -> None:
    assert sorted(predictors()) == sorted([*NAMES, *UNFITTED])


@pytest.mark.parametrize("name", NAMES)
def test_registered_predictors_pass_the_suite(name: str) -> None:
    assert check_predictor(lambda: load_predictor(name)) == CHECKS


@pytest.mark.parametrize("model", ["ridge", "svr", "forest"])
def test_learned_arrays_lie_in_memory_as_a_file_gives_them_back(
    model: str, few_cases: TrainingCases, tmp_path: Path
) -> None:
    """The rounding of a matmul depends on the memory order of its operands."""
    fitted = RegressorsPredictor(model=model, pca=5, trees=4).fit(few_cases)
    fitted.save(tmp_path)
    again = RegressorsPredictor.load(tmp_path)
    for name, value in fitted.learned().items():
        other = getattr(again, name)
        assert type(other) is type(value), name
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, other)
            assert (value.strides, value.dtype) == (other.strides, other.dtype), name


def test_weights_that_were_just_fitted_answer_as_when_loaded(tmp_path: Path) -> None:
    fitted = DefaultPredictor.shipped()
    was = fitted.weights
    # A fit gives double precision, and errors of held-out rows with all their digits.
    host = dataclasses.replace(was.host, cost_us=was.host.cost_us / 3)
    scores = np.random.default_rng(0).normal(0, 0.2, 400)
    intervals = calibrate(["latency_ms/device", "energy_j/device"] * 200, scores)
    fitted.weights_ = dataclasses.replace(was, joules=was.joules / 3, host=host, calibration=intervals)
    fitted.save(tmp_path)
    before, after = (
        predict(CNN, "t4", batch=2, predictor=p).to_dict() for p in (fitted, DefaultPredictor.load(tmp_path))
    )
    assert before == after


class TooFast(RooflinePredictor):
    """Twice as fast as the peaks allow, and it reports a bound to match."""

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        found = super().times(profile, devices, workload)
        least = found.roofline_ms / 2
        return Times(**{**vars(found), "roofline_ms": least, "device_ms": least, "latency_ms": least})


class DrawsTooMuch(RooflinePredictor):
    """Ten times the power limit."""

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        found = super().times(profile, devices, workload)
        most = [d.tdp_w or 0.0 for d in devices] * back_to_back_ms(
            found.latency_ms, found.device_ms, devices, workload.runtime
        )
        return Times(**{**vars(found), "energy_j": 10 * most / 1e3})


class NeedsTooLittle(RooflinePredictor):
    """A megabyte for every call."""

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        found = super().times(profile, devices, workload)
        return Times(**{**vars(found), "memory_mb": np.ones_like(found.latency_ms)})


class ReachesTooLow(RooflinePredictor):
    """An interval that goes down to nothing."""

    def spread(self, *args: Any) -> np.ndarray:
        return super().spread(*args) * 0 + np.array([1e-6, 2.0])


class BesideItsValue(RooflinePredictor):
    """An interval that lies above the value."""

    def spread(self, *args: Any) -> np.ndarray:
        return super().spread(*args) * 0 + np.array([1.1, 1.5])


class SurerWhenItMustNotBe(RooflinePredictor):
    """Narrower at higher confidence."""

    def spread(self, *args: Any) -> np.ndarray:
        by = 2 - self.confidence
        return super().spread(*args) * 0 + np.array([1 / by, by])


class ForgetsWhatItLearned(RooflinePredictor):
    """Its times depend on an attribute that is not saved."""

    name = "forgets"

    def __init__(self) -> None:
        self.factor = 1.0

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        found = super().times(profile, devices, workload)
        slower = {n: getattr(found, n) * self.factor for n in ("latency_ms", "device_ms")}
        return Times(**{**vars(found), **slower})


def fitted_and_forgetful() -> Predictor:
    out = ForgetsWhatItLearned()
    out.factor = 3.0
    return out


class TakesAHostAndIgnoresIt(RooflinePredictor):
    """Takes a host, it says, but predicts the same."""

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        return RooflinePredictor().times(profile, devices, workload)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (TooFast, "runs faster than its FLOPs and bytes allow"),
        (DrawsTooMuch, "draws 7,000 W from h200, whose power limit is 700 W"),
        (NeedsTooLittle, "needs less memory than its tensors that live at once"),
        (ReachesTooLow, "the lower end of the latency .* is below its roofline"),
        (BesideItsValue, "does not hold its own value"),
        (SurerWhenItMustNotBe, "does not widen the interval"),
        (fitted_and_forgetful, "saved and loaded, .* gets another prediction"),
        (TakesAHostAndIgnoresIt, "takes a host ten times slower and predicts the same"),
    ],
)
def test_the_suite_finds_what_is_wrong(make: Callable[[], Predictor], fault: str) -> None:
    with pytest.raises(PredictorFault, match=fault):
        check_predictor(make)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("h200", {"predictor": "dummy", "host": "1.5"}, "the predictor dummy knows nothing of hosts"),
    ("h200", {"predictor": "one-ratio", "host": "1.5"}, "the predictor one-ratio knows nothing of hosts"),
    ("h200", {"predictor": "one-ratio", "runtime": "compile"}, "knows runtime eager only, not compile"),
    ("xeon-emr-2vcpu", {"host": "1.5"}, "is a CPU and its own host: leave host at default"),
    ("tpu-v5e", {"runtime": "cudagraph"}, "has no CUDA graphs"),
    ("h200", {"confidence": 0.3}, "confidence must be from 0.5 to 0.99"),
    ("h200", {"predictor": "defualt"}, "no predictor is called 'defualt'"),
]


@pytest.mark.parametrize(("device", "settings", "sentence"), REFUSED, ids=[r[2][-30:] for r in REFUSED])
def test_settings_that_would_change_nothing_are_refused(
    device: str, settings: dict[str, Any], sentence: str, run_forerun: Run
) -> None:
    with pytest.raises(ForerunError, match=sentence):
        predict(CNN, device, **settings)
    words = [w for name, value in settings.items() for w in (f"--{name}", str(value))]
    done = run_forerun("predict", CNN, "--device", device, *words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("forerun: ") and sentence in line


@pytest.mark.parametrize(
    ("device", "predictor", "batch"),
    [("a100", "default", 3), ("a100", "roofline", 3), ("tpu-v5e", "default", 3), ("h200", "default", 3)],
)
def test_confidence_changes_every_interval(device: str, predictor: str, batch: int) -> None:
    narrow, wide = (predict(CNN, device, batch=batch, predictor=predictor, confidence=c) for c in (0.6, 0.95))
    assert (narrow.confidence, wide.confidence) == (0.6, 0.95)
    limit = load_device(device).tdp_w
    for name in ESTIMATES:
        a, b = getattr(narrow, name), getattr(wide, name)
        if a is None:
            assert name in narrow.unknown or limit is None
            continue
        assert a.value == b.value
        assert b.low <= a.low <= a.value <= a.high <= b.high, name
        assert b.high / b.low > a.high / a.low, name


def test_confidence_changes_the_intervals_of_measured_cases() -> None:
    case = {"batch": 64, "dtype": "fp16"}
    narrow, wide = (predict("timm/resnet18", "h200", **case, confidence=c) for c in (0.6, 0.95))
    assert narrow.basis == wide.basis == "measured"
    for name in ("latency_ms", "device_ms", "host_ms", "energy_j", "power_w"):
        a, b = getattr(narrow, name), getattr(wide, name)
        assert a.value == b.value
        assert b.low < a.low <= a.value <= a.high < b.high, name


def test_the_heading_of_the_table_names_the_confidence(run_forerun: Run) -> None:
    for words, heading in (((), "90 %"), (("--confidence", "0.75"), "75 %")):
        done = run_forerun("predict", CNN, "--device", "a100", "--batch", "3", *words)
        assert done.returncode == 0, done.stderr
        assert heading in done.stdout
    assert "90 %" not in done.stdout


def without(folder: Path, target: Path, dropped: dict[str, str]) -> None:
    """The shipped weights as if they had been made before some names of classes, variants or units existed."""
    shutil.copytree(folder, target)
    rest, arrays = json.loads((folder / FILE).read_text()), load_file(folder / ARRAYS)
    axes = {
        "classes": {"class": 0, "log_compute": 0, "log_memory": 0, "log_intake": 0, "log_floor_us": 0},
        "variants": {"variant": 0}, "units": {"unit": 0}, "numbers": {"in": 1, "mean": 0, "scale": 0},
    }  # fmt: skip
    for vocabulary, name in dropped.items():
        names = rest["vocabularies"][vocabulary]
        at = names.index(name)
        for key in arrays:
            axis = axes[vocabulary].get(key.rpartition("/")[2])
            if axis is not None and "/" in key:
                arrays[key] = np.ascontiguousarray(np.delete(arrays[key], at, axis=axis))
        names.remove(name)
        if vocabulary == "classes":
            counted = rest["vocabularies"]["counted"]
            places = [counted.index(name), counted.index(f"{name}:backward")]
            arrays["host_us"] = np.delete(arrays["host_us"], places)
            rest["vocabularies"]["counted"] = [c for i, c in enumerate(counted) if i not in places]
    gone = set(dropped.values())
    rest["domain"]["ops"] = [op for op in rest["domain"]["ops"] if not gone & set(op.split("/", 1))]
    save_file(arrays, target / ARRAYS)
    (target / FILE).write_text(json.dumps(rest))


def test_weights_survive_ops_that_they_do_not_know(tmp_path: Path) -> None:
    shipped = SHIPPED / "default"
    without(shipped, tmp_path / "older", {"classes": "embedding", "variants": "norm:batch"})
    known, unseen_class, unseen_variant = (
        [predict(*asked, predictor=p, **settings) for p in (str(tmp_path / "older"), load_predictor("default"))]
        for asked, settings in (
            ((CNN, "a100"), {"batch": 8}),
            (("gpt2", "a100"), {"mode": "prefill", "seq_len": 64, "batch": 2, "dtype": "bf16"}),
            (("resnet18", "a100"), {"batch": 16, "dtype": "fp32"}),
        )
    )
    assert known[0].to_dict() == known[1].to_dict()
    for (older, now), name in ((unseen_class, "embedding"), (unseen_variant, "norm/norm:batch")):
        assert any("kinds of op that no measurement shows" in note and name in note for note in older.notes)
        assert not any("kinds of op" in note for note in now.notes)
        assert older.device_ms is not None and now.device_ms is not None
        reach = [np.log(p.device_ms.high / p.device_ms.value) for p in (older, now)]
        # Of an op that they do not know, the networks disagree a little more, too.
        wider = (reach[0] ** 2 - reach[1] ** 2) / (1.645 * OUT_OF_DISTRIBUTION["ops"]) ** 2
        assert 0.99 < wider < 1.3
        assert older.device_ms.value == pytest.approx(now.device_ms.value, rel=0.5)


def test_a_class_that_the_weights_do_not_know_is_answered_as_unknown(tmp_path: Path) -> None:
    without(SHIPPED / "default", tmp_path / "older", {"classes": "softmax"})
    older: Any = load_predictor(str(tmp_path / "older"))
    now: Any = load_predictor("default")
    softmax, unknown = CLASSES.index("softmax"), CLASSES.index("unknown")
    for kind in ("gpu", "cpu"):
        for mine, theirs in zip(
            older.weights.networks[kind].networks, now.weights.networks[kind].networks, strict=True
        ):
            for name in ("class", "log_compute", "log_floor_us"):
                np.testing.assert_array_equal(mine.arrays[name][softmax], theirs.arrays[name][unknown])
                rest = np.arange(len(CLASSES)) != softmax
                np.testing.assert_array_equal(mine.arrays[name][rest], theirs.arrays[name][rest])
    costs = dict(zip(COUNTED, older.weights.host.cost_us, strict=True))
    assert costs["softmax"] == costs["unknown"] and costs["softmax:backward"] == costs["unknown:backward"]


def test_weights_of_other_energy_terms_are_refused(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED / "default", tmp_path / "other")
    rest = json.loads((tmp_path / "other" / FILE).read_text())
    rest["vocabularies"]["terms"] = rest["vocabularies"]["terms"][:-1]
    (tmp_path / "other" / FILE).write_text(json.dumps(rest))
    with pytest.raises(ForerunError, match="have other terms: run forerun train default"):
        forerun.predict(CNN, "t4", predictor=tmp_path / "other")


def test_replays_follow_each_other_at_once() -> None:
    h200, cpu = load_device("h200"), load_device("epyc-9654")
    runs = np.array(["eager", "cudagraph", "compile-reduce-overhead", "compile-reduce-overhead"])
    latency, device = np.full(4, 2.0), np.array([1.5, 1.5, 0.7, 0.7])
    found = back_to_back_ms(latency, device, [h200, h200, h200, cpu], runs)
    np.testing.assert_allclose(found, [2.0 - SYNCHRONISED_US / 1e3, 1.5, 1.0, 2.0])  # never less than half
    np.testing.assert_allclose(back_to_back_ms(np.full((3, 1), 2.0), 1.5, [h200], "cudagraph"), np.full((3, 1), 1.5))


def test_small_kernels_draw_less_than_large_ones() -> None:
    """Replayed calls that keep a GPU busy throughout, each for twice as long as its roofline."""
    h200 = load_device("h200")
    calls = profile(load_graph(Workload("timm/mobilenetv2_100", dtype="fp16")), "fp16", np.array([1, 64]))
    busy_ms = 2 * roofline_ms(calls, [h200]) + START_S * 1e3 * (calls.kernels @ calls.repeat)
    small, large = energy_j(calls, [h200], busy_ms, busy_ms, runtime="cudagraph")[:, 0] / busy_ms[:, 0] * 1e3
    waiting = waiting_w(h200)
    assert waiting is not None and h200.tdp_w is not None
    assert waiting < small < 1.7 * waiting and 2 * small < large < 0.9 * h200.tdp_w


def test_memory_under_the_compiler_has_the_interval_of_its_own_errors() -> None:
    """Rows of eager calls err by 1 %, compiled ones by up to 10: each answer gets what its own rows say."""
    rng = np.random.default_rng(0)
    runs = np.repeat(["eager", "compile"], 200)
    rows = pd.DataFrame({"memory_group": "conv/small", "mode": "inference", "runtime": runs})
    predictor: Any = type(load_predictor("default"))()
    groups = predictor.calibration_groups(rows, "memory_allocated_mb")
    errors = np.where(runs == "eager", 0.01, 0.1) * rng.uniform(-1, 1, len(rows))
    predictor.weights_ = dataclasses.replace(predictor.weights, calibration=calibrate(groups, errors))
    wide = {
        run: (found := forerun.predict(CNN, "h200", predictor=predictor, runtime=run).memory_allocated_mb).high
        / found.value
        for run in ("eager", "compile")
    }
    assert wide["eager"] < 1.02 and 1.08 < wide["compile"] < 1.13
