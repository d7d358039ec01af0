"""What eager PyTorch runs for an ONNX graph, which exporters decompose.

Transposes, slices and the like only change strides; an op that cannot read them copies the tensor first, as in
PyTorch. `calls` recognises the calls that exporters decompose.
"""

from __future__ import annotations

import math

from forerun.frontends.onnx.calls import LINEAR
from forerun.frontends.onnx.ops import KINDS_OF, NORMS
from forerun.frontends.onnx.strides import (
    Strides,
    closed_up,
    has_channels_last,
    in_one_piece,
    is_contiguous,
    is_dense,
    strides_of,
    viewed,
    with_channels_last,
)  # fmt: skip
from forerun.frontends.onnx.trace import Trace
from forerun.frontends.onnx.values import FLOATS, Node, Value

#: Nodes that only change a shape.
_SHAPED = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout")
_PRODUCTS = ("MatMul", "Gemm", LINEAR)
#: Nodes that keep the layout of their input images.
_IMAGES = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool",
           "BatchNormalization", "Resize", "Upsample")  # fmt: skip
_LAYER_NORMS = ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
#: Kinds of ops whose kernels are slower on inputs that are not contiguous.
_MEMORY_BOUND = ("copy", "elementwise", "reduce", "norm", "softmax", "gather")


def host_calls(t: Trace) -> dict[str, int]:
    """Host work besides launching: views, and the modules shown by the nodes' names (torch.onnx writes their paths), or
    one for each op with weights."""
    paths = {tuple(op.scope.strip("/").split("/")[:-1]) for op in t.ops}
    modules = {path[:depth] for path in paths for depth in range(1, len(path) + 1)}
    weighted = sum(any(t.storages[t.tensors[i].storage].role == "parameter" for i in op.inputs) for op in t.ops)
    return {"views": t.views, "modules": len(modules) + 1 if modules else weighted}


def is_view(t: Trace, n: Node) -> bool:
    """Whether the node is only a view; its outputs are then set."""
    view = _is_view(t, n)
    t.views += view or n.op in _SHAPED
    return view


def _is_view(t: Trace, n: Node) -> bool:
    x = n.input(0)
    if n.domain or x is None or x.items is not None or not n.out or x.data is not None:
        return False
    if n.op in _SHAPED:
        return not x.constant and x.strides is not None and _reshape(t, n, x)
    seen = n.op in _VIEWS and (not x.constant or n.op == "Expand")  # views of a weight count where they are made
    strides = _VIEWS[n.op](n, x) if seen else None
    if strides is None:
        return False
    for i, out in enumerate(n.out):
        n.out[i] = _seen(t, x, out, strides)
    return True


def _seen(t: Trace, x: Value, out: Value, strides: Strides) -> Value:
    view = t.alias(x, out.shape, same=False)
    view.strides = strides
    if is_contiguous(view):
        view.strides = None
    return view


def _reshape(t: Trace, n: Node, x: Value) -> bool:
    strides = viewed(x.shape, strides_of(x), n.out[0].shape)
    if t.decisions.setdefault(f"{n.outputs[0]}#view", strides is not None):
        n.out[0] = _seen(t, x, n.out[0], strides or in_one_piece(n.out[0].shape))
        return True
    n.inputs[0] = _copy(t, n, x)
    return False


def _transposed(n: Node, x: Value) -> Strides:
    strides = strides_of(x)
    return tuple(strides[axis] for axis in n.attrs.get("perm") or reversed(range(len(strides))))


def _same_strides(n: Node, x: Value) -> Strides:
    return strides_of(x)


def _sliced(n: Node, x: Value) -> Strides | None:
    if n.input(1) is None:  # before opset 10 bounds were attributes and there were no steps
        return strides_of(x)
    axes, steps, strides = n.input(3), n.input(4), list(strides_of(x))
    if steps is None:
        return tuple(strides)
    if steps.data is None or (axes is not None and axes.data is None):
        return None
    given = range(len(x.shape)) if axes is None else axes.data.ravel().tolist()  # type: ignore[union-attr]
    for axis, step in zip(given, steps.data.ravel().tolist(), strict=False):
        if step < 1:
            return None
        strides[int(axis)] *= int(step)
    return tuple(strides)


def _expanded(n: Node, x: Value) -> Strides | None:
    shape, strides = n.out[0].shape, strides_of(x)
    added = len(shape) - len(strides)
    if added < 0:
        return None
    own = (step if size == whole else 0 for size, whole, step in zip(x.shape, shape[added:], strides, strict=True))
    return (0,) * added + tuple(own)


def _selected(n: Node, x: Value) -> Strides | None:
    """x[:, 0], which exporters write as a lookup of one number."""
    index = n.need(1)
    if index.shape or index.data is None or not x.shape:
        return None
    axis = int(n.attrs.get("axis", 0)) % len(x.shape)
    return strides_of(x)[:axis] + strides_of(x)[axis + 1 :]


