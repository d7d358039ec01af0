"""The operator level: roofline, the operators that take most of the time, the sensitivity of the heaviest one."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from forerun._util.readable import pretty
from forerun.api.explanation import Explanation, OpTime
from forerun.device import Device
from forerun.errors import ForerunError
from forerun.report import charts, locality
from forerun.report.parts import Chart, Group, Key, Level, Table, percent
from forerun.report.sensitivity import sensitivity
from forerun.report.study import Study

ABOUT = (
    "Every operator of one call in {precision} at batch {batch}, as `forerun explain` gives it; those of one kind and "
    "shape are added up."
)
CEILINGS = ("fp32", "tf32", "fp16", "bf16", "fp8")
TOP, MOST = 6, 24
LEAST = 1e-6  # the share of the time from which an operator is drawn
#: The legend of a roofline.
ROOFLINE_KEYS = [
    *(Key(f"{bound}-bound", colour) for bound, colour in charts.BOUND.items()),
    Key("forward", charts.GREY, "circle"),
    Key("backward", charts.GREY, "triangle"),
]


def operators(study: Study) -> Level:
    about = ABOUT.format(precision=study.precision.label, batch=study.batch)
    pictures, nested, tables, findings, hidden, data = [], [], [], [], [], {}
    heaviest = None
    for device in study.devices:
        try:
            call = study.explain(device)
        except ForerunError as e:
            findings.append(f"{device.id}: {e}.")
            continue
        step = _training(study, device)
        pictures.append(roofline(device, call, step))
        hidden.append(_hidden(call))
        tables.append(_top(call, f"Operators of a call on {device.name}", TOP))
        if step is not None:
            tables.append(_top(step, f"Operators of a training step on {device.name}", 0))
        findings.append(_finding(call, step))
        levels, bytes_table = locality.hierarchy(device, call), locality.table(call, device)
        nested += [levels] if levels else []
        tables += [bytes_table] if bytes_table else []
        if device.traits.is_board:
            findings.append(locality.tensor_words(call, step))
        findings += [words] if (words := locality.verdict(call, device)) else []
        heaviest = heaviest or call
        data[device.id] = {"call": _columns(call), "training": step and _columns(step),
                           "levels": locality.plain(call, device)}  # fmt: skip
    groups = (
        [Group("Roofline", pictures, _caption(study, max(hidden, default=0.0)), ROOFLINE_KEYS, wide=True)]
        if pictures
        else []
    )
    levelled = [d for d in study.devices if d.name in {chart.title for chart in nested}]
    groups += [locality.group(nested, levelled)] if nested else []
    extra = sensitivity(study, heaviest) if heaviest else None
    if extra:
        groups += extra.groups
        findings += extra.findings
    content = {"devices": data, "sensitivity": extra.data if extra else None}
    return Level("operators", "Operators", about, findings, groups, tables, content)


def _columns(explanation: Explanation) -> dict[str, Any]:
    """An explanation as JSON, its ops column by column."""
    ops = [vars(o) for o in explanation.ops]
    names = list(ops[0]) if ops else []
    return {**explanation.to_dict(), "ops": {name: [o[name] for o in ops] for name in names}}


def by_bound(explanation: Explanation) -> dict[str, float]:
    """The share of the device time by limit of the operators (compute, memory, launch), largest first."""
    shares: dict[str, float] = {}
    for op in explanation.ops:
        shares[op.bound] = shares.get(op.bound, 0.0) + op.share
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _training(study: Study, device: Device) -> Explanation | None:
    try:
        return study.explain(device, mode="training")
    except ForerunError:
        return None


def roofline(device: Device, call: Explanation, step: Explanation | None) -> Chart:
    """FLOP/s that operators reach against FLOP per byte, under the ceilings of the device."""
    chart = charts.figure("FLOP per byte of memory traffic", "FLOP/s", height=430)
    later = [o for o in step.ops if o.phase == "backward"] if step else []
    # What another operator does on the way takes no time of its own, and has no rate.
    drawn = [o for o in (*call.ops, *later) if o.gflops > 0 and o.mb > 0 and o.share > LEAST]
    xs = [_intensity(o) for o in drawn] or [1.0]
    peaks = {d: p * 1e12 for d in CEILINGS if device.supports(d) and (p := device.peak(d)) is not None}
    bandwidth = (device.bandwidth_gbs or 0) * 1e9
    left = min(0.05, min(xs) / 2)
    right = max(max(xs) * 2, 4 * max(peaks.values(), default=1.0) / bandwidth if bandwidth else 1000.0)
    _ceilings(chart, device, peaks, bandwidth, left, right)
    for name, ops, symbol in (("forward", call.ops, "circle"), ("backward", later, "triangle-up")):
        for bound, colour in charts.BOUND.items():
            members = [o for o in ops if o.bound == bound and o in drawn]
            if members:
                _points(chart, members, f"{name}, {bound}-bound", symbol, colour)
    ys = [_rate(o) for o in drawn] + list(peaks.values()) or [1.0]
    chart.update_layout(margin_r=118)
    floor = max(min(ys) / 2, max(ys) / 1e6)
    charts.log_axis(chart, [left, right], axis="xaxis")
    charts.log_axis(chart, [floor, 2 * max(ys)])
    return Chart(device.name, chart)


def _hidden(call: Explanation) -> float:
    """The share of the time in operators without arithmetic, which a logarithmic scale cannot show."""
    return sum(o.share for o in call.ops if not (o.gflops > 0 and o.mb > 0))


def _caption(study: Study, hidden: float) -> str:
    measured = any(name.startswith("measured_") for d in study.devices for name in d.calibrated)
    unknown = [d.id for d in study.devices if "measured_l2_gbs" not in d.calibrated]
    text = "The area of a point is its share of the time. Ceilings are dense peaks of the datasheet"
    text += "; dashed ones, in brackets, were measured." if measured else "."
    text += f" The bandwidth of the L2 cache is not known for {', '.join(unknown)}." if unknown else ""
    return text + (
        f" Operators without arithmetic, up to {percent(hidden)} of the time, are not drawn." if hidden > 1e-3 else ""
    )


def _ceilings(chart: Any, device: Device, peaks: dict[str, float], bandwidth: float, left: float, right: float) -> None:
    """Roofs of memory and peaks of each dtype, as the datasheet has them and, dashed, as they were measured."""
    merged: dict[float, list[str]] = {}
    for dtype, peak in peaks.items():
        merged.setdefault(peak, []).append(dtype)
    top, calibrated = max(merged, default=1e12), device.calibrated

    def line(x: list[float], y: list[float], dash: str) -> None:
        chart.add_scatter(
            x=x, y=y, mode="lines", hoverinfo="skip", line={"color": charts.GREY, "width": 1.5, "dash": dash}
        )

    def roof(rate: float, dash: str) -> float:
        line([left, top / rate], [rate * left, top], dash)
        return math.sqrt(left * top / rate)

    for peak, dtypes in merged.items():
        reached = [c for dtype in dtypes if (c := calibrated.get(f"measured_{dtype}_tflops")) is not None]
        for ceiling in reached:
            line([ceiling * 1e12 / bandwidth if bandwidth else left, right], [ceiling * 1e12] * 2, "dash")
        line([peak / bandwidth if bandwidth else left, right], [peak, peak], "solid")
        measured = f" ({pretty(max(reached))})" if reached else ""
        _label(chart, right, peak, f" {', '.join(dtypes)} {pretty(peak / 1e12)} T{measured}", "left", "middle")
    if bandwidth:
        where = roof(bandwidth, "solid")
        reached_gbs = calibrated.get("measured_bandwidth_gbs")
        if reached_gbs is not None:
            roof(reached_gbs * 1e9, "dash")
        words = f"memory {bandwidth / 1e9:,.0f}" + (f" ({reached_gbs:,.0f})" if reached_gbs is not None else "")
        _label(chart, where, bandwidth * where, f"{words} GB/s ", "right", "bottom")
    if (cache_gbs := calibrated.get("measured_l2_gbs")) is not None:
        where = roof(cache_gbs * 1e9, "dash") * 6  # higher up than the memory's label
        _label(chart, where, cache_gbs * 1e9 * where, f"L2 ({cache_gbs:,.0f}) GB/s ", "right", "bottom")


def _label(chart: Any, x: float, y: float, text: str, xanchor: str, yanchor: str) -> None:
    chart.add_annotation(
        x=math.log10(x), y=math.log10(y), text=text, showarrow=False, xanchor=xanchor, yanchor=yanchor,
        font={"size": 11}, opacity=0.85,
    )  # fmt: skip


def _points(chart: Any, ops: Sequence[OpTime], name: str, symbol: str, colour: str) -> None:
    chart.add_scatter(
        x=[_intensity(o) for o in ops], y=[_rate(o) for o in ops], mode="markers", name=name,
        marker={"symbol": symbol, "color": colour, "opacity": 0.75, "line": {"width": 0.5, "color": "#ffffff"},
                "size": [6 + 34 * math.sqrt(o.share) for o in ops]},
        text=[
            f"{html.escape(f'{o.op} {o.shape}')}<br>{html.escape(o.scope)}<br>{o.calls} calls, {pretty(o.time_ms)} ms, "
            f"{percent(o.share)} of the time" for o in ops
        ],
        hovertemplate="%{text}<br>%{x:.3g} FLOP/byte, %{y:.3s}FLOP/s<extra></extra>",
    )  # fmt: skip


def _intensity(op: OpTime) -> float:
    return op.gflops * 1e9 / (op.mb * 2**20)


def _rate(op: OpTime) -> float:
    return op.gflops * 1e12 / op.time_ms


def _top(explanation: Explanation, title: str, shown: int) -> Table:
    lines = [
        (
            o.op, o.scope, o.shape, o.phase, f"{o.calls}", f"{pretty(o.time_ms)} ms", percent(o.share), o.bound,
            f"{pretty(_rate(o) / 1e12)}" if o.gflops else "", f"{pretty(_intensity(o))}" if o.gflops and o.mb else "",
        )
        for o in explanation.ops[:MOST]
    ]  # fmt: skip
    head = ("operator", "first in", "shape", "pass", "calls", "time", "share", "bound by", "TFLOP/s", "FLOP/byte")
    rest = len(explanation.ops) - len(lines)
    caption = (
        f"{rest} more take {percent(sum(o.share for o in explanation.ops[MOST:]))} of the time." if rest > 0 else ""
    )
    return Table(title, head, lines, (4, 5, 6, 8, 9), shown=shown, caption=caption)


def _finding(call: Explanation, step: Explanation | None) -> str:
    kernel, _, ms, share = call.by_kernel()[0]
    parts = by_bound(call)
    limits = ", ".join(f"{percent(s)} {bound}-bound" for bound, s in parts.items() if s > LEAST)
    text = (
        f"On {call.device}, {percent(share)} of the {pretty(call.device_ms)} ms of device time is spent in {kernel} "
        f"kernels ({pretty(ms)} ms); by what limits it, the time is {limits}."
    )
    if step is not None:
        phases = {p: sum(o.time_ms for o in step.ops if o.phase == p) for p in ("forward", "backward", "optimizer")}
        total = sum(phases.values()) or 1.0
        text += " A training step is " + ", ".join(f"{percent(ms / total)} {p}" for p, ms in phases.items()) + "."
    return text
