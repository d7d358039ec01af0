"""The repeated block of a network: its kernel classes, without their sizes.

Networks with blocks of the same ops are relatives, independent of their names (BERT and RoBERTa, Llama and Mistral):
measurements of one inform predictions of the other. `data/splits.py` holds relatives out together.
"""

from __future__ import annotations

import functools
import re
from collections import Counter

from forerun.graph.ir import Graph, Op
from forerun.graph.profile import CLASSES, kernel_class

#: Fewer ops than this are a layer, not a block.
LEAST_OPS = 4
#: Classes of kernel with the main arithmetic. Relatives have the same number of each.
MULTIPLYING = frozenset(c for c in CLASSES if any(word in c for word in ("matmul", "conv", "attention", "rnn", "fft")))
#: The share of all ops of two blocks that relatives have in common: norms, activations and copies are written in one
#: way or another (an RMS norm is one kernel or six).
LIKENESS = 0.6
#: The part of a module's path that ends in a number: `encoder.layer.3` of `encoder.layer.3.attention.self.query`.
_NUMBERED = re.compile(r"(?:^|\.)\d+(?=\.|$)")


def block_of(graph: Graph) -> str:
    """The classes of kernel in the block that most of the forward pass consists of, with how often each comes:
    `attention 1, elementwise 3, matmul 6, norm 2` of BERT.

    A block is what lies below one number of a module's path. Blocks of equal ops are the same one wherever they stand
    in the network; the one whose copies hold most ops counts. A network that repeats nothing is one block.
    """
    forward = [op for op in graph.ops if op.phase == "forward"]
    inside: dict[str, list[Op]] = {}
    for op in forward:
        for match in _NUMBERED.finditer(op.scope):
            inside.setdefault(op.scope[: match.end()], []).append(op)
    covered: Counter[str] = Counter()
    copies: Counter[str] = Counter()
    for ops in inside.values():
        times = max(op.repeat for op in ops)
        if sum(op.repeat for op in ops) >= LEAST_OPS * times:
            name = _counted(graph, ops, times)
            covered[name] += sum(op.repeat for op in ops)
            copies[name] += times
    repeated = [name for name in covered if copies[name] > 1]
    return max(repeated, key=lambda name: (covered[name], name)) if repeated else _counted(graph, forward, 1)


def _counted(graph: Graph, ops: list[Op], times: int) -> str:
    """The number of kernels of each class in one of `times` equal copies."""
    classes: Counter[str] = Counter()
    for op in ops:
        classes[kernel_class(op, graph)] += op.repeat
    return ", ".join(f"{name} {max(1, round(classes[name] / times))}" for name in sorted(classes))


@functools.cache
def alike(one: str, other: str) -> bool:
    """Whether two blocks are those of relatives: equal arithmetic kernels, and most other kernels in common."""
    a, b = _parsed(one), _parsed(other)
    if any(a[name] != b[name] for name in MULTIPLYING & (a.keys() | b.keys())):
        return False
    return (a & b).total() >= LIKENESS * (a | b).total()


@functools.cache
def _parsed(block: str) -> Counter[str]:
    pairs = (part.rsplit(" ", 1) for part in block.split(", "))
    return Counter({name: int(many) for name, many in pairs})
