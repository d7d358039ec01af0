"""A language model as a few numbers, read from its captured graph: what a law of pre-training needs of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from forerun.errors import ForerunError
from forerun.graph.cost import Shapes, cost
from forerun.graph.ir import Graph
from forerun.graph.pipeline import hidden_state, layers

_TAKES = "a plan of pre-training takes a causal language model"


@dataclass(frozen=True)
class LanguageModel:
    """A decoder: its weights, those that a token meets, and the widths that its activations have."""

    name: str
    parameters: float  # all weights
    layers: int
    width: int  # of what one layer hands to the next
    linear: float  # weights of matmuls that a token meets in layers, without those of experts
    experts: float  # weights of experts that a token meets
    expert_parameters: float  # weights of all experts
    routed: int  # experts that a token goes to in a layer
    expert_count: int  # experts of a layer
    scores: float  # multiply-accumulates for one token and one key, in all layers
    keys: float  # numbers that one token adds to a cache, in all layers
    heads: int
    vocabulary: int
    key_heads: int = 0  # 0: as many as heads

    @property
    def active(self) -> float:
        """Weights of matmuls that a token meets, the logits' included."""
        return self.linear + self.experts + self.vocabulary * self.width

    @property
    def dense_parameters(self) -> float:
        return self.parameters - self.expert_parameters


def describe(graph: Graph) -> LanguageModel:
    """The numbers of a causal language model from its inference graph."""
    shapes, hidden = Shapes(graph), hidden_state(graph)
    tables = [graph.tensors[op.inputs[0]].shape[0] for op in graph.ops if op.kind == "embedding"]
    stack = sum(layer.repeat for layer in layers(graph))
    if hidden is None or not tables or len(hidden.shape) < 3:
        raise ForerunError(f"{graph.name} has no table of words and no layers: {_TAKES}")
    tokens, words = math.prod(hidden.shape[:-1]), max(tables)
    linear = experts = expert_parameters = scores = keys = 0.0
    vocabulary = routed = count = heads = key_heads = 0
    for op in graph.ops:
        first = [graph.tensors[t].shape for t in op.inputs[:3]]
        each = float(cost(op, shapes).macs) * op.repeat / tokens if op.kind in ("matmul", "moe_matmul") else 0.0
        if op.kind == "matmul" and op.attrs.get("shared_b"):
            if words in (first[1][-1], first[1][0]):
                vocabulary = words
            else:
                linear += each
        elif op.kind == "matmul":  # attention that stores its scores
            scores, heads = scores + each / hidden.shape[1], first[0][1] if len(first[0]) == 4 else heads
        elif op.kind == "moe_matmul":
            experts, expert_parameters = experts + each, expert_parameters + math.prod(first[1]) * op.repeat
            routed, count = max(routed, round(first[0][0] / tokens)), int(op.attrs["experts"])
        elif op.kind == "attention":
            (_, heads, _, size), (_, key_heads, _, _), (_, _, _, value_size) = first
            scores += heads * (size + value_size) * op.repeat
            keys += key_heads * (size + value_size) * op.repeat
    if not vocabulary or not scores:
        raise ForerunError(f"{graph.name} has no attention or no logits over its words: {_TAKES}")
    return LanguageModel(
        graph.name, graph.parameters, stack, hidden.shape[-1], linear, experts, expert_parameters, routed, count,
        scores, keys, heads, vocabulary, key_heads,
    )  # fmt: skip
