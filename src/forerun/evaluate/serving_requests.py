"""Time to the first token and throughput of published closed loops, with their model or their device held out.

All clients of a run send their first request at once, so that the mean over its requests is in part the queue of that
burst. How many requests followed is not published:

    TTFT = request_ms + mean of those that follow in the simulator + share x mean of the burst in the simulator

`request_ms` and `share` are fitted to the other models, or devices, as are the iterations that are simulated. Those of
an engine are held to those of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from forerun.evaluate.serving_fit import fit, predicted, with_runs
from forerun.serving.policies import policy_of
from forerun.serving.requests import Requests
from forerun.serving.simulator import simulate

#: Lengths are drawn between this share of the nominal ones and all of it.
_SHORTEST = 0.8
#: Requests of the simulation after the burst: at least, and at most.
_FEWEST, _MOST = 16, 128
#: Where the fit starts, and how far logarithms may stray: of all engines, and of one of them.
_START = {"request_ms": 50.0, "share": 0.1}
_SPREAD, _OWN = 1.5, 0.7
#: The error of a run by itself, in logarithms.
_NOISE = 0.4
#: Runs of each model, and of each engine with it, that constants are fitted to.
_EACH = 12

Constants = Mapping[str, Mapping[str, float]]


def simulated(rows: pd.DataFrame, factors: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Mean milliseconds to the first token of the burst and of those that follow, without what is beside iterations."""
    means = []
    for row in rows.to_dict("records"):
        one = row["replica"]
        law = with_runs(one.law, factors, {})
        times = simulate(replace(one, law=law), _requests(row), policy=policy_of(one.engine)).times
        ttft = (times.first - times.arrival) * 1e3
        clients = int(row["batch"])
        means.append((ttft[:clients].mean(), ttft[clients:].mean()))
    return rows.assign(**dict(zip(("burst", "follow"), np.array(means).T, strict=True)))


def _requests(row: Mapping[str, Any]) -> Requests:
    clients = int(row["batch"])
    count = clients + min(max(2 * clients, _FEWEST), _MOST)
    rng = np.random.default_rng(0)
    prompts, answers = (
        np.maximum(np.rint(rng.uniform(_SHORTEST, 1.0, count) * row[name]), 1).astype(np.int64)
        for name in ("seq_len", "tokens_out")
    )
    none = np.zeros(count, dtype=np.int64)
    return Requests(np.zeros(count), prompts, answers, none - 1, none, clients)


def constants(rows: pd.DataFrame) -> dict[str, dict[str, float]]:
    """`request_ms` and `share` by engine, fitted to logarithms; "" is for an engine that has no runs."""
    from scipy.optimize import least_squares

    engines = sorted(rows["engine"].unique())
    own = np.array([engines.index(name) for name in rows["engine"]])
    many, logs = len(_START), np.log(rows["ttft_ms"].to_numpy(float))
    start = np.log(list(_START.values()))

    def by_engine(x: np.ndarray) -> np.ndarray:
        return np.exp(start + x[:many] + x[many:].reshape(-1, many))

    def misses(x: np.ndarray) -> np.ndarray:
        request_ms, share = by_engine(x)[own].T
        law = request_ms + rows["follow"].to_numpy(float) + share * rows["burst"].to_numpy(float)
        return np.concatenate([(np.log(law) - logs) / _NOISE, x[:many] / _SPREAD, x[many:] / _OWN])

    x = least_squares(misses, np.zeros(many * (1 + len(engines))), loss="soft_l1").x
    found = np.vstack([np.exp(start + x[:many]), by_engine(x)])
    return {name: dict(zip(_START, one.tolist(), strict=True)) for name, one in zip(["", *engines], found, strict=True)}


def some(rows: pd.DataFrame) -> pd.DataFrame:
    """As many runs of every model in every engine: simulating all takes long."""
    return (
        rows.groupby(["unit", "engine"], group_keys=False)
        .sample(frac=1, random_state=0)
        .groupby(["unit", "engine"])
        .head(_EACH)
    )


def ttft_ms(rows: pd.DataFrame, found: Constants) -> np.ndarray:
    """The mean time to the first token of runs that were simulated."""
    request_ms, share = (
        np.array([found.get(str(engine), found[""])[name] for engine in rows["engine"]]) for name in _START
    )
    return np.asarray(request_ms + rows["follow"].to_numpy(float) + share * rows["burst"].to_numpy(float))


def of_all(rows: pd.DataFrame) -> dict[str, dict[str, float]]:
    """The constants of all runs together."""
    return constants(simulated(some(rows), fit(rows)))


def held_out(rows: pd.DataFrame, unit: pd.Series) -> pd.DataFrame:
    """TTFT, and the time of a whole request that throughput follows from, of each run by what the other units show."""
    rows, parts = rows.assign(unit=unit), []
    for one in sorted(rows["unit"].unique()):
        rest, own = rows[rows["unit"] != one], rows[rows["unit"] == one]
        factors = fit(rest)
        known, own = simulated(some(rest), factors), simulated(own, factors)
        ratio, slower = _one_ratio(rest), np.exp(np.log(rest["measured"] / rest["roofline"]).median())
        first, token = ttft_ms(own, constants(known)), predicted(own, factors)
        simple, tokens = ratio * own["ttft_roofline"], own["tokens_out"] - 1
        waits = {"measured": own["ttft_ms"], "law": first, "one_ratio": simple, "roofline": own["ttft_roofline"]}
        parts.append(own.assign(target="TTFT", **waits))
        simple_token, least = slower * own["roofline"], own["roofline"]
        each = {"measured": own["measured"], "law": token, "one_ratio": simple_token, "roofline": least}
        parts.append(own.assign(target="throughput", **{name: waits[name] + tokens * each[name] for name in waits}))
    found = pd.concat(parts, ignore_index=True)
    return found.assign(log_ratio=np.log(found["measured"] / found["law"]))


def _one_ratio(rows: pd.DataFrame) -> float:
    return float(np.exp(np.log(rows["ttft_ms"] / rows["ttft_roofline"]).median()))
