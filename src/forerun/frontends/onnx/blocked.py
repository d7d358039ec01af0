"""Nodes that onnxruntime writes into optimised files: fused convolutions, and those in channel blocks (nchwc).

The blocks are a layout of onnxruntime's own. Eager PyTorch runs the same convolution without it, so entering and
leaving the layout launches nothing here. What is fused to a convolution or matmul runs as separate kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forerun.frontends.onnx.trace import Trace
from forerun.frontends.onnx.values import Node, Value

DOMAIN = "com.microsoft.nchwc"


def spatial(n: Node, sizes: Sequence[int], kernel: Sequence[int]) -> list[int]:
    """Output sizes of a window that slides over an image, by the attributes of Conv and the pools."""
    rank = len(kernel)
    strides = list(n.attrs.get("strides") or [1] * rank)
    dilations = list(n.attrs.get("dilations") or [1] * rank)
    pads = list(n.attrs.get("pads") or [0] * 2 * rank)
    how = str(n.attrs.get("auto_pad", "NOTSET"))
    if how.startswith("SAME"):
        return [-(-size // stride) for size, stride in zip(sizes, strides, strict=True)]
    if how == "VALID":
        pads = [0] * 2 * rank
    up = int(n.attrs.get("ceil_mode", 0))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    return [
        (size + pads[i] + pads[i + rank] - reach[i] + (strides[i] - 1 if up else 0)) // strides[i] + 1
        for i, size in enumerate(sizes)
    ]


def _image(n: Node) -> tuple[int, ...]:
    """The sizes of the first input with the channels after the batch."""
    batch, *rest = n.need(0).shape
    return (batch, rest[-1], *rest[:-1]) if n.attrs.get("channels_last") or n.op.startswith("Nhwc") else (batch, *rest)


def _laid_out(n: Node, batch: int, channels: int, sizes: Sequence[int]) -> list[Value]:
    last = n.attrs.get("channels_last") or n.op.startswith("Nhwc")
    return [Value((batch, *sizes, channels) if last else (batch, channels, *sizes), n.need(0).dtype)]


def _conv_shape(n: Node) -> list[Value]:
    w = n.need(3 if n.op == "QLinearConv" else 1)
    batch, _, *sizes = _image(n)
    return _laid_out(n, batch, w.shape[0], spatial(n, sizes, w.shape[2:]))


def _pool_shape(n: Node) -> list[Value]:
    batch, channels, *sizes = _image(n)
    whole = "Global" in n.op
    return _laid_out(n, batch, channels, [1] * len(sizes) if whole else spatial(n, sizes, n.attrs["kernel_shape"]))


def _upsample_shape(n: Node) -> list[Value]:
    x, scales = n.need(0), n.attrs["scales"]
    return [Value(tuple(int(d * s) for d, s in zip(x.shape, scales, strict=True)), x.dtype)]


def _reorder_shape(n: Node) -> list[Value]:
    x = n.need(0)
    batch, channels, *image = x.shape
    if n.op == "ReorderInput":
        last = bool(n.attrs.get("channels_last"))
        return [Value((batch, image[-1], channels, *image[:-1]) if last else x.shape, x.dtype)]
    channels = int(n.attrs["channels"])
    last = bool(n.attrs.get("channels_last"))
    return [Value((batch, *image, channels) if last else (batch, channels, *image), x.dtype)]


def _lstm_shape(n: Node) -> list[Value]:
    x, w, hidden = n.need(0), n.need(1), int(n.attrs["hidden_size"])
    steps, batch, directions = x.shape[0], x.shape[1], w.shape[0]
    state = (directions, batch, hidden)
    outputs = [Value((steps, *state[:1], *state[1:]), x.dtype), Value(state, x.dtype), Value(state, x.dtype)]
    return outputs[: len(n.outputs)]


def epilogue(t: Trace, n: Node, added: Value | None) -> None:
    """Ops fused to a convolution or matmul, as separate kernels."""
    out = n.out[0]
    if added is not None:
        total = Value(out.shape, out.dtype)
        t.emit("elementwise", n, [out, added], [total], name="Add")
        out = total
    if activation := n.attrs.get("activation"):
        active = Value(out.shape, out.dtype)
        t.emit("elementwise", n, [out], [active], name=str(activation))
        out = active
    n.out[0] = out


Rule = Callable[[Node], list[Value]]
#: Shapes of nodes in domains of onnxruntime's own.
SHAPE_RULES: dict[str, Rule] = {
    **dict.fromkeys(("Conv", "FusedConv", "QLinearConv"), _conv_shape),
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "NhwcMaxPool",
                     "QLinearAveragePool", "QLinearGlobalAveragePool"), _pool_shape),
    **dict.fromkeys(("ReorderInput", "ReorderOutput"), _reorder_shape),
    "Upsample": _upsample_shape, "DynamicQuantizeLSTM": _lstm_shape,
}  # fmt: skip