_VIEWS = {"Transpose": _transposed, "Split": _same_strides, "Slice": _sliced, "Expand": _expanded, "Gather": _selected}


def _copy(t: Trace, n: Node, x: Value) -> Value:
    whole = Value(x.shape, x.dtype, shared=x.shared)
    t.emit("copy", n, [x], [whole], name="contiguous", strided=True)
    return whole


def prepare(t: Trace, n: Node) -> None:
    """Copies inputs whose layout the node's call cannot read."""
    products = n.op in _PRODUCTS and not n.domain.startswith("com.")
    if n.op == LINEAR and len(n.need(0).shape) > 2:  # PyTorch fuses the bias into the GEMM of a contiguous input
        whole = is_contiguous(n.need(0))
        n.attrs["bias_apart"] = t.decisions.setdefault(f"{n.outputs[0]}#bias_apart", not whole)
    for i, x in enumerate(n.inputs):
        if x is None or x.strides is None or x.items is not None:
            continue
        if products:
            readable = _multiplies(x, folded=len(n.need(1).shape) == 2)
        else:
            readable = n.op in _READERS or n.op in KINDS_OF
        if not t.decisions.setdefault(f"{n.outputs[0]}#reads#{i}", readable):
            n.inputs[i] = _copy(t, n, x)


_READERS = (*_IMAGES, *NORMS, "Attention", "Concat", "Pad", "Cast", "Gather", "Einsum", "Shape", *_VIEWS, *_SHAPED)


def _multiplies(x: Value, folded: bool) -> bool:
    """Whether a GEMM takes the layout of the matrices: one axis has stride 1, and the others merge; for a matrix on the
    other side, all rows are `folded` into one axis."""
    if len(x.shape) < 2:
        return True
    if folded and len(x.shape) > 2:
        return viewed(x.shape, strides_of(x), (math.prod(x.shape[:-1]), x.shape[-1])) is not None
    strides = viewed(x.shape, strides_of(x), (math.prod(x.shape[:-2]), *x.shape[-2:]))
    return strides is not None and 1 in strides[-2:]


def finish(t: Trace, n: Node, first: int) -> None:
    """The strides of a node's outputs, and which of its ops (from number `first` on) read non-contiguous inputs."""
    x = n.input(0)
    last = x is not None and has_channels_last(x)
    for op in t.ops[first:]:
        if op.name == "contiguous":
            continue
        if n.op in ("Conv", "ConvTranspose", "Resize", "Upsample"):
            strided = last
        else:
            strided = op.kind in _MEMORY_BOUND and _with_gaps(op.kind, n)
        if t.decisions.setdefault(f"{n.outputs[0]}#strided#{op.kind}", strided):
            op.attrs["strided"] = True
        if t.decisions.setdefault(f"{n.outputs[0]}#copied#{op.kind}", op.kind in ("norm", "conv") and _is_copied(n, x)):
            op.attrs["copied"] = [0]
    if not n.out or not n.out[0].shape or n.out[0].data is not None:
        return
    out = n.out[0]
    images = [v for v in n.inputs if v is not None and len(v.shape) == 4]
    joined = n.op == "Pad" or (n.op == "Concat" and all(map(has_channels_last, images)))
    if last and (n.op in _IMAGES or joined) and len(out.shape) == 4:
        out.strides = with_channels_last(out.shape)
    elif n.op == "Attention" and not n.domain and len(out.shape) == 4:
        _, heads, rows, width = out.shape
        out.strides = (rows * heads * width, width, heads * width, 1)
    elif KINDS_OF.get(n.op) == "elementwise" or n.op in ("Cast", "CastLike"):
        whole = next((v for v in n.inputs if v is not None and v.shape == out.shape), None)
        if whole is not None and whole.strides is not None and 0 not in whole.strides:
            out.strides = closed_up(out.shape, whole.strides)
    if out.strides is not None and is_contiguous(out):
        out.strides = None


def _is_copied(n: Node, x: Value | None) -> bool:
    """Whether convolutions and layer norms copy their input before their kernel runs."""
    if x is None or is_contiguous(x):
        return False
    if n.op in ("Conv", "ConvTranspose"):
        return not has_channels_last(x) or x.strides != with_channels_last(x.shape)
    return n.op in _LAYER_NORMS


def _with_gaps(kind: str, n: Node) -> bool:
    """The same rule as in `capture/layout.py` for PyTorch's tensors."""
    seen = [v for v in n.inputs if v is not None and v.size > 1 and v.dtype in FLOATS]
    if not seen:
        return False
    if kind != "elementwise":
        return any(not is_contiguous(v) for v in seen)
    head = seen[0]
    return any(v.shape != head.shape or strides_of(v) != strides_of(head) for v in seen) or not is_dense(head)
