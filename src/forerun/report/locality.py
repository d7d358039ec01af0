"""The hierarchical roofline: what memory, L2 and L1 deliver to every operator, which level limits it, what the caches
hold back; and the share of time on tensor cores."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from forerun._util.readable import pretty
from forerun.api.explanation import Explanation, OpTime
from forerun.device import Device
from forerun.report import charts
from forerun.report.parts import Chart, Group, Key, Table, percent

LEVELS = {"memory": "#e07b39", "L2": "#3b82c4", "L1": "#3f9e6b"}
#: Of the bytes that L1 delivers, the share from which a level is said to serve an operator.
MOST = 0.5
SHOWN, DRAWN = 8, 0.004  # operators of the table; the least share of the time that is drawn
CAPTION = (
    "Every operator has a point for each level, at the bytes which that level delivers. Bytes are computed, not "
    "counted: operators without reuse move every byte once through all levels; matmuls and convolutions are computed "
    "in tiles, {sm} x {sm} outputs a multiprocessor, {warp} x {warp} a warp, past which rows and columns stream; "
    "memory delivers an operand once while the operands fit in L2."
)


def bandwidths(device: Device) -> dict[str, float]:
    """GB/s of each level: the memory's as measured, else of the datasheet; caches where they were measured."""
    found = {
        "memory": device.calibrated.get("measured_bandwidth_gbs") or device.bandwidth_gbs,
        "L2": device.calibrated.get("measured_l2_gbs"), "L1": device.calibrated.get("measured_l1_gbs"),
    }  # fmt: skip
    return {level: rate for level, rate in found.items() if rate}


def level_mb(op: OpTime) -> dict[str, float]:
    """The MB that each level delivers to an operator; empty where that is not known."""
    known = {"memory": op.memory_level_mb, "L2": op.l2_level_mb, "L1": op.l1_level_mb}
    return {level: mb for level, mb in known.items() if mb}


def served_by(op: OpTime) -> str:
    """The level that most of an operator's bytes come from: L1, L2 or memory; '' where that is not known."""
    mb = level_mb(op)
    if len(mb) < len(LEVELS):
        return ""
    if mb["memory"] >= MOST * mb["L1"]:
        return "memory"
    return "L2" if mb["L2"] >= MOST * mb["L1"] else "L1"


def limiting_level(op: OpTime, rates: dict[str, float]) -> str:
    """The level whose bytes take longest at its bandwidth; unknown where the memory's alone is known."""
    mb = level_mb(op)
    if len(rates) < 2:
        return "unknown"
    return max((level for level in mb if level in rates), key=lambda level: mb[level] / rates[level], default="")


def verdict(call: Explanation, device: Device) -> str | None:
    """What the caches do for a call, in a sentence; None where the device's caches are not known."""
    served: dict[str, float] = {}
    for op in call.ops:
        served[served_by(op)] = served.get(served_by(op), 0.0) + op.share
    if served.get("", 0.0) > MOST:
        return None
    total = {level: sum(level_mb(o).get(level, 0.0) for o in call.ops) for level in LEVELS}
    if not total["L1"]:
        return None
    streaming, cached = served.get("memory", 0.0), served.get("L1", 0.0) + served.get("L2", 0.0)
    if streaming > 2 * cached:
        word = (
            "Locality is poor: no cache helps operators whose bytes are used once; fusing them or a smaller dtype does"
        )
    elif cached > 2 * streaming:
        word = "Locality is good: arithmetic and cache bandwidth count more than memory bandwidth"
    else:
        word = "Locality is mixed: the tiled operators profit from the caches, the others stream"
    return (
        f"On {device.id}, of the {pretty(total['L1'] / 1024)} GB that a call reads and writes, L1 holds back "
        f"{percent(1 - total['L2'] / total['L1'])}, L2 {percent((total['L2'] - total['memory']) / total['L1'])}, and "
        f"memory delivers {percent(total['memory'] / total['L1'])}; {percent(streaming)} of the device time is in "
        f"operators that memory serves. {word}."
    )


def tensor_share(call: Explanation) -> float:
    """The share of the device time in operators on tensor cores."""
    return sum(o.share for o in call.ops if o.tensor_cores)


def tensor_words(call: Explanation, step: Explanation | None) -> str:
    """The share of time on tensor cores, and what their operators' arithmetic is of the whole."""
    work = sum(o.gflops for o in call.ops) or 1.0
    flops = sum(o.gflops for o in call.ops if o.tensor_cores) / work
    text = f"On {call.device}, {percent(tensor_share(call))} of the device time of a call is spent on tensor cores"
    text += f", with {percent(flops)} of the arithmetic" if flops else ""
    return text + (f"; of a training step, {percent(tensor_share(step))}." if step is not None else ".")


