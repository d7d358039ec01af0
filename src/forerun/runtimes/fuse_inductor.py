"""The graph that torch.compile runs on a GPU: matmuls and convolutions stay library calls, and the ops between them
become kernels of generated code (Inductor).

Pointwise work, copies, pools, resizing, look-ups and reductions are fused as far as one kernel can hold them: no path
between two of its ops leads through a library call, and it sums over one axis at most. Convolutions run with channels
last where Inductor expects that to pay; their weights are converted to that layout in every call. Matmuls in fp32
leave their bias to the generated code that reads them, where it is pointwise. Masks of Hugging Face encoders, which
eager code omits if nothing is masked, are always applied; attention then runs as matmuls in fp32 and a softmax.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from forerun.graph.ir import Graph, Op, Storage, Tensor
from forerun.graph.op_names import NORM_TYPES, plain_name
from forerun.graph.splice import splice
from forerun.runtimes.fuse import with_kernels

#: What generated code does pointwise, and what it sums over an axis.
_POINTWISE = frozenset({"elementwise", "fill", "random", "copy", "gather", "embedding", "resize"})
_REDUCING = frozenset({"norm", "softmax", "reduce", "norm_backward", "softmax_backward"})
#: Pools read each number several times: what they read is written first.
_POOLS = frozenset({"pool", "pool_backward"})
#: Look-ups that stay PyTorch's own.
_LIBRARY = frozenset({"_embedding_bag", "_embedding_bag_forward_only"})
#: Windows with more numbers are left to PyTorch's own pools.
_LARGEST_WINDOW = 25
#: Rows that a reduction needs to fill the chip; with fewer it runs in two steps, each a kernel of its own.
_ROWS_AT_ONCE = 264
#: Concatenations of more tensors are copies of one after another.
_FEW = 4


def fuse_inductor(graph: Graph) -> Graph:
    """The graph as torch.compile runs it."""
    prepared = _with_layouts(_with_plain_matmuls(_with_masks(_with_norm_types(_with_atomic_sums(graph)))))
    fused = with_kernels(prepared, _kernels(prepared))
    return replace(fused, ops=[_generated(fused, op) if _fusible(op) else op for op in fused.ops])


def _generated(graph: Graph, op: Op) -> Op:
    """An op of generated code; what it goes through comes first among its inputs."""
    ordered = sorted(op.inputs, key=lambda t: -_size(graph, t)) if op.name == "fused" else op.inputs
    return replace(op, inputs=tuple(ordered), attrs={**op.attrs, "generated": True})


def _fusible(op: Op) -> bool:
    if op.phase == "optimizer":  # runs as it does without compiling
        return False
    if op.kind in _POOLS:
        return 0 < op.attrs.get("window", 1) <= _LARGEST_WINDOW
    if plain_name(op.name) in _LIBRARY:
        return False
    return op.kind in _POINTWISE or op.kind in _REDUCING


@dataclass
class _Kernel:
    """Ops of one kernel; `depth` counts the launches that come one after another before it."""

    depth: int
    ops: list[int]
    numbers: int  # that it goes through
    sums: int  # that it makes along an axis, if it does

    def with_all_of(self, other: _Kernel, kernel_of: dict[int, _Kernel]) -> _Kernel:
        for i in other.ops:
            kernel_of[i] = self
        self.ops = sorted({*self.ops, *other.ops})
        self.numbers, self.sums = max(self.numbers, other.numbers), self.sums or other.sums
        return self


def _kernels(graph: Graph) -> list[list[int]]:
    """An op joins the kernels that made its inputs where they are as deep as it is: no launch lies between them."""
    kernel_of: dict[int, _Kernel] = {}
    depth_of: dict[int, int] = {}
    for i, op in enumerate(graph.ops):
        sources = sorted({p for t in op.inputs if 0 <= (p := graph.tensors[t].producer) < i})
        fusible = _fusible(op)
        sums = _sums(graph, op) if fusible else 0
        joinable = [p for p in sources if fusible and p in kernel_of and _together(graph, kernel_of[p], op, sums)]
        depth = depth_of[i] = max((depth_of[p] + (p not in joinable) for p in sources), default=0)
        if not fusible:
            continue
        kernel = _Kernel(depth, [i], _numbers(graph, op), sums)
        for p in joinable:
            before = kernel_of[p]
            if before.depth == depth and before is not kernel and not (before.sums and kernel.sums):
                kernel = before.with_all_of(kernel, kernel_of)
        kernel_of[i] = kernel
    kernels = {id(kernel): kernel.ops for kernel in kernel_of.values()}.values()
    return _inlined(graph, [part for members in kernels for part in _before_readers(graph, members)])


def _inlined(graph: Graph, kernels: list[list[int]]) -> list[list[int]]:
    """Pointwise kernels whose results only one other kernel reads become part of that."""
    readers = _readers(graph)
    outputs = {graph.tensors[t].producer for t in graph.outputs}
    place = {i: k for k, members in enumerate(kernels) for i in members}
    out = [list(members) for members in kernels]
    for k in sorted(range(len(kernels)), key=lambda k: -max(kernels[k])):  # the last first: chains end up in one
        members = out[k]
        outside = {j for i in members for j in readers.get(i, set())} - set(members)
        into = {place.get(j, -1) for j in outside}
        if len(into) != 1 or -1 in into or outputs & set(members) or any(_sums(graph, graph.ops[i]) for i in members):
            continue
        first, last = graph.ops[min(outside)], graph.ops[members[-1]]
        if (first.repeat, first.phase) != (last.repeat, last.phase) or first.kind in _POOLS:
            continue
        goal = into.pop()
        out[goal] = sorted([*out[goal], *members])
        place |= dict.fromkeys(members, goal)
        out[k] = []
    return [members for members in out if members]


def _readers(graph: Graph) -> dict[int, set[int]]:
    """Which ops read what an op makes, by their places."""
    readers: dict[int, set[int]] = {}
    for i, op in enumerate(graph.ops):
        for t in op.inputs:
            readers.setdefault(graph.tensors[t].producer, set()).add(i)
    return readers


def _before_readers(graph: Graph, members: list[int]) -> list[list[int]]:
    """A kernel runs where its last op stands: it is cut before an op outside of it that reads what an earlier one
    made."""
    parts: list[list[int]] = []
    made: set[int] = set()
    inside = set(members)
    last = members[0]
    for i in members:
        between = (j for j in range(last + 1, i) if j not in inside)
        if not parts or any(graph.tensors[t].producer in made for j in between for t in graph.ops[j].inputs):
            parts.append([])
            made = set()
        parts[-1].append(i)
        made.add(i)
        last = i
    return parts


def _together(graph: Graph, kernel: _Kernel, op: Op, sums: int) -> bool:
    """Whether a kernel can go on with an op that reads its results."""
    last = graph.ops[kernel.ops[-1]]
    if last.repeat != op.repeat or last.phase != op.phase or not op.outputs or op.kind in _POOLS:
        return False
    if op.kind == "copy" and plain_name(op.name) == "cat" and len(op.inputs) > _FEW:
        return False
    if sums:
        return not kernel.sums and kernel.numbers <= _numbers(graph, op)
    size = _size(graph, op.outputs[0])
    return not kernel.sums or size == kernel.sums or (size == kernel.numbers and kernel.sums >= _ROWS_AT_ONCE)


def _size(graph: Graph, tensor: int) -> int:
    return math.prod(graph.tensors[tensor].shape)


def _numbers(graph: Graph, op: Op) -> int:
    read = op.inputs[:1] if op.kind in _REDUCING else ()
    return max((_size(graph, t) for t in (*op.outputs[:1], *read)), default=0)


def _sums(graph: Graph, op: Op) -> int:
    """How many sums a reduction makes; 0 for what makes none."""
    if op.kind not in _REDUCING:
        return 0
    if op.kind == "reduce":
        return max(_size(graph, op.outputs[0]) if op.outputs else 1, 1)
    shape = graph.tensors[op.inputs[0]].shape
    kind = op.attrs.get("type")
    if kind in ("batch", "instance") and len(shape) > 1:
        # Statistics of a batch norm are known in inference: it sums over nothing.
        known = op.kind == "norm" and not op.attrs.get("training") and kind == "batch"
        return 0 if known else shape[1] * (shape[0] if kind == "instance" else 1)
    if kind == "group":
        return max(shape[0] * op.attrs.get("groups", 32), 1) if shape else 1
    return max(_size(graph, op.inputs[0]) // max(shape[-1], 1), 1) if shape else 1


def _with_atomic_sums(graph: Graph) -> Graph:
    """Generated code adds to what an index names as the numbers come, and sorts nothing; tables in bf16 on GPUs before
    Hopper, which it leaves to PyTorch, are taken for such, too."""
    ops = [
        replace(op, attrs={k: v for k, v in op.attrs.items() if k != "accumulate"}) if "accumulate" in op.attrs else op
        for op in graph.ops
    ]
    return replace(graph, ops=ops)


def _with_norm_types(graph: Graph) -> Graph:
    """Backward passes of norms with the type of the norm, which a fused op's name does not show."""
    return replace(graph, ops=[
        replace(op, attrs={**op.attrs, "type": NORM_TYPES.get(plain_name(op.name), "layer")})
        if op.kind == "norm_backward" else op for op in graph.ops
    ])  # fmt: skip


