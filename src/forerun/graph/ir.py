"""The one graph that every frontend produces: ops in the order they run, tensors, and the memory behind them.

A `Tensor` is what an op sees (a shape and a dtype); a `Storage` is the memory behind one or more tensors (a view
shares its base's storage) with the op indices between which it lives. Edges are true data edges: a tensor knows the
op that last wrote it.

A graph is captured at one batch size, and carries how every dimension grows per extra sample (`Tensor.per_sample`),
so that `Graph.at(batch)` gives the same network at another batch without capturing it again. Repeated blocks are
folded: an op or a storage with `repeat=30` stands for thirty equal ones.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

from forerun.graph.kinds import CONTRACTIONS

#: Bytes per element. 4-bit weights carry a scale and zero point per group of 128: 0.5 + 4/128 bytes.
DTYPE_BYTES: dict[str, float] = {
    "fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "complex64": 8, "complex128": 16,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1, "int4": 0.5 + 4 / 128,
}  # fmt: skip

#: What memory is for, and which part of a call an op belongs to.
ROLES = ("parameter", "buffer", "input", "activation", "gradient", "state", "cache")
PHASES = ("forward", "backward", "optimizer")


def stable_attrs(attrs: dict[str, Any]) -> dict[str, Any]:
    """Attributes that hold at every batch: all but `strided` (inputs are read with gaps), which batch 1 can hide."""
    return {k: v for k, v in attrs.items() if k != "strided"} if "strided" in attrs else attrs


@dataclass(slots=True)
class Storage:
    """A piece of device memory: `born` and `dies` are op indices; -1 before the first op, `None` never freed."""

    bytes: int
    role: str  # one of ROLES
    born: int = -1
    dies: int | None = None
    repeat: int = 1
    per_sample: int = 0  # bytes that one more sample adds
    per_sample2: int = 0  # and bytes that grow with the square: a batch x batch matrix

    def grown(self, step: Any) -> Any:
        """Bytes at `step` samples more (a number, or an array of them)."""
        return self.bytes + self.per_sample * step + self.per_sample2 * step * step


@dataclass(slots=True)
class Tensor:
    """What an op sees: a shape, a dtype, the storage behind it and the op that last wrote it (-1: none)."""

    shape: tuple[int, ...]
    dtype: str
    storage: int
    producer: int = -1
    per_sample: tuple[int, ...] | None = None  # what one more sample adds to each dimension; None: nothing


@dataclass(slots=True)
class Op:
    """One launch as the framework sees it: an aten call, an ONNX node."""

    kind: str  # one of kinds.KINDS, which says what inputs, outputs and attributes it must have
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    scope: str = ""  # where in the model: "layers.0.attn"
    phase: str = "forward"  # one of PHASES
    repeat: int = 1


class GraphKey:
    """A graph as the key of a cache, compared by identity; the cache keeps the graph alive."""

    __slots__ = ("graph",)

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraphKey) and self.graph is other.graph

    def __hash__(self) -> int:
        return id(self.graph)


@dataclass(slots=True)
class Graph:
    """A network as it runs: `ops` in launch order over `tensors` and `storages`."""

    name: str
    ops: list[Op]
    tensors: list[Tensor]
    storages: list[Storage]
    parameters: int  # every weight the model holds
    active_parameters: int  # weights one token meets (mixture of experts); else the same
    batch: int = 1  # the batch size the shapes stand for
    scalable: bool = False  # per_sample slopes are known: at() works
    min_batch: int = 1  # below this batch the slopes do not hold
    outputs: tuple[int, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)  # source, versions, context limit, tokens per call ...
    notes: list[str] = field(default_factory=list)

    def serves(self, batch: int) -> bool:
        """Whether at(batch) works."""
        return batch == self.batch or (self.scalable and batch >= self.min_batch)

    def at(self, batch: int) -> Graph:
        """The same network at another batch size."""
        if batch == self.batch:
            return self
        if not self.serves(batch):
            raise ValueError(f"{self.name} was captured at batch {self.batch} and cannot be moved to {batch}")
        step = batch - self.batch
        tensors = [
            t if t.per_sample is None
            else Tensor(tuple(d + s * step for d, s in zip(t.shape, t.per_sample, strict=True)),
                        t.dtype, t.storage, t.producer, t.per_sample)
            for t in self.tensors
        ]  # fmt: skip
        storages = [
            Storage(s.grown(step), s.role, s.born, s.dies, s.repeat,
                    s.per_sample + 2 * s.per_sample2 * step, s.per_sample2)
            if s.per_sample or s.per_sample2 else s
            for s in self.storages
        ]  # fmt: skip
        return replace(self, tensors=tensors, storages=storages, batch=batch)

    def edges(self) -> list[tuple[int, int]]:
        """(producer, consumer) pairs of op indices; producer < consumer, so the op order is topological."""
        return sorted(
            {(p, i) for i, op in enumerate(self.ops) for t in op.inputs if 0 <= (p := self.tensors[t].producer) < i}
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "parameters": self.parameters, "active_parameters": self.active_parameters,
            "batch": self.batch, "scalable": self.scalable, "min_batch": self.min_batch,
            "outputs": list(self.outputs), "facts": self.facts, "notes": self.notes,
            "ops": [[o.kind, o.name, o.inputs, o.outputs, o.attrs, o.scope, o.phase, o.repeat] for o in self.ops],
            "tensors": [[t.shape, t.dtype, t.storage, t.producer, t.per_sample] for t in self.tensors],
            "storages": [
                [s.bytes, s.role, s.born, s.dies, s.repeat, s.per_sample, s.per_sample2] for s in self.storages
            ],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Graph:
        head = {k: v for k, v in d.items() if k not in ("ops", "tensors", "storages", "outputs")}
        return cls(
            **head,
            outputs=tuple(d["outputs"]),
            ops=[Op(k, n, tuple(i), tuple(o), a, s, p, r) for k, n, i, o, a, s, p, r in d["ops"]],
            tensors=[Tensor(tuple(s), dt, st, p, None if g is None else tuple(g)) for s, dt, st, p, g in d["tensors"]],
            storages=[Storage(*s) for s in d["storages"]],
        )

    def content_hash(self) -> str:
        """A hash of what runs: equal for equal networks at equal shapes, in any process. Names do not count."""
        ops = [[o.kind, o.inputs, o.outputs, stable_attrs(o.attrs), o.phase, o.repeat] for o in self.ops]
        tensors = [[t.shape, t.dtype, t.storage] for t in self.tensors]
        storages = [[s.bytes, s.role, s.repeat] for s in self.storages]
        canon = json.dumps([ops, tensors, storages, self.parameters], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canon.encode()).hexdigest()[:32]

    def python_calls(self) -> tuple[int, int] | None:
        """How many Python functions, and how many C functions that are not PyTorch's, the model itself calls in one
        call of it, the optimizer aside; None where they were not counted, as in ONNX files, which have none."""
        phases = self.facts.get("python_calls")
        if not phases:
            return None
        functions, c_functions = (sum(counts) for counts in zip(phases["forward"], phases["backward"], strict=True))
        return functions, c_functions

    def conv_weight(self, op: Op) -> Tensor:
        """The weight of a convolution or of its backward pass."""
        return self.tensors[op.inputs[2 if op.kind == "conv_backward" else 1]]

    def depthwise(self, op: Op) -> bool:
        """Whether an op convolves every channel by itself."""
        grouped = op.kind in ("conv", "conv_backward") and op.attrs.get("groups", 1) > 1
        return grouped and self.conv_weight(op).shape[1] == 1

    def work_hash(self) -> str:
        """A hash of the heavy work (matmuls, convolutions, attention: shapes and dtypes in order) and of how many ops
        of each kind there are. Unlike `content_hash` it survives small changes in how a framework is recorded, so
        measurements are filed under it."""
        heavy: list[Any] = []
        counts: dict[str, int] = {}
        for o in self.ops:
            if "bias" in o.attrs or "implied" in o.attrs:  # put in by us, and implied by another op
                continue
            counts[o.kind] = counts.get(o.kind, 0) + o.repeat
            if o.kind in CONTRACTIONS:
                seen = [[self.tensors[t].shape, self.tensors[t].dtype] for t in (*o.inputs[:3], *o.outputs[:1])]
                heavy.append([o.kind, seen, o.repeat])
        canon = json.dumps([heavy, counts, self.parameters], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canon.encode()).hexdigest()[:32]
