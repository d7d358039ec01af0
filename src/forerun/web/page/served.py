"""The answers of the tab Serving: the tables that notebooks show, and the engine over time or the plan as points."""

from __future__ import annotations

from typing import Any

from forerun.decisions.plans.serving_answer import ServingPlan
from forerun.report import charts
from forerun.report.parts import Chart, Key
from forerun.views.html.fragments import fragment
from forerun.web.operations import served
from forerun.web.page.figures import charts_html
from forerun.web.page.scatter import Point, scatter

_VERDICTS = {"meets": "#3f9e6e", "probably": "#e07b39"}


def serving(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun.serving`, or `forerun.plan_serving` where several devices are given."""
    return _planned(request) if "devices" in request else _simulated(request)


def _simulated(request: dict[str, Any]) -> dict[str, Any]:
    from forerun.serving.predicting import serving as ask
    from forerun.views.serving import serving_view

    answer = ask(**served(request))
    seconds = answer.timeline["seconds"]
    lines = (("running", charts.colour(0)), ("waiting", charts.colour(1)))
    requests = charts.figure("seconds", "requests", height=260)
    for name, colour in lines:
        requests.add_scatter(
            x=seconds, y=answer.timeline[name], name=name, mode="lines", line={"color": colour, "width": 1.5},
            hovertemplate=f"%{{y:.0f}} {name} at %{{x:.3g}} s<extra></extra>",
        )  # fmt: skip
    cache = charts.figure("seconds", "KV cache, %", height=260)
    cache.add_scatter(
        x=seconds, y=[100 * share for share in answer.timeline["kv_use"]], mode="lines",
        line={"color": charts.colour(2), "width": 1.5}, hovertemplate="%{y:.1f} % at %{x:.3g} s<extra></extra>",
    )  # fmt: skip
    keys = [Key(name, colour) for name, colour in lines]
    drawn = charts_html(
        "The engine over time", [Chart("Requests", requests), Chart("KV cache in use", cache)], keys=keys
    )
    return {"html": fragment([*serving_view(answer, None)]) + drawn}


def _planned(request: dict[str, Any]) -> dict[str, Any]:
    from forerun.decisions.plans.serving import plan_serving as ask

    return plan_html(ask(**served(request, "candidates")))


def plan_html(answer: ServingPlan) -> dict[str, Any]:
    """A plan as its tables and as points."""
    from forerun.views.plan_serving import layout_words, plan_view

    points = [
        Point(
            one.itl_ms.value, one.cost_per_million_usd.value,
            f"{one.devices} × {one.device}, {layout_words(one)}, {one.dtype}: {one.verdict}",
            _VERDICTS.get(one.verdict if one.confirmed else "", charts.GREY),
        )
        for one in answer.candidates if one.cost_per_million_usd is not None
    ]  # fmt: skip
    keys = [Key("simulated: meets the limits", _VERDICTS["meets"], "circle"),
            Key("simulated: probably", _VERDICTS["probably"], "circle"),
            Key("closed form", charts.GREY, "circle")]  # fmt: skip
    drawn = charts_html(
        "All deployments", scatter("Token gap and cost", "ms between tokens", "USD per million tokens", points),
        keys=keys, caption="The line is the Pareto front.", wide=True,
    )  # fmt: skip
    return {"html": fragment([*plan_view(answer, None)]) + drawn}
