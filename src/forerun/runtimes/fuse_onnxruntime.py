"""The graph that onnxruntime runs on a CPU: the fusions of its optimizer that matter for time.

Convolutions take in a batch norm, the sum with a skip connection and one activation behind them; matmuls take
in their bias and one activation. Chains of nodes that spell out one function of one tensor (GELU, SiLU, a layer norm)
become that function, and a layer norm takes in the sum before it. What the weights in a file alone decide is computed
once, when a session is made. All else stays an op of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from forerun.graph.ir import Graph, Op
from forerun.graph.op_names import plain_name
from forerun.graph.splice import without
from forerun.runtimes.fuse import with_kernels

#: Activations that a kernel applies to its results before it writes them.
_ACTIVATIONS = frozenset(
    "Relu Clip LeakyRelu Sigmoid Tanh HardSigmoid relu relu6 hardtanh clamp leaky_relu sigmoid tanh hardsigmoid".split()
)
_SUMS = frozenset("Add Sum add".split())
#: Nodes that the spelt-out forms of activations have in their middle, and of layer norms at their beginning.
_CURVES = frozenset("Erf Tanh Sigmoid".split())
_MEANS = frozenset({"ReduceMean"})
#: The longest such form: mean, difference, square, mean, sum, root, quotient, weight and bias.
_LONGEST = 10


def fuse_onnxruntime(graph: Graph) -> Graph:
    """The graph as onnxruntime's CPU provider runs it."""
    graph = _with_folded_constants(graph)
    links = _Links.of(graph)
    ops = list(graph.ops)
    kernels: list[list[int]] = []
    for i, op in enumerate(graph.ops):
        if i in links.taken:
            continue
        if op.kind in ("conv", "matmul"):
            kernels.append(_behind_root(graph, i, links))
        elif op.kind == "reduce" and op.name in _MEANS:
            members = _spelt_out(graph, i, op.inputs[0], links, {"elementwise", "reduce"})
            if members and sum(graph.ops[j].kind == "reduce" for j in members) == 2:
                ops[i] = replace(op, kind="norm", attrs={"type": "layer", "training": False})
                kernels.append(members)
        elif op.kind == "elementwise" and op.name in _CURVES and (members := _activation(graph, i, links)):
            kernels.append(members)
        elif op.kind == "norm" and op.attrs["type"] in ("layer", "rms") and (before := _sum_before(graph, i, links)):
            kernels.append([*before, i])
        links.taken.update(kernels[-1] if kernels and i in kernels[-1] else ())
    return with_kernels(replace(graph, ops=ops), kernels)


def _with_folded_constants(graph: Graph) -> Graph:
    """Without what is computed when a session is made (the standardised weights of a convolution, slices of a table):
    its results are kept, and what nothing else reads is not."""
    folded = {i for i, op in enumerate(graph.ops) if op.attrs.get("constant")}
    if not folded:
        return graph
    read = {graph.tensors[t].storage for t in graph.outputs}
    read |= {graph.tensors[t].storage for i, op in enumerate(graph.ops) if i not in folded for t in op.inputs}
    touched = {graph.tensors[t].storage for i in folded for t in (*graph.ops[i].inputs, *graph.ops[i].outputs)}
    storages = [
        replace(s, role="buffer" if s.born in folded else s.role, bytes=s.bytes if n in read else 0, dies=None)
        if n in touched else s
        for n, s in enumerate(graph.storages)
    ]  # fmt: skip
    return without(graph, storages, folded)


@dataclass
class _Links:
    """Who reads what, and which ops are part of a kernel already."""

    readers: dict[int, list[int]]  # op -> ops that read its results
    outputs: frozenset[int]  # ops whose results the model returns
    taken: set[int]

    @classmethod
    def of(cls, graph: Graph) -> _Links:
        readers: dict[int, list[int]] = {}
        for i, op in enumerate(graph.ops):
            for producer in {graph.tensors[t].producer for t in op.inputs}:
                readers.setdefault(producer, []).append(i)
        return cls(readers, frozenset(graph.tensors[t].producer for t in graph.outputs), set())

    def only_reader(self, graph: Graph, i: int) -> int | None:
        """The one op that reads the results of another, where it can share a kernel with it."""
        readers = self.readers.get(i, [])
        if len(readers) != 1 or i in self.outputs or readers[0] in self.taken:
            return None
        same = graph.ops[readers[0]].repeat == graph.ops[i].repeat
        return readers[0] if same else None


