"""The answer of the tab Explain: the roofline with the operators, memory while a call runs, and what makes the device
faster than another."""

from __future__ import annotations

import html
from dataclasses import replace
from typing import Any

import numpy as np

from forerun._util.readable import pretty
from forerun.api.contributions import Contributions, contributions
from forerun.api.explanation import Explanation
from forerun.api.questions import profiled, workload_from
from forerun.device import Device, load_device
from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.graph.memory import LiveMemory, live_memory
from forerun.predictors.laws.workspaces import library_workspaces
from forerun.report import charts
from forerun.report.operators import ROOFLINE_KEYS, roofline
from forerun.report.parts import Chart, Key
from forerun.views import rendering
from forerun.views.html.bars import text
from forerun.web.models import device_of
from forerun.web.operations import others, workload_settings
from forerun.web.page.figures import charts_html
from forerun.web.requests import DeviceField, ExplainRequest

#: With more steps than this, only the highest of several is drawn.
_STEPS = 1200
_ROLES = ("parameter", "buffer", "state", "gradient", "cache", "input", "activation", "workspace")
_FALLS, _GROWS = "#3f9e6e", "#c94f63"


class PageExplainRequest(ExplainRequest):
    """One model on one device, and the device that it is compared with."""

    reference: DeviceField


def explain(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun.explain`, with charts."""
    from forerun.api.predict import explain as ask

    settings = workload_settings(request)
    more = others(request, "device", "reference")
    device = load_device(device_of(request["device"]))
    explanation = ask(device=device, **settings, **more)
    workload = workload_from(settings)
    roof = charts_html(
        "Roofline", [roofline(device, _without_backward(explanation), explanation)], keys=ROOFLINE_KEYS, wide=True,
        caption="The area of a point is its share of the time; points under a slope are memory-bound. Dashed "
        "ceilings, in brackets, were measured.",
    )  # fmt: skip
    memory = _memory(profiled(workload).graph, device)
    return {"html": rendering.html(explanation) + roof + memory + _contributions(request, workload, device)}


def _without_backward(explanation: Explanation) -> Explanation:
    return replace(explanation, ops=tuple(op for op in explanation.ops if op.phase != "backward"))


def _memory(graph: Graph, device: Device) -> str:
    """Live memory over the steps of a call, stacked by role, with the passes of a training step marked."""
    live = live_memory(graph, library_workspaces(device))
    chart = charts.figure("step of the call", "live memory, MB", height=340)
    places = _highest(live)
    words = [_step_words(graph, int(live.ops[at])) for at in places]
    keys: list[Key] = []
    for role in sorted(
        live.by_role_mb, key=lambda role_name: _ROLES.index(role_name) if role_name in _ROLES else len(_ROLES)
    ):
        values = live.by_role_mb[role][places]
        if values.max(initial=0.0) <= 0:
            continue
        colour = charts.colour(len(keys))
        keys.append(Key(role, colour))
        chart.add_scatter(
            x=places.tolist(), y=values.tolist(), name=role, mode="lines", stackgroup="live",
            line={"width": 0.5, "color": colour}, text=words,
            hovertemplate=f"{html.escape(role)} %{{y:,.4g}} MB<br>%{{text}}<extra></extra>",
        )  # fmt: skip
    _phases(chart, graph, live)
    total = live.total_mb
    top = int(total.argmax())
    peak = f"At most {pretty(float(total[top]))} MB are live: {_step_words(graph, int(live.ops[top]))}."
    folded = " Equal blocks are shown by their first and last turn." if any(op.repeat > 2 for op in graph.ops) else ""
    caption = f"{peak} The framework's reserve is not included.{folded}"
    return charts_html("Memory while a call runs", [Chart("", chart)], keys=keys, caption=caption, wide=True)


def _highest(live: LiveMemory) -> np.ndarray:
    """The steps that are drawn: all of them, or of several in one pixel the one with the most live memory."""
    total = live.total_mb
    if len(total) <= _STEPS:
        return np.arange(len(total))
    groups = np.array_split(np.arange(len(total)), _STEPS)
    return np.array([group[total[group].argmax()] for group in groups])


def _step_words(graph: Graph, op: int) -> str:
    if op < 0:
        return "before the first op"
    step = graph.ops[op]
    return html.escape(f"{step.phase}: {step.name.removeprefix('aten::')} in {step.scope or 'the model'}")


def _phases(chart: Any, graph: Graph, live: LiveMemory) -> None:
    """Where backward and optimizer begin."""
    phases = [graph.ops[op].phase if op >= 0 else "" for op in live.ops]
    if len({phase for phase in phases if phase}) < 2:
        return
    for phase in dict.fromkeys(phase for phase in phases if phase):
        at = phases.index(phase)
        chart.add_vline(x=at, line={"color": charts.GREY, "width": 1, "dash": "dot"})
        chart.add_annotation(
            x=at,
            y=1,
            yref="paper",
            text=f" {phase}",
            showarrow=False,
            xanchor="left",
            yanchor="bottom",
            font={"size": 11},
        )
    chart.update_layout(margin_t=28)


def _contributions(request: dict[str, Any], workload: Any, device: Device) -> str:
    try:
        reference = load_device(device_of(request["reference"]))
        if reference == device:
            return ""
        host = request["host"]
        attributed = contributions(
            workload, reference, device, predictor=request["predictor"], host=host,
            reference_host="reference" if host == "default" else host,
        )  # fmt: skip
    except ForerunError as error:
        return f'<div class="forerun answer"><p class="faint">What makes the difference: {text(error)}</p></div>'
    return charts_html(
        f"From {attributed.reference} to {attributed.device}: what each property changes",
        [Chart("", _waterfall(attributed))], wide=True,
        caption="Shapley values of the predicted latency: every mixture of the two devices is predicted, "
        "and the parts add up to the difference. Mixtures are not real devices, so small parts mean little.",
    )  # fmt: skip


def _waterfall(attributed: Contributions) -> Any:
    parts = [
        part for part in attributed.parts if abs(part.ms) > 5e-4 * max(attributed.reference_ms, attributed.device_ms)
    ]
    chart = charts.figure("latency, ms", "", height=110 + 34 * (len(parts) + 2))
    names = [attributed.reference, *(part.name for part in parts), attributed.device]
    words = [
        f"{pretty(attributed.reference_ms)} ms",
        *(f"{'+' if part.ms > 0 else '−'}{pretty(abs(part.ms))} ms" for part in parts),
        f"{pretty(attributed.device_ms)} ms",
    ]
    values = [
        *(f"{part.name}: {part.before} → {part.after}" if part.before or part.after else part.name for part in parts)
    ]
    chart.add_waterfall(
        orientation="h", y=names, x=[attributed.reference_ms, *(part.ms for part in parts), attributed.device_ms],
        measure=["absolute", *["relative"] * len(parts), "total"], text=words, textposition="outside", cliponaxis=False,
        hovertext=[html.escape(line) for line in (attributed.reference, *values, attributed.device)], hoverinfo="text",
        connector={"line": {"color": charts.GREY, "width": 1, "dash": "dot"}},
        decreasing={"marker": {"color": _FALLS}}, increasing={"marker": {"color": _GROWS}},
        totals={"marker": {"color": charts.colour(0)}},
    )  # fmt: skip
    reached = np.cumsum([attributed.reference_ms, *(part.ms for part in parts)])
    chart.update_xaxes(range=[min(0.0, 1.1 * float(reached.min())), 1.18 * float(reached.max())])  # words beside bars
    chart.update_yaxes(autorange="reversed")
    chart.update_layout(margin_l=130)
    return chart
