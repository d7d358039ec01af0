"""Answers as HTML, for a notebook, a report and a web page: one look, one stylesheet, no rich, torch or pandas.

Every function here returns a fragment, `<div class="forerun answer">…</div>`, in which all text of users is escaped.
`notebook` puts the stylesheet in front of a fragment; a whole page has `page_style()` in its head.
"""

from forerun.pages.answers import explanation_html, prediction_html
from forerun.pages.decisions import budget_html, optimisation_html, packing_html, recommendation_html
from forerun.pages.devices import comparison_html, predictions_html
from forerun.pages.fragments import fragment, notebook
from forerun.pages.style import fragment_style, page_style
from forerun.pages.tables import table_html

__all__ = [
    "budget_html",
    "comparison_html",
    "explanation_html",
    "fragment",
    "fragment_style",
    "notebook",
    "optimisation_html",
    "packing_html",
    "page_style",
    "prediction_html",
    "predictions_html",
    "recommendation_html",
    "table_html",
]
