"""View of what devices give as a service of a language model, below the comparison of its calls."""

from __future__ import annotations

from collections.abc import Iterator

from forerun.decisions.compare.served import Served
from forerun.views.blocks import BLANK, Block, Line, Notes
from forerun.views.plan_serving import deployments_table, load_words
from forerun.views.serving import BASIS

_ABOUT = (
    "These are figures of a serving engine under a load that is assumed, not of the calls above, and each device is in "
    "the layout that costs least per token; forerun plan serving takes your load, limits and goal"
)


def served_view(served: Served, width: int | None = 160) -> Iterator[Block]:
    """The best deployment of each device, its command, and why the others have none."""
    plan = served.plan
    yield BLANK
    if plan is None:
        reasons = dict.fromkeys(served.refused.values())
        yield Line(f"{served.model} in a serving engine", "title")
        yield from (Line(reason, "bad") for reason in reasons)
        return
    yield Line(f"{plan.model} served by {plan.engine}, {load_words(plan)}", "title")
    yield deployments_table(plan, plan.rows, width)
    yield from (Line(f"{device} is left out: {reason}", "bad") for device, reason in served.refused.items())
    for one in plan.rows:
        yield Line(f"Serve it on {one.device}: ", code=one.launch, wrap=False)
    fp8 = [note for note in plan.notes if "FP8" in note]
    yield Notes([_ABOUT, *fp8])
    yield Line(f"Basis: learned ({BASIS})", "faint")
