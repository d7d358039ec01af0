"""Numbers out of the notes: sentences with quantities of the right unit, ranked by their embedding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from forerun.landscape.fill import language_model
from forerun.landscape.fill.embedding import embed
from forerun.landscape.fill.filled import Filled, Options, Table, holes
from forerun.landscape.fill.units import Mention, mentions, product, sentences
from forerun.landscape.schema import MODELS, NOTES, Tables

METHOD = "retrieval"
SOURCES = [column.name for column in MODELS if column.name.endswith("_notes")] + ["abstract"]
AROUND = 60  # characters on each side of a number that are embedded
SHOWN = 300


@dataclass(frozen=True)
class Target:
    """What a column's number looks like in a note: its kinds of quantity, and the sentence it is compared with."""

    kinds: tuple[str, ...]
    question: str
    bare: str = ""  # in the column's own notes, a number without a unit counts: 'scaled' (13B) or 'equals' (= 3e22)
    cue: re.Pattern[str] | None = None  # the sentence must match this
    never: re.Pattern[str] | None = None  # and must not match this
    least: float = 0.0
    most: float = float("inf")  # beyond it another quantity is meant: chip hours, tokens of the whole training
    share: bool = False
    later: bool = False  # a calculation: its result comes last


TARGETS = {
    "parameters": Target(("parameters",), "The model has this many parameters.", bare="scaled", least=9.0),
    "compute_flop": Target(
        ("computation",), "Total training compute in FLOP: 6 * parameters * tokens = FLOP.", bare="equals", least=1e6,
        most=1e28, later=True,
    ),
    "dataset_size": Target(
        ("data",), "The model was trained on a dataset of this many tokens.", bare="scaled", least=1.0, most=1e17,
    ),
    "epochs": Target(("epochs",), "The model was trained for this many epochs.", most=1e6),
    "training_hours": Target(
        ("time", "chip time"), "The training took this many days.", least=0.05, most=8760.0,
        never=re.compile(
            r"\b(?:video|clip|audio|speech|song|film|recording)s?\b[^.;]{0,40}\d[\s-]*(?:s|sec\w*|min\w*)\b"
            r"|\bvideos?\b[^.;]{0,20}\bup to\b|\bgenerat\w+ [^.;]{0,60}\d"
            r"|\d[\s-]*(?:hour|minute|second|hr|min|sec)s?[\s-]+(?:long|videos?|clips?|audio|speech|music\w*|song|film"
            r"|recordings?)\b|\b(?:months?|years?|weeks?) since\b|\bFLOPS?\s*/\s*s[^.;]{0,20}\*\s*[\d.]+ million",
            re.IGNORECASE,
        ),
    ),
    "chips": Target(("chips",), "The model was trained on this many GPUs.", least=0.9, most=2e6),
    "mfu": Target(
        ("share",), "The model FLOPs utilization (MFU) was this percentage.", least=0.01, share=True,
        cue=re.compile(r"\bMFU\b|utili[sz]ation", re.IGNORECASE), never=re.compile(r"assum|would", re.IGNORECASE),
    ),
    "cost_2023_usd": Target(
        ("money",), "The training of the model cost this many dollars.", least=1.0, most=1e10,
        never=re.compile(r"\brais(?:ed|ing)\b|\bvaluation\b|\binvest", re.IGNORECASE),
    ),
    "batch_size": Target(
        ("data",), "The batch size is this many tokens.", bare="equals", most=1e8,
        cue=re.compile(r"\bbatch(?:es)?\b", re.IGNORECASE),
    ),
    "finetune_flop": Target(
        ("computation",), "Fine-tuning compute in FLOP: 6 * parameters * tokens = FLOP.", bare="equals", least=1e6,
        later=True, cue=re.compile(r"fine-?\s?tun", re.IGNORECASE),
    ),
}  # fmt: skip

