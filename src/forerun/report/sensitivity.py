"""Sensitivity of the time of the heaviest layer: batch, kernel size, stride, filters; forward and backward, in single
and in half precision side by side.

The layer is built alone, behind one trainable number, so that its backward pass also gives the gradient of its input;
its times are those of `forerun explain` in a training step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from forerun._util.readable import pretty
from forerun.api.explanation import Explanation
from forerun.api.predict import explain
from forerun.errors import ForerunError
from forerun.frontends import load_graphs
from forerun.graph.ir import Graph, Op
from forerun.report import charts
from forerun.report.parts import Chart, Group, Key
from forerun.report.study import Precision, Study
from forerun.workload import Workload

FACTORS = (0.25, 0.5, 1, 2, 4)
KERNELS = (1, 3, 5, 7)
STRIDES = (1, 2, 4)
SINGLE = ("fp32", "tf32", "fp32-ieee", "fp64")
HALF = ("fp16", "bf16")

#: Milliseconds forward and backward, for each precision of each device.
Times = list[tuple[float, list[list[tuple[float, float]]]]]


@dataclass(frozen=True)
class Layer:
    """A convolution or a linear layer by its sizes; `shape` is that of one sample."""

    kind: str  # conv | linear
    shape: tuple[int, ...]
    filters: int
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    groups: int = 1
    transposed: bool = False

    @property
    def words(self) -> str:
        if self.kind == "linear":
            return f"linear layer {self.shape[-1]:,} → {self.filters:,}"
        size = "x".join(map(str, self.kernel))
        kind = "transposed convolution" if self.transposed else "convolution"
        return f"{size} {kind} {self.shape[0]:,} → {self.filters:,} on {'x'.join(map(str, self.shape[1:]))}"

    def build(self) -> Any:
        import torch
        from torch import nn

        if self.kind == "linear":
            module: Any = nn.Linear(self.shape[-1], self.filters, bias=False, device="meta")
        else:
            name = f"Conv{'Transpose' if self.transposed else ''}{len(self.kernel)}d"
            settings: dict[str, Any] = {
                "stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups,
                "bias": False, "device": "meta",
            }  # fmt: skip
            module = getattr(nn, name)(self.shape[0], self.filters, self.kernel, **settings)

        class Alone(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.before = nn.Parameter(torch.ones((), device="meta"))
                self.layer = module

            def forward(self, x: Any) -> Any:
                return self.layer(x * self.before)

        return Alone()


@dataclass(frozen=True)
class Sensitivity:
    """Charts of the times of one layer, and the finding."""

    groups: Sequence[Group] = ()
    findings: Sequence[str] = ()
    data: dict[str, Any] = field(default_factory=dict)


def sensitivity(study: Study, call: Explanation) -> Sensitivity | None:
    """The heaviest convolution or linear layer of a call, with its sizes changed one at a time; None: it has none."""
    graph = study.graph()
    heaviest_layer = heaviest(call, graph)
    if heaviest_layer is None:
        return None
    layer, share, scope = heaviest_layer
    sweeps = _sweeps(layer, study)
    pictures, data = [], []
    times: dict[str, Times] = {}
    precisions = both_precisions(study)
    for axis, values in sweeps.items():
        captured: list[Graph] = []
        for value, changed, batch in values:
            try:
                if axis != "batch" or not captured:
                    captured = [_captured(changed, study, p) for p in precisions]
                found = [
                    [_times(g, batch, d, study, p) for p, g in zip(precisions, captured, strict=True)]
                    for d in study.devices
                ]
            except ForerunError:  # a size that this layer cannot have
                continue
            times.setdefault(axis, []).append((value, found))
            data += [
                {"device": d.id, "axis": axis, "value": value, "dtype": p.dtype, "amp": p.amp, "forward_ms": f,
                 "backward_ms": b}
                for d, each in zip(study.devices, found, strict=True)
                for p, (f, b) in zip(precisions, each, strict=True)
            ]  # fmt: skip
    for axis, found_times in times.items():
        if len(found_times) > 1:
            pictures += _charts(axis, found_times, study, precisions)
    own = int(precisions[0] is not study.precision)
    words = f"The heaviest layer is {scope or 'a'}: {layer.words}, {share * 100:.0f} % of the device time; " + _trend(
        times, layer, own, precisions
    )
    caption = (
        f"{layer.words}, batch {study.batch}: one size changes, the others stay, on the left in "
        f"{precisions[0].label}, on the right in {precisions[1].label}. Device time, without interval."
    )
    keys = [Key(d.id, charts.colour(at)) for at, d in enumerate(study.devices)]
    keys += [Key("forward", charts.GREY), Key("backward", charts.GREY, "dash")]
    return Sensitivity(
        [Group("The heaviest layer", pictures, caption, keys, wide=True)],
        [words],
        {"layer": layer.words, "scope": scope, "rows": data},
    )


def heaviest(call: Explanation, graph: Graph) -> tuple[Layer, float, str] | None:
    """The convolution or linear layer with the longest time, its share of it, and its scope."""
    for row in call.ops:
        for op in graph.ops:
            shapes = " x ".join(str(graph.tensors[t].shape) for t in op.inputs[:2])
            if op.kind in ("conv", "matmul") and op.name.rpartition("::")[2] == row.op and shapes == row.shape:
                layer = _conv(graph, op) if op.kind == "conv" else _linear(graph, op)
                if layer is not None:
                    return layer, row.share, row.scope
    return None


def _conv(graph: Graph, op: Op) -> Layer:
    x, w, y = (graph.tensors[t].shape for t in (op.inputs[0], op.inputs[1], op.outputs[0]))
    kernel, a = tuple(w[2:]), op.attrs
    stride, dilation = _each(a["stride"], kernel), _each(a["dilation"], kernel)
    sizes = zip(x[2:], y[2:], kernel, stride, dilation, strict=True)
    if a["transposed"]:
        padding = tuple(max(0, ((i - 1) * s + d * (k - 1) + 1 - o + 1) // 2) for i, o, k, s, d in sizes)
    else:
        padding = tuple(max(0, ((o - 1) * s + d * (k - 1) + 1 - i + 1) // 2) for i, o, k, s, d in sizes)
    return Layer("conv", tuple(x[1:]), y[1], kernel, stride, dilation, padding, a["groups"], a["transposed"])


def _linear(graph: Graph, op: Op) -> Layer | None:
    x, y = graph.tensors[op.inputs[0]].shape, graph.tensors[op.outputs[0]].shape
    rows = 1
    for size in x[:-1]:
        rows *= size
    if not op.attrs.get("shared_b") or rows % graph.batch:
        return None
    each = rows // graph.batch
    return Layer("linear", (each, x[-1]) if each > 1 else (x[-1],), y[-1])


def _each(given: Sequence[int], like: Sequence[int]) -> tuple[int, ...]:
    return tuple(given) if len(given) == len(like) else tuple(given[:1]) * len(like)


Sweep = list[tuple[float, Layer, int]]


def _sweeps(layer: Layer, study: Study) -> dict[str, Sweep]:
    """(value, layer, batch) along each axis."""
    from dataclasses import replace

    out: dict[str, Sweep] = {"batch": [(b, layer, b) for b in study.inference_batches]}
    scaled = sorted({max(1, int(layer.filters * f)) for f in FACTORS})
    depthwise = layer.groups > 1 and layer.groups == layer.shape[0]

    def with_filters(n: int) -> Layer:
        if depthwise:  # one filter per channel
            return replace(layer, filters=n, groups=n, shape=(n, *layer.shape[1:]))
        return replace(layer, filters=n)

    divisible = [n for n in scaled if depthwise or n % layer.groups == 0]
    name = "filters" if layer.kind == "conv" else "output features"
    out[name] = [(n, with_filters(n), study.batch) for n in divisible]
    if layer.kind == "linear":
        inputs = sorted({max(1, int(layer.shape[-1] * f)) for f in FACTORS})
        out["input features"] = [(n, replace(layer, shape=(*layer.shape[:-1], n)), study.batch) for n in inputs]
        return out

    def with_kernel(k: int) -> Layer:
        change = [(k - old) // 2 * d for old, d in zip(layer.kernel, layer.dilation, strict=True)]
        moved = tuple(max(0, p + c) for p, c in zip(layer.padding, change, strict=True))
        return replace(layer, kernel=(k,) * len(layer.kernel), padding=moved)

    square = len(set(layer.kernel)) == 1
    kernels = sorted({*KERNELS, layer.kernel[0]}) if square else []
    out["kernel size"] = [(k, layer if k == layer.kernel[0] else with_kernel(k), study.batch) for k in kernels]
    strides = sorted({*STRIDES, layer.stride[0]})
    out["stride"] = [(s, replace(layer, stride=(s,) * len(layer.kernel)), study.batch) for s in strides]
    return out


def both_precisions(study: Study) -> tuple[Precision, Precision]:
    """A single and a half precision: the report's own is one of them."""
    own = study.precision
    if own.dtype in SINGLE and own.amp is None:
        return own, Precision("fp16")
    if own.amp is not None or own.dtype in HALF:
        return Precision("fp32"), own
    return Precision("fp32"), Precision("fp16")  # weights of fewer bits: the layer is dense


