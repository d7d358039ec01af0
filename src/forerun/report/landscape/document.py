"""docs/LANDSCAPE.md: the study in words and tables, with pictures and one page of figures beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from forerun.errors import ForerunError
from forerun.landscape import judge
from forerun.landscape.encode import ENCODINGS
from forerun.landscape.experiments import (
    ALL,
    FEW,
    PLANNED,
    PUBLISHED,
    PUBLISHED_TARGET,
    Later,
    Study,
)
from forerun.landscape.fill.document import fill_part, reading_part, table
from forerun.landscape.learn import ESTIMATORS
from forerun.landscape.rows import TARGETS
from forerun.report.landscape.figures import Drawn, page, picture
from forerun.report.landscape.study_figures import COMMAND, study_figures

#: The page of all figures, and those that the document shows as pictures.
PAGE = "landscape.html"
PICTURES = ("landscape_splits", "landscape_later_cost", "landscape_later_time", "landscape_shap",
            "landscape_trend_compute", "landscape_chip_hours")  # fmt: skip
_FIRST = next(iter(ENCODINGS))
#: The targets: the least share within a factor of 2, and the coverage of a 90 % interval.
_NEAR, _HELD = 0.7, (0.85, 0.95)
_INTRO = f"""What training a model takes, learned from what is published of all the notable ones. Written, with every
number and figure, by

    {COMMAND}

