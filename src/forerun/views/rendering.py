"""Which view draws an answer, looked up by its type.

`blocks` gives the lines and tables of an answer, `html` a fragment of HTML, `text` plain lines. A kind of answer is one
file that registers its renderers here; ours are loaded when an answer of their kind is first shown, so that a command
imports only the views that it uses. An answer of another package registers its own: `blocks.register(MyAnswer,
my_view)`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from forerun.views.blocks import Block

#: The modules that register the views of an answer, by the name of its class.
_HOMES = {
    "forerun.prediction.Prediction": ("prediction",),
    "forerun.decisions.compare.answer.Comparison": ("side_by_side",),
    "forerun.api.description.DescribedModel": ("description",),
    "forerun.api.explanation.Explanation": ("explanation",),
    "forerun.predictors.attribution.Attribution": ("attribution",),
    "forerun.decisions.budget.curve_choice.CurveChoice": ("choices",),
    "forerun.decisions.budget.job_budget.JobBudget": ("budget",),
    "forerun.decisions.budget.model_choice.ModelChoice": ("choices",),
    "forerun.decisions.mig.answer.MigPacking": ("mig",),
    "forerun.decisions.optimise.optimise.Optimisation": ("optimise",),
    "forerun.decisions.plans.training.TrainingPlan": ("plans",),
    "forerun.decisions.recommend.recommendation.Recommendation": ("recommend",),
    "forerun.decisions.plans.serving_answer.ServingPlan": ("plan_serving",),
    "forerun.serving.answer.ServingPrediction": ("serving",),
}


@functools.singledispatch
def blocks(answer: Any, width: int | None = None) -> Iterable[Block]:
    """The lines and tables of an answer, for a terminal of some width; without one, for a page with room for all."""
    if _registered(blocks, answer):
        return blocks(answer, width)
    raise TypeError(f"no view draws a {type(answer).__name__}: register a view of it in forerun.views.rendering")


@functools.singledispatch
def html(answer: Any) -> str:
    """An answer as a fragment of HTML."""
    from forerun.views.html.fragments import fragment  # a terminal needs no HTML

    return html(answer) if _registered(html, answer) else fragment(blocks(answer, None))


@functools.singledispatch
def text(answer: Any) -> str:
    """An answer as plain lines."""
    return text(answer) if _registered(text, answer) else repr(answer)


def notebook(answer: Any) -> str:
    """An answer as the output of a notebook's cell."""
    from forerun.views.html.fragments import notebook_cell

    return notebook_cell(html(answer))


def _registered(function: Any, answer: Any) -> bool:
    """Whether a renderer other than the default draws an answer, once our views of its kind are imported."""
    for cls in type(answer).__mro__:
        for home in _HOMES.get(f"{cls.__module__}.{cls.__qualname__}", ()):
            import_module(f"forerun.views.{home}")
    return function.dispatch(type(answer)) is not function.dispatch(object)
