"""The answer of the tab Compare: curves over the batch or the sequence length, and trade-offs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field

from forerun.errors import ForerunError
from forerun.prediction import Estimate
from forerun.report import charts
from forerun.report.parts import Chart, Key
from forerun.views.blocks import Line
from forerun.views.html.fragments import fragment
from forerun.views.served import served_view
from forerun.views.side_by_side import comparison_html
from forerun.web.operations import devices_given, others, service_of, workload_settings
from forerun.web.page.figures import charts_html
from forerun.web.page.scatter import Point, scatter
from forerun.web.requests import CompareRequest, Size

AXES = {"batch": "batch", "seq_len": "sequence length"}


class PageCompareRequest(CompareRequest):
    """One model on several devices, at several batches or sequence lengths."""

    axis: Literal["batch", "seq_len"] = "batch"
    values: Annotated[list[Size], Field(min_length=1, max_length=16)]


def compare(request: dict[str, Any]) -> dict[str, Any]:
    """Rows of `forerun.predict_many`, drawn."""
    from forerun.api.predict import predict_many

    axis = request["axis"]
    cases = [workload_settings(workload) for workload in request["workloads"]]
    more = others(request, "devices", "axis", "values", "workloads")
    frame = predict_many(cases, devices_given(request["devices"]), **more)
    able = frame[frame["error"].isna()]
    if able.empty:
        raise ForerunError("; ".join(dict.fromkeys(frame["error"])))
    problems = _problems(frame, axis)
    curves = charts_html(
        f"Against the {AXES[axis]}",
        _curves(able, axis),
        keys=_keys(able),
        caption=_caption(able, request["confidence"]),
    )
    trades = charts_html(
        "Trade-offs", _trades(able, axis), keys=_keys(able),
        caption=f"Each point is a device at one {AXES[axis]}; the line joins the Pareto front.",
    )  # fmt: skip
    last = able[able[axis] == able[axis].max()]
    title = f"{last['model'].iloc[0]} at {AXES[axis]} {int(last[axis].iloc[0]):,}"
    table = comparison_html(last, title=title, confidence=request["confidence"])
    service = service_of(request)
    below = "" if service is None else fragment(served_view(service, None))
    return {"html": problems + curves + trades + table + below}


def _problems(frame: pd.DataFrame, axis: str) -> str:
    """What could not be predicted: for each device and reason, the values."""
    failed = frame[frame["error"].notna()]
    lines = [
        Line(f"{device}, {AXES[axis]} {', '.join(f'{int(v):,}' for v in group[axis] if v == v)}: {error}", "bad")
        for (device, error), group in failed.groupby(["device", "error"], sort=False)
    ]
    return fragment(lines) if lines else ""


def _keys(frame: pd.DataFrame) -> list[Key]:
    return [Key(device, charts.colour(at)) for at, device in enumerate(_devices(frame))]


def _devices(frame: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(frame["device"]))


def _caption(frame: pd.DataFrame, confidence: float) -> str:
    words = f"Bands are {100 * confidence:g} % intervals."
    return words + (" Hollow points do not fit the device's memory." if frame["fits"].eq(False).any() else "")


def _throughput(row: Any) -> Estimate:
    items = row.throughput * row.latency_ms
    return Estimate(row.throughput, items / row.latency_high_ms, items / row.latency_low_ms, row.throughput_unit)


_QUANTITIES: tuple[tuple[str, str, Callable[[Any], Estimate]], ...] = (
    ("Throughput", "", _throughput),
    ("Latency", "ms", lambda r: Estimate(r.latency_ms, r.latency_low_ms, r.latency_high_ms, "ms")),
    ("Memory needed", "MB", lambda r: Estimate(r.memory_mb, r.memory_low_mb, r.memory_high_mb, "MB")),
    ("Energy per call", "J", lambda r: Estimate(r.energy_j, r.energy_low_j, r.energy_high_j, "J")),
)


def _curves(frame: pd.DataFrame, axis: str) -> list[Chart]:
    values = sorted({int(v) for v in frame[axis]})
    out = []
    for title, unit, estimate in _QUANTITIES:
        chart = charts.figure(AXES[axis], unit or str(frame["throughput_unit"].iloc[0]), height=320)
        drawn: list[float] = []
        for at, device in enumerate(_devices(frame)):
            rows = [row for row in frame[frame["device"] == device].itertuples() if estimate(row).value > 0]
            estimates = [estimate(row) for row in rows]
            if not estimates:
                continue
            xs = [float(getattr(row, axis)) for row in rows]
            charts.curve(chart, xs, estimates, device, charts.colour(at), hollow=[row.fits is False for row in rows])
            drawn += [x for e in estimates for x in (e.low, e.high) if x > 0]
        if drawn:
            charts.batches_axis(chart, values)
            charts.log_axis(chart, drawn)
            out.append(Chart(title, chart))
    return out


def _trades(frame: pd.DataFrame, axis: str) -> list[Chart]:
    """Latency against cost, energy against throughput: the two Pareto fronts of recommend."""
    unit = str(frame["throughput_unit"].iloc[0])
    item = unit.removesuffix("s/s")
    fitting = frame[frame["fits"].ne(False)]
    cost, energy = [], []
    for at, device in enumerate(_devices(frame)):
        for row in fitting[fitting["device"] == device].itertuples():
            items = row.throughput * row.latency_ms / 1e3
            about = f"{device}, {AXES[axis]} {int(getattr(row, axis)):,}"
            if row.cost_usd > 0:
                cost.append(Point(row.latency_ms, row.cost_usd / items * 1e6, about, charts.colour(at)))
            if row.energy_j > 0:
                energy.append(Point(row.throughput, row.energy_j / items, about, charts.colour(at)))
    return [
        *scatter("Latency and cost", "latency ms", f"USD per million {item}s", cost),
        *scatter("Throughput and energy", unit, f"J per {item}", energy, more_x=True),
    ]
