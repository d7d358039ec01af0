"""forerun plan training: layouts of pre-training that fit, ranked by a goal, with the command that starts them."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from forerun import ForerunError
from forerun.cli import run
from forerun.decisions.plans.launch import launch_line
from forerun.decisions.plans.training import plan_training
from forerun.device import load_device
from forerun.graph.language_model import LanguageModel
from forerun.graph.layout import Layout
from forerun.predictors.laws import pretraining as law

MODEL = "meta-llama/Llama-3.2-1B"
JOB: dict[str, Any] = {"count": 8, "tokens": 1e10, "seq_len": 4096}
#: 24 layers of width 2,048: about 1.3 billion weights.
SMALL = LanguageModel("small", 1.3e9, 24, 2048, 12 * 24 * 2048**2, 0, 0, 0, 0, 2 * 24 * 2048, 2 * 24 * 2048, 16, 50368)


def seconds(run: law.Run, device: str = "h100-sxm") -> float:
    return law.step(law.work(SMALL, load_device(device), run), "bf16", law.framework("megatron")).seconds


def test_the_goal_decides_and_the_front_holds_its_trade_offs() -> None:
    fast, cheap = (plan_training(MODEL, "a100-sxm4-80gb", goal=goal, **JOB) for goal in ("time", "cost"))
    assert fast.best.devices == 8 and fast.best.hours.value <= cheap.best.hours.value
    assert cheap.best.usd is not None and fast.best.usd is not None
    assert cheap.best.usd.value <= fast.best.usd.value
    assert fast.best.hours.value == pytest.approx(min(one.hours.value for one in fast.front), rel=0.01)
    assert {one.devices for one in fast.front} > {fast.best.devices}
    for one in fast.front:
        assert one.hours.low < one.hours.value < one.hours.high
        assert sum(one.parts.values()) == pytest.approx(1) and 0 < one.utilisation < 1
    assert fast.considered > 100 and fast.reasons
    json.dumps(fast.to_dict())


def test_the_command_is_that_of_the_layout() -> None:
    best = plan_training(MODEL, "a100-sxm4-80gb", **JOB).best
    assert best.launch.startswith("torchrun --nnodes 1 --nproc-per-node 8 ")
    device = load_device("h100-sxm")
    megatron = launch_line(
        SMALL, device, law.Run(Layout(tp=2, pp=2, dp=16, zero=1, sp=True), 2, 4, 2048, "fp8", True), 9.2
    )
    assert megatron.startswith(
        "torchrun --nnodes 8 --nproc-per-node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048"
    )
    for words in ("--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2", "--global-batch-size 128",
                  "--train-iters 10", "--sequence-parallel --use-distributed-optimizer", "--fp8-format hybrid",
                  "--recompute-granularity full"):  # fmt: skip
        assert words in megatron
    fsdp = launch_line(SMALL, device, law.Run(Layout(dp=16, zero=3), 2, 4, 2048), 10)
    for words in (
        "--nnodes 2 --nproc-per-node 8 run_clm.py",
        "--gradient_accumulation_steps 4",
        "'full_shard auto_wrap'",
    ):
        assert words in fsdp


@pytest.mark.parametrize("width", [80, 120])
def test_the_answer_comes_first_and_every_number_has_its_interval(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    words = ["plan", "training", MODEL, "--device", "a100-sxm4-80gb", "--count", "8", "--tokens", "10B", "-s", "4096"]
    assert run(words) == 0
    rest = capsys.readouterr().out.splitlines()
    shown = " ".join(" ".join(rest).split())
    assert shown.startswith(f"Pre-training {MODEL} on 10 B tokens in sequences of 4,096, bf16")
    assert re.search(r"the shortest time 8 x a100-sxm4-80gb, [^;]+? … [^;]+ days", shown)
    assert "90 % interval" in shown and "docs/PARALLEL.md" in shown and "Check it: run the command" in shown
    head = next(line for line in rest if "layout" in line and "days" in line)
    assert "limits" not in head and "GB each" in head  # no limit was given, and the last column is there
    assert max(len(line) for line in rest if not line.startswith("Start it: ")) <= width
    numbers = rest[rest.index(head) + 1]
    assert numbers.rstrip().split()[-1].replace(".", "").isdigit()  # the last column is whole


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"max_hours": 0.01}, "no layout that fits meets 0.01 h .at least"),
        ({"goal": "tiem"}, "Did you mean time"),
        ({"tokens": 0}, "tokens must be a number above 0"),
        ({"goal": ["time"]}, "goal .* is not known"),
        ({"count": 61, "batch": 7}, "no layout divides a step of 7 sequences among 61 devices"),
        ({"precision": "fp8"}, "a100-sxm4-80gb has no fp8 units"),
        ({"precision": "int8"}, "precision 'int8' is not known"),
    ],
)
def test_what_cannot_be_is_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ForerunError, match=sentence):
        plan_training(MODEL, "a100-sxm4-80gb", **{**JOB, **settings})


def test_a_count_without_a_network_and_a_model_without_words_are_refused() -> None:
    with pytest.raises(ForerunError, match="need a network between machines"):
        plan_training(MODEL, "l4", **{**JOB, "count": 64})
    with pytest.raises(ForerunError, match="no AutoModelForCausalLM"):
        plan_training("google/vit-base-patch16-224", "h200", **JOB)


def test_a_pipeline_waits_in_its_bubble() -> None:
    for pp, m in ((4, 8), (8, 8), (4, 32)):
        done = law.work(SMALL, load_device("h100-sxm"), law.Run(Layout(pp=pp), 1, m, 2048))
        assert done.bubble == pytest.approx((pp - 1) / (m + pp - 1))
    halved = law.work(SMALL, load_device("h100-sxm"), law.Run(Layout(pp=4), 1, 8, 2048, interleaved=3))
    assert halved.bubble == pytest.approx(1 / 9)  # (3 / 3) / (8 + 3 / 3)


def test_recomputing_costs_a_third_and_saves_activations() -> None:
    plain = law.Run(Layout(), 4, 8, 2048)
    again = dataclasses.replace(plain, recomputed=True)
    assert 1.2 < seconds(again) / seconds(plain) < 1.4
    device = load_device("h100-sxm")
    assert law.memory_mb(SMALL, device, again)["activations"] < 0.5 * law.memory_mb(SMALL, device, plain)["activations"]


def test_each_stage_of_zero_divides_more() -> None:
    device = load_device("h100-sxm")
    held = [law.memory_mb(SMALL, device, law.Run(Layout(dp=8, zero=zero), 1, 8, 2048)) for zero in range(4)]
    states, gradients, weights = ([one[name] for one in held] for name in ("optimizer", "gradients", "weights"))
    assert states[1] == pytest.approx(states[0] / 8) and gradients[1] == gradients[0]
    assert gradients[2] == pytest.approx(gradients[0] / 8) and weights[2] == weights[0] > 4 * weights[3]
    assert weights[0] == pytest.approx(1.3e9 * 2 / 2**20) and states[0] == 6 * weights[0]


def test_more_exchange_over_a_slower_link_takes_longer() -> None:
    assert seconds(law.Run(Layout(tp=8), 8, 8, 2048)) < seconds(law.Run(Layout(tp=1), 8, 8, 2048))
    inside = seconds(law.Run(Layout(dp=8, zero=3), 1, 8, 2048))
    between = seconds(law.Run(Layout(dp=64, zero=3), 1, 8, 2048))
    assert between > inside


def test_the_command_line_prints_the_plan(run_forerun: Callable[..., Any]) -> None:
    words = ("plan", "training", MODEL, "-d", "a100-sxm4-80gb", "--count", "8", "--tokens", "10B", "-s", "4096")
    answer = json.loads(run_forerun(*words, "--json").stdout)
    assert answer["tokens"] == 1e10 and answer["best"]["devices"] == 8
    shown = run_forerun(*words).stdout
    assert "torchrun" in shown and "why others lost" in shown
    wrong = run_forerun(*(word if word != "10B" else "many" for word in words))
    assert wrong.returncode == 2 and "is not a number of tokens" in wrong.stderr