def _captured(layer: Layer, study: Study, precision: Precision) -> Graph:
    workload = _workload(layer.build(), study, precision, input_shape=layer.shape, batch=study.batch)
    graph, scalable = load_graphs(workload)
    return scalable or graph


def _workload(model: Any, study: Study, precision: Precision, **settings: Any) -> Workload:
    how: dict[str, Any] = {"amp": precision.amp, "channels_last": bool(study.settings.get("channels_last"))}
    return Workload(model, dtype=precision.dtype, mode="training", optimizer="sgd", **how, **settings)


def _times(graph: Graph, batch: int, device: Any, study: Study, precision: Precision) -> tuple[float, float]:
    """Milliseconds of the layer's operators in the forward and in the backward pass."""
    workload = _workload(graph, study, precision, batch=batch)
    values = {n: getattr(workload, n) for n in workload.__dataclass_fields__ if n != "model"}
    explanation = explain(graph, device, predictor=study.predictor, host=study.host, **values)
    ops = [o for o in explanation.ops if o.scope == "layer"]
    forward, backward = (sum(o.time_ms for o in ops if o.phase == p) for p in ("forward", "backward"))
    return forward, backward


def _charts(axis: str, times: Times, study: Study, precisions: Sequence[Precision]) -> list[Chart]:
    """A chart for each precision, on one scale."""
    every = [ms for _, found in times for each in found for pair in each for ms in pair if ms > 0]
    out = []
    for which, precision in enumerate(precisions):
        chart = charts.figure(axis, "ms", height=300)
        for number, device in enumerate(study.devices):
            colour = charts.colour(number)
            for at, (name, dash) in enumerate((("forward", "solid"), ("backward", "dash"))):
                chart.add_scatter(
                    x=[v for v, _ in times], y=[found[number][which][at] for _, found in times], mode="lines+markers",
                    name=f"{device.id}, {name}", line={"color": colour, "width": 2, "dash": dash}, marker={"size": 5},
                    hovertemplate=f"{axis} %{{x}}: %{{y:.3g}} ms<extra>%{{fullData.name}}</extra>",
                )  # fmt: skip
        charts.log_axis(chart, every)
        charts.batches_axis(chart, [int(v) for v, _ in times])
        if axis in ("kernel size", "stride"):
            chart.update_xaxes(type="linear")
        out.append(Chart(f"against {axis}, {precision.label}", chart))
    return out