def hierarchy(device: Device, call: Explanation) -> Chart | None:
    """FLOP/s against FLOP per byte of each level; None where no bytes by level are known."""
    ops = [o for o in call.ops if o.gflops > 0 and o.time_ms > 0 and o.share >= DRAWN and len(level_mb(o)) == 3]
    if not ops:
        return None
    chart = charts.figure("FLOP per byte of the level", "FLOP/s", height=430)
    rates = bandwidths(device)
    peaks = [p for d in {o.unit if o.tensor_cores else "fp32" for o in ops} if (p := device.peak(d))]
    top = 1e12 * max(peaks, default=1.0)
    xs = [_intensity(o, mb) for o in ops for mb in level_mb(o).values()]
    ys = [_rate(o) for o in ops]
    left, right = min(0.05, min(xs) / 2), max(2 * max(xs), *(3 * top / (r * 1e9) for r in rates.values()))
    chart.add_scatter(
        x=[min(top / (max(rates.values()) * 1e9), right) if rates else left, right], y=[top, top], mode="lines",
        hoverinfo="skip", line={"color": charts.GREY, "width": 1.5},
    )  # fmt: skip
    for level, gbs in rates.items():
        ends = [left, top / (gbs * 1e9)]
        chart.add_scatter(
            x=ends, y=[x * gbs * 1e9 for x in ends], mode="lines", hoverinfo="skip",
            line={"color": LEVELS[level], "width": 1.5},
        )  # fmt: skip
    for op in ops:
        at = [_intensity(op, mb) for mb in level_mb(op).values()]
        chart.add_scatter(
            x=at, y=[_rate(op)] * len(at), mode="lines", hoverinfo="skip", opacity=0.35,
            line={"color": charts.GREY, "width": 1},
        )  # fmt: skip
    for level, colour in LEVELS.items():
        chart.add_scatter(
            x=[_intensity(o, level_mb(o)[level]) for o in ops], y=ys, mode="markers", name=level,
            marker={"color": colour, "size": [6 + 24 * math.sqrt(o.share) for o in ops], "opacity": 0.75,
                    "line": {"width": 0.5, "color": "#ffffff"}},
            text=[f"{html.escape(f'{o.op} {o.shape}')}<br>{level}: {pretty(level_mb(o)[level])} MB, "
                  f"{percent(o.share)} of the time" for o in ops],
            hovertemplate="%{text}<br>%{x:.3g} FLOP/byte, %{y:.3s}FLOP/s<extra></extra>",
        )  # fmt: skip
    charts.log_axis(chart, [left, right], axis="xaxis")
    charts.log_axis(chart, [max(min(ys) / 2, top / 1e7), 2 * top])
    return Chart(device.name, chart)


def group(pictures: Sequence[Chart], devices: Sequence[Device]) -> Group:
    """The charts of all devices, their legend, and which bandwidths were measured."""
    from forerun.predictors.laws.locality import SM_TILE, WARP_TILE

    caption = CAPTION.format(sm=int(SM_TILE), warp=int(WARP_TILE))
    for level in ("L2", "L1"):
        unknown = [d.id for d in devices if level not in bandwidths(d)]
        caption += f" No roof for {level} of {', '.join(unknown)}: its bandwidth was not measured." if unknown else ""
    keys = [Key(f"{level}: roof and operators", colour) for level, colour in LEVELS.items()]
    return Group("Hierarchical roofline", pictures, caption, keys, wide=True)


def table(call: Explanation, device: Device) -> Table | None:
    """Bytes by level of the longest operators."""
    rates = bandwidths(device)
    known = [o for o in call.ops if level_mb(o)]
    lines = [
        (
            o.op, o.scope, o.shape, percent(o.share), "yes" if o.tensor_cores else "no",
            *(_megabytes(level_mb(o).get(level)) for level in ("L1", "L2", "memory")), served_by(o),
            limiting_level(o, rates),
        )
        for o in known[: 3 * SHOWN]
    ]  # fmt: skip
    head = ("operator", "first in", "shape", "share", "tensor cores", "MB from L1", "MB from L2", "MB from memory",
            "mostly from", "slowest level")  # fmt: skip
    title = f"Bytes by level on {device.name}"
    return Table(title, head, lines, (3, 5, 6, 7), shown=SHOWN) if lines else None


def plain(call: Explanation, device: Device) -> dict[str, Any]:
    """The same as JSON."""
    rates = bandwidths(device)
    shares: dict[str, float] = {}
    for op in call.ops:
        if name := served_by(op):
            shares[name] = shares.get(name, 0.0) + op.share
    total = {level: sum(level_mb(o).get(level, 0.0) for o in call.ops) for level in LEVELS}
    return {"bandwidth_gbs": rates, "mb": total, "time_share_served_by": shares,
            "tensor_core_time_share": tensor_share(call), "verdict": verdict(call, device)}  # fmt: skip


def _megabytes(mb: float | None) -> str:
    return "" if mb is None else pretty(mb)


def _intensity(op: OpTime, mb: float) -> float:
    return op.gflops * 1e9 / (mb * 2**20)


def _rate(op: OpTime) -> float:
    return op.gflops * 1e12 / op.time_ms
