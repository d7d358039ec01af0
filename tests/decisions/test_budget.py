"""forerun budget: the arithmetic of a job, what fits into limits, and the network to take under one."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.advice import job as law
from forerun.advice.verdict import verdict
from forerun.cli import run
from forerun.data.store import Store
from forerun.decisions.budget import model_choice
from forerun.device import Device
from forerun.errors import ForerunError
from forerun.prediction import Estimate

NETWORK = "cnn:depth=2,filters=8,classes=10"
JOB = {"dataset_size": 1000, "batch": 32}  # 32 steps an epoch, the last of 8 samples


def exactly(value: float, unit: str) -> Estimate:
    return Estimate(value, value, value, unit)


def close(x: float) -> Any:
    """Networks compute in single precision, which rounds otherwise for many devices at once than for one."""
    return pytest.approx(x, rel=1e-5)


# -- arithmetic ------------------------------------------------------------------------------------------------------


def test_published_examples_of_the_arithmetic() -> None:
    trained = law.totals(exactly(350.0, "ms"), None, 200_000, usd_per_device_hour=2.934)
    assert trained.hours.value == pytest.approx(19.44, abs=0.005)
    assert trained.cost_usd is not None and trained.cost_usd.value == pytest.approx(57.04, abs=0.02)  # of 19.44 h
    assert trained.energy_kwh is None and trained.carbon_kg is None
    request = law.totals(exactly(37.0, "ms"), None, 10_000, usd_per_device_hour=2.93)
    assert request.cost_usd is not None and request.cost_usd.value == pytest.approx(0.301, abs=0.0005)


def test_totals_scale_with_steps_and_devices_and_keep_the_interval() -> None:
    step, energy = Estimate(100.0, 50.0, 300.0, "ms"), exactly(36.0, "J")
    one = law.totals(step, energy, 36_000, usd_per_device_hour=2.0)
    assert (one.hours.value, one.hours.low, one.hours.high) == (1.0, 0.5, 3.0)
    assert one.energy_kwh is not None and one.energy_kwh.value == close(0.36)
    four = law.totals(step, energy, 36_000, usd_per_device_hour=2.0, devices=4)
    assert four.cost_usd is not None and four.cost_usd.high == close(24.0) and four.hours == one.hours
    assert four.energy_kwh is not None and four.energy_kwh.value == close(1.44)


@pytest.mark.parametrize(
    ("each", "limit", "count"),
    [(0.1, 0.3, 2), (0.1, 0.30000000000000004, 3), (0.3, 0.3, 1), (3.0, 2.9, 0), (7.0, 0.0, 0)],
)
def test_the_largest_count_is_exact_at_the_boundary(each: float, limit: float, count: int) -> None:
    assert law.largest_count(each, limit) == count
    assert count * each <= limit < (count + 1) * each


def test_loading_caps_the_pace_and_the_device_idles_meanwhile() -> None:
    step = Estimate(10.0, 8.0, 40.0, "ms")
    slow = law.paced(step, 32, 1600.0)  # 20 ms for 32 samples
    assert (slow.value, slow.low, slow.high) == (20.0, 20.0, 40.0)
    chip = Device("chip", "Chip", tdp_w=500.0, calibrated={"static_w": 50.0})
    assert law.with_waits(exactly(1.0, "J"), step, slow, chip).value == close(1.5)  # 10 ms at 50 W
    assert law.paced(step, 32, None) == step


def test_a_verdict_is_sure_only_when_the_whole_interval_keeps_the_limit() -> None:
    e = Estimate(10.0, 5.0, 20.0, "ms")
    assert [verdict(e, limit) for limit in (9.9, 10.0, 19.9, 20.0)] == ["does not", "probably", "probably", "meets"]
    assert verdict(e, 20.0, learned=False) == "probably"
    assert [verdict(e, limit, at_most=False) for limit in (5.0, 6.0, 10.1)] == ["meets", "probably", "does not"]


# -- one model, one device -------------------------------------------------------------------------------------------


def test_a_job_is_its_steps_times_what_predict_says() -> None:
    p = forerun.predict(NETWORK, "l4", mode="training", batch=32, measured=False, region="DEU")
    (r,) = forerun.budget(NETWORK, device="l4", epochs=5, region="DEU", **JOB).rows
    assert r.steps == 5 * math.ceil(1000 / 32) == 160
    for end in ("value", "low", "high"):
        assert getattr(r.hours, end) == close(160 * getattr(p.latency_ms, end) / 3.6e6)
        assert getattr(r.cost_usd, end) == close(160 * getattr(p.cost_usd, end))
        assert getattr(r.energy_kwh, end) == close(160 * getattr(p.energy_j, end) / 3.6e6)
        assert getattr(r.carbon_kg, end) == close(160 * getattr(p.carbon_g, end) / 1e3)
        assert getattr(r.memory_mb, end) == close(getattr(p.memory_mb, end))
    assert r.verdict is None and r.largest is None  # nothing is limited


def test_epochs_that_fit_are_exact() -> None:
    (one,) = forerun.budget(NETWORK, device="l4", epochs=1, **JOB).rows
    for factor, epochs in ((7.0, 7), (6.999999, 6), (7.000001, 7)):
        result = forerun.budget(NETWORK, device="l4", max_hours=factor * one.hours.value, **JOB)
        (r,) = result.rows
        assert {other.count for other in (*result.batches, *result.counts)} == {epochs}  # compared over the same work
        assert (r.largest, r.count, r.binds) == (epochs, epochs, "hours")
        assert r.hours.value == close(epochs * one.hours.value)
        assert r.surely_largest == math.floor(factor * one.hours.value / one.hours.high)
    limits = {"max_hours": 9 * one.hours.value, "max_usd": 2.5 * one.cost_usd.value}
    result = forerun.budget(NETWORK, device="l4", epochs=3, **limits, **JOB)
    (r,) = result.rows
    assert (r.largest, r.binds, r.count, r.verdict) == (2, "cost_usd", 3, "does not")
    assert r.verdicts == {"hours": "meets" if one.hours.high * 3 <= limits["max_hours"] else "probably",
                          "cost_usd": "does not"}  # fmt: skip


def test_steps_evaluation_and_loading() -> None:
    step = forerun.predict(NETWORK, "l4", mode="training", batch=32, measured=False).latency_ms.value
    call = forerun.predict(NETWORK, "l4", batch=32, measured=False).latency_ms.value
    (r,) = forerun.budget(NETWORK, device="l4", steps=100, eval_size=320, batch=32).rows
    assert r.hours.value == close((100 * step + 10 * call) / 3.6e6)  # evaluated once
    (r,) = forerun.budget(NETWORK, device="l4", epochs=2, eval_size=320, **JOB).rows
    assert r.hours.value == close(2 * (32 * step + 10 * call) / 3.6e6)  # after every epoch
    slow = forerun.budget(NETWORK, device="l4", epochs=1, loading_samples_per_s=10.0, **JOB)
    assert slow.rows[0].hours.value == close(32 * 3.2 / 3600)
    assert any("no more than 10 samples/s" in note for note in slow.notes)
    free = forerun.budget(NETWORK, device="l4", epochs=1, **JOB)
    assert any("assumed to keep up" in note for note in free.notes)


def test_inference_is_a_job_too() -> None:
    call = forerun.predict(NETWORK, "l4", batch=1, measured=False).latency_ms.value
    (r,) = forerun.budget(NETWORK, device="l4", mode="inference", dataset_size=10_000, batch=1).rows
    assert r.hours.value == close(10_000 * call / 3.6e6)


def test_more_devices_and_other_batches() -> None:
    result = forerun.budget(NETWORK, device="h100-sxm", epochs=1, dataset_size=50_000, batch=64)
    assert [r.devices for r in result.counts] == list(range(1, 9))
    assert result.counts[0].hours == result.rows[0].hours and result.counts[0].steps == math.ceil(50_000 / 64)
    assert result.counts[7].steps == math.ceil(50_000 / (64 * 8))
    assert result.counts[7].hours.value < result.counts[0].hours.value
    paces = {r.batch: r.samples_per_s.value for r in result.batches}
    assert 64 in paces and paces[result.best_batch] >= 0.95 * max(paces.values())
    assert all(pace < 0.95 * max(paces.values()) for batch, pace in paces.items() if batch < result.best_batch)
    # A limit between the times of two and of one device is kept by two.
    between = (result.counts[0].hours.value + result.counts[1].hours.value) / 2
    job = {"device": "h100-sxm", "dataset_size": 50_000, "batch": 64}
    limited = forerun.budget(NETWORK, epochs=4, max_hours=4 * between, **job)
    assert limited.rows[0].verdict == "does not" and limited.rows[0].largest == 3
    assert limited.fewest_devices is not None and limited.fewest_devices.devices >= 2
    with pytest.raises(ForerunError, match=r"not enough for one epoch .* or 2 of the device"):
        forerun.budget(NETWORK, max_hours=between, **job)
    two = forerun.budget(NETWORK, device="h100-sxm", gpus=2, epochs=1, dataset_size=50_000, batch=64)
    assert two.rows[0] == result.counts[1]
    assert any("a machine of 2 may cost more" in note for note in two.notes)


# -- one model, many devices -----------------------------------------------------------------------------------------


def test_devices_are_ranked_by_verdict_and_price() -> None:
    names = ["t4", "l4", "h100-sxm", "tpu-v5e"]
    plain = forerun.budget(NETWORK, device=names, epochs=100, **JOB)
    usd = [r.cost_usd.value for r in plain.rows if r.generation_measured]
    assert usd == sorted(usd) and {r.device for r in plain.rows} == set(names)
    for r in plain.rows:
        p = forerun.predict(NETWORK, r.device, mode="training", batch=32, measured=False)
        assert r.hours.value == close(3200 * p.latency_ms.value / 3.6e6) and r.cost_usd.high == close(
            3200 * p.cost_usd.high
        )
    assert plain.cheapest == plain.rows[0]
    limit = max(r.hours.high for r in plain.rows) * 1.01
    result = forerun.budget(NETWORK, device=names, epochs=100, max_hours=limit, **JOB)
    verdicts = {r.device: r.verdict for r in result.rows}
    assert verdicts.pop("tpu-v5e") == "probably"  # based on the roofline alone
    assert set(verdicts.values()) == {"meets"} and result.rows[-1].device == "tpu-v5e"
    fastest = min((r for r in result.rows if r.verdict == "meets"), key=lambda r: r.hours.value)
    assert result.fastest == fastest


def test_without_a_device_all_with_a_price_are_asked_and_an_instance_names_its_own() -> None:
    result = forerun.budget(NETWORK, epochs=1, **JOB)
    assert len(result.rows) > 30 and all(r.price and r.cost_usd for r in result.rows)
    one = forerun.budget(NETWORK, instance="p4d.24xlarge", epochs=1, **JOB)
    assert one.rows[0].device == "a100-sxm4-40gb" and "p4d.24xlarge" in one.rows[0].price
    assert any("share" in note and "21.96 USD/h" in note for note in one.notes)


def test_data_sets_by_name() -> None:
    result = forerun.budget(NETWORK, device="l4", dataset="CIFAR-10", epochs=1, batch=50)
    assert (result.samples, result.rows[0].steps, result.dataset) == (50_000, 1000, "CIFAR-10")
    assert forerun.budget(NETWORK, device="l4", dataset="imagenet", epochs=1).samples == 1_281_167


def test_a_device_that_ends_no_epoch_keeps_no_limit_and_is_no_first_choice() -> None:
    names = ["t4", "h100-sxm", "l4"]
    rows = forerun.budget(NETWORK, device=names, epochs=1, dataset_size=50_000, batch=256).rows
    slow, fast = max(r.hours.value for r in rows), min(r.hours.value for r in rows)
    assert slow > 1.5 * fast, "the example needs devices of different speed"
    result = forerun.budget(NETWORK, device=names, max_hours=(slow + fast) / 2, dataset_size=50_000, batch=256)
    none = [r for r in result.rows if r.count == 0]
    assert none and {r.verdict for r in none} == {"does not"} and {r.verdicts["hours"] for r in none} == {"does not"}
    assert all(r.count == 0 for r in result.rows[-len(none) :])
    assert result.cheapest.count and result.fastest.count


def test_what_nobody_measured_ranks_after_what_was_and_a_note_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["mi300x", "tpu-v5e", "t4"]
    result = forerun.budget(NETWORK, device=names, epochs=100, dataset_size=50_000, batch=256)
    by_cost = min(result.rows, key=lambda r: r.cost_usd.value)
    assert not by_cost.generation_measured, "the example needs a cheaper device that nobody measured"
    assert result.rows[0].device == result.cheapest.device == result.fastest.device == "t4"
    assert f"by the goal alone {by_cost.device} would come first" in result.notes[0]
    assert run(["budget", NETWORK, "--dataset-size", "50000", "--epochs", "1", "--device", ",".join(names)]) == 0
    shown = capsys.readouterr().out
    assert f"{by_cost.device} *" in shown and "* from its peaks alone" in shown and "t4 *" not in shown
    curves = forerun.budget("cnn", device=names, max_seconds=1.0)
    assert [r.generation_measured for r in curves.rows] == [True, False, False]
    assert "by the goal alone" in curves.notes[0]


# -- what cannot be answered -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"device": "l4", "max_hours": 0}, r"^0 h is not enough for one epoch of .* on l4: time is the limiting "
                                           r"constraint; the smallest feasible budget is [\d.]+ s \["),
        ({"device": "l4", "max_usd": 0, "epochs": 5}, r"^0 USD is not enough for 5 epochs .* feasible budget is "
                                                      r"[\d.]+ \S*USD \[.*; one epoch takes [\d.]+ \S*USD \["),
        ({"max_usd": 0}, r"no device does one epoch .* within 0 USD: money is the limiting constraint; the nearest "
                         r"is \S+ with [\d.]+ "),
        ({"max_seconds": 0.001, "epochs": 3}, r"no device does 3 epochs .* time is the limiting constraint; the "
                                              r"nearest is \S+ with"),
        ({"device": ["l4", "t4"], "epochs": 1, "batch": 10**6}, r"no device is large enough: .* needs .* GB .* l4 has "
                                                                r"22 GB usable, .* that fits is [\d,]+$"),
        ({"device": "l4", "epochs": 1, "batch": 10**6}, r"^cnn:.* l4 has 22 GB usable, and the largest"),
        ({"device": "l4", "epochs": 1, "region": "Atlantis"}, "unknown region 'Atlantis'"),
        ({"epochs": 1, "region": "Atlantis"}, "unknown region 'Atlantis'"),
        ({"epochs": 1, "instance": "p99.huge"}, "unknown cloud instance 'p99.huge'"),
        ({"device": "l4", "dataset_size": None, "dataset": "imagnet"}, "unknown data set 'imagnet'. Did you mean im"),
        ({"device": "l4", "dataset_size": None}, "say how much is trained"),
        ({"device": "l4", "dataset": "coco"}, "dataset coco or dataset_size, not both"),
        ({"device": "l4", "epochs": 1, "steps": 5}, "epochs or steps, not both"),
        ({"device": "l4", "epochs": 0}, "epochs must be a whole number of 1 or more, got 0"),
        ({"device": "l4", "max_hours": -1}, "max_hours must be a number of 0 or more, got -1"),
        ({"device": "l4", "max_hours": float("nan")}, "max_hours must be a number"),
        ({"device": "l4", "max_hours": 1, "max_seconds": 1}, "max_hours or max_seconds, not both"),
        ({"device": "l4", "epochs": 1, "gpus": 9}, "gpus must be 1 to 8"),
        ({"device": "l4", "epochs": 1, "mode": "decode"}, "mode training or inference"),
        ({"device": "l4", "epochs": 1, "loading_samples_per_s": 0}, "loading_samples_per_s must be a number above 0"),
        ({"device": "rtx2080ti", "epochs": 1, "max_usd": 5}, "no cloud price is known for rtx2080ti"),
        ({"device": "l4", "max_latency_ms": 5.0}, "chooses among published models: timm or torchvision"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ForerunError, match=sentence) as caught:
        forerun.budget(NETWORK, **{**JOB, **settings})
    assert "\n" not in str(caught.value)


def test_limits_that_can_be_kept_one_by_one_but_not_together() -> None:
    rows = forerun.budget(NETWORK, device=["t4", "h100-sxm"], epochs=10, dataset_size=50_000, batch=256).rows
    slow, fast = sorted(rows, key=lambda r: -r.hours.value)
    assert slow.cost_usd.value < fast.cost_usd.value, "the example needs a slow device that is cheaper"
    limits = {"max_hours": fast.hours.value * 1.01, "max_usd": slow.cost_usd.value * 1.01}
    with pytest.raises(
        ForerunError,
        match=r"within .* and .* together: (time|money) is the limiting constraint; the nearest is (t4|h100-sxm)",
    ):
        forerun.budget(NETWORK, device=["t4", "h100-sxm"], epochs=10, dataset_size=50_000, batch=256, **limits)


# -- which network ---------------------------------------------------------------------------------------------------


@pytest.fixture
def accuracies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with accuracies of three small networks of timm, and of one that timm does not have."""
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path / "store"))
    shared = {"dataset": "timm", "status": "ok", "source": "timm", "evaluated_on": "imagenet-1k", "parameters": 4e5}
    rows = [
        {"model": "no_such_network.x", "image_size": 160, "top1_accuracy": 0.99},
        {"model": "eva_giant.huge", "image_size": 560, "top1_accuracy": 0.9, "parameters": 1e12},
        {"model": "test_vit.r160_in1k", "image_size": 160, "top1_accuracy": 0.8, "flops": 1e8},
        {"model": "test_resnet.r160_in1k", "image_size": 160, "top1_accuracy": 0.7, "flops": 1e8},
        {"model": "test_resnet.older", "image_size": 160, "top1_accuracy": 0.6, "flops": 1e8},
        {"model": "test_resnet.r160_in1k", "image_size": 320, "top1_accuracy": 0.75, "flops": 4e8},
    ]
    Store().append("accuracies", [{**shared, **row} for row in rows])


