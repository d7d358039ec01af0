"""The parts of docs/ADAPT.md on a kind of network and on a GPU that the weights have not seen; table.py writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from collect import saved
from table import DRAWS, NOTHING, Given, drawn, linear, one_ratio, spec_sheet

from forerun.device import load_device
from forerun.predictors.laws import adaptation as law
from forerun.predictors.laws.adaptation import HOST, Calls, Prior
from forerun.training.adapting import fitting

ROWS = (5, 10, 32)
OF_H200 = 20
HEADINGS = [
    "| rows | method | mean error | within 10 % | Kendall's tau | 90 % intervals cover |",
    "|---|---|---|---|---|---|",
]
_KIND = """\
# A new kind of network

Vision transformers in inference on an H200: {cases} cases of {models} models. The weights know no image classifier of
any kind: times are those of the stored predictions with that whole kind held out; only how a time divides among its
parts follows the weights that ship. Encoders and language models, whose blocks are alike, are known. The prior between
kinds of network is assumed, not fitted. Means over {draws} random draws, each judged on models that gave no row. Last,
the predictor whose weights know other vision transformers, but none of the family that is judged.
"""
_FROM_RTX = """\
# An H200 from the rows of RTX cards

Every set of weights is fitted to rows of an H200, so here none are used: the base is the spec sheet (arithmetic at its
peaks, bytes at its bandwidth, 3 us for a launch on the device and 10 us on the host), and nothing in it is fitted.
Corrections are first fitted to {of_rtx} published rows of {names}; where they are in the mean, those of the H200
start, which are then fitted to {given} of its rows. Device time of {cases} cases of {models} networks of all kinds in
inference; means over {draws} random draws, each judged on models that gave no row. The floor is the spec sheet alone,
the ceiling the shipped predictor with the family held out.
"""
Method = Callable[[Given, Calls], tuple[np.ndarray, np.ndarray | None]]


def pages(folder: Path) -> list[str]:
    found = saved(folder, ("vision-transformers", "spec-sheet"))
    kind, lines = found.pop("h200.vision-transformers", None), []
    if kind is not None:
        lines += _kind_of_network(*kind)
    if "h200.spec-sheet" in found:
        lines += _from_rtx(found)
    return lines


def _device_alone(calls: Calls) -> Calls:
    return replace(calls, host_ms=np.zeros_like(calls.host_ms))


def _adapted(prior: Prior, change: Callable[[Calls], Calls] = lambda calls: calls) -> Method:
    """`forerun adapt` with a prior, of calls that are changed beforehand."""

    def method(given: Given, others: Calls) -> tuple[np.ndarray, np.ndarray]:
        posterior, _ = fitting.fitted(change(given.calls), given.measured, prior, given.models)
        others = change(others)
        predicted = others.latency_ms(posterior.corrections) * np.exp(posterior.particular(others))
        return predicted, posterior.deviation(others)

    return method


def _scores(
    rows: pd.DataFrame, calls: Calls, measured: np.ndarray, counts: Sequence[int], methods: dict[str, Method],
    known: np.ndarray | None,
) -> dict[tuple[int, str], fitting.Score]:  # fmt: skip
    """Mean scores over draws by number of rows and method; `known` are predictions of a better-informed predictor."""
    models, lines = rows["models"].to_numpy(), []
    for count in counts:
        for draw in range(DRAWS):
            chosen, rest = drawn(models, count, np.random.default_rng((draw, count)))
            given = Given("", models[chosen], measured[chosen], calls.take(chosen))
            for name, method in methods.items():
                predicted, sigma = method(given, calls.take(rest))
                lines.append({"rows": count, "method": name} | vars(fitting.score(measured[rest], predicted, sigma)))
            if known is not None:
                there = rest & np.isfinite(known)
                score = fitting.score(measured[there], known[there], None)
                lines.append({"rows": count, "method": "known"} | vars(score))
    means = pd.DataFrame(lines).groupby(["rows", "method"]).mean()
    return {key: fitting.Score(**line) for key, line in means.to_dict("index").items()}


def _line(count: int, name: str, score: fitting.Score) -> str:
    inside = f"{score.coverage:.0f} %" if score.coverage == score.coverage else ""
    return f"| {count} | {name} | {score.mape:.1f} % | {score.within_10:.0f} % | {score.tau:.2f} | {inside} |"


def _kind_of_network(rows: pd.DataFrame, calls: Calls) -> list[str]:
    lines = [_KIND.format(cases=len(rows), models=rows["models"].nunique(), draws=DRAWS)]
    methods: dict[str, Method] = {
        "other kinds": spec_sheet, "one ratio": one_ratio, "linear": linear, "adapt": _adapted(fitting.prior_for(None)),
    }  # fmt: skip
    for title, column in (("Device time", "device_ms"), ("Latency", "measured")):
        measured = rows[column].to_numpy(dtype=float)
        there = np.isfinite(measured)
        mine, chosen = rows[there], calls.take(there)
        chosen = _device_alone(chosen) if column == "device_ms" else chosen
        known = mine["known"].to_numpy(dtype=float) if column == "device_ms" else None
        scores = _scores(mine, chosen, measured[there], ROWS, methods, known)
        lines += [f"## {title}", "", *HEADINGS, _line(0, "other kinds", scores[ROWS[0], "other kinds"])]
        lines += [_line(count, name, scores[count, name]) for count in ROWS for name in list(methods)[1:]]
        if known is not None:
            lines.append(_line(0, "knows the kind", scores[ROWS[0], "known"]))
        lines.append("")
    return lines


def _from_rtx(found: dict[str, tuple[pd.DataFrame, Calls]]) -> list[str]:
    rows, calls = found.pop("h200.spec-sheet")
    there = np.isfinite(rows["device_ms"].to_numpy(dtype=float))
    rows, calls = rows[there], _device_alone(calls.take(there))
    # Twice as wide as between devices of the learned predictor: here nothing is learned.
    prior = fitting.prior_for(load_device("h200")).shrunken(2.0)
    usual = np.mean([_corrections(*one, prior) for one in found.values()], axis=0)

    def as_rtx(each: Calls) -> Calls:
        return replace(each, parts_ms=each.parts_ms * np.exp(usual[:HOST]), host_ms=each.host_ms * np.exp(usual[HOST:]))

    methods: dict[str, Method] = {
        "spec sheet alone": spec_sheet,
        "RTX rows": lambda given, others: (as_rtx(others).latency_ms(NOTHING), None),
        "one ratio": one_ratio, "spec sheet and H200 rows": _adapted(prior),
        "RTX and H200 rows": _adapted(prior, as_rtx),
    }  # fmt: skip
    measured, known = (rows[name].to_numpy(dtype=float) for name in ("device_ms", "known"))
    scores = _scores(rows, calls, measured, (OF_H200,), methods, known)
    names, of_rtx = ", ".join(name.rpartition(".")[0] for name in found), sum(len(one[0]) for one in found.values())
    text = _FROM_RTX.format(
        of_rtx=of_rtx, names=names, given=OF_H200, cases=len(rows), models=rows["models"].nunique(), draws=DRAWS
    )
    lines = [text, *HEADINGS]
    for name in methods:
        count = 0 if name in ("spec sheet alone", "RTX rows") else OF_H200
        lines.append(_line(count, name, scores[OF_H200, name]))
    return [*lines, _line(0, "shipped predictor", scores[OF_H200, "known"]), ""]


def _corrections(rows: pd.DataFrame, calls: Calls, prior: Prior) -> np.ndarray:
    return law.fit_noise(calls, rows["measured"].to_numpy(dtype=float), prior).corrections
