"""The figures of the study: splits compared, later years, what matters, trends, prices of chip hours, fills."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.landscape.judge import PROTOCOLS
from forerun.landscape.trends import QUANTITIES, Trends
from forerun.report.landscape.figures import COLOURS, Drawn, empty

if TYPE_CHECKING:
    from forerun.landscape.experiments import Study

COMMAND = "forerun landscape experiments -o docs/LANDSCAPE.md"
_METHODS = {"physics": COLOURS[0], "learned": COLOURS[4], "joined": COLOURS[1]}
#: Features that a summary shows.
_SHOWN = 12


def study_figures(study: Study) -> Iterator[Drawn]:
    """Every figure of the document."""
    yield _splits(study)
    for target, words in (("cost_2023_usd", "cost, 2023 USD"), ("training_hours", "training time, h")):
        yield _later(study, target, words)
    yield _summary(study)
    yield from _dependence(study)
    yield _permuted(study)
    yield from _single(study)
    yield _selection(study)
    yield from trend_figures(study.trends, COMMAND)
    yield _fills(study)


def _splits(study: Study) -> Drawn:
    figure = empty("", "R² of logarithms")
    compared = study.compared
    compared = compared[(compared["target"] == "cost_2023_usd") & (compared["encoding"] == "standard scaler")]
    for colour, (protocol, words) in zip(COLOURS, PROTOCOLS.items(), strict=False):
        rows = compared[compared["protocol"] == protocol]
        figure.add_bar(x=rows["estimator"].tolist(), y=rows["r2"].clip(-1, 1).tolist(), name=words,
                     marker={"color": colour})  # fmt: skip
    figure.update_layout(barmode="group", yaxis={"range": [-1.05, 1.05]})
    words = "R² of training cost by estimator and split, below -1 drawn as -1."
    return Drawn("landscape_splits", "The same estimators by four splits", words, COMMAND, figure)


def _later(study: Study, target: str, axis: str) -> Drawn:
    later = study.later[0]
    figure = empty(f"stated {axis}", f"predicted {axis}", height=440, log_x=True, log_y=True)
    known = later.models[target]
    for method, colour in _METHODS.items():
        values = later.predicted[target, method, "value"]
        both = known.notna() & values.notna()
        figure.add_scatter(
            x=known[both].tolist(), y=values[both].tolist(), mode="markers", name=method,
            marker={"color": colour, "size": 8, "opacity": 0.75}, text=later.models.loc[both, "model"].tolist(),
            hovertemplate="%{text}<br>stated %{x:.3g}, predicted %{y:.3g}<extra></extra>",
        )  # fmt: skip
    ends = np.array([known.min() / 1.5, known.max() * 1.5])
    for factor, dash in ((1.0, "solid"), (2.0, "dash"), (0.5, "dash")):
        figure.add_scatter(x=ends.tolist(), y=(ends * factor).tolist(), mode="lines", showlegend=False,
                         line={"color": "#888888", "width": 1, "dash": dash}, hoverinfo="skip")  # fmt: skip
    words = f"Models published from {later.cut:.0f} on, predicted from those before; dashed: a factor of 2."
    kind = "cost" if target == "cost_2023_usd" else "time"
    return Drawn(f"landscape_later_{kind}", f"Training {kind} of later models", words, COMMAND, figure)


def _summary(study: Study) -> Drawn:
    explained = study.explained
    order = list(explained.shares.columns[:_SHOWN])
    figure = empty("moves the decimal logarithm of cost by", "", height=460)
    generator = np.random.default_rng(0)
    for place, name in enumerate(order):
        shares, ranks = explained.shares[name], explained.values[name].fillna(0.5)
        figure.add_scatter(
            x=shares.tolist(), y=(place + 0.3 * generator.uniform(-1, 1, len(shares))).tolist(), mode="markers",
            name=name, text=list(explained.models), hovertemplate=f"%{{text}}: {name} %{{x:.2f}}<extra></extra>",
            marker={"size": 4, "color": ranks.tolist(), "colorscale": [[0, COLOURS[0]], [1, COLOURS[1]]]},
            showlegend=False,
        )  # fmt: skip
    figure.update_layout(yaxis={"autorange": "reversed", "tickvals": list(range(len(order))), "ticktext": order},
                       margin={"l": 130})  # fmt: skip
    words = "SHAP values of gradient boosting for training cost, a dot per model; blue to orange: low to high values."
    return Drawn("landscape_shap", "What moves the cost", words, COMMAND, figure)


def _dependence(study: Study) -> Iterator[Drawn]:
    explained = study.explained
    numeric = [name for name in explained.shares if explained.values[name].notna().any()][:3]
    for name in numeric:
        figure = empty(f"{name}, share of the models with less", "moves the decimal logarithm of cost by")
        figure.add_scatter(
            x=explained.values[name].tolist(), y=explained.shares[name].tolist(), mode="markers", name=name,
            marker={"size": 6, "color": COLOURS[0], "opacity": 0.7}, text=list(explained.models),
            hovertemplate="%{text}: %{y:.2f}<extra></extra>",
        )  # fmt: skip
        yield Drawn(f"landscape_shap_{name}", f"SHAP dependence: {name}", "A dot per model.", COMMAND, figure)


def _permuted(study: Study) -> Drawn:
    top = study.explained.permuted.head(_SHOWN)
    figure = empty("loss of R² on held-out models", "", height=400)
    figure.add_bar(x=top["loss of R²"].tolist(), y=top["feature"].tolist(), orientation="h",
                 marker={"color": COLOURS[0]})  # fmt: skip
    figure.update_layout(yaxis={"autorange": "reversed"}, margin={"l": 130})
    words = "How much R² of training cost falls when a column is shuffled."
    return Drawn("landscape_permutation", "Permutation importance", words, COMMAND, figure)


def _single(study: Study) -> Iterator[Drawn]:
    for model, parts in study.explained.single.items():
        figure = empty("moves the decimal logarithm of cost by", "", height=360)
        names, weights = [name for name, _ in parts], [weight for _, weight in parts]
        colours = [COLOURS[1] if weight > 0 else COLOURS[0] for weight in weights]
        figure.add_bar(x=weights, y=names, orientation="h", marker={"color": colours})
        figure.update_layout(yaxis={"autorange": "reversed"}, margin={"l": 260})
        words = "LIME: conditions that decide about this model's cost."
        yield Drawn(f"landscape_lime_{_plain(model)}", f"LIME: {model}", words, COMMAND, figure)


def _selection(study: Study) -> Drawn:
    selected = study.explained.selected
    figure = empty("features, best by SHAP first", "R² on held-out models", log_x=True)
    figure.add_scatter(x=selected["features"].tolist(), y=selected["r2"].tolist(), mode="lines+markers", name="R²",
                     marker={"size": 8, "color": COLOURS[0]}, line={"color": COLOURS[0]})  # fmt: skip
    words = "Training cost with the best 1, 2, 3 … features, chosen by SHAP in each training part."
    return Drawn("landscape_selection", "How many features are enough", words, COMMAND, figure)


def trend_figures(trends: Trends, command: str) -> Iterator[Drawn]:
    """Compute and cost of single models by year, medians by group, and what a chip hour cost."""
    for name, axis in (("total_flop", "training compute, FLOP"), ("cost_2023_usd", "training cost, 2023 USD")):
        figure = empty("year", axis, height=420, log_y=True)
        common = trends.models["domain"].value_counts().index[: len(COLOURS) - 1]
        for colour, domain in zip(COLOURS, common, strict=False):
            rows = trends.models[(trends.models["domain"] == domain) & trends.models[name].notna()]
            if len(rows):
                figure.add_scatter(
                    x=rows["year_of"].tolist(), y=rows[name].tolist(), mode="markers", name=str(domain),
                    marker={"size": 5, "color": colour, "opacity": 0.7}, text=rows["model"].tolist(),
                    hovertemplate="%{text}: %{y:.3g}<extra></extra>",
                )  # fmt: skip
        figure.update_layout(xaxis={"range": [2009.5, float(trends.models["year_of"].max()) + 0.5]})
        kind = "compute" if name == "total_flop" else "cost"
        yield Drawn(
            f"landscape_trend_{kind}", f"Training {kind} by year", "A dot per model, since 2010.", command, figure
        )
    yield _chip_hours(trends, command)


def group_figures(trends: Trends, command: str) -> Iterator[Drawn]:
    """Medians by group: lines by year where that is one of the groups, else bars."""
    rest = [name for name in trends.by if name != "year"]
    for name, axis in QUANTITIES.items():
        stated = trends.groups.dropna(subset=[name])
        if stated.empty:
            continue
        figure = empty("year" if "year" in trends.by else "", axis, height=420, log_y=True)
        if "year" not in trends.by:
            labels = stated[rest].astype(str).agg(", ".join, axis=1)
            figure.add_bar(x=labels.tolist(), y=stated[name].tolist(), marker={"color": COLOURS[0]})
        else:
            parts = stated.groupby(rest, sort=False) if rest else [("all", stated)]
            for at, (label, rows) in enumerate(parts):
                called = ", ".join(map(str, label)) if isinstance(label, tuple) else str(label)
                figure.add_scatter(x=rows["year"].tolist(), y=rows[name].tolist(), mode="lines+markers", name=called,
                                 marker={"color": COLOURS[at % len(COLOURS)], "size": 6})  # fmt: skip
        words = f"Medians by {', '.join(trends.by)}, of the models that state it; groups of three or more."
        yield Drawn(f"landscape_median_{name}", f"Median {axis}", words, command, figure)


def _chip_hours(trends: Trends, command: str) -> Drawn:
    figure = empty("age of the chip, years", "2023 USD for a chip hour", height=420, log_y=True)
    common = trends.prices["hardware"].value_counts().index[: len(COLOURS) - 1]
    for colour, chip in zip(COLOURS, common, strict=False):
        rows = trends.prices[trends.prices["hardware"] == chip].sort_values("chip_age")
        figure.add_scatter(x=rows["chip_age"].tolist(), y=rows["stated_usd_per_hour"].tolist(), mode="markers",
                         name=str(chip), marker={"size": 7, "color": colour}, text=rows["model"].tolist(),
                         hovertemplate="%{text}: %{y:.2f}<extra></extra>")  # fmt: skip
        figure.add_scatter(x=rows["chip_age"].tolist(), y=rows["law_usd_per_hour"].tolist(), mode="lines",
                         showlegend=False, line={"color": colour, "width": 1}, hoverinfo="skip")  # fmt: skip
    words = "Stated cost over stated chips and hours, by the age of the chip; lines: the law that estimates use."
    return Drawn("landscape_chip_hours", "What a chip hour cost", words, command, figure)


def _fills(study: Study) -> Drawn:
    figure = empty("", "median error, decades")
    methods = dict.fromkeys(error.method for error in study.fills.errors)
    for colour, method in zip(COLOURS, methods, strict=False):
        errors = [error for error in study.fills.errors if error.method == method and error.median_decades is not None]
        figure.add_bar(x=[error.column for error in errors], y=[error.median_decades for error in errors], name=method,
                     marker={"color": colour})  # fmt: skip
    figure.update_layout(barmode="group")
    words = "Known values hidden and filled: the median error of each method in each column, of what it answers."
    return Drawn("landscape_fills", "Fills judged by hiding known values", words, COMMAND, figure)


def _plain(name: Any) -> str:
    return "".join(sign if sign.isalnum() else "_" for sign in str(name).lower())
