"""forerun.plan_serving: deployments in order, each with its reasons, and why others are left out."""

from __future__ import annotations

import json

import pytest

import forerun
from forerun.cli import run
from forerun.errors import ForerunError

MODEL = "Qwen/Qwen2.5-0.5B"


@pytest.fixture(scope="module")
def plan():
    return forerun.plan_serving(
        MODEL, devices=["l4", "h100-sxm"], rate=40, input=512, output=64, max_ttft_ms=400, max_itl_ms=25
    )


def test_the_best_comes_first_and_is_simulated(plan) -> None:
    best = plan.best
    assert best.confirmed and best.verdict in ("meets", "probably")
    assert {row.device for row in plan.rows} == {"l4", "h100-sxm"} and all(row.confirmed for row in plan.rows)
    same = [row for row in plan.rows if row.verdict == best.verdict]
    assert best.cost_per_million_usd.value == min(row.cost_per_million_usd.value for row in same)
    assert best.launch.startswith(f"vllm serve {MODEL}") and best.ttft_ms.value < 400 and best.itl_ms.value < 25
    assert best.devices == best.replicas * best.tp * best.pp
    assert best.throughput.value == pytest.approx(40 * 64, rel=0.15)


def test_layouts_are_compared_and_none_on_the_front_is_beaten(plan) -> None:
    assert plan.considered >= len(plan.candidates) > 20
    assert {one.tp for one in plan.candidates} >= {1, 2} and {one.dtype for one in plan.candidates} == {"bf16", "fp8"}
    front = [one for one in plan.candidates if one.on_front]
    assert front and set(front) == set(plan.front)
    for one in plan.front:
        beaten = [
            other for other in plan.candidates
            if other.cost_per_million_usd.value < 0.99 * one.cost_per_million_usd.value
            and other.itl_ms.value < 0.99 * one.itl_ms.value
        ]  # fmt: skip
        assert not beaten


def test_what_is_left_out_has_a_reason(plan) -> None:
    reasons = {one.reason for one in plan.left_out if one.device == "l4"}
    assert any("network between machines" in reason for reason in reasons), reasons  # 16 of them are two machines


def test_views_and_json(plan, capsys: pytest.CaptureFixture[str]) -> None:
    page = plan._repr_html_()
    assert "layouts left out" in page and plan.best.launch.split(" --")[0] in page
    words = ["plan", "serving", MODEL, "--devices", "h100-sxm", "--rate", "5", "--goal", "devices", "--output", "16"]
    assert run(words) == 0
    assert "the fewest devices" in capsys.readouterr().out
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["devices"] == 1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rate": 1, "goal": "speed"}, "goal 'speed' is not known. Choose from cost, energy, devices.$"),
        ({"rate": 1, "goal": "cots"}, "goal 'cots' is not known. Did you mean cost. Choose from cost"),
        ({"rate": 1, "budgets": [0]}, "budgets must be a whole number of 1 or more"),
        ({"rate": 1, "dtypes": "fp8"}, "dtypes must be a list, got 'fp8'"),
        ({"rate": 1, "confidence": 2}, "confidence must be from"),
        ({}, "give rate or concurrency"),
        ({"rate": 1, "max_itl_ms": 0.001}, "no layout serves this load .* below the bound of physics"),
        ({"rate": 1e5, "max_devices": 1}, "no layout serves this load within the limits: .* more than 1"),
    ],
)
def test_what_cannot_be_is_one_sentence(settings, sentence) -> None:
    with pytest.raises(ForerunError, match=sentence) as found:
        forerun.plan_serving(MODEL, devices=["h100-sxm"], **settings)
    assert "\n" not in str(found.value)


def test_recommend_plans_a_serving_engine_for_a_language_model_and_says_so() -> None:
    found = forerun.recommend(MODEL, devices=["h100-sxm"], min_throughput=512)
    assert found.load["rate"] == 2.0 and found.best.launch.startswith("vllm serve")
    assert "planned in a serving engine (vllm), for 2 requests/s" in found.notes[0]
    calls = forerun.recommend(MODEL, devices=["h100-sxm"], mode="decode", seq_len=128, batches=[1])
    assert calls.best.latency_ms.value > 0  # of single calls, as asked


def test_compare_of_a_language_model_has_the_same_plan(capsys: pytest.CaptureFixture[str]) -> None:
    devices = ["h100-sxm", "xeon-emr-2vcpu"]
    plan = forerun.recommend(MODEL, devices=devices)
    assert run(["compare", MODEL, "--devices", ",".join(devices)]) == 0
    shown = " ".join(capsys.readouterr().out.split())  # a terminal wraps lines
    assert f"{MODEL} served by vllm, 10 requests/s of 1,024 input and 256 output tokens" in shown
    assert plan.best.launch in shown and "a load that is assumed, not of the calls above" in shown
    assert "xeon-emr-2vcpu is left out: " in shown
    assert run(["compare", MODEL, "--devices", ",".join(devices), "--json"]) == 0
    rows = {row["device"]: row["serving"] for row in json.loads(capsys.readouterr().out)}
    assert rows["h100-sxm"] == {"engine": "vllm", "load": plan.load, **json.loads(plan.to_json())["rows"][0]}
    assert "vllm" in rows["xeon-emr-2vcpu"]["refused"]
    assert plan.best.launch in forerun.compare(MODEL, devices)._repr_html_()


@pytest.mark.parametrize(
    ("model", "settings"),
    [("resnet18", {}), (MODEL, {"mode": "decode", "seq_len": 128}), (MODEL, {"predictor": "roofline"}),
     (MODEL, {"mode": "training"})],
)  # fmt: skip
def test_other_comparisons_have_no_service(model: str, settings: dict[str, object]) -> None:
    found = forerun.compare(model, ["h100-sxm"], **settings)
    assert found.served is None and "serving" not in found.plain_rows()[0]