@pytest.mark.usefixtures("accuracies")
def test_the_most_accurate_published_model_within_a_latency() -> None:
    seen: list[tuple[int, int]] = []
    result = forerun.budget("timm", device="l4", max_latency_ms=1e3, progress=lambda *done: seen.append(done))
    assert [(r.model, r.image_size, r.top1) for r in result.rows] == [
        ("timm/test_vit", 160, 0.8), ("timm/test_resnet", 320, 0.75), ("timm/test_resnet", 160, 0.7)
    ]  # fmt: skip
    assert {r.verdict for r in result.rows} == {"meets"} and seen == [(1, 40), (2, 40), (3, 40)]
    assert sorted(result.untried.values()) == [1, 1] and result.tried == 3  # too large, not captured
    for r in result.rows:
        shape = (3, r.image_size, r.image_size)
        assert r.latency_ms == forerun.predict(r.model, "l4", input_shape=shape, measured=False).latency_ms
    fast = min(result.rows, key=lambda r: r.latency_ms.value)
    limited = forerun.budget("timm", device="l4", max_latency_ms=fast.latency_ms.value * 1.0001)
    assert fast.model in {r.model for r in limited.rows}
    assert {r.verdict for r in limited.rows} == {"probably"}
    with pytest.raises(ForerunError, match=r"none of the \d models that were tried meets .* the nearest is timm/test_"):
        forerun.budget("timm", device="l4", max_latency_ms=fast.latency_ms.value * 0.9)
    assert forerun.budget("timm", device="l4", max_latency_ms=1e3, most=1).tried == 1
    with pytest.raises(ForerunError, match=r"meets 1e-06 ms on l4: the nearest is timm/test_\S+ .* with [\d.]+ ms"):
        forerun.budget("timm", device="l4", max_latency_ms=1e-6)  # less than the peaks of the device allow


