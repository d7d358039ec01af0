"""Calls of PyTorch that exporters write as several nodes, put together again for a training step.

`calls` does so by name before a file is walked; these need what the walk knows: sizes and constants, and dropouts that
only files exported for training have.
"""

from __future__ import annotations

import math
from dataclasses import replace

from forerun.frontends.onnx.values import Node, Value


def whole_calls(nodes: list[Node], outputs: list[Value]) -> list[Node]:
    """The nodes in order, with one for each call that is recognised; what only the parts read is gone."""
    return _Parts(nodes, outputs).joined()


class _Parts:
    def __init__(self, nodes: list[Node], outputs: list[Value]) -> None:
        self.nodes, self.outputs = nodes, outputs
        self.made = {id(v): node for node in nodes for v in node.out}
        self.times: dict[int, int] = {id(v): 2 for v in outputs}  # what leaves the model is no part of a call
        for node in nodes:
            for value in node.inputs:
                self.times[id(value)] = self.times.get(id(value), 0) + 1

    def joined(self) -> list[Node]:
        instead: dict[int, list[Node]] = self.splits()
        for node in self.nodes:
            found = self.attention(node) if node.op == "MatMul" else self.group_norm(node) if node.op == "Add" else None
            if found is not None:
                instead[id(node)] = found
        kept = [new for node in self.nodes for new in instead.get(id(node), [node])]
        needed = {id(v) for v in self.outputs}
        live: list[Node] = []
        for node in reversed(kept):
            if any(id(v) in needed for v in node.out):
                needed.update(id(v) for v in node.inputs)
                live.append(node)
        return live[::-1]

    def behind(self, value: Value | None, op: str) -> Node | None:
        """The node of this type that puts out a value, where one node alone reads it."""
        node = self.made.get(id(value))
        return node if node is not None and node.op == op and self.times.get(id(value)) == 1 else None

    def either(self, node: Node | None, op: str) -> tuple[Node | None, Value | None]:
        """The node of this type that puts out one of two inputs, and the other input."""
        for first, other in ((0, 1), (1, 0)) if node is not None and len(node.inputs) == 2 else ():
            assert node is not None
            if (before := self.behind(node.inputs[first], op)) is not None:
                return before, node.inputs[other]
        return None, None

    def scaled(self, value: Value | None) -> tuple[Value | None, float | None]:
        """A value and the number that it is multiplied by."""
        node = self.behind(value, "Mul")
        number = node.inputs[1] if node is not None else None
        if node is None or number is None or number.data is None or number.data.size != 1:
            return None, None
        return node.inputs[0], float(number.data.ravel()[0])

    def softmax(self, value: Value | None) -> Node | None:
        """The softmax that puts out a value; with a mask, exporters write 0 where it is no number."""
        chosen = self.behind(value, "Where")
        if chosen is None:
            return self.behind(value, "Softmax")
        unknown, soft = self.made.get(id(chosen.inputs[0])), self.made.get(id(chosen.inputs[2]))
        if unknown is None or soft is None or (unknown.op, soft.op) != ("IsNaN", "Softmax"):
            return None
        return soft if unknown.inputs[0] is soft.out[0] and self.times.get(id(soft.out[0])) == 2 else None

    def attention(self, node: Node) -> list[Node] | None:
        """F.scaled_dot_product_attention: queries and keys are both multiplied by the root of the scale."""
        dropout = self.behind(node.inputs[0], "Dropout")
        soft = self.softmax(node.inputs[0] if dropout is None else dropout.inputs[0])
        if soft is None or len(node.out[0].shape) != 4 or int(soft.attrs.get("axis", -1)) not in (-1, 3):
            return None
        scores, mask = self.behind(soft.inputs[0], "MatMul"), None
        if scores is None:
            scores, mask = self.either(self.behind(soft.inputs[0], "Add"), "MatMul")
        if scores is None:
            return None
        (q, first), (turned, second) = self.scaled(scores.inputs[0]), self.scaled(scores.inputs[1])
        turn = self.behind(turned, "Transpose")
        order = list(turn.attrs.get("perm", ())) if turn is not None else []
        if q is None or turn is None or first != second or len(order) != 4 or q.shape[:2] != node.out[0].shape[:2]:
            return None
        k, before = turn.need(0), [order[0], order[1], order[3], order[2]]
        extra: list[Node] = []
        if before != [0, 1, 2, 3]:  # exporters turn keys once for the heads and for the product
            heads = Value(tuple(k.shape[i] for i in before), k.dtype)
            name = f"{turn.outputs[0]}:keys"
            extra = [replace(turn, attrs={"perm": before}, outputs=[name], out=[heads])]
            k = heads
        share = _number(dropout.input(1), dropout.attrs.get("ratio", 0.5)) if dropout is not None else 0.0
        causal = mask is not None and self.is_causal(mask)
        call = replace(
            node, op="Attention", attrs={"is_causal": int(causal), "dropout": share},
            inputs=[q, k, node.inputs[1], None if causal else mask],
        )  # fmt: skip
        return [*extra, call]

    def is_causal(self, mask: Value) -> bool:
        """Whether a mask is the one that exporters write for is_causal=True: chosen by a triangle."""
        chosen, depth = self.made.get(id(mask)), 0
        while chosen is not None and chosen.op in ("Where", "Equal", "Not", "Cast", "Trilu") and depth < 6:
            if chosen.op == "Trilu":
                return True
            chosen, depth = self.made.get(id(chosen.inputs[0])), depth + 1
        return False

    def group_norm(self, node: Node) -> list[Node] | None:
        """Instance norm of the groups, then weight and bias of the channels."""
        scaled, bias = self.either(node, "Mul")
        back, weight = self.either(scaled, "Reshape")
        norm = self.behind(back.inputs[0], "InstanceNormalization") if back is not None else None
        apart = self.behind(norm.inputs[0], "Reshape") if norm is not None else None
        if norm is None or apart is None or weight is None or bias is None:
            return None
        x = apart.need(0)
        if x.shape != node.out[0].shape or not weight.size == bias.size == x.shape[1]:
            return None
        attrs = {"num_groups": norm.need(0).shape[1], "epsilon": norm.attrs.get("epsilon", 1e-5)}
        return [replace(node, op="GroupNormalization", attrs=attrs, inputs=[x, weight, bias])]

    def splits(self) -> dict[int, list[Node]]:
        """Slices that lie side by side and are all of a tensor, which PyTorch's chunk and split make in one call."""
        slices: dict[tuple[int, int], list[tuple[int, Node]]] = {}
        for node in self.nodes:
            if node.op == "Slice" and (part := _part(node)) is not None:
                slices.setdefault((id(node.inputs[0]), part[0]), []).append((part[1], node))
        instead: dict[int, list[Node]] = {}
        for (_, axis), found in slices.items():
            parts = [node for _, node in sorted(found, key=lambda pair: pair[0])]
            sizes = [node.out[0].shape[axis] for node in parts]
            ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
            starts = sorted(start for start, _ in found)
            if len(parts) > 1 and ends[-1] == parts[0].need(0).shape[axis] and starts == [0, *ends[:-1]]:
                first = found[0][1]
                names, out = [node.outputs[0] for node in parts], [node.out[0] for node in parts]
                instead |= {id(node): [] for node in parts}
                instead[id(first)] = [
                    replace(first, op="Split", attrs={"axis": axis}, inputs=first.inputs[:1], outputs=names, out=out)
                ]
        return instead


def _number(value: Value | None, usual: float) -> float:
    return usual if value is None or value.data is None or not math.prod(value.shape) else float(value.data.ravel()[0])


def _part(node: Node) -> tuple[int, int] | None:
    """The axis of a slice and where it begins; None where there are several, or steps."""
    known = [None if v is None or v.data is None else v.data.ravel().tolist() for v in node.inputs[1:]]
    if len(known) < 3 or known[0] is None or len(known[0]) != 1 or known[2] is None or known[3:] not in ([], [[1]]):
        return None
    axis = int(known[2][0]) % len(node.need(0).shape)
    size, start = node.need(0).shape[axis], int(known[0][0])
    return axis, min(start if start >= 0 else start + size, size)
