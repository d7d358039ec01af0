"""Decisions as HTML: the lines and tables that a terminal shows, with room for all columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.pages.fragments import fragment
from forerun.views.mig import packing_view
from forerun.views.optimise import optimise_view
from forerun.views.recommend import recommendation_view

if TYPE_CHECKING:
    from forerun.decisions.budget.curve_choice import CurveChoice
    from forerun.decisions.budget.job_budget import JobBudget
    from forerun.decisions.budget.model_choice import ModelChoice
    from forerun.decisions.mig.answer import MigPacking
    from forerun.decisions.optimise.optimise import Optimisation
    from forerun.decisions.recommend.recommendation import Recommendation


def recommendation_html(r: Recommendation, *, top: int = 10) -> str:
    """What `forerun.recommend` answers: the best choice in a sentence, the choices in order, those beyond `top` folded,
    what was left out and why."""
    return fragment(recommendation_view(r, None, top))


def optimisation_html(found: Optimisation) -> str:
    """What `forerun.optimise` answers: claimed gains, uncertain ones, all together, each with its interval and code."""
    return fragment(optimise_view(found, None))


def budget_html(b: JobBudget | ModelChoice | CurveChoice) -> str:
    """What `forerun.budget` answers: a job on one device or many, or the networks that keep the limits."""
    return fragment(b.blocks())


def packing_html(p: MigPacking) -> str:
    """What `forerun.pack_mig` answers: workloads on slices, the commands that create them, and the plain rule."""
    return fragment(packing_view(p, None))
