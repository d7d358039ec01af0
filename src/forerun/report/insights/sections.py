"""The sections of the page: sentences, charts and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forerun._util.readable import pretty
from forerun.report import charts, feature_charts
from forerun.report.insights.learned import Dependence, Explained, Selection
from forerun.report.insights.pairs import Effect
from forerun.report.insights.rows import NAMES, NUMBERS, TARGETS
from forerun.report.insights.words import QUANTITY
from forerun.report.parts import Chart, Group, Level, Table, percent

_TITLES = {
    "matters": "What matters", "size": "Size", "batch": "Batch", "prompt": "Prompt length", "precision": "Precision",
    "device": "Device", "selection": "Feature selection",
}  # fmt: skip
_ABOUT = {
    "matters": "SHAP values of boosted trees that are fitted to the logarithm of each quantity: a dot for a case, "
    "right is more; blue to orange are low to high values of the feature.",
    "size": "Powers are fitted within a family on one device, at one batch, precision and runtime.",
    "batch": "Pairs of cases that differ in their batch alone, as the factor of one doubling.",
    "prompt": "Pairs of cases that differ in the length of their prompt alone, as the factor of one doubling.",
    "precision": "Pairs of cases that differ in precision alone.",
    "device": "The same cases on two devices; below, what the trees say of all.",
    "selection": "Features enter in the order of their SHAP values in the training part; the error is that on families "
    "that were held out.",
}
_FEATURES = {
    "size": ("macs_per_item", "parameters", "nodes"), "batch": ("batch",), "prompt": ("seq_len",),
    "precision": ("precision", "mode", "runtime"), "device": ("device",),
}  # fmt: skip
_SETTINGS = {"batch": ("batch",), "prompt": ("seq_len",), "precision": ("precision", "mode", "runtime"),
             "device": ("device",)}  # fmt: skip
_DEPENDENCE = (
    "Partial dependence: the mean prediction of the trees with this one value in every case, all else as it was. "
    "It is a description of these rows, and no experiment."
)


def sections(
    said: Mapping[str, Sequence[str]], effects: Sequence[Effect], explained: Sequence[Explained],
    selection: Selection | None,
) -> list[Level]:  # fmt: skip
    """One for each of the titles."""
    levels = []
    for name, title in _TITLES.items():
        groups: list[Group] = []
        if name == "matters":
            groups = [_swarms(explained)] if explained else []
        for feature in _FEATURES.get(name, ()):
            groups += _dependence(feature, explained)
        tables = _effects([e for e in effects if e.setting in _SETTINGS.get(name, ())])
        if name == "selection" and selection is not None:
            groups, tables = [_errors(selection)], [_order(selection)]
        levels.append(Level(name, title, _ABOUT[name], said[name], groups, tables))
    return levels


def _swarms(explained: Sequence[Explained]) -> Group:
    pictures = [
        Chart(
            TARGETS[one.target][0].capitalize(),
            feature_charts.beeswarm(one.shares, one.values, quantity=QUANTITY[one.target]),
        )
        for one in explained
    ]
    return Group("SHAP values", pictures, "Names (device, mode, precision, runtime) are one feature each, in grey.",
                 wide=True)  # fmt: skip


def _dependence(feature: str, explained: Sequence[Explained]) -> list[Group]:
    """A chart for each quantity."""
    curves = [(one, c) for one in explained for c in one.dependence if c.feature == feature]
    if not curves:
        return []
    words = {**NUMBERS, **NAMES}[feature]
    pictures = [Chart(TARGETS[one.target][0].capitalize(), _curve(curve)) for one, curve in curves]
    return [Group(f"By {words}", pictures, _DEPENDENCE)]


def _curve(curve: Dependence) -> Any:
    quantity, unit = QUANTITY[curve.target], TARGETS[curve.target][1]
    if curve.feature in NUMBERS:
        chart = charts.figure(NUMBERS[curve.feature], f"{quantity}, {unit}", height=300)
        chart.add_scatter(
            x=list(curve.values), y=list(curve.predicted), mode="lines+markers", marker={"color": charts.colour(0)},
            hovertemplate=f"%{{x:.4s}}: %{{y:.3g}} {unit}<extra></extra>",
        )  # fmt: skip
        positive = [value for value in curve.values if value > 0]
        if len(positive) == len(curve.values) and max(positive) / min(positive) > 8:
            charts.log_axis(chart, positive, axis="xaxis")
    else:
        chart = charts.figure(f"{quantity}, {unit}", "", height=130 + 24 * len(curve.values))
        chart.add_bar(
            x=list(curve.predicted), y=[str(value) for value in curve.values], orientation="h",
            marker={"color": charts.colour(0)}, hovertemplate=f"%{{y}}: %{{x:.3g}} {unit}<extra></extra>",
        )  # fmt: skip
        chart.update_layout(margin={"l": 130}, yaxis={"autorange": "reversed", "type": "category"})
    if curve.feature in NUMBERS and max(curve.predicted) / min(curve.predicted) > 8:
        charts.log_axis(chart, curve.predicted)
    return chart


def _effects(effects: Sequence[Effect]) -> list[Table]:
    if not effects:
        return []
    lines = [
        (e.change, e.where, QUANTITY[e.target], pretty(e.factor), f"{pretty(e.low)} … {pretty(e.high)}", f"{e.pairs:,}",
         f"{e.models:,}")
        for e in sorted(effects, key=lambda e: (e.setting, e.where, e.change))
    ]  # fmt: skip
    head = ("change", "where", "quantity", "factor", "middle half", "pairs", "models")
    return [
        Table("All pairs", head, lines, (3, 5, 6), shown=0, caption="Medians, and the first to the third quartile.")
    ]


def _errors(selection: Selection) -> Group:
    chart = charts.figure("features", "error on held-out families, %", height=320)
    for at, kind in enumerate(("median", "mean")):
        chart.add_scatter(
            x=[line["features"] for line in selection.errors], y=[100 * line[kind] for line in selection.errors],
            mode="lines+markers", name=kind, marker={"color": charts.colour(at)},
            hovertemplate=f"{kind} with %{{x}} features: %{{y:.3g}} %<extra></extra>",
        )  # fmt: skip
    chart.update_layout(yaxis={"rangemode": "tozero"}, showlegend=True, legend={"orientation": "h", "y": 1.15})
    return Group(
        "How many features are enough", [Chart(f"{QUANTITY[selection.target].capitalize()}", chart)], wide=True
    )


def _order(selection: Selection) -> Table:
    by_size = {line["features"]: line for line in selection.errors}
    lines = []
    for at, (name, strength) in enumerate(zip(selection.order, selection.strength, strict=True), 1):
        known = by_size.get(at)
        lines.append(
            (str(at), {**NUMBERS, **NAMES}[name], f"×{pretty(strength)}", percent(known["median"]) if known else "")
        )
    return Table(
        "Features in order", ("", "feature", "mean factor", "median error with those so far"), lines, (0, 2, 3),
        marked=range(len(selection.enough)), caption="Marked: as few as are enough.",
    )  # fmt: skip
