"""A user's module as it comes: its own dtype, nested inputs, and what was put around it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from forerun import predict
from forerun.capture.nested import call_arguments
from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.workload import Workload


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def graph_of(model: Any, **settings: Any) -> Graph:
    return load_graph(Workload(model, **{"batch": 4, "input_shape": (16,), **settings}))


def floats(graph: Graph) -> set[str]:
    return {t.dtype for t in graph.tensors if t.dtype[:2] in ("fp", "bf")}


@pytest.mark.parametrize(("dtype", "name"), [
    (torch.float32, "fp32"), (torch.float16, "fp16"), (torch.bfloat16, "bf16"), (torch.float64, "fp64"),
])  # fmt: skip
def test_a_module_is_answered_in_its_own_dtype(dtype: torch.dtype, name: str) -> None:
    assert floats(graph_of(net().to(dtype))) == {name}
    assert predict(net().to(dtype), "h200", input_shape=(16,)).workload["dtype"] == name


def test_a_dtype_that_is_given_wins() -> None:
    assert floats(graph_of(net().half(), dtype="fp32")) == {"fp32"}
    assert floats(graph_of(net(), dtype="bf16")) == {"bf16"}
    assert predict(net().half(), "h200", dtype="fp32", input_shape=(16,)).workload["dtype"] == "fp32"


def test_fp64_has_a_note_and_a_device_without_it_is_named() -> None:
    answer = predict(net().double(), "h200", input_shape=(16,))
    assert any("no measurement in fp64" in note for note in answer.notes)
    with pytest.raises(ForerunError, match="tpu-v5e has no fp64 units"):
        predict(net().double(), "tpu-v5e", input_shape=(16,))


def test_layers_of_another_dtype_stay_so() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(16, 16).half(), nn.LayerNorm(16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.linear(x).float()).half()

    graph = graph_of(Mixed())
    assert {graph.tensors[op.inputs[0]].dtype for op in graph.ops if op.kind == "norm"} == {"fp32"}
    assert {graph.tensors[op.inputs[0]].dtype for op in graph.ops if op.kind == "matmul"} == {"fp16"}


class TakesDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.table = nn.Linear(16, 16), nn.Embedding(10, 16)

    def forward(self, batch: dict[str, torch.Tensor], scale: float = 1.0) -> torch.Tensor:
        return self.linear(batch["image"]) + self.table(batch["token_ids"]).mean(1)


class TakesList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, frames: list[torch.Tensor], rest: torch.Tensor) -> torch.Tensor:
        return sum(self.linear(frame) for frame in frames) + rest


MACS = 4 * 16 * 16


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(
    ("model", "shapes", "layers"),
    [
        (TakesDict(), {"image": (16,), "token_ids": (8,)}, 1),
        (TakesDict(), {"batch": {"image": (16,), "token_ids": (8,)}}, 1),
        (TakesDict(), {"batch.image": (16,), "batch.token_ids": (8,)}, 1),
        (TakesList(), {"frames": [(16,), (16,)], "rest": (16,)}, 2),
        (TakesList(), [[(16,), (16,), (16,)], (16,)], 3),
    ],
    ids=["dict", "nested", "paths", "list", "positional"],
)
def test_nested_inputs(model: nn.Module, shapes: Any, layers: int, mode: str) -> None:
    graph = graph_of(model, input_shape=shapes, mode=mode)
    assert totals(graph).macs == layers * MACS * (2 if mode == "training" else 1)
    held = [s for s in graph.storages if s.role == "input"]
    assert len(held) == len(Workload(model, input_shape=shapes).input_shape or ())


def test_an_input_that_forward_does_not_take_is_named() -> None:
    with pytest.raises(ForerunError, match=r"no input called 'frame'; its forward takes frames, rest.*frames"):
        graph_of(TakesList(), input_shape={"frame": (16,), "rest": (16,)})


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_wrappers_are_taken_off_with_a_note(mode: str) -> None:
    plain = graph_of(net(), mode=mode)
    parallel = graph_of(nn.DataParallel(net()), mode=mode)
    compiled = graph_of(torch.compile(net()), mode=mode)
    assert plain.content_hash() == parallel.content_hash() == compiled.content_hash()
    assert parallel.notes == ["the module is answered without DataParallel: one device is predicted"]
    assert compiled.notes == ["the module is answered without torch.compile: --runtime compile predicts it"]
    assert parallel.name == compiled.name == "Sequential"


def test_compiled_parts_are_captured_and_left_as_they_were() -> None:
    model = net()
    model[0] = torch.compile(model[0])
    before = type(model[0])
    assert graph_of(model).content_hash() == graph_of(net()).content_hash()
    assert type(model[0]) is before
    whole = net()
    whole.compile()
    assert graph_of(whole).content_hash() == graph_of(net()).content_hash()


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("ran", [False, True])
def test_the_old_weight_norm(mode: str, ran: bool) -> None:
    layer = nn.utils.weight_norm(nn.Linear(16, 8))
    if ran:
        layer(torch.zeros(1, 16))
    graph = graph_of(layer, mode=mode)
    assert totals(graph).macs == 4 * 16 * 8 * (2 if mode == "training" else 1)
    assert floats(graph_of(copy.copy(layer), dtype="fp16")) <= {"fp16", "fp32"}


def test_layers_without_sizes_are_refused_in_one_sentence() -> None:
    with pytest.raises(ForerunError, match="get their sizes at the first call"):
        graph_of(nn.Sequential(nn.LazyLinear(8)))


def test_places_of_arguments_are_numbers() -> None:
    """Positional arguments and items of lists stand by their number, not in the order in which they are given."""
    assert call_arguments({"1": "b", "0": "a", "x.1": 2, "x.0": 1}) == (["a", "b"], {"x": [1, 2]})
