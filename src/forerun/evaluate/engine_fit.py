"""Fits the efficiency of engines' operators to published ones, and judges it with one card held out at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from forerun.evaluate.results import Section
from forerun.predictors.laws.engines import EngineLaw, fit_weights

#: How many rows of a card hold the weights of all engines to none, and those of one engine to these of all.
_HOLD, _HOLD_ENGINE = 30.0, 100.0
#: Columns of the table that are shares.
SHARE_COLUMNS = ("mape", "alone", "one ratio", "roofline")


def _x(rows: pd.DataFrame) -> np.ndarray:
    names = [name for name in rows if name[0] == "x" and name[1:].isdigit()]
    return rows[names].to_numpy(dtype=float)


def weights(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """Weights by kind and dtype, and by engine beside them; every card weighs the same."""
    found: dict[str, np.ndarray] = {}
    for (kind, dtype), one in rows.groupby(["kind", "dtype"]):
        x, misses = _x(one), np.log(one["device_ms"] / one["predicted_ms"]).to_numpy()
        share = one.groupby("device")["device_ms"].transform("size").to_numpy(dtype=float)
        weight = share.max() / share
        shared = fit_weights(x, misses, weight, _HOLD)
        found[f"{kind}/{dtype}"] = shared
        for engine in one["engine"].unique():
            own = (one["engine"] == engine).to_numpy()
            rest = misses[own] - x[own] @ shared
            found[f"{engine}/{kind}/{dtype}"] = fit_weights(x[own], rest, weight[own], _HOLD_ENGINE)
    return found


def held_out(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with what is predicted by weights fitted to the other cards, and by two baselines that know the same."""
    parts = []
    for card in rows["device"].unique():
        own, rest = rows[rows["device"] == card], rows[rows["device"] != card]
        law = EngineLaw(weights(rest), {})
        for key, one in own.groupby(["engine", "kind", "dtype"]):
            engine, kind, dtype = map(str, key)
            same = rest[(rest["kind"] == kind) & (rest["dtype"] == dtype)]
            ratio = float(np.exp(np.log(same["device_ms"] / same["roofline_ms"]).median()))
            made = one["predicted_ms"] * law.factor(engine, kind, dtype, _x(one))
            parts.append(one.assign(law=made, one_ratio=ratio * one["roofline_ms"]))
    return pd.concat(parts, ignore_index=True)


def section(rows: pd.DataFrame) -> Section:
    """The table by kind and dtype."""

    def error(name: str) -> Callable[[pd.DataFrame], float]:
        def mean(one: pd.DataFrame) -> float:
            miss = (one[name] / one["device_ms"] - 1).abs()
            return float(miss.groupby([one["device"], one["engine"]]).mean().mean())

        return mean

    found = held_out(rows)
    lines = []
    for (kind, dtype), one in found.groupby(["kind", "dtype"]):
        columns = {"mape": "law", "alone": "predicted_ms", "one ratio": "one_ratio", "roofline": "roofline_ms"}
        counts = {"n": len(one), "cards": one["device"].nunique(), "engines": one["engine"].nunique()}
        lines.append({"operator": kind, "dtype": dtype, **counts, **{k: error(v)(one) for k, v in columns.items()}})
    return Section(
        "engine_operators", "Operators in serving engines, each card held out", pd.DataFrame(lines),
        "Operators in vLLM, SGLang and TensorRT-LLM as published by aiconfigurator, a sample of each card, engine, "
        "kind and dtype. `mape` is the error of the default predictor times the engine's efficiency, fitted "
        "to the other "
        "cards; `alone` that of the default predictor, which has seen a few hundred of these rows; `one ratio` the "
        "roofline times one constant.",
    )  # fmt: skip
