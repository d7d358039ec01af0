"""How accurate an estimator is: the published split, and splits with models, organisations or years held out."""

from __future__ import annotations

import multiprocessing
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from forerun.landscape.encode import Arrays
from forerun.landscape.intervals import conformal
from forerun.landscape.learn import estimator, ordered_folds

#: Splits in words. The published one gives rows of the same model to both sides.
PROTOCOLS = {
    "published": "rows multiplied, then split at random", "models": "every model on one side",
    "organisations": "every organisation on one side", "time": "trained before 2024, judged on what came after",
}  # fmt: skip
CUT = 2024.0
_FOLDS = 5

Split = tuple[np.ndarray, np.ndarray]


def splits(protocol: str, model: np.ndarray, organisation: np.ndarray, year: np.ndarray) -> Iterator[Split]:
    """(training rows, test rows) of a protocol; every row is tested once, by time the later ones only."""
    if protocol == "time":
        yield np.flatnonzero(year < CUT), np.flatnonzero(year >= CUT)
        return
    groups = {"published": np.arange(len(model)), "models": model, "organisations": organisation}[protocol]
    names, of_row = np.unique(groups, return_inverse=True)
    fold = np.random.default_rng(0).permutation(len(names)) % _FOLDS
    for number in range(min(_FOLDS, len(names))):
        yield np.flatnonzero(fold[of_row] != number), np.flatnonzero(fold[of_row] == number)


def figures(known: np.ndarray, predicted: np.ndarray, width: np.ndarray | float) -> dict[str, float]:
    """n, R² of logarithms, mean error in decades, MAPE, share within a factor of 2, coverage of the 90 % interval."""
    off = np.abs(predicted - known)
    spread = float(((known - known.mean()) ** 2).sum())
    return {
        "n": float(len(known)), "r2": 1 - float((off**2).sum()) / spread if spread > 0 else float("nan"),
        "decades": float(off.mean()), "mape": float(np.abs(10 ** (predicted - known) - 1).mean()),
        "within 2": float((off <= np.log10(2)).mean()), "coverage": float((off <= width).mean()),
        "width": float(np.mean(np.broadcast_to(width, known.shape))),
    }  # fmt: skip


def judge(parts: list[Arrays], name: str, settings: Mapping[str, Any], years: np.ndarray | None) -> dict[str, float]:
    """The figures of an estimator over the parts of a protocol.

    An interval is based on held-out errors: those of the other parts or, with a single part, those of later rows of its
    training part (`years`) predicted from earlier ones.
    """
    predicted = [estimator(name, settings).fit(part.train, part.known_train).predict(part.test) for part in parts]
    predicted = [_within_reason(part, values) for part, values in zip(parts, predicted, strict=True)]
    errors = [values - part.known_test for part, values in zip(parts, predicted, strict=True)]
    if len(parts) > 1:
        others = [np.concatenate(errors[:at] + errors[at + 1 :]) for at in range(len(errors))]
    else:
        others = [_earlier_errors(parts[0], name, settings, years)]
    width = np.concatenate([np.full(len(e), conformal(rest)) for e, rest in zip(errors, others, strict=True)])
    known = np.concatenate([part.known_test for part in parts])
    return figures(known, np.concatenate(predicted), width)


def _earlier_errors(part: Arrays, name: str, settings: Mapping[str, Any], years: np.ndarray | None) -> np.ndarray:
    """Errors inside a training part: rows in folds by time or, where no years are given, every third row held out."""
    if years is None:
        places = np.arange(len(part.train))
        folds: Any = (
            (np.flatnonzero(places % 3 != number), np.flatnonzero(places % 3 == number)) for number in range(3)
        )
    else:
        folds = ordered_folds(years)
    wrong = []
    for earlier, later in folds:
        inner = Arrays(
            part.train[earlier], part.train[later], part.known_train[earlier], part.known_train[later], part.names
        )
        values = estimator(name, settings).fit(inner.train, inner.known_train).predict(inner.test)
        wrong.append(_within_reason(inner, values) - inner.known_test)
    return np.concatenate(wrong)


def _within_reason(part: Arrays, values: np.ndarray) -> np.ndarray:
    """Predictions clipped to three decades around the training range: a linear model may diverge on new names."""
    return np.clip(values, part.known_train.min() - 3, part.known_train.max() + 3)


def costs(part: Arrays, name: str, settings: Mapping[str, Any]) -> dict[str, float]:
    """Seconds and peak memory of a fit and a prediction, measured in a process of their own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measured, (part, name, dict(settings)))


def _measured(part: Arrays, name: str, settings: dict[str, Any]) -> dict[str, float]:
    """In the child: timed once, then once more with every allocation traced."""
    import resource
    import sys

    estimator(name, settings).fit(part.train[:50], part.known_train[:50])  # loads what is imported at first use
    began = time.perf_counter()
    fitted = estimator(name, settings).fit(part.train, part.known_train)
    fit_s = time.perf_counter() - began
    began = time.perf_counter()
    fitted.predict(part.test)
    predict_s = time.perf_counter() - began
    tracemalloc.start()
    estimator(name, settings).fit(part.train, part.known_train)
    traced = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    fitted.predict(part.test)
    answered = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "training, s": fit_s, "prediction, µs a row": predict_s / len(part.test) * 1e6,
        "training, MB traced": traced / 2**20, "prediction, MB traced": answered / 2**20,
        "process, MB resident": resident / 2**20,
    }  # fmt: skip
