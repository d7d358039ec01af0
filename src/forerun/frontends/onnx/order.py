"""The nodes of an ONNX graph in an order in which they can run; not every exporter sorts them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import onnx

from forerun.errors import ForerunError


def in_order(graph: onnx.GraphProto) -> Sequence[onnx.NodeProto]:
    """The nodes of a graph, each after those whose outputs it reads; sorted ones stay as they are."""
    made_by = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    reads = [[made_by[name] for name in read_by(node) if name in made_by] for node in graph.node]
    if all(before < i for i, needed in enumerate(reads) for before in needed):
        return graph.node
    waiting = [len(set(needed)) for needed in reads]
    readers: dict[int, set[int]] = {}
    for i, needed in enumerate(reads):
        for before in needed:
            readers.setdefault(before, set()).add(i)
    ready = [i for i, count in enumerate(waiting) if not count]
    order = []
    while ready:
        done = heapq.heappop(ready)
        order.append(done)
        for i in readers.get(done, ()):
            waiting[i] -= 1
            if not waiting[i]:
                heapq.heappush(ready, i)
    if len(order) < len(graph.node):
        stuck = next(node for i, node in enumerate(graph.node) if waiting[i])
        raise ForerunError(f"ONNX node '{stuck.name}' ({stuck.op_type}) depends on its own output")
    return [graph.node[i] for i in order]


def read_by(node: onnx.NodeProto) -> Iterable[str]:
    """The inputs of a node, and the outer values that its subgraphs read."""
    yield from node.input
    for attribute in node.attribute:
        inner = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
        for graph in inner:
            for inside in graph.node:
                yield from read_by(inside)
            yield from (out.name for out in graph.output)
