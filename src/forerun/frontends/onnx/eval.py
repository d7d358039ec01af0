"""The host's share of an ONNX graph: shape arithmetic on small arrays, evaluated with numpy.

Exporters leave long chains of Shape, Gather, Concat, Unsqueeze, Mul ... whose only use is the target of a Reshape.
Their values are needed for the shapes, and at run time they cost nothing on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

#: Initializers up to this many elements keep their values.
MAX_CONSTANT = 4096
#: Computed arrays of two dimensions and more keep values up to this size only (Pad's are 2 x rank): larger ones are
#: masks and position ids, tensors of the model, and must be so at every batch size.
MAX_COMPUTED = 16

Array = np.ndarray[Any, Any]
Attrs = dict[str, Any]
Inputs = Sequence[Array | None]


def keeps(shape: Sequence[int]) -> bool:
    """Whether a computed array of this shape is small enough to be shape arithmetic."""
    size = math.prod(shape)
    return size <= MAX_COMPUTED or (len(shape) <= 1 and size <= MAX_CONSTANT)


def _axes(attrs: Attrs, inputs: Inputs, position: int = 1) -> tuple[int, ...] | None:
    """Axes are an attribute in old opsets and an input in new ones."""
    if (axes := attrs.get("axes")) is not None:
        return tuple(int(a) for a in axes)
    if len(inputs) > position and (given := inputs[position]) is not None and given.size:
        return tuple(int(a) for a in given.ravel())
    return None


def _squeeze(a: Attrs, i: Inputs, _: int) -> Array:
    x, axes = i[0], _axes(a, i)
    return np.squeeze(x, axis=axes)  # type: ignore[arg-type]


def _unsqueeze(a: Attrs, i: Inputs, _: int) -> Array:
    x, axes = i[0], _axes(a, i)
    assert x is not None
    assert axes is not None
    rank = x.ndim + len(axes)
    for axis in sorted(ax % rank for ax in axes):
        x = np.expand_dims(x, axis)
    return x


def _slice(a: Attrs, i: Inputs, _: int) -> Array:
    x = i[0]
    assert x is not None
    if "starts" in a:
        starts, ends = list(a["starts"]), list(a["ends"])
        axes, steps = list(a.get("axes") or range(len(starts))), [1] * len(starts)
    else:
        starts, ends = [np.ravel(v).tolist() for v in i[1:3]]  # type: ignore[arg-type]
        given_axes = i[3] if len(i) > 3 else None
        given_steps = i[4] if len(i) > 4 else None
        axes = list(range(len(starts))) if given_axes is None else np.ravel(given_axes).tolist()
        steps = [1] * len(starts) if given_steps is None else np.ravel(given_steps).tolist()
    index: list[slice] = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        # numpy reads a very negative end of a downward slice as "through index 0", as ONNX does, once it is None.
        stop = None if step < 0 and end < -x.shape[axis] else end
        index[axis] = slice(start, stop, step)
    return x[tuple(index)]


def _div(a: Attrs, i: Inputs, _: int) -> Array:
    x, y = np.asarray(i[0]), np.asarray(i[1])
    if np.issubdtype(x.dtype, np.integer):  # truncates, where numpy floors
        return np.asarray(np.trunc(x / np.where(y == 0, 1, y)), dtype=x.dtype)
    return np.asarray(x / y)


def _gather(a: Attrs, i: Inputs, _: int) -> Array:
    x, index = np.asarray(i[0]), np.asarray(i[1])
    return np.take(x, index.astype(np.int64), axis=int(a.get("axis", 0)))


def _reduce(fn: Callable[..., Any]) -> Callable[[Attrs, Inputs, int], Array]:
    def run(a: Attrs, i: Inputs, _: int) -> Array:
        axes = _axes(a, i)
        if axes is None and a.get("noop_with_empty_axes"):
            return np.asarray(i[0])
        return np.asarray(fn(i[0], axis=axes, keepdims=bool(a.get("keepdims", 1)))).astype(np.asarray(i[0]).dtype)

    return run


def _range(a: Attrs, i: Inputs, _: int) -> Array:
    start, limit, delta = (np.ravel(v)[0] for v in i)  # type: ignore[arg-type]
    if not 0 <= (limit - start) / delta <= MAX_CONSTANT:
        raise ValueError("range too long")
    return np.arange(start, limit, delta, dtype=np.asarray(i[0]).dtype)


def _reshape(a: Attrs, i: Inputs, _: int) -> Array:
    x = np.asarray(i[0])
    target = [int(d) for d in (a["shape"] if "shape" in a else np.ravel(np.asarray(i[1])))]
    if not a.get("allowzero"):
        target = [x.shape[n] if d == 0 else d for n, d in enumerate(target)]
    return x.reshape(target)


def _expand(a: Attrs, i: Inputs, _: int) -> Array:
    x = np.asarray(i[0])
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(d) for d in np.ravel(np.asarray(i[1])))))


def _split(a: Attrs, i: Inputs, outputs: int) -> list[Array]:
    x, axis = np.asarray(i[0]), int(a.get("axis", 0))
    sizes = a.get("split") or (np.ravel(np.asarray(i[1])).tolist() if len(i) > 1 and i[1] is not None else None)
    if sizes is None:
        chunk = -(-x.shape[axis] // outputs)
        return np.split(x, range(chunk, x.shape[axis], chunk), axis)
    return np.split(x, np.cumsum(sizes)[:-1], axis)


def _ufunc(fn: Callable[..., Any]) -> Callable[[Attrs, Inputs, int], Array]:
    def run(a: Attrs, i: Inputs, _: int) -> Array:
        return np.asarray(fn(*i))

    return run


def _many(fn: Callable[..., Any]) -> Callable[[Attrs, Inputs, int], Array]:
    def run(a: Attrs, i: Inputs, _: int) -> Array:
        out = i[0]
        for x in i[1:]:
            out = fn(out, x)
        return np.asarray(out)

    return run


def _clip(a: Attrs, i: Inputs, _: int) -> Array:
    low = a.get("min", i[1] if len(i) > 1 else None)
    high = a.get("max", i[2] if len(i) > 2 else None)
    return np.asarray(np.clip(np.asarray(i[0]), low, high)).astype(np.asarray(i[0]).dtype)


#: Ops whose value can be known before the model runs. Cast and ConstantOfShape need ONNX types: see `walk`.
EVALUATORS: dict[str, Callable[[Attrs, Inputs, int], Array | list[Array]]] = {
    "Identity": _ufunc(np.asarray),
    "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Slice": _slice, "Gather": _gather, "Reshape": _reshape,
    "Flatten": lambda a, i, _: np.asarray(i[0]).reshape(
        math.prod(np.asarray(i[0]).shape[: int(a.get("axis", 1))]), -1
    ),
    "Transpose": lambda a, i, _: np.transpose(np.asarray(i[0]), a.get("perm")),
    "Concat": lambda a, i, _: np.concatenate([np.asarray(x) for x in i], axis=int(a["axis"])),
    "Split": _split, "Expand": _expand, "Range": _range, "Clip": _clip, "Div": _div,
    "Tile": _ufunc(lambda x, times: np.tile(x, np.ravel(times).tolist())),
    "Add": _ufunc(np.add), "Sub": _ufunc(np.subtract), "Mul": _ufunc(np.multiply),
    "Pow": _ufunc(lambda x, y: np.power(x, y).astype(x.dtype)),
    "Mod": lambda a, i, _: (np.fmod if a.get("fmod") else np.mod)(np.asarray(i[0]), np.asarray(i[1])),
    "Min": _many(np.minimum), "Max": _many(np.maximum), "Sum": _many(np.add),
    "Neg": _ufunc(np.negative), "Abs": _ufunc(np.abs), "Sign": _ufunc(np.sign), "Not": _ufunc(np.logical_not),
    "Floor": _ufunc(np.floor), "Ceil": _ufunc(np.ceil), "Round": _ufunc(np.round), "Sqrt": _ufunc(np.sqrt),
    "Exp": _ufunc(np.exp), "Log": _ufunc(np.log),
    "Reciprocal": _ufunc(lambda x: (1 / x).astype(x.dtype)),
    "And": _ufunc(np.logical_and), "Or": _ufunc(np.logical_or), "Xor": _ufunc(np.logical_xor),
    "Equal": _ufunc(np.equal), "Greater": _ufunc(np.greater), "Less": _ufunc(np.less),
    "GreaterOrEqual": _ufunc(np.greater_equal), "LessOrEqual": _ufunc(np.less_equal),
    "Where": _ufunc(np.where),
    "ReduceProd": _reduce(np.prod), "ReduceSum": _reduce(np.sum), "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min), "ReduceMean": _reduce(np.mean),
    "CumSum": _ufunc(lambda x, axis: np.cumsum(x, axis=int(np.ravel(axis)[0]))),
    "NonZero": _ufunc(lambda x: np.array(np.nonzero(x), dtype=np.int64)),
    "GatherElements": lambda a, i, _: np.take_along_axis(
        np.asarray(i[0]), np.asarray(i[1]), axis=int(a.get("axis", 0))
    ),
    "Trilu": lambda a, i, _: (np.triu if a.get("upper", 1) else np.tril)(
        np.asarray(i[0]), int(np.ravel(np.asarray(i[1]))[0]) if len(i) > 1 else 0
    ),
}  # fmt: skip


def _scatter_nd(a: Attrs, i: Inputs, _: int) -> Array:
    data, index, updates = np.array(i[0]), np.asarray(i[1]), np.asarray(i[2])
    data[tuple(index.reshape(-1, index.shape[-1]).T)] = updates.reshape(-1, *data.shape[index.shape[-1] :])
    return data


EVALUATORS["ScatterND"] = _scatter_nd


def node_value(op: str, attrs: Attrs, inputs: Inputs, outputs: int) -> list[Array] | None:
    """The values of any node whose inputs are all known, constants and casts included; None when it has no rule."""
    if op in ("Cast", "CastLike"):
        kind = helper.tensor_dtype_to_np_dtype(attrs["to"]) if op == "Cast" else np.asarray(inputs[1]).dtype
        with np.errstate(all="ignore"):
            return [np.asarray(inputs[0]).astype(kind)]
    if op == "ConstantOfShape":
        shape = tuple(int(d) for d in np.ravel(np.asarray(inputs[0])))
        if math.prod(shape) > MAX_CONSTANT:
            return None
        fill = attrs.get("value")
        return [np.full(shape, numpy_helper.to_array(fill).ravel()[0] if fill is not None else np.float32(0))]
    if op == "Constant":
        return None if (value := constant_value(attrs)) is None else [value]
    if op == "Shape":
        return [np.array(np.asarray(inputs[0]).shape[slice(attrs.get("start"), attrs.get("end"))], dtype=np.int64)]
    if op == "Size":
        return [np.array(np.asarray(inputs[0]).size, dtype=np.int64)]
    return evaluate(op, attrs, inputs, outputs)


def constant_value(attrs: Attrs) -> Array | None:
    """The value of a Constant node, where it is a plain number or a small tensor of them."""
    tensor = attrs.get("value")
    if isinstance(tensor, onnx.TensorProto):
        return numpy_helper.to_array(tensor) if math.prod(tensor.dims) <= MAX_CONSTANT else None
    for key, value in attrs.items():
        if key.startswith("value_") and "string" not in key:
            return np.array(value, dtype=np.int64 if "int" in key else np.float32)
    return None


def evaluate(op: str, attrs: Attrs, inputs: Inputs, outputs: int) -> list[Array] | None:
    """The values of a node whose inputs are all known, or None when they are unknown or not needed."""
    run = EVALUATORS.get(op)
    if run is None:
        return None
    try:
        with np.errstate(all="ignore"):
            result = run(attrs, inputs, outputs)
    except (ValueError, IndexError, TypeError, KeyError, AssertionError, MemoryError):
        return None
    arrays = result if isinstance(result, list) else [result]
    return arrays if len(arrays) >= outputs else None