The tables are Epoch AI's ("Data on AI models" and "Machine learning hardware", epoch.ai, CC BY 4.0). They are not part
of this repository: `forerun landscape import FOLDER` reads copies of them. Filled numbers are used neither for
evaluation nor for training here: every target is as the tables state it. Note that much of what they state is itself
estimated there: power from chips and their TDP, cost from chip hours, some compute from hours and chips."""
_TEACHES = """**What the difference teaches.** A model that names two organisations, three countries and two chips is
twelve rows, all with the same cost. Split at random, nearly every evaluated row has copies of its own model in
training: a forest or a boosted tree looks the model up and repeats its cost, and the score says how well rows were
copied, not how well cost was understood. With every model on one side the same estimators, encodings and features lose
the part of R² that was memory. With organisations on one side, knowing who usually spends how much does not help
either. Asked about years that they have not seen, trees cannot leave the range of their training rows, and new models
are larger than all before: R² falls below 0, where the mean of the evaluated rows would have been nearer. A law that
multiplies keeps working there, which is why the estimate is based on arithmetic first."""


def write(study: Study, path: Path) -> list[Path]:
    """Writes the document, `figures/landscape.html` and the pictures beside it; every file whole or not at all."""
    if not path.parent.is_dir():
        raise ForerunError(f"there is no folder {path.parent} for {path.name}")
    folder = path.parent / "figures"
    folder.mkdir(exist_ok=True)
    drawn = {one.name: one for one in study_figures(study)}
    about = ["Figures of docs/LANDSCAPE.md. Data: Epoch AI, epoch.ai, CC BY 4.0."]
    written = [_put(folder / PAGE, page("The landscape: figures", about, list(drawn.values())))]
    for name in PICTURES:
        picture(drawn[name].figure, folder / f"{name}.png")
        written.append(folder / f"{name}.png")
    return [_put(path, "\n\n".join(_parts(study, drawn)) + "\n"), *written]


def _put(path: Path, content: str) -> Path:
    part = path.with_name(f".{path.name}.part")
    part.write_text(content, encoding="utf-8")
    part.replace(path)
    return path


def _parts(study: Study, drawn: dict[str, Drawn]) -> list[str]:
    return [
        "# The landscape: what training a model takes", _INTRO, "## In short\n\n" + "\n".join(_short(study)),
        "## The tables, cleaned", _steps(study),
        "## The published experiments, and the same by honest splits", _experiments(study), _TEACHES,
        _shown(drawn["landscape_splits"]), "### Every estimator: training cost", _estimators(study),
        "### Trained before 2024, judged on what came after: training cost", _by_time(study),
        "### Other targets", _targets(study), "### Encodings", _encodings(study), "### Parameters by Optuna",
        _tuned(study), "### What training and prediction take", _costs(study),
        "## Models published after the training period",
        *(_later_part(study, drawn) if study.later else ["The tables have no models of 2024 or later."]),
        "## The arithmetic", _laws(study), _shown(drawn["landscape_chip_hours"]),
        "## What matters", _matters(study), _shown(drawn["landscape_shap"]), *_single(study),
        "## Trends", _trends(study), _shown(drawn["landscape_trend_compute"]),
        "## Fills", "\n".join(fill_part(study.fills)), "\n".join(reading_part(study.reading)),
        f"The command writes all figures, to be looked into, as `figures/{PAGE}` beside this document.",
    ]  # fmt: skip


def _later_part(study: Study, drawn: dict[str, Drawn]) -> list[str]:
    """Models of later years: how they are predicted, against the aims, by every method, drawn."""
    tables = (_later_table(one) for one in study.later)
    pictures = (_shown(drawn[f"landscape_later_{kind}"]) for kind in ("cost", "time"))
    return [_later_words(study.later[0]), _aims(study), *tables, *pictures]


def _shown(one: Drawn) -> str:
    return f"![{one.title}](figures/{one.name}.png)\n\n{one.words} Made by `{one.command}`."


def _short(study: Study) -> list[str]:
    """The findings in a sentence each."""
    lines = []
    for name in ("random forest", "gradient boosting"):
        values = [_r2(study, PUBLISHED_TARGET, _FIRST, protocol, name) for protocol in judge.PROTOCOLS]
        lines.append(
            f"- R² of training cost, {name}: {values[0]} by the published split; with every model on one side "
            f"{values[1]}, every organisation {values[2]}, on later years {values[3]}."
        )
    for later in study.later[:1]:
        for target, words in (("cost_2023_usd", "cost"), ("training_hours", "time")):
            for method in ("joined", "physics", "learned"):
                one = _later_line(later, target, method, PLANNED)
                if one is not None:
                    lines.append(
                        f"- Models from {later.cut:.0f} on, {words}, {method}: {one['within 2']:.0%} within a factor "
                        f"of 2, {one['coverage']:.0%} in the 90 % interval (n = {one['n']:.0f})."
                    )
    resolved = study.tables.hardware_resolved
    if resolved is not None:
        lines.append(
            f"- Hardware names resolved to devices of the catalogue: {resolved:.1%} of the models that name any."
        )
    lines.append(f"- The study took {study.processor_s / 60:.1f} minutes of processor time.")
    return lines


def _steps(study: Study) -> str:
    rows = [(s.name, f"{s.rows_before:,}", f"{s.rows_after:,}", s.words) for s in study.tables.steps]
    return "\n".join(table(("step", "rows before", "rows after", "what it did"), rows))


def _line(study: Study, target: str, encoding: str, protocol: str, name: str) -> pd.Series | None:
    c = study.compared
    rows = c[
        (c["target"] == target) & (c["encoding"] == encoding) & (c["protocol"] == protocol) & (c["estimator"] == name)
    ]
    return rows.iloc[0] if len(rows) else None


def _r2(study: Study, target: str, encoding: str, protocol: str, name: str) -> str:
    line = _line(study, target, encoding, protocol, name)
    return "" if line is None else f"{line['r2']:.3f}"


def _experiments(study: Study) -> str:
    rows = []
    for encoding, (theirs, name) in PUBLISHED.items():
        ours = [_r2(study, PUBLISHED_TARGET, encoding, protocol, name) for protocol in judge.PROTOCOLS]
        rows.append((encoding, name, f"{theirs:.4f}", *ours))
    heads = ("experiment", "estimator", "published R²", *(f"ours: {words}" for words in judge.PROTOCOLS.values()))
    return "R² of the logarithm of training cost.\n\n" + "\n".join(table(heads, rows))


def _estimators(study: Study) -> str:
    rows = []
    for name in ESTIMATORS:
        cells = []
        for protocol in judge.PROTOCOLS:
            line = _line(study, PUBLISHED_TARGET, _FIRST, protocol, name)
            cells.append("" if line is None else f"{line['r2']:.3f} · {line['decades']:.2f} · {line['coverage']:.0%}")
        rows.append((name, *cells))
    words = "R² · mean error in decades · share in the 90 % interval. Rows judged: " + ", ".join(
        f"{protocol} {_rows(study, protocol)}" for protocol in judge.PROTOCOLS
    )
    return f"{words}.\n\n" + "\n".join(table(("estimator", *judge.PROTOCOLS.values()), rows))


def _rows(study: Study, protocol: str) -> str:
    line = _line(study, PUBLISHED_TARGET, _FIRST, protocol, ESTIMATORS[0])
    return "0" if line is None else f"{line['n']:.0f}"


_FIGURES = {
    "r2": "R²", "decades": "decades", "mape": "MAPE", "within 2": "within a factor of 2",
    "coverage": "in the interval", "width": "half the interval, decades",
}  # fmt: skip


def _figure_cells(line: pd.Series) -> list[str]:
    return [f"{line[key]:.0%}" if key in ("mape", "within 2", "coverage") else f"{line[key]:.2f}" for key in _FIGURES]


def _by_time(study: Study) -> str:
    lines = [(name, _line(study, PUBLISHED_TARGET, _FIRST, "time", name)) for name in ESTIMATORS]
    rows = [(name, *_figure_cells(one)) for name, one in lines if one is not None]
    return "\n".join(table(("estimator", *_FIGURES.values()), rows))


def _targets(study: Study) -> str:
    rows = []
    for target, words in TARGETS.items():
        for name in FEW:
            ours = [_r2(study, target, _FIRST, protocol, name) for protocol in judge.PROTOCOLS]
            if any(ours):
                rows.append((words, name, *ours))
    note = "Hardware is not multiplied, so that its first two splits are of one kind; its organisations are makers."
    return f"R² of logarithms. {note}\n\n" + "\n".join(table(("target", "estimator", *judge.PROTOCOLS.values()), rows))


def _encodings(study: Study) -> str:
    rows = [
        (encoding, *(_r2(study, PUBLISHED_TARGET, encoding, protocol, name) for protocol in judge.PROTOCOLS for name in
                     ("ridge", "gradient boosting")))
        for encoding in ENCODINGS
    ]  # fmt: skip
    heads = [f"{protocol}, {name}" for protocol in judge.PROTOCOLS for name in ("ridge", "boosting")]
    return "R² of training cost.\n\n" + "\n".join(table(("encoding", *heads), rows))


def _tuned(study: Study) -> str:
    if study.tuned.empty:
        return "No models of 2024 or later."
    rows = [
        (TARGETS[one["target"]], one["estimator"], one["settings"], *_figure_cells(one))
        for _, one in study.tuned.iterrows()
    ]
    words = ("Chosen by the error on later rows inside the years before 2024 (three folds by time), then evaluated "
             "once on what came after.")  # fmt: skip
    return f"{words}\n\n" + "\n".join(table(("target", "estimator", "settings", *_FIGURES.values()), rows))


def _costs(study: Study) -> str:
    rows = [
        (str(one["estimator"]), *(f"{one[key]:.3g}" for key in study.costs.columns[1:]))
        for _, one in study.costs.iterrows()
    ]
    words = (
        "The published split of training cost, in a process of its own; allocations by tracemalloc, RSS by the system."
    )
    return f"{words}\n\n" + "\n".join(table(tuple(study.costs.columns), rows))


def _later_line(later: Later, target: str, method: str, rows: str) -> pd.Series | None:
    f = later.figures
    matches = f[(f["target"] == target) & (f["method"] == method) & (f["rows"] == rows)]
    return matches.iloc[0] if len(matches) else None


def _later_words(later: Later) -> str:
    shares = later.fitted.shares
    return (
        "Three estimates side by side, from what a plan knows: FLOP (as stated, else 6 N D), chips and their number, "
        "date. **Physics** is FLOP over the chips' peak at the usual utilisation, at the price of a chip hour. "
        "**Learned** is a robust line through the published models. **Joined** is a weighted mean of both logarithms; "
        "the share of what was learned was chosen on earlier years, each predicted from those before it (cost "
        f"{shares['cost_2023_usd']:.0%}, time {shares['training_hours']:.0%}). Intervals are from the same errors, of "
        "the last three years before the cut. Every number is fitted to years before the cut. A plan without chips or "
        "their number has no time by physics: such rows are in the first lines of each table and not in the others. "
        "The aim: 70 % within a factor of 2, and 85 to 95 % in the interval.\n\n"
        "What was seen of the evaluated years while the laws were written: that chips without a stated price (H800) "
        "were priced too low by a line, that costs of tuned models count their base model, and that power for a watt "
        "of TDP falls with the years. Each law was then changed, its numbers fitted to earlier rows alone (chip "
        "prices: each chip released before 2024 held out), but the ideas came from later ones, and only that of chip "
        "prices was checked on earlier rows before it was taken: these figures are somewhat favourable. With so few "
        "rows a model or two more or less within the factor moves a share by 3 to 14 points."
    )


def _later_table(later: Later) -> str:
    f = later.figures
    every = f[f["rows"] == ALL].set_index(["target", "method"])["n"]
    # Where physics answers all that is stated, the two groups of rows are the same and shown once.
    shown = f[[one["rows"] == ALL or one["n"] != every.get((one["target"], "learned")) for _, one in f.iterrows()]]
    rows = [
        (TARGETS[one["target"]], one["rows"], one["method"], f"{one['n']:.0f} of {one['stated']:.0f}",
         f"{one['within 2']:.0%}", f"{one['coverage']:.0%}", f"{one['decades']:.2f}", f"{one['width']:.2f}")
        for _, one in shown.iterrows()
    ]  # fmt: skip
    heads = ("target", "rows", "method", "n", "within a factor of 2", "in the 90 % interval", "mean error, decades",
             "half the interval, decades")  # fmt: skip
    return f"### Published from {later.cut:.0f} on, predicted from those before\n\n" + "\n".join(table(heads, rows))


def _aims(study: Study) -> str:
    """The joined estimate against the targets."""
    rows: list[tuple[str, str, str, float]] = []
    for later in study.later:
        for target in ("cost_2023_usd", "training_hours"):
            for which in (PLANNED, ALL):
                one = _later_line(later, target, "joined", which)
                if one is None or (which == ALL and rows and one["n"] == rows[-1][-1]):
                    continue
                near, held = one["within 2"], one["coverage"]
                rows.append((
                    f"from {later.cut:.0f} on, {TARGETS[target]}, {which}",
                    f"{near:.0%}: {'met' if near >= _NEAR else 'not met'}",
                    f"{held:.0%}: {'met' if _HELD[0] <= held <= _HELD[1] else 'not met'}", one["n"],
                ))  # fmt: skip
    cells = [(*row[:3], f"{row[3]:.0f}") for row in rows]
    heads = ("joined estimate", "at least 70 % within a factor of 2", "85 to 95 % in the 90 % interval", "n")
    return "\n".join(table(heads, cells))


def _laws(study: Study) -> str:
    laws = study.fitted.laws
    age = laws.hourly.weights[0] / laws.hourly.scales[0]
    rows = [(name, f"{count:,}") for name, count in laws.rows.items()]
    return (
        f"Fitted to all rows, as `forerun landscape estimate` uses them: a utilisation of {laws.utilisation:.0%} (the "
        "median of the rows that state one; a hardware utilisation counts less what is recomputed). A chip hour costs "
        f"a share of the chip's price that falls by {1 - np.exp(age):.0%} with each year of its age. A chip without a "
        "known price costs what the nearest chips of the catalogue do. Power is the chips' TDP times what servers and "
        "buildings add, by year; that is how Epoch AI estimates it, so that the small error says nothing of meters.\n\n"
        + "\n".join(table(("law", "rows it is based on"), rows))
    )


def _matters(study: Study) -> str:
    means = study.explained.shares.abs().mean()
    lost = study.explained.permuted.set_index("feature")["loss of R²"]
    rows = [(str(name), f"{means[name]:.3f}", f"{lost.get(name, float('nan')):.3f}") for name in means.index[:12]]
    chosen = [(f"{one['features']:.0f}", f"{one['r2']:.3f}", f"{one['within 2']:.0%}")
              for _, one in study.explained.selected.iterrows()]  # fmt: skip
    return (
        "Gradient boosting for training cost, a row per model. Mean size of SHAP values in decades, and the loss of R² "
        "on held-out models when a column is shuffled:\n\n"
        + "\n".join(table(("feature", "SHAP", "permutation"), rows))
        + "\n\nFeatures chosen by SHAP in each training part, evaluated on held-out models:\n\n"
        + "\n".join(table(("features", "R²", "within a factor of 2"), chosen))
    )


def _single(study: Study) -> list[str]:
    """Single models by LIME."""
    if not study.explained.single:
        return []
    intro = (
        "### Single models\n\nLIME asks the same trees about a model and about random neighbours of it, and fits "
        "a line to their answers: the conditions that the model meets, and the factor that each puts on its cost. "
        "`forerun landscape explain` does the same for any published model, or for one of your own, held out."
    )
    rows = [
        (model if not at else "", condition, f"×{10**weight:.2f}")
        for model, parts in study.explained.single.items()
        for at, (condition, weight) in enumerate(parts)
    ]
    return [intro, "\n".join(table(("model", "condition", "factor on its cost"), rows))]


def _trends(study: Study) -> str:
    rows = [
        (
            one["quantity"],
            one["models"],
            f"{one['n']:.0f}",
            f"{one['factor a year']:.2f}",
            f"{one['doubles in, months']:.1f}",
        )
        for _, one in study.trends.growth.iterrows()
    ]
    words = "Since 2012, by a line through logarithms; the front: the largest tenth by compute of the year around."
    return f"{words}\n\n" + "\n".join(table(("quantity", "models", "n", "factor a year", "doubles in, months"), rows))