#: Weights of a candidate: in the column's own notes, after an equals sign, in agreement with other sentences, late in a
#: calculation, and in a sentence similar to the question. The rules weigh more than the similarity:
#: on the models whose notes were read, more weight on it made fewer hits.
OWN_NOTES, EQUALS, AGREED, LATER, SIMILAR = 0.4, 0.2, 0.1, 0.3, 0.1
_DOUBT = re.compile(
    r"\b(?:maybe|may be|perhaps|plausibl[ey]|possibly|might|suspect|would suggest|could (?:have|afford)|would have to"
    r"|(?:un)?likely\s+(?:to be|that|over|under|to exceed|it used)|not (?:obvious|clear)|(?:would|this) require[sd]?"
    r"|of any other model)\b",
    re.IGNORECASE,
)
_USE = re.compile(r"\b(?:inference|context (?:window|length)|licen[sc]e|revenue|funding)\b", re.IGNORECASE)
_TRAINED = re.compile(r"\b(?:pre-?)?train", re.IGNORECASE)
_OF_DATA = re.compile(r"\s+(?:worth\s+)?of\s+(?!(?:the\s+)?(?:pre-?)?train|compute|wall|gpu|tpu)", re.IGNORECASE)
#: Before a number that is a bound: >1e25, less than $150. After one that is no count of chips: H100 FLOP/s, A100 days.
#: After or as one that only converts units: 3600 s, 1 hour ~ 13,680 words.
_BOUND = re.compile(r"(?:[<>≥≤]|\b(?:exceed(?:s|ed|ing)?|less than|below|under|at most))\s*~?\$?$", re.IGNORECASE)
_NO_CHIPS = re.compile(
    r"\s*(?:T?FLOP|(?:NVIDIA\s+)?(?:[AHV]\d+\s+)?(?:\d+\s?GB?\s+)?(?:GPU[\s-]+)?(?:hour|day|week|month)s?\b"
    r"|training time)",
    re.IGNORECASE,
)
_CONVERTS = re.compile(r"\s*[~≈=]\s*[\d,]+\s*words", re.IGNORECASE)
_SECONDS = re.compile(r"3,?600\b|3,?600\s?s")  # of an hour
SAME = 0.02  # two values that differ by less are one


@dataclass(frozen=True)
class Candidate:
    """A quantity in a note that may be the value of a column."""

    value: float
    sentence: str
    near: str  # the part of the sentence around the number
    own: bool  # in the notes on this very column
    after_equals: bool


def fill_retrieval(tables: Tables, columns: dict[Table, Sequence[str]], options: Options) -> list[Filled]:
    """Missing values of the models' columns from their notes; read by a language model if one is named.

    The confidence is the share of known values that the same rules put within a factor of 2.
    """
    models = tables.models
    wanted = [column for column in columns.get("models", ()) if column in TARGETS]
    by_column = {
        column: {at: row_candidates for at, row in notes_of(models) if (row_candidates := candidates(row, column))}
        for column in wanted
    }
    scores = ranked(by_column, options)
    reader = language_model.Reader(options.llm_url, options.llm_model) if options.llm_url else None
    values: list[Filled] = []
    for column, empty in holes(models, wanted).items():
        ordered = {
            at: best_first(scores[column][at], row_candidates) for at, row_candidates in by_column[column].items()
        }
        sure = _confidence(models[column], {at: row_candidates[0] for at, row_candidates in ordered.items()})
        report = options.report(f"reading sentences on {column}") if reader is not None else None
        answered = [at for at in empty if at in ordered]
        for done, at in enumerate(answered):
            name = models.at[at, "model"]
            best = ordered[at][0] if reader is None else _read(reader, name, column, ordered[at])
            if report is not None:
                report(done / len(answered))
            if best is not None:
                method = METHOD if reader is None else language_model.METHOD
                values.append(Filled("models", name, column, best.value, method, best.sentence, sure[best.own]))
    return values


def best_first(scores: list[float], options: list[Candidate]) -> list[Candidate]:
    """Candidates in the order of their scores, the highest first."""
    return [candidate for _, candidate in sorted(zip(scores, options, strict=True), key=lambda pair: -pair[0])]


def candidates(row: dict[str, object], column: str) -> list[Candidate]:
    """Every quantity in a model's notes that may be the value of a column, in order."""
    target = TARGETS[column]
    listed: list[Candidate] = []
    for source in SOURCES:
        text = row.get(source)
        own = source == NOTES.get(column)
        for sentence in sentences(text) if isinstance(text, str) else ():
            if not _states(sentence, target, own):
                continue
            if own and target.bare == "equals" and (value := product(sentence)) is not None:
                listed.append(Candidate(value, sentence[:SHOWN], sentence[: 2 * AROUND], own, True))
            for mention in mentions(sentence):
                value = _value(mention, target, own, row.get("chips"))
                bound = _BOUND.search(sentence, max(0, mention.start - 16), mention.start)
                if value is not None and not bound and not _SECONDS.match(sentence, mention.start):
                    near = sentence[max(0, mention.start - AROUND) : mention.end + AROUND]
                    listed.append(Candidate(value, sentence[:SHOWN], near, own, mention.after_equals))
    return listed