def _with_plain_matmuls(graph: Graph) -> Graph:
    """fp32 matmuls without their bias if it is added by pointwise code of the same phase, their only reader."""
    readers = _readers(graph)
    outputs = {graph.tensors[t].producer for t in graph.outputs}

    def adds_later(i: int, op: Op) -> bool:
        wanted = plain_name(op.name) == "addmm" and graph.tensors[op.inputs[2]].dtype == "fp32"
        by = [graph.ops[j] for j in readers.get(i, ())]
        return (
            wanted and i not in outputs and bool(by) and all(_starts_pointwise(r) and r.phase == op.phase for r in by)
        )

    return replace(graph, ops=[
        replace(op, inputs=op.inputs[:2]) if adds_later(i, op) else op for i, op in enumerate(graph.ops)
    ])  # fmt: skip


def _starts_pointwise(op: Op) -> bool:
    """Whether code that reads a matmul output is pointwise; unfused attention scales and copies first."""
    copied = plain_name(op.name) == "clone" and "implied" not in op.attrs
    return op.kind == "elementwise" or copied or bool(op.attrs.get("stored_scores"))


def _with_masks(graph: Graph) -> Graph:
    """Attention of Hugging Face encoders as matmuls with stored scores."""
    if not graph.facts.get("host_calls", {}).get("transformers"):
        return graph

    def unmasked(op: Op) -> bool:
        masked = op.attrs.get("causal") or "window" in op.attrs or len(op.inputs) > 3
        return op.kind == "attention" and not masked

    stored = {"stored_scores": True, "unit": "fp32"}
    return replace(graph, ops=[replace(op, attrs={**op.attrs, **stored}) if unmasked(op) else op for op in graph.ops])