@pytest.mark.usefixtures("accuracies")
def test_a_model_that_cannot_be_evaluated_is_counted_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    predict_many = model_choice.predict_many

    def without_calls(workloads: Any, *rest: Any, **more: Any) -> Any:
        table = predict_many(workloads, *rest, **more)
        return table.assign(error="no call of it is answered") if workloads[0].mode == "inference" else table

    monkeypatch.setattr(model_choice, "predict_many", without_calls)
    job = {"max_hours": 100, "epochs": 2, "dataset_size": 6400}
    with pytest.raises(ForerunError, match="none of the published models could be predicted"):
        forerun.budget("timm", device="l4", eval_size=64, **job)
    assert forerun.budget("timm", device="l4", **job).rows


@pytest.mark.usefixtures("accuracies")
def test_the_most_accurate_published_model_within_a_training_budget() -> None:
    result = forerun.budget("timm", device="l4", max_hours=100, epochs=2, dataset_size=6400, batch=64)
    p = forerun.predict("timm/test_vit", "l4", mode="training", batch=64, input_shape=(3, 160, 160), measured=False)
    assert result.rows[0].model == "timm/test_vit" and result.rows[0].hours.value == close(
        200 * p.latency_ms.value / 3.6e6
    )
    assert any("own recipes" in note for note in result.notes)
    with pytest.raises(ForerunError, match="epochs, or steps"):
        forerun.budget("timm", device="l4", max_hours=100)
    with pytest.raises(ForerunError, match="name one device"):
        forerun.budget("timm", max_latency_ms=5.0)
    with pytest.raises(ForerunError, match="one of the two"):
        forerun.budget("timm", device="l4")