def _states(sentence: str, target: Target, own: bool) -> bool:
    """Whether a sentence can state the number: what was done in training, not what may be or how the model is used."""
    if target.cue is not None and not own and not target.cue.search(sentence):
        return False
    if _DOUBT.search(sentence) or (target.never is not None and target.never.search(sentence)):
        return False
    return _USE.search(sentence) is None or _TRAINED.search(sentence) is not None


def _value(mention: Mention, target: Target, own: bool, chips: object) -> float | None:
    """What a quantity is as a value of the column; None where it is another kind of quantity, or a rate."""
    if mention.kind == "" and own:
        if not (mention.scaled if target.bare == "scaled" else target.bare and mention.after_equals):
            return None
    elif mention.kind not in target.kinds or mention.per:
        return None
    if mention.kind == "time" and (_OF_DATA.match(mention.after) or _CONVERTS.match(mention.after)):
        return None
    if mention.kind == "chips" and _NO_CHIPS.match(mention.after):
        return None
    if mention.kind == "data" and not mention.scaled and mention.value < 1000 and mention.value % 1:
        return None  # the version of a model
    value = mention.value
    if mention.kind == "chip time":
        if not isinstance(chips, float) or not chips > 0:
            return None
        value /= chips
    return value if target.least < value <= target.most and (value <= 1 or not target.share) else None


def notes_of(models: pd.DataFrame) -> Iterable[tuple[int, dict[str, object]]]:
    """The index and the notes of every model."""
    needed = [*SOURCES, "chips"]
    return zip(models.index, models[needed].to_dict("records"), strict=True)


def ranked(by_column: dict[str, dict[int, list[Candidate]]], options: Options) -> dict[str, dict[int, list[float]]]:
    """The score of every candidate. A sentence is embedded only where it decides."""
    scores = {
        column: {at: _weights(row_candidates, TARGETS[column]) for at, row_candidates in rows.items()}
        for column, rows in by_column.items()
    }
    near: list[tuple[str, int, list[int]]] = []
    for column, rows in by_column.items():
        for at, row_candidates in rows.items():
            if places := _contenders(row_candidates, scores[column][at]):
                near.append((column, at, places))
    questions = embed([TARGETS[column].question for column in by_column], options.embedding)
    vector_of = dict(zip(by_column, questions, strict=True))
    texts = [by_column[column][at][place].near for column, at, places in near for place in places]
    vectors = iter(embed(texts, options.embedding, options.report("embedding sentences with numbers")))
    for column, at, places in near:
        for place in places:
            scores[column][at][place] += SIMILAR * float(next(vectors) @ vector_of[column])
    return scores


def _weights(row_candidates: list[Candidate], target: Target) -> list[float]:
    """The weight of each candidate without its sentence."""
    return [
        OWN_NOTES * candidate.own
        + EQUALS * candidate.after_equals
        + AGREED * _agreeing(candidate, row_candidates)
        + LATER * target.later * place / len(row_candidates)
        for place, candidate in enumerate(row_candidates)
    ]


def _contenders(row_candidates: list[Candidate], weights: list[float]) -> list[int]:
    """The places of candidates that only their sentences can separate; none if their values are the same."""
    able = [place for place, weight in enumerate(weights) if weight > max(weights) - SIMILAR]
    return able if any(not _equal(row_candidates[place].value, row_candidates[able[0]].value) for place in able) else []


def _equal(first: float, other: float) -> bool:
    """Whether two values are the same but for rounding."""
    return bool(abs(np.log(first / other)) <= SAME)


def _agreeing(candidate: Candidate, row_candidates: list[Candidate]) -> int:
    """How many other sentences give the same value, two at most."""
    others = {
        other.sentence
        for other in row_candidates
        if other.sentence != candidate.sentence and _equal(other.value, candidate.value)
    }
    return min(len(others), 2)


def _confidence(known: pd.Series, best: dict[int, Candidate]) -> dict[bool, float]:
    """By whether the sentence is in the column's own notes: the share of known values within a factor of 2."""
    sure = {}
    for own in (True, False):
        right = [
            abs(np.log2(candidate.value / known[at])) <= 1
            for at, candidate in best.items()
            if candidate.own == own and pd.notna(known[at])
        ]
        sure[own] = (sum(right) + 1) / (len(right) + 2)  # with few known values, near one half
    return sure


def _read(reader: language_model.Reader, model: str, column: str, row_candidates: list[Candidate]) -> Candidate | None:
    """The candidate that a language model chooses; None where it chooses none."""
    chosen = reader.choose(
        model, TARGETS[column].question, [(candidate.sentence, candidate.value) for candidate in row_candidates]
    )
    return None if chosen is None else row_candidates[chosen]
