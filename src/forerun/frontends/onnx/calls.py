"""Calls of PyTorch that exporters decompose, recognised in an ONNX graph: attention, linear layers, norms, GELU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
from onnx import helper

from forerun.frontends.onnx.order import in_order, read_by

#: A linear layer with its bias; not an op of any file.
LINEAR = "forerun.Linear"


@dataclass(frozen=True)
class Rejoined:
    """Calls by the first output of the node that they replace, and, by output, the nodes that are then unneeded unless
    another node reads them."""

    calls: dict[str, onnx.NodeProto] = field(default_factory=dict)
    spared: dict[str, onnx.NodeProto] = field(default_factory=dict)


def first_output(node: onnx.NodeProto) -> str:
    """The name of a node's first output that has one."""
    return next((name for name in node.output if name), "")


def rejoined(graph: onnx.GraphProto, training: bool = False) -> Rejoined:
    """The calls of a graph, each at its last node. A training step is read from files whose constants were not folded,
    too."""
    order = in_order(graph)
    nodes, calls = _Nodes(graph, order, training), Rejoined()
    for node in order:
        call, parts = nodes.call(node)
        if call is not None and not any(first_output(part) in calls.spared for part in parts):
            calls.calls[first_output(node)] = call
            calls.spared.update({first_output(part): part for part in parts})
    if calls.calls:
        before = _needed(graph, order, {}, {})
        after = _needed(graph, order, calls.calls, calls.spared)
        for node in order:  # values read only by removed nodes: the mask of causal attention
            outputs = [name for name in node.output if name]
            if any(name in before for name in outputs) and not any(name in after for name in outputs):
                calls.spared.update(dict.fromkeys(outputs, node))
    return calls


def _needed(
    graph: onnx.GraphProto, order: Sequence[onnx.NodeProto], calls: Mapping[str, onnx.NodeProto],
    spared: Mapping[str, onnx.NodeProto],
) -> set[str]:  # fmt: skip
    """The values that the outputs of the graph depend on."""
    needed = {info.name for info in graph.output}
    for node in reversed(order):
        first = first_output(node)
        if first not in spared and not needed.isdisjoint(node.output):
            needed.update(read_by(calls.get(first, node)))
    return needed


_Match = tuple[onnx.NodeProto | None, list[onnx.NodeProto]]  # the call and the other nodes that it replaces
_NO_MATCH: _Match = (None, [])


