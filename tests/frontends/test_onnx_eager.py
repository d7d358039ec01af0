"""A network through an ONNX file runs in eager PyTorch as its module does: views are views, calls are whole again."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto, TensorProto, helper, numpy_helper
from torch import nn

import forerun
from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.frontends.onnx.strides import closed_up, has_channels_last, is_dense, viewed
from forerun.frontends.onnx.values import Value
from forerun.graph.ir import Graph
from forerun.workload import Workload

ROWS, WIDTH, HEADS = 48, 128, 4


class Attention(nn.Module):
    """One layer of a transformer, with PyTorch's attention or step by step."""

    def __init__(self, how: str = "") -> None:
        super().__init__()
        self.how = how
        self.qkv, self.out, self.norm = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch = x.shape[0]
        parts = self.qkv(self.norm(x)).reshape(batch, ROWS, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        if self.how == "by hand":
            y = ((q @ k.transpose(-2, -1)) / math.sqrt(WIDTH // HEADS)).softmax(dim=-1) @ v
        else:
            mask = torch.zeros(1, 1, ROWS, ROWS) if self.how == "mask" else None
            y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.how == "causal")
        return x + self.out(y.transpose(1, 2).reshape(batch, ROWS, WIDTH))


class Pixels(nn.Module):
    """A block of ConvNeXt: the channels of each pixel together for norm and linear layers, apart for convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(32, 32, 7, padding=3, groups=32), nn.LayerNorm(32)
        self.first, self.act, self.last = nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return x + self.last(self.act(self.first(y))).permute(0, 3, 1, 2)


def exported(module: nn.Module, shape: tuple[int, ...], path: Path, **options: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module.eval(), (torch.randn(2, *shape),), str(path), verbose=False, **options)
    return str(path)


def kinds(graph: Graph) -> Counter[str]:
    return Counter(kind for op in graph.ops for kind in [op.kind] * op.repeat)


EXPORTERS: list[dict[str, Any]] = [{"dynamo": False, "opset_version": 16}, {"dynamo": False}, {"dynamo": True}]
NETWORKS = {
    "attention": (Attention(), (ROWS, WIDTH)), "masked": (Attention("mask"), (ROWS, WIDTH)),
    "causal": (Attention("causal"), (ROWS, WIDTH)), "by hand": (Attention("by hand"), (ROWS, WIDTH)),
    "pixels": (Pixels(), (32, 24, 24)),
    "gated": (nn.Sequential(nn.Linear(WIDTH, 256), nn.SiLU(), nn.Linear(256, WIDTH)), (ROWS, WIDTH)),
}  # fmt: skip


@pytest.mark.parametrize("options", EXPORTERS, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_file_takes_the_device_as_long_as_its_module(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    module, shape = NETWORKS[name]
    file = exported(module, shape, tmp_path / "net.onnx", **options)
    drawn = name == "causal" and not options["dynamo"]  # else the mask is a constant in the file, like any other
    apart = 0.15 if name == "causal" and not drawn else 0.06
    for device, dtype in (("h200", "fp16"), ("t4", "fp32")):
        asked: dict[str, Any] = {"batch": 2, "dtype": dtype, "measured": False, "input_shape": shape}
        own, through = (forerun.predict(one, device, **asked) for one in (module, file))
        assert through.device_ms.value == pytest.approx(own.device_ms.value, rel=apart), (device, dtype)
        assert through.memory_mb.value == pytest.approx(own.memory_mb.value, rel=0.02)
    graph = load_graph(Workload(file, batch=2, input_shape=shape))
    assert kinds(graph)["attention"] == (name in ("attention", "masked", "causal"))
    assert [op.attrs["causal"] for op in graph.ops if op.kind == "attention"] in ([], [drawn])


def test_onnxruntime_runs_the_file_as_it_is_written(tmp_path: Path) -> None:
    file = exported(Attention(), (ROWS, WIDTH), tmp_path / "net.onnx", dynamo=False)
    written, eager = (load_graph(Workload(file, batch=2, runtime=r)) for r in ("onnxruntime", "eager"))
    assert kinds(written)["copy"] >= 4 and kinds(written)["softmax"] == 1 and kinds(written)["matmul"] == 4
    assert kinds(eager) == {"norm": 1, "matmul": 2, "attention": 1, "elementwise": 1}
    assert any("folded" in note for note in eager.notes) and not any("folded" in note for note in written.notes)


sizes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=200, deadline=None)
@given(sizes, st.randoms(use_true_random=False), sizes)
def test_strides_are_those_of_pytorch(shape: list[int], random: Any, new: list[int]) -> None:
    order = random.sample(range(len(shape)), len(shape))
    t = torch.empty(shape).permute(order)
    cut = random.randrange(t.shape[0])
    t = t[cut:][..., :: random.choice((1, 2))]
    seen = Value(tuple(t.shape), 1, strides=tuple(t.stride()))
    target = [*new[:-1], -1] if t.numel() % max(math.prod(new[:-1]), 1) == 0 else list(t.shape)
    target = [t.numel() // math.prod(target[:-1]) if size == -1 else size for size in target]
    found = viewed(seen.shape, seen.strides or (), target)
    try:
        expected = t.view(target)
    except RuntimeError:
        assert found is None
    else:
        assert found is not None
        compared = zip(expected.shape, expected.stride(), found, strict=True)
        assert all(theirs == ours for size, theirs, ours in compared if size != 1)
    fresh = torch.empty_like(t)
    if is_dense(seen):
        compared = zip(fresh.shape, fresh.stride(), closed_up(seen.shape, seen.strides or ()), strict=True)
        assert all(theirs == ours for size, theirs, ours in compared if size != 1)


def test_channels_last_is_seen_by_strides() -> None:
    image = torch.empty(2, 8, 5, 6, device="meta")
    for t, last in ((image, False), (image.to(memory_format=torch.channels_last), True)):
        assert has_channels_last(Value(tuple(t.shape), 1, strides=tuple(t.stride()))) is last


# -- what looks like a call and is none -----------------------------------------------------------------------------


def weight(name: str, *shape: int) -> TensorProto:
    return numpy_helper.from_array(np.ones(shape, dtype=np.float32), name)


def number(name: str, value: float) -> TensorProto:
    return numpy_helper.from_array(np.array(value, dtype=np.float32), name)


def net(nodes: list[NodeProto], inputs: dict[str, list[Any]], outputs: list[str], weights: list[TensorProto]) -> Any:
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    made = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "net", given, made, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)])


node = helper.make_node


def norm(axis: int, bias: str) -> list[NodeProto]:
    mean = {"axes": [axis], "keepdims": 1}
    return [
        node("ReduceMean", ["x"], ["m"], **mean), node("Sub", ["x", "m"], ["c"]), node("Pow", ["c", "two"], ["p"]),
        node("ReduceMean", ["p"], ["v"], **mean), node("Add", ["v", "eps"], ["e"]), node("Sqrt", ["e"], ["r"]),
        node("Div", ["c", "r"], ["q"]), node("Mul", ["q", "g"], ["s"]), node("Add", ["s", bias], ["y"]),
    ]  # fmt: skip


def attention(axis: int = -1, order: tuple[int, ...] = (0, 1, 3, 2)) -> list[NodeProto]:
    return [
        node("Transpose", ["k"], ["t"], perm=order), node("Mul", ["q", "scale"], ["a"]),
        node("Mul", ["t", "scale"], ["b"]), node("MatMul", ["a", "b"], ["c"]), node("Softmax", ["c"], ["d"], axis=axis),
        node("MatMul", ["d", "v"], ["y"]),
    ]  # fmt: skip


HEADS_OF: list[Any] = ["N", 4, 6, 8]
SCALE = [number("scale", 0.5)]
NORMED = [number("two", 2), number("eps", 1e-5), weight("g", 8)]
GATED = [
    node("Div", ["x", "c"], ["d"]), node("Erf", ["d"], ["e"]), node("Add", ["e", "one"], ["a"]),
    node("Mul", ["x", "a"], ["t"]), node("MatMul", ["x", "w"], ["g"]), node("Mul", ["t", "g"], ["y"]),
]  # fmt: skip
LIKE_CALLS = {
    "a product whose shape is asked for": net(
        [node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "b"], ["y"]), node("Shape", ["h"], ["s"])],
        {"x": ["N", 8]}, ["y", "s"], [weight("w", 8, 4), weight("b", 4)]),
    "a norm and a residual": net(norm(-1, "z"), {"x": ["N", 5, 8], "z": ["N", 5, 8]}, ["y"], NORMED),
    "a norm and a broader residual": net(norm(-1, "z"), {"x": ["N", 1, 8], "z": ["N", 5, 8]}, ["y"], NORMED),
    "a norm along another axis": net(norm(1, "b"), {"x": ["N", 5, 8]}, ["y"], [*NORMED, weight("b", 8)]),
    "a gate of gelu's kind": net(
        GATED, {"x": ["N", 8]}, ["y"], [weight("w", 8, 8), number("c", 1.4), number("one", 1)]),
    "attention of one head": net(attention(order=(0, 2, 1)), {n: ["N", 6, 8] for n in "qkv"}, ["y"], SCALE),
    "attention over heads": net(attention(axis=1), dict.fromkeys("qkv", HEADS_OF), ["y"], SCALE),
    "attention of longer values": net(attention(), {"q": HEADS_OF, "k": HEADS_OF, "v": ["N", 1, 6, 8]}, ["y"], SCALE),
}  # fmt: skip


@pytest.mark.parametrize("name", LIKE_CALLS)
def test_what_looks_like_a_call_stays_as_it_is(name: str) -> None:
    eager, written = (load_graph(Workload(LIKE_CALLS[name], batch=2, runtime=run)) for run in ("eager", "onnxruntime"))
    shapes = [[g.tensors[out].shape for out in g.outputs] for g in (eager, written)]
    assert shapes[0] == shapes[1] and eager.parameters == written.parameters
    assert kinds(eager) - Counter(copy=9) == kinds(written) - Counter(copy=9)
    assert not kinds(eager)["attention"] and not any(op.name in ("Gelu", "LayerNormalization") for op in eager.ops)


def test_nodes_without_a_name_for_their_first_output_stay() -> None:
    nodes = [
        node("Sigmoid", ["x"], ["a"]), node("Mul", ["x", "a"], ["z"]), node("Split", ["z"], ["", "b"], axis=1),
        node("Relu", ["b"], ["y"]), node("Split", ["x"], ["", "unread"], axis=1),
    ]  # fmt: skip
    assert kinds(load_graph(Workload(net(nodes, {"x": ["N", 8]}, ["y"], []), batch=2))) == {"elementwise": 2}


def test_a_circle_of_names_is_refused() -> None:
    nodes = [
        node("Identity", ["a"], ["b"]), node("Identity", ["b"], ["a"]), node("MatMul", ["x", "b"], ["h"]),
        node("Add", ["h", "bias"], ["y"]),
    ]  # fmt: skip
    with pytest.raises(ForerunError, match="depends on its own output"):
        load_graph(Workload(net(nodes, {"x": ["N", 8]}, ["y"], [weight("bias", 4)]), batch=2))


class Mixed(nn.Module):
    """Linear layers over what lies in pieces: PyTorch copies it, multiplies, and adds the bias."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.layer = how, nn.Linear(16, 24, bias=how != "no bias")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "cut":
            return self.layer(x.transpose(1, 2)[:, 1:])
        return self.layer(x[..., :16] if self.how == "narrow" else x.transpose(1, 2))


@pytest.mark.parametrize("how", ["turned", "no bias", "cut", "narrow"])
def test_linear_layers_over_pieces_are_those_of_the_module(how: str, tmp_path: Path) -> None:
    module, shape = Mixed(how), (16, 32)
    file = exported(module, shape, tmp_path / "net.onnx", dynamo=False)
    own, through = (load_graph(Workload(one, batch=2, input_shape=shape)) for one in (module, file))
    assert [op.kind for op in through.ops] == [op.kind for op in own.ops]
