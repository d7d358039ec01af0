"""Fits the law of collectives to published measurements, and judges it with one system held out at a time.

A system is a GPU with the machine around it. The baselines know the same rows: the bare rate of the link, and that rate
times one efficiency, with one floor for all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from forerun.data.store import Store
from forerun.device import load_device
from forerun.device.links import FABRIC, NETWORK, PCIE, link
from forerun.errors import ForerunError
from forerun.evaluate.results import Section
from forerun.predictors.laws.collectives import SHARES, SMALL_BYTES, UNMEASURED, CollectiveLaw, Constants

#: Sets with rows of collectives.
SETS = ("aiconfigurator", "vidur")
#: Between machines, from sending between two DGX H100 (vidur): of no other machine is the rate of the network known.
#: The floor is assumed to double with the number of machines, as that of NCCL within a machine almost does.
_BETWEEN = Constants((2, 4), (17.0, 34.0), (0.8, 0.8), 1.0)
#: Intervals are fitted where so many systems were measured; of fewer, held-out errors say too little.
_SYSTEMS = 4
#: Columns of the table that are shares.
SHARE_COLUMNS = ("mape", "one ratio", "roofline", "interval_coverage")
#: How strongly a generation is held to the average of all.
_SHRINK = 0.1


def measured(store: Store) -> pd.DataFrame:
    """Collectives within one machine, one line a case: system, link, kernel, op, count, bytes, us and wire_us."""
    rows = store.query(
        "select dataset, device, device_reported, op, runtime, protocol, shape, devices, device_ms, extra "
        "from operators where family = 'collective' and status = 'ok'"
    )
    if rows.empty:
        sets = " and ".join(f"forerun data import {name} FOLDER" for name in SETS)
        raise ForerunError(f"the store has no collectives: {sets}")
    shape = pd.DataFrame(rows["shape"].map(json.loads).tolist(), index=rows.index)
    rows = rows.assign(bytes=shape["bytes"], us=1e3 * rows["device_ms"], count=rows["devices"].astype(int))
    # Omitted: a node whose GPUs cannot reach each other directly; a board whose link is not known; pairs over bridges,
    # whose rate the catalogue does not have; of vidur's all-reduces, of which some wait for a straggler, all but large
    # ones over PCIe, which nobody else has.
    bridged = rows["device_reported"].str.contains("pairwise", na=False)
    noisy = rows["dataset"].eq("vidur") & rows["op"].eq("all_reduce") & ~(bridged & (rows["bytes"] > SMALL_BYTES))
    omitted = rows["extra"].str.contains("peer-to-peer", na=False) | rows["device"].eq("l40s") | noisy
    omitted |= rows["device"].eq("arc-pro-b60") | shape["nodes"].gt(1) | (bridged & rows["count"].eq(2))
    rows = rows[~omitted].copy()
    way = rows["protocol"].str.extract("custom_allreduce/(.*)$")[0]
    rows["kernel"] = np.where(way.notna(), rows["runtime"] + "-" + way.fillna(""), "nccl")
    facts = {name: load_device(name) for name in rows["device"].unique()}
    rows["generation"] = rows["device"].map({name: device.architecture for name, device in facts.items()})
    joined = {pair: link(facts[pair[0]], pair[1]) for pair in set(zip(rows["device"], rows["count"], strict=True))}
    pairs = list(zip(rows["device"], rows["count"], strict=True))
    rows["link"] = [
        PCIE if pairwise else joined[pair].kind for pair, pairwise in zip(pairs, bridged[rows.index], strict=True)
    ]
    rate = np.array([joined[pair].rate_gbs(pair[1]) for pair in pairs])
    share = np.array([SHARES[op](count) for op, count in zip(rows["op"], rows["count"], strict=True)])
    rows["wire_us"] = share * rows["bytes"] / rate / 1e3
    rows["system"] = np.where(bridged[rows.index], rows["device_reported"], rows["device"])
    rows["generation"] = rows["generation"].where(rows["link"] != PCIE, "")  # there the host decides, not the chip
    case = ["link", "kernel", "op", "system", "generation", "count", "bytes"]
    return rows.groupby(case, as_index=False).agg(us=("us", "median"), wire_us=("wire_us", "first"))


def fit_one(rows: pd.DataFrame) -> Constants:
    """The constants of one collective, fitted to logarithms; every system weighs the same."""
    from scipy.optimize import least_squares

    counts, generations = sorted(rows["count"].unique()), sorted(rows["generation"].unique())
    place = np.searchsorted(counts, rows["count"])
    of = np.searchsorted(generations, rows["generation"])
    n, g = len(counts), len(generations)
    weight = 1 / np.sqrt(rows.groupby("system")["us"].transform("size").to_numpy(dtype=float))
    logs, wire = np.log(rows["us"].to_numpy(dtype=float)), rows["wire_us"].to_numpy(dtype=float)

    def misses(x: np.ndarray) -> np.ndarray:
        floor = np.exp(x[:n][place] + x[2 * n + 1 :][of])
        sent = wire / np.exp(x[n : 2 * n][place] + x[2 * n + 1 + g :][of])
        total = floor + sent + np.exp(x[2 * n]) * np.sqrt(floor * sent)
        return np.concatenate([(np.log(total) - logs) * weight, _SHRINK * x[2 * n + 1 :]])

    start = np.concatenate(
        [np.log(rows.groupby("count")["us"].min().to_numpy()), np.full(n, -0.3), [0.0], np.zeros(2 * g)]
    )
    x = least_squares(misses, start, loss="soft_l1", f_scale=0.1).x
    by_generation = {
        name: (float(np.exp(x[2 * n + 1 + i])), float(np.exp(x[2 * n + 1 + g + i])))
        for i, name in enumerate(generations)
    }
    return Constants(
        tuple(int(count) for count in counts), tuple(np.exp(x[:n]).tolist()),
        tuple(np.exp(x[n : 2 * n]).tolist()), float(np.exp(x[2 * n])), by_generation,
    )  # fmt: skip


def predicted(rows: pd.DataFrame, constants: Constants) -> np.ndarray:
    parts = [
        constants.us(one["wire_us"].to_numpy(), one["count"].to_numpy(), name) for name, one in _by_generation(rows)
    ]
    return np.concatenate(parts)[np.argsort(np.concatenate([one.index for _, one in _by_generation(rows)]))]


def _by_generation(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return list(rows.reset_index(drop=True).groupby("generation"))


def held_out(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with predictions by constants that were fitted without the row's system, and by both baselines."""
    parts = []
    for _, group in rows.groupby(["link", "kernel", "op"]):
        for system in group["system"].unique():
            rest, own = group[group["system"] != system], group[group["system"] == system]
            if not rest.empty:
                ratio = float(np.median(rest["us"] / (rest["wire_us"] + rest["us"].min())))
                simple = ratio * (own["wire_us"] + rest["us"].min())
                parts.append(own.assign(law=predicted(own, fit_one(rest)), one_ratio=simple, roofline=own["wire_us"]))
    return pd.concat(parts, ignore_index=True)