def _behind_root(graph: Graph, i: int, links: _Links) -> list[int]:
    """A convolution or matmul with the ops that it applies to its output."""
    members, root = [i], graph.ops[i]
    convolution, summed = root.kind == "conv", False
    while (j := links.only_reader(graph, members[-1])) is not None:
        op, name = graph.ops[j], plain_name(graph.ops[j].name)
        if _is_bias(graph, op, name, convolution) or (convolution and not summed and _folds_into_weights(op)):
            members.append(j)
        elif convolution and not summed and name in _SUMS and _same_shapes(graph, op):
            members.append(j)
            summed = True
        elif op.kind == "elementwise" and name in _ACTIVATIONS:
            return [*members, j]
        else:
            break
    return members


def _is_bias(graph: Graph, op: Op, name: str, convolution: bool) -> bool:
    if op.attrs.get("bias"):
        return True
    others = [graph.tensors[t] for t in op.inputs if not _varies(graph, t)]
    return not convolution and name in _SUMS and len(others) == 1 and len(others[0].shape) == 1


def _folds_into_weights(op: Op) -> bool:
    return op.kind == "norm" and op.attrs["type"] == "batch" and not op.attrs["training"]


def _same_shapes(graph: Graph, op: Op) -> bool:
    varying = [graph.tensors[t].shape for t in op.inputs if _varies(graph, t)]
    return len(varying) == 2 and varying[0] == varying[1]


def _activation(graph: Graph, seed: int, links: _Links) -> list[int] | None:
    """The nodes around an erf, tanh or sigmoid that spell out a gated activation of one tensor."""
    x = graph.ops[seed].inputs[0]
    producer = graph.tensors[x].producer
    if producer >= 0 and producer not in links.taken and _of_one_tensor(graph, producer):
        scaled = _spelt_out(graph, producer, graph.ops[producer].inputs[0], links, {"elementwise"})
        if scaled and seed in scaled and _gates(graph, scaled, graph.ops[producer].inputs[0]):
            return scaled
    plain = _spelt_out(graph, seed, x, links, {"elementwise"})
    return plain if plain and _gates(graph, plain, x) else None


def _of_one_tensor(graph: Graph, i: int) -> bool:
    op = graph.ops[i]
    return op.kind == "elementwise" and sum(_varies(graph, t) for t in op.inputs) == 1 and _varies(graph, op.inputs[0])


def _gates(graph: Graph, members: list[int], x: int) -> bool:
    """Whether a member behind the first reads the tensor that all of them are a function of."""
    return any(x in graph.ops[i].inputs for i in members[1:])


def _spelt_out(graph: Graph, first: int, x: int, links: _Links, kinds: set[str]) -> list[int] | None:
    """From the first op on, every op that is a function of `x` and constants alone and that only such ops read."""
    members, known = [first], {x, *graph.ops[first].outputs}
    waiting = sorted({*links.readers.get(first, []), *links.readers.get(graph.tensors[x].producer, [])})
    while waiting and len(members) < _LONGEST:
        j = waiting.pop(0)
        op = graph.ops[j]
        if j <= first or j in members or j in links.taken or op.kind not in kinds:
            continue
        varying = {t for t in op.inputs if _varies(graph, t)}
        if op.repeat != graph.ops[first].repeat or not varying or not varying <= known:
            continue
        members.append(j)
        known.update(op.outputs)
        waiting = sorted({*waiting, *links.readers.get(j, [])})
    members = _closed(graph, members, links)
    return members if len(members) > 1 else None


def _closed(graph: Graph, members: list[int], links: _Links) -> list[int]:
    """The longest beginning of the members of which only the last is read by anything else."""
    for end in range(len(members), 1, -1):
        inside = set(members[:end])
        before = members[: end - 1]
        if all(set(links.readers.get(i, [])) <= inside and i not in links.outputs for i in before):
            return members[:end]
    return members[:1]


def _sum_before(graph: Graph, i: int, links: _Links) -> list[int] | None:
    """The sum that a layer norm normalises, where nothing reads it before the norm does."""
    j = graph.tensors[graph.ops[i].inputs[0]].producer
    if j < 0 or j in links.taken or graph.ops[j].repeat != graph.ops[i].repeat:
        return None
    fits = plain_name(graph.ops[j].name) in _SUMS and _same_shapes(graph, graph.ops[j])
    return [j] if fits and min(links.readers[j]) == i else None


def _varies(graph: Graph, tensor: int) -> bool:
    """Whether a tensor depends on the model's inputs."""
    return graph.storages[graph.tensors[tensor].storage].role not in ("parameter", "buffer")
