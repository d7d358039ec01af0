"""All 15,625 networks of NAS-Bench-201 as graphs and in words, put together of the ops of a few captured ones.

`Templates.capture` captures six networks (it needs forerun's frontends), `build` puts any cell together (it needs NumPy
alone) in a few milliseconds. `prepare.py` compares some of them with captures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.graph.description import OF_KIND, Description
from forerun.graph.profile import CLASSES
from forerun.networks.nasbench201 import CELLS, CHANNELS, EDGES, OPERATIONS
from forerun.predictors.published.gnn_llm import nodes
from forerun.predictors.published.gnn_llm.nodes import Nodes

#: How many ops each edge of a cell is: none multiplies, a convolution has activation and norm around it.
_OPS = {"none": 1, "skip_connect": 0, "nor_conv_1x1": 3, "nor_conv_3x3": 3, "avg_pool_3x3": 1}
#: Of a residual block: pool and convolution of the shortcut, then twice activation, convolution, norm, then the sum.
_REDUCTION, _TAIL = 9, 4
Line = tuple[tuple[Any, ...], tuple[int, ...]]


def code_of(arch: str) -> tuple[int, ...]:
    """The place in OPERATIONS of each edge of a cell."""
    words = [part.partition("~")[0] for part in arch.replace("+", "").split("|") if part]
    return tuple(OPERATIONS.index(word) for word in words)


def plan(code: tuple[int, ...]) -> Iterator[Line]:
    """The ops of a network in order: what each is, and which ops it reads."""
    at = -1

    def op(what: tuple[Any, ...], *reads: int) -> Line:
        nonlocal at
        at += 1
        return what, reads

    yield op(("stem", 0))
    yield op(("stem", 1), 0)
    last = at
    for stage in range(len(CHANNELS)):
        if stage:
            start = last
            yield op(("reduction", stage, 0), start)
            yield op(("reduction", stage, 1), at)
            shortcut = at
            for place in range(2, 8):
                yield op(("reduction", stage, place), start if place == 2 else at)
            yield op(("reduction", stage, 8), shortcut, at)
            last = at
        for _ in range(CELLS):
            made = [last]
            for node in (1, 2, 3):
                total = -1
                for index, (start, end) in enumerate(EDGES):
                    if end != node:
                        continue
                    name, given = OPERATIONS[code[index]], made[start]
                    for place in range(_OPS[name]):
                        yield op((name, stage, place), given)
                        given = at
                    yield op(("sum", stage, min(total + 1, 1)), *((given,) if total < 0 else (total, given)))
                    total = at
                made.append(total)
            last = made[-1]
    for place in range(_TAIL):
        yield op(("tail", place), last)
        last = at


@dataclass(frozen=True)
class Templates:
    """A line of numbers for each kind of op in these networks, at several batch sizes."""

    keys: tuple[tuple[Any, ...], ...]
    operators: np.ndarray  # [keys]
    classes: np.ndarray  # [keys]
    numbers: np.ndarray  # [batches, keys, attributes and shape]
    flops: np.ndarray  # [batches, keys]
    macs: np.ndarray  # [batches, keys]
    parameters: np.ndarray  # [keys]
    batches: np.ndarray

    @classmethod
    def capture(cls, batches: np.ndarray) -> Templates:
        """From captures of networks whose cells have one operation, and of one with several."""
        known: dict[tuple[Any, ...], list[Any]] = {}
        for place in range(len(OPERATIONS)):
            code = (place,) * len(EDGES)
            lines = captured(code, batches)
            for (key, _), line in zip(plan(code), lines, strict=True):
                known.setdefault(key, line)
        columns = list(zip(*known.values(), strict=True))
        operators, classes, numbers, flops, macs, parameters = columns
        return cls(
            tuple(known), np.array(operators, dtype=np.uint8), np.array(classes, dtype=np.int16),
            np.array(numbers, dtype=np.float32).swapaxes(0, 1), np.array(flops, dtype=float).T,
            np.array(macs, dtype=float).T, np.array(parameters, dtype=float), batches,
        )  # fmt: skip

    def build(self, code: tuple[int, ...], batch: int) -> tuple[Nodes, Description]:
        """A network at a batch size, as a graph and in words."""
        place = {key: index for index, key in enumerate(self.keys)}
        at = int(np.flatnonzero(self.batches == batch)[0])
        lines = list(plan(code))
        chosen = np.array([place[key] for key, _ in lines])
        pairs = sorted({(read, to) for to, (_, reads) in enumerate(lines) for read in reads})
        edges = np.array(pairs, dtype=np.int64).T
        ones = np.ones(len(chosen), dtype=np.float32)
        graph = Nodes(self.operators[chosen], self.numbers[at][chosen], ones, edges)
        flops, macs, weights = self.flops[at][chosen], self.macs[at][chosen], self.parameters[chosen]
        whole = {
            "nodes": float(len(chosen)), "edges": float(len(pairs)), "batch": float(batch), "FLOPs": flops.sum(),
            "parameters": weights.sum(), "MACs": macs.sum(),
        }  # fmt: skip
        classes = self.classes[chosen]
        kinds = {}
        for index in np.unique(classes).tolist():
            own = classes == index
            values = (float(own.sum()), float(flops[own].sum()), float(weights[own].sum()))
            kinds[CLASSES[index]] = dict(zip(OF_KIND, values, strict=True))
        ordered = sorted(kinds, key=lambda kind: (-kinds[kind]["FLOPs"], -kinds[kind]["count"], kind))
        return graph, Description({k: float(v) for k, v in whole.items()}, {kind: kinds[kind] for kind in ordered})

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it as arrays of plain numbers and text."""
        held = {name: value for name, value in vars(self).items() if name != "keys"}
        return {**held, "keys": np.array(["/".join(map(str, key)) for key in self.keys])}

    @classmethod
    def of_arrays(cls, found: dict[str, np.ndarray]) -> Templates:
        """What `arrays` gave."""
        names = ("operators", "classes", "numbers", "flops", "macs", "parameters", "batches")
        keys = [tuple(int(p) if p.isdigit() else p for p in str(key).split("/")) for key in found["keys"]]
        return cls(tuple(keys), **{name: found[name] for name in names})


def captured(code: tuple[int, ...], batches: np.ndarray) -> list[tuple[Any, ...]]:
    """Every op of a captured network: operator, class, numbers and work at each batch size, weights."""
    columns = profile_of(code, batches)
    from forerun.predictors.published.gnn.predictor import graphs_at_batches

    graphs = graphs_at_batches(columns)
    built = [nodes.of(graph) for graph in graphs]
    return [
        (built[0].operators[i], columns.classes[i], [one.numbers[i] for one in built], columns.flops[i],
         columns.macs[i], graphs[0].parameters[i])
        for i in range(len(columns.classes))
    ]  # fmt: skip


def profile_of(code: tuple[int, ...], batches: np.ndarray) -> Any:
    """The captured network of a cell at several batch sizes, as columns."""
    from forerun.frontends import load_graphs
    from forerun.graph.profile import profile
    from forerun.workload import Workload

    words = {edge: f"{OPERATIONS[op]}~{edge[0]}" for edge, op in zip(EDGES, code, strict=True)}
    cell = "+".join(f"|{'|'.join(words[edge] for edge in EDGES if edge[1] == node)}|" for node in (1, 2, 3))
    _, scalable = load_graphs(Workload(f"nasbench201:{cell}"))
    assert scalable is not None
    return profile(scalable, "fp32", batches)
