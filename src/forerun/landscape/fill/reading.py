"""A language model that reads notes, scored beside the rules: on known values whose notes hold several numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from forerun.errors import ForerunError
from forerun.landscape.fill import language_model, retrieval
from forerun.landscape.fill.filled import Options
from forerun.landscape.fill.judge import HIT, SEED, left_for_judging
from forerun.landscape.fill.retrieval import TARGETS, Candidate
from forerun.landscape.schema import Tables

#: Questions that are asked where no number is given.
QUESTIONS = 120
#: The method's name where a table has a line for all columns.
ALL = "all"


@dataclass(frozen=True)
class Reading:
    """One column: of the questions asked, how many values the rules and the language model put within 5 %."""

    column: str
    asked: int
    rules: int
    language_model: int
    unanswered: int  # the language model saw none of the numbers as the answer
    first: int  # it named the sentence that the rules put first
    chance: float  # hits of a blind choice, expected


@dataclass(frozen=True)
class ReadingStudy:
    """A language model's score by column, the last line for all of them."""

    model: str
    lines: tuple[Reading, ...]


def judge_reading(tables: Tables, options: Options, questions: int = QUESTIONS) -> ReadingStudy:
    """Asks the language model that `options` name for known values, each among the candidates of its notes.

    A question is a known value of a judged model whose notes hold at least two different numbers of the right unit; the
    candidates are listed as they are for a hole, the best by the rules first.
    """
    if not options.llm_url:
        raise ForerunError("scoring a language model needs its address: --llm-url http://127.0.0.1:8080/v1")
    reader = language_model.Reader(options.llm_url, options.llm_model)
    asked = _asked(tables.models, questions)
    if not asked:
        raise ForerunError("no note of a known value holds two different numbers, so that nothing can be asked")
    scores = retrieval.ranked(_by_column(asked), options)
    report = options.report("reading sentences with known values")
    lines: list[dict[str, object]] = []
    for done, (column, at, found) in enumerate(asked):
        ordered = retrieval.best_first(scores[column][at], found)[: language_model.MOST]
        known = float(tables.models.at[at, column])
        listed = [(one.sentence, one.value) for one in ordered]
        chosen = reader.choose(str(tables.models.at[at, "model"]), TARGETS[column].question, listed)
        right = [abs(one.value / known - 1) <= HIT for one in ordered]
        lines.append({
            "column": column, "rules": right[0], "language_model": chosen is not None and right[chosen],
            "unanswered": chosen is None, "first": chosen == 0, "chance": float(np.mean(right)),
        })  # fmt: skip
        if report is not None:
            report((done + 1) / len(asked))
    return ReadingStudy(options.llm_model, _lines(pd.DataFrame(lines)))


def _asked(models: pd.DataFrame, questions: int) -> list[tuple[str, int, list[Candidate]]]:
    """Questions drawn at random, in turn from every column."""
    random = np.random.default_rng(SEED)
    places = random.permutation(len(models))
    rows = dict(retrieval.notes_of(models))
    columns = [iter([models.index[at] for at in places if _may_ask(models, models.index[at], c)]) for c in TARGETS]
    asked: list[tuple[str, int, list[Candidate]]] = []
    turns = dict(zip(TARGETS, columns, strict=True))
    while turns and len(asked) < questions:
        for column, left in list(turns.items()):
            question = _next(column, left, rows.__getitem__)
            if question is None:
                del turns[column]
            elif len(asked) < questions:
                asked.append((column, *question))
    return asked


def _may_ask(models: pd.DataFrame, at: int, column: str) -> bool:
    return bool(pd.notna(models.at[at, column])) and left_for_judging(str(models.at[at, "model"]))


def _next(
    column: str, left: object, row_of: Callable[[int], dict[str, object]]
) -> tuple[int, list[Candidate]] | None:  # fmt: skip
    for at in left:  # type: ignore[attr-defined]
        found = retrieval.candidates(row_of(at), column)
        if any(abs(np.log(one.value / found[0].value)) > retrieval.SAME for one in found[1:]):
            return at, found
    return None


def _by_column(asked: list[tuple[str, int, list[Candidate]]]) -> dict[str, dict[int, list[Candidate]]]:
    out: dict[str, dict[int, list[Candidate]]] = {}
    for column, at, found in asked:
        out.setdefault(column, {})[at] = found
    return out


def _lines(lines: pd.DataFrame) -> tuple[Reading, ...]:
    parts = [(str(column), part) for column, part in lines.groupby("column", sort=False)] + [(ALL, lines)]
    return tuple(
        Reading(
            column, len(part), int(part["rules"].sum()), int(part["language_model"].sum()),
            int(part["unanswered"].sum()), int(part["first"].sum()), float(part["chance"].sum()),
        )
        for column, part in parts
    )  # fmt: skip
