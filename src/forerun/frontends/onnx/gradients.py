"""What PyTorch runs for an ONNX node in a training step: the one table of operators that training has a rule for.

A rule calls PyTorch on the node's inputs, so that the backward pass, what it keeps and what it launches, is PyTorch's
own. An operator without a rule has no gradient here, and is refused by its name.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from forerun.frontends.onnx import gradient_layers as layers
from forerun.frontends.onnx import gradient_shapes as shapes
from forerun.frontends.onnx.calls import LINEAR
from forerun.frontends.onnx.gradient_call import Call, Rule
from forerun.frontends.onnx.values import Node, no_gradient


def check(nodes: Sequence[Node]) -> None:
    """Refuses the first node without a rule."""
    for node in nodes:
        if rule_of(node) is None:
            raise no_gradient(node)


def rule_of(node: Node) -> Rule | None:
    return RULES.get(node.op) if node.domain in ("", "forerun") else None


def run(call: Call) -> Any:
    """What a node puts out; a rule's result takes the shape that ONNX gives it."""
    rule = rule_of(call.node)
    if rule is None:
        raise no_gradient(call.node)
    out = rule(call)
    if isinstance(out, torch.Tensor) and tuple(out.shape) != call.shape and out.numel() == math.prod(call.shape):
        return out.reshape(call.shape)
    return out


def _plain(function: Callable[..., Any]) -> Rule:
    """A function of the inputs as they are; of two, one may be a number."""

    def rule(c: Call) -> Any:
        return function(*[a for a in c.args if a is not None])

    return rule


def _two(function: Callable[[Any, Any], Any]) -> Rule:
    """An operator of Python, of whose sides one may be a number."""
    return lambda c: function(c.args[0], c.args[1])


def _add(c: Call) -> Any:
    a, b = c.args[:2]
    return a.add_(b) if c.alone and isinstance(b, torch.Tensor) and a.shape == b.shape else a + b