def fitted(rows: pd.DataFrame) -> CollectiveLaw:
    """The law of all rows, with intervals from what was held out."""
    constants = {
        (str(kind), str(kernel), str(op)): fit_one(one)
        for (kind, kernel, op), one in rows.groupby(["link", "kernel", "op"])
    }
    constants[NETWORK, "nccl", "all_reduce"] = constants[NETWORK, "nccl", "send_recv"] = _BETWEEN
    return CollectiveLaw(constants, _intervals(scored(held_out(rows))))


def scored(rows: pd.DataFrame) -> pd.DataFrame:
    part = np.where(rows["bytes"] <= SMALL_BYTES, "small", "large")
    return rows.assign(part=part, log_ratio=np.log(rows["us"] / rows["law"]))


def _intervals(rows: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """The quantiles of held-out errors by link, kernel, collective and size, every system weighing the same."""
    out = {}
    for key, one in rows.groupby(["link", "kernel", "op", "part"]):
        if one["system"].nunique() >= _SYSTEMS:
            low, high = np.exp(_ends(one))
            out["/".join(key)] = (float(low), float(high))
    return out


def _ends(rows: pd.DataFrame) -> np.ndarray:
    """The 5th and the 95th percentile of logarithmic errors, weighted by system."""
    ordered = rows.sort_values("log_ratio")
    share = (1 / ordered.groupby("system")["us"].transform("size")).cumsum()
    found = np.searchsorted(share / share.iloc[-1], [0.05, 0.95])
    return ordered["log_ratio"].to_numpy()[np.minimum(found, len(ordered) - 1)]


def _covered(rows: pd.DataFrame) -> pd.Series:
    """Whether a row lies in the interval that the held-out errors of the other systems give it; without enough of them,
    in the assumed one."""
    inside = pd.Series(False, index=rows.index)
    for _, group in rows.groupby(["link", "kernel", "op", "part"]):
        for system in group["system"].unique():
            own, others = group[group["system"] == system], group[group["system"] != system]
            low, high = _ends(others) if others["system"].nunique() >= _SYSTEMS - 1 else np.log(UNMEASURED)
            inside[own.index] = own["log_ratio"].between(low, high)
    return inside


@dataclass(frozen=True)
class _Line:
    words: Mapping[str, Any]
    rows: pd.DataFrame

    def cells(self) -> dict[str, Any]:
        def mape(name: str) -> float:
            return _by_system((self.rows[name] / self.rows["us"] - 1).abs(), self.rows)

        errors = {"mape": mape("law"), "one ratio": mape("one_ratio"), "roofline": mape("roofline")}
        covered = _by_system(self.rows["covered"], self.rows)
        counts = {"n": len(self.rows), "systems": self.rows["system"].nunique()}
        return {**self.words, **counts, **errors, "interval_coverage": covered}


def _by_system(values: pd.Series, rows: pd.DataFrame) -> float:
    """The mean over systems of their means: one system has fifty times the rows of another."""
    return float(values.astype(float).groupby(rows["system"]).mean().mean())


def section(store: Store) -> Section:
    """The table: by link, kernel, collective and size, one system held out at a time."""
    rows = scored(held_out(measured(store)))
    rows["covered"] = _covered(rows)
    sizes: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
        f"over {SMALL_BYTES // 1024} KB": lambda frame: frame[frame["part"] == "large"],
        f"up to {SMALL_BYTES // 1024} KB": lambda frame: frame[frame["part"] == "small"],
    }
    lines = []
    for size, chosen in sizes.items():
        for (kind, kernel, op), one in chosen(rows).groupby(["link", "kernel", "op"]):
            lines.append(_Line({"link": kind, "kernel": kernel, "collective": op, "size": size}, one))
        everything = chosen(rows[(rows["link"] == FABRIC) & (rows["op"] != "send_recv")])
        words = {"link": FABRIC, "kernel": "all", "collective": "all but send_recv", "size": size}
        lines.append(_Line(words, everything))
    table = pd.DataFrame([line.cells() for line in lines])
    return Section(
        "collectives", "Collectives, each system held out", table,
        "Collectives within one machine as published by aiconfigurator and vidur, predicted by constants fitted to the "
        "other systems. A system is a GPU with its machine; every one weighs the same. `one ratio` is the rate of the "
        "link and the least time of the other systems, times one constant; `roofline` is the rate of the link alone. "
        "Intervals are those of the other systems' held-out errors; with fewer than four systems, half to twice the "
        "time is assumed.",
    )  # fmt: skip