def test_without_timms_table_torchvisions_accuracies_are_taken_and_the_answer_says_how_to_add_it() -> None:
    result = forerun.budget("timm", device="b200", max_latency_ms=1e4, most=1, runtime="cudagraph", dtype="fp16")
    assert result.rows[0].model.startswith("torchvision/") and result.rows[0].top1 > 0.85
    assert any("forerun data import timm" in note for note in result.notes)


def test_timms_accuracies_are_imported_as_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path / "store"))
    results = tmp_path / "clone" / "results"
    results.mkdir(parents=True)
    (results / "results-imagenet.csv").write_text(
        "model,img_size,top1,top1_err,top5,top5_err,param_count,crop_pct,interpolation\n"
        'eva_giant_patch14_560.m30m_ft_in22k_in1k,560,89.790,10.210,98.990,1.010,"1,014.45",1.000,bicubic\n'
        "resnet50.a1_in1k,224,80.218,19.782,94.590,5.410,25.56,0.950,bicubic\n"
    )
    (results / "benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv").write_text(
        "model,infer_img_size,infer_samples_per_sec,infer_step_time,infer_batch_size,infer_gmacs,infer_macts,param_count\n"
        "resnet50,224,4000.0,256.0,1024,4.11,11.11,25.56\n"
    )
    assert run(["data", "import", "timm", str(tmp_path / "clone"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == {"models": 1, "accuracies": 2}
    rows = Store().read("accuracies").set_index("model")
    eva, resnet = rows.loc["eva_giant_patch14_560.m30m_ft_in22k_in1k"], rows.loc["resnet50.a1_in1k"]
    assert (eva["image_size"], eva["parameters"], eva["top1_accuracy"]) == (560, close(1014.45e6), close(0.8979))
    assert math.isnan(eva["flops"]) and resnet["flops"] == close(8.22e9) and resnet["top5_accuracy"] == close(0.9459)


def test_networks_of_our_curves_within_a_time() -> None:
    curves = Store().read("curves")
    result = forerun.budget("cnn", dataset="cifar10", max_seconds=1e6, device="l4")
    assert len(result.rows) == curves["model"].nunique() == 20
    last = curves[curves["epoch"] == 30].set_index("model")["test_accuracy"]
    for r in result.rows:  # never continued beyond what was run
        assert r.epochs.value == 30 and r.all_epochs and r.accuracy.value == close(last[r.model])
        noise = 1.6449 * math.sqrt(r.accuracy.value * (1 - r.accuracy.value) / 1000)  # of 1,000 test images
        assert r.accuracy.high - r.accuracy.value == pytest.approx(noise, rel=1e-3)
        assert r.epoch_of_all.hours.value == close(r.epoch.hours.value * math.ceil(50_000 / 128) / 32)
    assert result.rows[0].accuracy.value == close(last.max())
    shown = [r.accuracy.value for r in result.rows]
    assert shown == sorted(shown, reverse=True)
    assert any("4,000 images" in note for note in result.notes)

    short = forerun.budget("cnn", max_seconds=1.0, device="l4")
    for r in short.rows:
        p = forerun.predict(r.model, "l4", mode="training", batch=128, optimizer="adamw", measured=False)
        epoch_s = 32 * p.latency_ms.value / 1e3  # 4,000 images
        assert r.epochs.value == close(min(30, 1.0 / epoch_s))
        curve = curves[curves["model"] == r.model].set_index("epoch")["test_accuracy"]
        full, part = divmod(r.epochs.value, 1)
        expected = curve[int(full)] + part * (curve.get(int(full) + 1, 0) - curve[int(full)]) if part else curve[30]
        assert r.accuracy.value == close(expected)
        assert r.accuracy.low <= r.accuracy.value <= r.accuracy.high
    assert len(short.rows) + short.too_slow == 20


def test_what_the_curves_cannot_say_is_one_sentence() -> None:
    with pytest.raises(
        ForerunError,
        match=r"no network finishes an epoch within 0\.001 s: time is the limiting constraint; the nearest is cnn:",
    ):
        forerun.budget("cnn", device="l4", max_seconds=0.001)
    with pytest.raises(ForerunError, match="curves of cnn are of cifar10, not of imagenet"):
        forerun.budget("cnn", device="l4", dataset="imagenet", max_seconds=60)
    with pytest.raises(ForerunError, match="omit amp"):
        forerun.budget("cnn", device="l4", max_seconds=60, amp="fp16")


@pytest.mark.parametrize(("limit", "what"), [("max_usd", "price"), ("max_kwh", "energy"), ("max_carbon_kg", "carbon")])
def test_a_limit_on_what_is_not_known_of_a_device_is_one_sentence(limit: str, what: str) -> None:
    bare = Device("bare", "Bare", bandwidth_gbs=900, peak_tflops={"fp32": 20.0}, memory_gb=16.0)
    with pytest.raises(ForerunError, match=f"{what}.* bare.*cannot be limited"):
        forerun.budget("cnn", device=bare, **{limit: 1.0})


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["cnn", "--epochs", "3", "--gpus", "2", "--batch", "64"], ["--epochs", "--batch", "--gpus"]),
        (["cnn", "--eval-size", "9", "--max-latency", "5ms"], ["--eval-size", "--max-latency"]),
        (["cnn", "--dataset-size", "9", "--mode", "inference"], ["--dataset-size", "--mode"]),
        (["cnn", "--loading-rate", "9", "--steps", "9", "--most", "3"], ["--loading-rate", "--steps", "--most"]),
        (["timm", "--max-latency", "5ms", "--gpus", "2", "--eval-size", "9"], ["--eval-size", "--gpus"]),
        (["timm", "--max-latency", "5ms", "--mode", "training"], ["--mode"]),
        (["timm", "--epochs", "2", "--mode", "inference"], ["--mode"]),
    ],
)
def test_an_option_that_would_not_be_heeded_is_refused_by_its_name(
    words: list[str], named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    limit = [] if "--max-latency" in words and words[0] == "timm" else ["--max-hours", "1"]
    assert run(["budget", *words, "--device", "l4", *limit]) == 2
    (printed,) = capsys.readouterr().err.strip().splitlines()
    omitted = printed.partition("omit ")[2].split(", ")
    assert sorted(omitted) == sorted(named)


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_answers_json_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["budget", NETWORK, "--dataset-size", "1000", "--epochs", "2", "--batch", "32", "--max-hours", "1"]
    assert run([*words, "--device", "l4", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (r,) = forerun.budget(NETWORK, device="l4", epochs=2, max_hours=1, **JOB).rows
    assert data["rows"][0]["hours"]["value"] == close(r.hours.value) and data["rows"][0]["verdict"] == r.verdict
    assert data["limits"] == {"hours": 1.0} and len(data["counts"]) == 8 and data["cheapest"]["device"] == "l4"
    assert run([*words, "--device", "l4"]) == 0
    shown = capsys.readouterr().out
    for word in (
        "1,000 samples x 2 epochs = 64 steps",
        "Fits into the budget",
        "Batch:",
        "More devices",
        "Note: data loading",
    ):
        assert word in shown
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert "Cheapest:" in shown and "Fastest:" in shown and "limits" in shown
    assert run(["budget", "cnn", "--dataset", "cifar10", "--max-seconds", "60", "--device", "l4"]) == 0
    assert "depth" in capsys.readouterr().out


@pytest.mark.usefixtures("accuracies")
def test_the_command_chooses_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["budget", "timm", "--device", "l4", "--max-latency", "1s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["limits"] == {"latency_ms": 1000.0}
    assert run(["budget", "timm", "--device", "l4", "--max-latency", "1000ms"]) == 0
    assert "test_vit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--max-hours", "0", "--device", "l4"], "0 h is not enough"),
        (["--epochs", "1", "--device", ","], "--device needs a device"),
        (["--max-hours", "-1", "--device", "l4"], "--max-hours must be a number of 0 or more, got -1.0"),
        (["--epochs", "1", "--steps", "1", "--device", "l4"], "give --epochs or --steps, not both"),
        (["--max-latency", "5ms", "--device", "l4"], "--max-latency chooses among published models"),
        (["--max-latency", "soon", "--device", "l4"], "is not a latency such as 25ms"),
    ],
)
def test_mistakes_end_in_one_line_and_exit_code_2(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["budget", NETWORK, "--dataset-size", "1000", *words]) == 2
    printed = capsys.readouterr().err.strip().splitlines()
    assert sentence in printed[-1]
