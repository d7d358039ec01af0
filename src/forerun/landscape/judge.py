"""How good an estimator is: the published split, and splits with models, organisations or years left out."""

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
    """(training rows, judged rows) of a protocol; every row is judged once, by time the later ones only."""
    if protocol == "time":
        yield np.flatnonzero(year < CUT), np.flatnonzero(year >= CUT)
        return
    groups = {"published": np.arange(len(model)), "models": model, "organisations": organisation}[protocol]
    names, of_row = np.unique(groups, return_inverse=True)
    fold = np.random.default_rng(0).permutation(len(names)) % _FOLDS
    for one in range(min(_FOLDS, len(names))):
        yield np.flatnonzero(fold[of_row] != one), np.flatnonzero(fold[of_row] == one)


def figures(known: np.ndarray, predicted: np.ndarray, width: np.ndarray | float) -> dict[str, float]:
    """n, R² of logarithms, mean error in decades, MAPE, shares within a factor of 2 and in the 90 % interval."""
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

    An interval stands on errors of rows that were left out: those of the other parts or, with a single one, those of
    later rows of its training part (`years`) predicted from earlier ones.
    """
    found = [estimator(name, settings).fit(part.train, part.known_train).predict(part.test) for part in parts]
    found = [_within_reason(part, values) for part, values in zip(parts, found, strict=True)]
    errors = [values - part.known_test for part, values in zip(parts, found, strict=True)]
    if len(parts) > 1:
        others = [np.concatenate(errors[:at] + errors[at + 1 :]) for at in range(len(errors))]
    else:
        others = [_earlier_errors(parts[0], name, settings, years)]
    width = np.concatenate([np.full(len(e), conformal(rest)) for e, rest in zip(errors, others, strict=True)])
    known = np.concatenate([part.known_test for part in parts])
    return figures(known, np.concatenate(found), width)


def _earlier_errors(part: Arrays, name: str, settings: Mapping[str, Any], years: np.ndarray | None) -> np.ndarray:
    """Errors inside a training part: rows in folds by time or, where no years are given, every third row left out."""
    if years is None:
        places = np.arange(len(part.train))
        folds: Any = ((np.flatnonzero(places % 3 != one), np.flatnonzero(places % 3 == one)) for one in range(3))
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
    """Predictions held within three decades of what training rows span: a linear model may run away on new names."""
    return np.clip(values, part.known_train.min() - 3, part.known_train.max() + 3)


def costs(part: Arrays, name: str, settings: Mapping[str, Any]) -> dict[str, float]:
    """What a fit and a prediction take, measured in a process of their own: seconds and memory at peak."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measured, (part, name, dict(settings)))


def _measured(part: Arrays, name: str, settings: dict[str, Any]) -> dict[str, float]:
    """In the child: timed once, then once more with every allocation traced."""
    import resource
    import sys

    estimator(name, settings).fit(part.train[:50], part.known_train[:50])  # what is loaded at first use
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
