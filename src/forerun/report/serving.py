"""The serving level of a language model: a service on each device, planned in a serving engine."""

from __future__ import annotations

from forerun.decisions.plans.serving_answer import Deployment, ServingPlan
from forerun.decisions.recommend import served
from forerun.errors import ForerunError
from forerun.prediction import Estimate
from forerun.report.parts import Level, Table, value_text
from forerun.report.study import Study
from forerun.views.plan_serving import layout_words, load_words

ABOUT = (
    "Nobody serves a language model by single calls: here a serving engine runs it, on each device in the layout that "
    "costs least per token. TTFT: time to the first token. ITL: time between two tokens. forerun plan serving takes "
    "your load and limits."
)
_HEAD = ("deployment", "precision", "TTFT", "ITL", "tokens/s", "USD per million", "J per token", "by")


def serving(study: Study) -> Level | None:
    """None for a model that is no published language model."""
    if not served.serves(study.model, "cost", {}, {}):
        return None
    try:
        plan = served.plan(study.model, "cost", study.devices, None, None, study.confidence)
    except ForerunError as error:
        return Level("serving", "Serving", ABOUT, [f"{error}"], data={"refused": str(error)})
    left_out = [f"{device} is left out: {reason}" for device, reason in plan.missing.items()]
    table = Table(
        f"The best of each device in {plan.engine}, {load_words(plan)}", _HEAD, [_row(one) for one in plan.rows],
        (2, 3, 4, 5, 6), marked=(0,),
    )  # fmt: skip
    rows = [one.to_dict() for one in plan.rows]
    data = {"engine": plan.engine, "load": plan.load, "rows": rows, "left_out": left_out}
    return Level("serving", "Serving", ABOUT, [_finding(plan), *left_out], tables=[table], data=data)


def _finding(plan: ServingPlan) -> str:
    best = plan.best
    cost = "" if best.cost_per_million_usd is None else f", {value_text(best.cost_per_million_usd)} a million tokens"
    return f"{load_words(plan)} take {_name(best)}{cost}. Start it: {best.launch}"


def _row(one: Deployment) -> tuple[str, ...]:
    def cell(estimate: Estimate | None, *, with_unit: bool = False) -> str:
        return value_text(estimate, interval=one.confirmed, with_unit=with_unit)  # the closed form has no interval

    return (
        _name(one), one.dtype, cell(one.ttft_ms, with_unit=True), cell(one.itl_ms, with_unit=True),
        cell(one.throughput), cell(one.cost_per_million_usd), cell(one.energy_per_token_j),
        "simulation" if one.confirmed else "closed form",
    )  # fmt: skip


def _name(one: Deployment) -> str:
    return f"{one.devices} x {one.device} ({layout_words(one)})"
