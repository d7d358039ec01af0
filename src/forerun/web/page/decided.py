"""The answers of the tabs Recommend, Optimise and Budget: the tables that notebooks show, and charts of them."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from forerun.prediction import Estimate
from forerun.report import charts
from forerun.report.parts import Chart, Key
from forerun.views import rendering
from forerun.web.operations import devices_given, others, served, workload_settings
from forerun.web.page.figures import charts_html
from forerun.web.page.scatter import Point, scatter

_VERDICTS = {"meets": "#3f9e6e", "probably": "#e07b39"}
_CLAIMED = "claimed"
_MOST_BARS = 24


def recommend(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun.recommend`."""
    from forerun.decisions.plans.serving_answer import ServingPlan
    from forerun.decisions.recommend.recommend import recommend as ask
    from forerun.web.page.served import plan_html

    devices = {"devices": devices_given(request["devices"])} if request.get("devices") else {}
    answer = ask(**workload_settings(request), **devices, **others(request, "candidates", "devices"))
    if isinstance(answer, ServingPlan):
        return plan_html(answer)
    cost, energy = [], []
    for candidate in answer.candidates:
        where = f"{candidate.count} × {candidate.device}" + (f", {candidate.instance}" if candidate.instance else "")
        about = f"{where}, batch {candidate.batch}, {candidate.dtype}: {candidate.verdict}"
        colour = _VERDICTS.get(candidate.verdict, charts.GREY)
        if candidate.usd_per_million is not None:
            cost.append(Point(candidate.latency_ms.value, candidate.usd_per_million.value, about, colour))
        if candidate.energy_j is not None:
            energy.append(Point(candidate.throughput.value, candidate.energy_j.value, about, colour))
    unit = answer.best.throughput.unit
    item = answer.items.removesuffix("s")
    drawn = [
        *scatter("Latency and cost", "latency ms", f"USD per million {answer.items}", cost),
        *scatter("Throughput and energy", unit, f"J per {item}", energy, more_x=True),
    ]
    words = {"meets": "meets the limits", "probably": "probably meets them"}
    keys = [Key(words[name], colour, "circle") for name, colour in _VERDICTS.items()]
    caption = "Each point is a device and instance at its best batch and dtype; the line is the Pareto front."
    return {"html": rendering.html(answer) + charts_html("All candidates", drawn, keys=keys, caption=caption)}


def optimise(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun.optimise`."""
    from forerun.decisions.optimise.optimise import optimise as ask

    answer = ask(device=devices_given(request["device"]), **workload_settings(request), **others(request, "device"))
    bars = [
        (line.name, Estimate(line.gain.value, line.gain.low, line.gain.high, "×"),
         _VERDICTS["meets"] if line.verdict == _CLAIMED else charts.GREY)
        for line in answer.lines if line.gain.value > 0
    ]  # fmt: skip
    drawn = _bars(f"times better in {answer.goal}", bars, single=True)
    keys = [
        Key("a gain beyond the interval", _VERDICTS["meets"], "circle"),
        Key("cannot tell, or worse", charts.GREY, "circle"),
    ]
    return {"html": rendering.html(answer) + charts_html("Changes one by one", drawn, keys=keys, wide=True)}


def budget(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun.budget`, or `forerun.plan_training` of a number of tokens."""
    if "tokens" in request:
        return _training_plan(request)
    from forerun.decisions.budget.budget import budget as ask

    device = {"device": devices_given(request["device"])} if request.get("device") else {}
    answer = ask(**workload_settings(request), **device, **others(request, "device"))
    return {"html": rendering.html(answer) + _budget_charts(answer)}


def _training_plan(request: dict[str, Any]) -> dict[str, Any]:
    from forerun.decisions.plans.training import plan_training as ask
    from forerun.views.plans import layout_words

    answer = ask(**served(request))
    points = [
        Point(
            one.hours.value / 24, one.usd.value, f"{one.devices} × {answer.device}, {layout_words(one)}",
            charts.colour(0),
        )
        for one in answer.front if one.usd is not None
    ]  # fmt: skip
    drawn = scatter("Time and cost", "days", "USD", points)
    return {"html": rendering.html(answer) + charts_html("The Pareto front", drawn)}


def _budget_charts(answer: Any) -> str:
    from forerun.decisions.budget.job_budget import JobBudget
    from forerun.decisions.budget.model_choice import ModelChoice

    blue = charts.colour(0)
    if isinstance(answer, JobBudget):
        points = [
            Point(row.hours.value, row.cost_usd.value, f"{row.devices} × {row.device}, batch {row.batch}", blue)
            for row in (*answer.rows, *answer.counts) if row.cost_usd is not None and row.hours.value > 0
        ]  # fmt: skip
        batches = [(f"batch {row.batch}", row.hours, blue) for row in answer.batches]
        drawn = [*scatter("Time and cost", "hours", "USD", points), *_bars("hours, by batch", batches)]
        return charts_html("The job, drawn", drawn, caption="The line is the Pareto front.")
    rows = [
        (row.model, 100 * (row.top1 if isinstance(answer, ModelChoice) else row.accuracy.value)) for row in answer.rows
    ]
    bars = [(name, Estimate(value, value, value, "%"), blue) for name, value in rows[:_MOST_BARS]]
    return charts_html("Accuracy within the limits", _bars("accuracy, %", bars), wide=True)


def _bars(x: str, bars: Sequence[tuple[str, Estimate, str]], *, single: bool = False) -> list[Chart]:
    """Estimates as bars with their intervals; `single` marks 1, where nothing changes."""
    shown = bars[:_MOST_BARS]
    if not shown:
        return []
    chart = charts.figure(x, "", height=90 + 26 * len(shown))
    values = [bar.value for _, bar, _ in shown]
    ends = {
        "type": "data", "symmetric": False, "array": [bar.high - bar.value for _, bar, _ in shown],
        "arrayminus": [bar.value - bar.low for _, bar, _ in shown], "color": charts.GREY, "thickness": 1.5, "width": 3,
    }  # fmt: skip
    names = [f"{name[:44]}…" if len(name) > 45 else name for name, _, _ in shown]
    chart.add_bar(
        orientation="h", y=list(range(len(shown))), x=values, error_x=ends, marker={"color": [c for _, _, c in shown]},
        hovertext=[f"{html.escape(name)}: {bar}" for name, bar, _ in shown],
        hoverinfo="text",
    )  # fmt: skip
    chart.update_yaxes(
        autorange="reversed", tickvals=list(range(len(shown))), ticktext=[html.escape(name) for name in names]
    )
    if single:
        chart.add_vline(x=1, line={"color": charts.GREY, "width": 1.5, "dash": "dot"})
    return [Chart("", chart)]