def _trend(times: dict[str, Times], layer: Layer, own: int, precisions: Sequence[Precision]) -> str:
    """What doubling or shrinking a size does on the first device in the report's precision, forward and backward
    together, and what the other precision does to it."""

    def total_ms(axis: str, value: float, which: int = own) -> float | None:
        return next((sum(found[0][which]) for v, found in times.get(axis, []) if v == value), None)

    parts = []
    name = "filters" if layer.kind == "conv" else "output features"
    here, twice = total_ms(name, layer.filters), total_ms(name, 2 * layer.filters)
    if here and twice:
        parts.append(f"twice the {name} take {pretty(twice / here)} times as long")
    if layer.kind == "conv":
        here = total_ms("kernel size", layer.kernel[0])
        other = 1 if layer.kernel[0] > 1 else 3
        changed = total_ms("kernel size", other)
        if here and changed:
            parts.append(f"a kernel of {other} takes {pretty(changed / here)} times")
        here, changed = total_ms("stride", layer.stride[0]), total_ms("stride", 2 * layer.stride[0])
        if here and changed:
            parts.append(f"twice the stride {pretty(changed / here)} times")
    single, half = (total_ms(name, layer.filters, at) for at in range(2))
    if single and half:
        parts.append(f"{precisions[1].label} takes {pretty(half / single)} times what {precisions[0].label} does")
    return (", ".join(parts) or "its sizes could not be changed") + " (forward and backward, first device)."