def _many(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda c: functools.reduce(function, c.args)


def _activation(plain: Callable[..., Any], in_place: Callable[..., Any] | None, *settings: tuple[str, float]) -> Rule:
    """An activation, over its input where PyTorch's networks do so."""

    def rule(c: Call) -> Any:
        given = [float(c.get(name, usual)) for name, usual in settings]
        return (in_place if in_place is not None and c.alone else plain)(c.args[0], *given)

    return rule


def _clip(c: Call) -> Any:
    low, high = (_number(c.get(name), c.arg(i)) for name, i in (("min", 1), ("max", 2)))
    if (low, high) == (0, 6):  # ReLU6
        return functional.hardtanh_(c.args[0], 0, 6) if c.alone else functional.hardtanh(c.args[0], 0, 6)
    return torch.clamp(c.args[0], low, high)


def _number(attribute: Any, given: Any) -> Any:
    return attribute if attribute is not None else given


def _hard_sigmoid(c: Call) -> Any:
    slope, start = c.get("alpha", 0.2), c.get("beta", 0.5)
    if abs(slope - 1 / 6) < 1e-3 and start == 0.5:
        return functional.hardsigmoid(c.args[0], inplace=c.alone)
    return torch.clamp(c.args[0] * slope + start, 0, 1)


def _cast(c: Call) -> Any:
    kind = c.cast(int(c.get("to"))) if c.node.op == "Cast" else c.args[1].dtype
    return c.args[0].to(kind)


def _div(a: Any, b: Any) -> Any:
    whole = not any(x.is_floating_point() if isinstance(x, torch.Tensor) else isinstance(x, float) for x in (a, b))
    return torch.div(a, b, rounding_mode="trunc") if whole else a / b


def _prelu(c: Call) -> Any:
    return functional.prelu(c.args[0], c.args[1].reshape(-1))


def _dropout(c: Call) -> Any:
    share = c.arg(1)
    share = c.get("ratio", 0.5) if share is None else share
    kept = functional.dropout(c.args[0], float(share), training=True) if share else c.args[0]
    return (kept, torch.empty_like(kept, dtype=torch.bool)) if len(c.node.outputs) > 1 and c.node.outputs[1] else kept


#: Functions of PyTorch that take the inputs of the node as they are.
_FUNCTIONS = {
    **{op: op.lower() for op in (
        "Abs Acos Acosh Asin Asinh Atan Atanh Bernoulli Ceil Cos Cosh Det Erf Exp Floor IsInf IsNaN Log Neg Reciprocal "
        "Round Sign Sin Sinh Sqrt Tan Where"
    ).split()},
    "Not": "logical_not",
}  # fmt: skip
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Sub": operator.sub, "Mul": operator.mul, "Pow": operator.pow, "Div": _div, "Mod": operator.mod,
    "Equal": operator.eq, "Greater": operator.gt, "GreaterOrEqual": operator.ge, "Less": operator.lt,
    "LessOrEqual": operator.le, **dict.fromkeys(("And", "BitwiseAnd"), operator.and_),
    **dict.fromkeys(("Or", "BitwiseOr"), operator.or_), **dict.fromkeys(("Xor", "BitwiseXor"), operator.xor),
}  # fmt: skip
_SUMS: dict[str, Callable[..., Any]] = {
    "Mean": torch.mean, "Sum": torch.sum, "Max": torch.amax, "Min": torch.amin, "LogSumExp": torch.logsumexp,
    "Prod": shapes.prod, "L1": shapes.norm_of(1), "L2": shapes.norm_of(2), "SumSquare": shapes.sum_of_squares,
}  # fmt: skip
RULES: dict[str, Rule] = {
    **{op: _plain(getattr(torch, name)) for op, name in _FUNCTIONS.items()},
    **{op: _two(function) for op, function in _OPERATORS.items()},
    # elementwise
    "Add": _add, "Sum": _many(torch.add), "Max": _many(torch.maximum), "Min": _many(torch.minimum),
    "Mean": lambda c: functools.reduce(torch.add, c.args) / len(c.args),
    "Relu": _activation(functional.relu, functional.relu_), "Selu": _activation(functional.selu, functional.selu_),
    "Sigmoid": _activation(torch.sigmoid, None), "Tanh": _activation(torch.tanh, None),
    "LeakyRelu": _activation(functional.leaky_relu, functional.leaky_relu_, ("alpha", 0.01)),
    "Elu": _activation(functional.elu, functional.elu_, ("alpha", 1.0)),
    "Celu": _activation(functional.celu, functional.celu_, ("alpha", 1.0)),
    "Softplus": _activation(functional.softplus, None), "Softsign": _activation(functional.softsign, None),
    "Swish": lambda c: functional.silu(c.args[0], inplace=c.alone),
    "Mish": lambda c: functional.mish(c.args[0], inplace=c.alone),
    "HardSwish": lambda c: functional.hardswish(c.args[0], inplace=c.alone), "HardSigmoid": _hard_sigmoid,
    "Gelu": lambda c: functional.gelu(c.args[0], approximate=c.get("approximate", "none")),
    "PRelu": _prelu, "Clip": _clip, "Cast": _cast, "CastLike": _cast, "Dropout": _dropout,
    # shapes
    "Identity": lambda c: c.args[0], "Expand": shapes.expand,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), shapes.reshaped),
    "Tile": lambda c: c.args[0].repeat(c.known(1)), "Transpose": shapes.transpose, "Slice": shapes.sliced,
    "Split": shapes.split, "Concat": shapes.concat, "Pad": shapes.pad, "Trilu": shapes.trilu,
    **dict.fromkeys(("Resize", "Upsample"), shapes.resize),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), shapes.depth_to_space),
    **dict.fromkeys(("ConstantOfShape", "Range", "OneHot", "EyeLike"), shapes.filled),
    **dict.fromkeys(("RandomNormal", "RandomNormalLike"), shapes.random(torch.randn)),
    **dict.fromkeys(("RandomUniform", "RandomUniformLike"), shapes.random(torch.rand)),
    # sums and lookups
    **{f"Reduce{name}": shapes.reduce(function) for name, function in _SUMS.items()},
    "ArgMax": shapes.arg(torch.argmax), "ArgMin": shapes.arg(torch.argmin), "TopK": shapes.topk,
    "CumSum": lambda c: torch.cumsum(c.args[0], int((c.known(1) or [0])[0])),
    "Softmax": shapes.softmax(functional.softmax), "LogSoftmax": shapes.softmax(functional.log_softmax),
    "Gather": shapes.gather, "GatherElements": lambda c: c.args[0].gather(int(c.get("axis", 0)), c.args[1]),
    "GatherND": shapes.gather_nd, "ScatterElements": shapes.scatter, "ScatterND": shapes.scatter_nd,
    # layers
    **dict.fromkeys(("Conv", "ConvTranspose"), layers.conv),
    **dict.fromkeys(("MatMul", LINEAR), layers.linear), "Gemm": layers.gemm,
    "Einsum": lambda c: torch.einsum(c.get("equation"), *c.args),
    "BatchNormalization": layers.batch_norm, "GroupNormalization": layers.group_norm,
    "InstanceNormalization": layers.instance_norm,
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"), layers.layer_norm),
    "LpNormalization": lambda c: functional.normalize(c.args[0], float(c.get("p", 2)), int(c.get("axis", -1))),
    "LRN": lambda c: functional.local_response_norm(c.args[0], int(c.get("size"))),
    **dict.fromkeys(("MaxPool", "AveragePool"), layers.pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), layers.global_pool),
    "Attention": layers.attention, **dict.fromkeys(("LSTM", "GRU", "RNN"), layers.rnn),
    **dict.fromkeys(("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"), layers.cross_entropy),
}  # fmt: skip
