"""The Python of a model itself, counted while it is captured."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
import torch
from networks import Transformer
from torch import nn

import forerun
from forerun.decisions.optimise.graph_changes import findings
from forerun.frontends import load_graph
from forerun.graph.checkpointing import checkpointed
from forerun.graph.ir import Graph
from forerun.workload import Workload


def helper(x: Any) -> Any:
    return x


class Block(nn.Module):
    """A linear layer, and `calls` calls of a Python function, each with two of C functions."""

    def __init__(self, calls: int = 0) -> None:
        super().__init__()
        self.linear, self.calls = nn.Linear(8, 8), calls

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.calls):
            helper(max(len("ab"), 1))
        return self.linear(x)


def graph_of(model: nn.Module, **settings: Any) -> Graph:
    return load_graph(Workload(model, input_shape=(8,), **settings))


def calls(model: nn.Module, **settings: Any) -> dict[str, list[int]]:
    found: dict[str, list[int]] = graph_of(model, **settings).facts["python_calls"]
    return found


def test_calls_of_python_and_c_functions_are_counted_and_the_graph_stays_the_same() -> None:
    plain, busy = graph_of(Block()), graph_of(Block(calls=7))
    before, after = plain.facts["python_calls"]["forward"], busy.facts["python_calls"]["forward"]
    assert [b - a for a, b in zip(before, after, strict=True)] == [7, 14]
    assert plain.facts["python_calls"]["backward"] == plain.facts["python_calls"]["optimizer"] == [0, 0]
    assert plain.content_hash() == busy.content_hash() and plain.work_hash() == busy.work_hash()
    assert Graph.from_dict(busy.to_dict()).facts == busy.facts


def test_a_plain_layer_is_its_calls_and_nothing_of_the_capture() -> None:
    functions, c_functions = calls(nn.Linear(8, 8))["forward"]
    # torch.no_grad has 6; __call__, _call_impl and its two questions, forward, and __getattr__ of weight and bias.
    assert 7 <= functions <= 16 and c_functions <= 2


def test_counts_do_not_depend_on_what_ran_before_nor_on_other_threads() -> None:
    first = calls(Block(calls=3))
    others = [threading.Thread(target=calls, args=(Block(calls=99),)) for _ in range(2)]
    for other in others:
        other.start()
    assert calls(Block(calls=3)) == first
    for other in others:
        other.join()
    assert sys.getprofile() is None


def test_folded_blocks_count_as_often_as_they_repeat() -> None:
    four, five, twelve = (calls(nn.Sequential(*(Block(calls=5) for _ in range(n))))["forward"] for n in (4, 5, 12))
    for a, b, c in zip(four, five, twelve, strict=True):
        assert c == b + 7 * (b - a)


def test_the_optimizer_has_calls_of_its_own_as_many_as_it_has_parameters() -> None:
    def of(blocks: int) -> dict[str, list[int]]:
        return calls(nn.Sequential(*(Block() for _ in range(blocks))), mode="training", optimizer="adamw", batch=2)

    five, twelve, more = of(5), of(12), of(24)
    assert five["optimizer"][0] > 20
    assert twelve["optimizer"][0] == pytest.approx(five["optimizer"][0] * 12 / 5, rel=0.4)
    assert more["optimizer"][0] == pytest.approx(twelve["optimizer"][0] * 2, rel=0.25)


def test_functions_of_a_models_own_count_in_the_backward_pass() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            for _ in range(50):
                helper(g)
            return g * 2

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> Any:
            return Doubled.apply(self.linear(x))

    assert 50 < calls(Model(), mode="training", optimizer="sgd")["backward"][0] < 100


def test_checkpointing_runs_the_forward_pass_again() -> None:
    graph = load_graph(Workload(Transformer(layers=3), seq_len=16, mode="training", optimizer="sgd"))
    again, _ = checkpointed(graph) or pytest.fail("no stack of blocks was found")
    before, after = graph.facts["python_calls"], again.facts["python_calls"]
    assert before["backward"][0] < after["backward"][0] < before["backward"][0] + before["forward"][0]


def test_where_the_user_profiles_nothing_is_counted() -> None:
    seen = []
    sys.setprofile(lambda frame, event, found: seen.append(event))
    try:
        graph = graph_of(Block())
        assert sys.getprofile() is not None
    finally:
        sys.setprofile(None)
    if sys.version_info < (3, 12):
        assert "python_calls" not in graph.facts
    assert seen and [op.kind for op in graph.ops] == ["matmul"]


def test_explain_and_optimise_say_what_python_takes_that_usual_models_do_not_run() -> None:
    plain, busy = (forerun.explain(Block(calls=n), "h200", input_shape=(8,)) for n in (0, 1000))
    assert busy.python_calls is not None and busy.python_calls[0] > 1000
    assert busy.to_dict()["python_calls"]["c_functions"] >= 2000
    assert plain.host_ms == busy.host_ms  # it is in no prediction
    assert plain.python_ms < 0.01 and 0.3 < busy.python_ms < 1.5
    assert "Python outside PyTorch: 1,0" in busy._repr_html_() and "no predicted time" in busy._repr_html_()
    assert "no predicted time" not in plain._repr_html_()
    assert forerun.explain(Block(calls=1000), "h200", input_shape=(8,), runtime="cudagraph").python_ms == 0.0
    assert [f.of for f in findings(busy, training=False)] == ["host time"] and not list(findings(plain, training=False))