class _Nodes:
    def __init__(self, graph: onnx.GraphProto, order: Iterable[onnx.NodeProto], training: bool) -> None:
        self._training = training
        self._made = {name: node for node in order for name in node.output if name}
        self._weights = {weight.name: tuple(weight.dims) for weight in graph.initializer}
        self._leaving = {info.name for info in graph.output}
        self._times: dict[str, int] = {}
        for node in graph.node:
            for name in read_by(node):
                self._times[name] = self._times.get(name, 0) + 1

    def call(self, node: onnx.NodeProto) -> _Match:
        """The call that ends with a node."""
        if node.domain:
            return _NO_MATCH
        for look in _LOOKS.get(node.op_type, ()):
            if (match := look(self, node))[0] is not None:
                return match
        return _NO_MATCH

    def _behind(self, name: str, op: str, times: int = 1) -> onnx.NodeProto | None:
        """The node of this type that produces a value, where the value has no other reader."""
        node = self._made.get(name)
        alone = self._times.get(name) == times and name not in self._leaving
        return node if node is not None and alone and node.op_type == op and not node.domain else None

    def _shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a weight; torch.onnx puts those of equal values behind one another."""
        while (node := self._made.get(name)) is not None and node.op_type == "Identity":
            name = node.input[0]
        return self._weights.get(name)

    def _is_scalar(self, name: str) -> bool:
        node, shape = self._made.get(name), self._shape(name)
        if node is None or node.op_type != "Constant":
            return shape in ((), (1,))
        held = next((a for a in node.attribute), None)
        if held is None:
            return False
        return held.name in ("value_float", "value_int") or (held.name == "value" and list(held.t.dims) in ([], [1]))

    def _either(self, node: onnx.NodeProto | None, op: str) -> tuple[onnx.NodeProto | None, str]:
        """The node of this type that produces one of the two inputs, and the other input."""
        if node is not None and len(node.input) == 2:
            for first, other in (node.input, reversed(node.input)):
                if (before := self._behind(first, op)) is not None:
                    return before, other
        return None, ""

    def linear(self, node: onnx.NodeProto) -> _Match:
        """A matmul with a weight, and its bias."""
        product, bias = self._either(node, "MatMul")
        weight = (self._shape(product.input[1]) or ()) if product is not None else ()
        if self._training and product is not None and (turn := self._made.get(product.input[1])) is not None:
            turned = turn.op_type == "Transpose" and _order(turn) == [1, 0]  # as written without constant folding
            weight = tuple(reversed(self._shape(turn.input[0]) or ())) if turned else weight
        if product is None or len(weight) != 2 or self._shape(bias) != weight[1:]:
            return _NO_MATCH
        return helper.make_node(LINEAR, [*product.input, bias], node.output, product.name, domain="forerun"), [product]

    def layer_norm(self, node: onnx.NodeProto) -> _Match:
        """Files before opset 17 have it in nine nodes."""
        scaled, bias = self._either(node, "Mul")
        divided, weight = self._either(scaled, "Div")
        root = self._behind(divided.input[1], "Sqrt") if divided is not None else None
        added = self._behind(root.input[0], "Add") if root is not None else None
        spread, least = self._either(added, "ReduceMean")
        squared = self._behind(spread.input[0], "Pow") if spread is not None else None
        centred = self._behind(squared.input[0], "Sub", times=2) if squared is not None else None
        mean = self._behind(centred.input[1], "ReduceMean") if centred is not None else None
        if centred is None or mean is None or squared is None or divided is None or spread is None:
            return _NO_MATCH
        plain = len(self._shape(weight) or ()) == 1 and self._shape(weight) == self._shape(bias)
        last = _is_over_last(mean) and _is_over_last(spread)
        same = divided.input[0] == centred.output[0] and mean.input[0] == centred.input[0]
        if not (plain and last and same and self._is_scalar(least) and self._is_scalar(squared.input[1])):
            return _NO_MATCH
        chain = (scaled, divided, root, added, spread, squared, centred, mean)
        call = helper.make_node(
            "LayerNormalization", [centred.input[0], weight, bias], node.output, node.name, axis=-1
        )  # fmt: skip
        return call, [part for part in chain if part is not None]

    def gelu(self, node: onnx.NodeProto) -> _Match:
        """x / 2 (1 + erf(x / sqrt(2))), in whichever order."""
        for inner, rest in ((self._behind(one, "Mul"), other) for one, other in (node.input, reversed(node.input))):
            if inner is None:
                continue
            factors = [*inner.input, rest]
            for name in factors:
                added = self._behind(name, "Add")
                erf, one = self._either(added, "Erf")
                divided = (self._behind(erf.input[0], "Div") or self._behind(erf.input[0], "Mul")) if erf else None
                if added is None or erf is None or divided is None:
                    continue
                x, root = divided.input[:2]
                others = sorted(factors, key=lambda factor: (factor != name, factor != x))[1:]
                if others[0] == x and all(map(self._is_scalar, (one, root, others[1]))):
                    call = helper.make_node("Gelu", [x], node.output, node.name)
                    return call, [inner, added, erf, divided]
        return _NO_MATCH

    def silu(self, node: onnx.NodeProto) -> _Match:
        gate, x = self._either(node, "Sigmoid")
        if gate is None or gate.input[0] != x:
            return _NO_MATCH
        return helper.make_node("Swish", [x], node.output, node.name), [gate]

    def attention(self, node: onnx.NodeProto) -> _Match:
        """F.scaled_dot_product_attention, by what marks it: queries and keys are both multiplied by the root of the
        scale. Attention that a module computes step by step is scaled once, and is not replaced."""
        soft = self._behind(node.input[0], "Softmax")
        if soft is None or not any(a.name == "axis" and a.i in (-1, 3) for a in soft.attribute):
            return _NO_MATCH
        parts, mask = [soft], ""
        scores = self._behind(soft.input[0], "MatMul")
        if scores is None and (masked := self._behind(soft.input[0], "Add")) is not None:
            scores, mask = self._either(masked, "MatMul")
            parts.append(masked)
        scaled = [self._behind(name, "Mul") for name in scores.input] if scores is not None else [None]
        queries, keys = scaled[0], scaled[-1]
        if scores is None or queries is None or keys is None or not self._by_a_root(queries, keys):
            return _NO_MATCH
        turned = self._turned(keys.input[0])
        if turned is None:
            return _NO_MATCH
        given = [queries.input[0], turned[-1].input[0], node.input[1]]
        causal = self._is_causal(mask)
        call = helper.make_node(
            "Attention", given if causal or not mask else [*given, mask], node.output, node.name, is_causal=int(causal)
        )
        return call, [*parts, scores, queries, keys, *turned]

    def _by_a_root(self, queries: onnx.NodeProto, keys: onnx.NodeProto) -> bool:
        roots = [self._made.get(each.input[1]) for each in (queries, keys)]
        computed = all(root is not None and root.op_type == "Sqrt" for root in roots)
        literal = {each.input[1] for each in (queries, keys)}
        return computed or (len(literal) == 1 and self._is_scalar(literal.pop()))

    def _turned(self, name: str) -> list[onnx.NodeProto] | None:
        """The nodes that swap the last two axes of the keys, the last one first."""
        if (turn := self._behind(name, "Transpose")) is not None:
            return [turn] if _order(turn) == [0, 1, 3, 2] else None
        after = self._behind(name, "Reshape")
        turn = self._behind(after.input[0], "Transpose") if after is not None else None
        before = self._behind(turn.input[0], "Reshape") if turn is not None else None
        if after is None or turn is None or before is None or _order(turn) != [0, 2, 1]:
            return None
        return [after, turn, before]

    def _is_causal(self, mask: str) -> bool:
        """Whether a mask is the one that exporters write for is_causal=True."""
        for op in ("Where", "Equal", "Trilu"):
            if (node := self._made.get(mask)) is None or node.op_type != op:
                return False
            mask = node.input[0]
        return (node := self._made.get(mask)) is not None and node.op_type == "Expand"


def _order(turn: onnx.NodeProto) -> list[int]:
    return next((list(a.ints) for a in turn.attribute if a.name == "perm"), [])


def _is_over_last(mean: onnx.NodeProto) -> bool:
    given = {a.name: a for a in mean.attribute}
    keeps = "keepdims" not in given or given["keepdims"].i == 1
    return keeps and "axes" in given and list(given["axes"].ints) == [-1]


_LOOKS: dict[str, tuple[Callable[[_Nodes, onnx.NodeProto], _Match], ...]] = {
    "MatMul": (_Nodes.attention,), "Add": (_Nodes.linear, _Nodes.layer_norm), "Mul": (_Nodes.gelu, _Nodes.silu),
}  # fmt: skip


def fits(call: onnx.NodeProto, shapes: Sequence[tuple[int, ...] | None]) -> bool:
    """Whether PyTorch runs a call fused at these shapes of its inputs."""
    known = [shape for shape in shapes if shape is not None]
    if call.op_type != "Attention":
        return True
    if len(known) != len(shapes) or any(len(shape) != 4 for shape in known[:3]):
        return False
    q, k, v = known[:3]
    alike = q[0] == k[0] == v[0] and k[1:3] == v[1:3] and q[3] == k[3] and q[1] == k[1]
    wide = (q[0], q[1], q[2], k[2])
    masks = (zip(reversed(mask), reversed(wide), strict=False) for mask in known[3:])
    return alike and all(len(mask) <= 4 for mask in known[3:]) and all(
        size in (1, whole) for mask in masks for size, whole in mask
    )  # fmt: skip
