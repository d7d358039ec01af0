"""The part 'Fill' of the study's document: errors per method and column, and examples with their sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import shorten

from forerun.landscape.fill.judge import HIT, FillError, FillStudy
from forerun.landscape.fill.methods import METHODS
from forerun.landscape.fill.reading import ReadingStudy


def fill_part(study: FillStudy) -> list[str]:
    """The lines of the part, in Markdown, without its heading."""
    lines = [
        f"Every known value of {study.models} models, and of all hardware, was hidden once ({study.folds} parts, one "
        "hidden at a time) and filled from the rest. The rules of retrieval were first written while looking at "
        "the notes of the other models only; those that leave sentences out (doubts, assumptions, hours of data, how a "
        "model is used) were added after reading what was put into holes of all models. A value that "
        "a method does not fill counts as unfilled, and never as an error. "
        f"A hit is within {HIT:.0%} of the hidden value; a decade is a factor of 10.",
        "",
        "A hole is not like a hidden value: where a table omits a number, its note often says why, or speaks of "
        "something else. What retrieval puts into holes is therefore less often right than these shares; each value "
        "keeps its sentence so that it can be read.",
        "",
        *_methods(study),
        "",
        "Models: filled of hidden · hits · within a factor of 2 · median error in decades.",
        "",
        *_errors(study, "models", ("retrieval", "nearest", "rms")),
        "",
        "Hardware, the same:",
        "",
        *_errors(study, "hardware", ("forest", "extra_trees", "rms")),
        "",
        f"{len(study.examples)} of retrieval's answers, drawn at random in turn from every column:",
        "",
        *_examples(study),
    ]
    return lines


def reading_part(study: ReadingStudy | None) -> list[str]:
    """A language model beside the rules, in Markdown with its heading."""
    lines = ["### Notes read by a language model", ""]
    if study is None:
        return [
            *lines, "No language model was at hand when this document was written. With one behind an "
            "OpenAI-compatible address, `forerun landscape fill --judge 120 --llm-url URL` scores it beside the rules.",
        ]  # fmt: skip
    whole = study.lines[-1]
    return [
        *lines,
        "Known values of judged models whose notes hold at least two different numbers of the right unit: "
        f"{whole.asked} questions, drawn at random in turn from every column. {study.model} is shown up to eight "
        "numbers with their sentences, the one that the rules put first before the others, and names one or none "
        f"(`forerun landscape fill --judge {whole.asked} --llm-url URL --llm-model {study.model}`). Hits are "
        f"within {HIT:.0%}.",
        "",
        *table(
            ("column", "asked", "rules", study.model, "none named", "the rules' first named", "by chance"),
            [
                (one.column, str(one.asked), f"{one.rules / one.asked:.0%}", f"{one.language_model / one.asked:.0%}",
                 str(one.unanswered), str(one.first), f"{one.chance / one.asked:.0%}")
                for one in study.lines
            ],
        ),
    ]  # fmt: skip


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    return lines + [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]


def _methods(study: FillStudy) -> list[str]:
    """What each method does and how long it took."""
    return table(
        ("method", "what it does", "seconds"),
        [(name, METHODS[name].words, f"{seconds:.0f}") for name, seconds in study.seconds.items()],
    )


def _errors(study: FillStudy, of: str, methods: Sequence[str]) -> list[str]:
    """A row per column, a cell per method."""
    tried = [name for name in methods if name in study.seconds]
    columns = dict.fromkeys(error.column for error in study.errors if error.table == of)
    return table(
        ("column", *tried), [(column, *(_cell(study.of(column, name)) for name in tried)) for column in columns]
    )


def _cell(error: FillError | None) -> str:
    """A method's error in a column."""
    if error is None:
        return "not tried"
    if not error.answered:
        return f"0 of {error.hidden}"
    return (
        f"{error.answered} of {error.hidden} · {error.hit_rate:.0%} · {error.within_factor_2:.0%} · "
        f"{error.median_decades:.2f}"
    )


def _examples(study: FillStudy) -> list[str]:
    """A row per example, its sentence cut where it is long."""
    return table(
        ("model", "column", "hidden", "filled", "hit", "confidence", "sentence"),
        [
            (
                example.model, example.column, f"{example.hidden:.4g}", f"{example.filled:.4g}",
                "yes" if example.hit else "no",
                "unknown" if example.confidence is None else f"{example.confidence:.2f}",
                shorten(example.sentence, 160, placeholder=" ..."),
            )
            for example in study.examples
        ],
    )  # fmt: skip