#: How much longer convolutions are expected to take with channels last, by what they are: grouped, with fewer results
#: than inputs, of few channels, all others (Inductor's own table).
_GROUPED, _NARROWING, _SMALL, _OTHER = 1.358, 0.725, 0.783, 0.823
_SMALL_CHANNELS = 64
#: With more ops than this for each convolution, Inductor leaves the layout alone.
_OPS_PER_CONV = 300


def _with_layouts(graph: Graph) -> Graph:
    """Convolutions with channels last where Inductor expects that to pay, after a copy of their weights."""
    convs = [i for i, op in enumerate(graph.ops) if op.kind in ("conv", "conv_backward")]
    if not convs or len(graph.ops) >= _OPS_PER_CONV * len(convs) or not _pays(graph, convs):
        return graph
    tensors, storages, ops = list(graph.tensors), list(graph.storages), list(graph.ops)
    before: dict[int, list[Op]] = {}
    for i in convs:
        op, weight = graph.ops[i], graph.conv_weight(graph.ops[i])
        attrs = {**op.attrs, "strided": True} if len(weight.shape) == 4 else op.attrs
        if op.kind == "conv" and not op.attrs.get("strided") and _changes(weight):
            copied = len(tensors)
            size = graph.storages[weight.storage].bytes
            tensors.append(Tensor(weight.shape, weight.dtype, len(storages)))
            storages.append(Storage(size, "activation", born=i, dies=i, repeat=op.repeat))
            before[i] = [Op("copy", "clone", (op.inputs[1],), (copied,), {}, op.scope, op.phase, op.repeat)]
        ops[i] = replace(op, attrs=attrs)
    return splice(replace(graph, ops=ops), tensors, storages, before, {})


def _changes(weight: Tensor) -> bool:
    """Whether a weight lies otherwise with channels last."""
    return len(weight.shape) > 2 and weight.shape[1] > 1 and max(weight.shape[2:]) > 1


def _pays(graph: Graph, convs: list[int]) -> bool:
    """Whether Inductor expects channels last to pay: in training only where no convolution stands against it."""
    works = [(_conv_work(graph, graph.ops[i]), *_traits(graph, graph.ops[i])) for i in convs]
    if any(op.phase == "backward" for op in graph.ops):
        return not any(grouped or narrowing for _, grouped, narrowing, _ in works) and not all(s for *_, s in works)

    def factor(grouped: bool, narrowing: bool, small: bool) -> float:
        return _GROUPED if grouped else _NARROWING if narrowing else _SMALL if small else _OTHER

    return sum(work * factor(*traits) for work, *traits in works) <= sum(work for work, *_ in works)


def _traits(graph: Graph, op: Op) -> tuple[bool, bool, bool]:
    """Whether a convolution is grouped, makes far fewer channels than it reads, has few channels."""
    weight, groups = graph.conv_weight(op).shape, op.attrs.get("groups", 1)
    made, read = weight[0], weight[1] * groups
    if op.attrs.get("transposed"):
        made, read = weight[1] * groups, weight[0]
    narrowing = made * 2 <= read and max(weight[2:], default=1) > 2
    return groups > 1 and read > 1, narrowing, made <= _SMALL_CHANNELS and read <= _SMALL_CHANNELS


def _conv_work(graph: Graph, op: Op) -> float:
    image = op.inputs[0] if op.attrs.get("transposed") or op.kind == "conv_backward" else op.outputs[0]
    weight = graph.conv_weight(op).shape
    pixels = _size(graph, image) / max(graph.tensors[image].shape[1], 1)
    return float(pixels * op.repeat) * weight[0] * weight[1] * math.prod(weight[2:])
