"""The rows of a study: one line per measured case, with what it cost and the features that may explain it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from forerun._util.readable import short
from forerun.data.sql import matching
from forerun.data.store import Store
from forerun.errors import ForerunError, MissingPackage, did_you_mean
from forerun.evaluate.stored import stored_predictions
from forerun.predictors.registry import saved_folder

#: What a case cost, with the words and the unit of it.
TARGETS = {
    "latency_ms": ("time of a call", "ms"), "memory_mb": ("memory", "MB"), "energy_j": ("energy of a call", "J"),
}  # fmt: skip
#: Features that are numbers, and those that are one of several names.
NUMBERS = {
    "parameters": "parameters", "macs_per_item": "multiply-accumulates of an image or a token",
    "nodes": "operations in the graph", "batch": "batch", "seq_len": "prompt length, tokens",
}  # fmt: skip
NAMES = {"precision": "precision", "mode": "mode", "runtime": "runtime", "device": "device"}
FEATURES = (*NUMBERS, *NAMES)
#: Everything that tells two cases apart; all of it but what is compared must be the same in a pair.
SETTINGS = (
    "dataset", "device", "model", "mode", "batch", "precision", "seq_len", "tokens_out", "input_shape", "optimizer",
    "runtime", "quantised", "power_limit_w",
)  # fmt: skip
#: Rows beyond these are sampled, whole models at a time.
MOST_ROWS = 20_000
LEAST_ROWS = 20
#: Parts of our rows whose held-out predictions carry the numbers of their graphs (evaluate/stored.py).
_PARTS = ("gpu", "cpu", "onnxruntime")
_OF_GRAPH = ("macs", "nodes", "parameters")


@dataclass(frozen=True)
class Rows:
    """Cases by line: SETTINGS, the features, the targets; and what was left out."""

    frame: pd.DataFrame
    left_out: dict[str, int]
    features: tuple[str, ...] = FEATURES

    def __len__(self) -> int:
        return len(self.frame)

    def known(self, target: str) -> pd.DataFrame:
        """The lines on which a target was measured."""
        return self.frame[self.frame[target] > 0]


def read(
    store: Store, where: str | None = None, features: Sequence[str] | None = None, most: int = MOST_ROWS
) -> Rows:  # fmt: skip
    """The cases of the store, a line each: repeats are their median. `where` is an SQL condition on `models`."""
    chosen = _checked(features)
    if most < LEAST_ROWS:
        raise ForerunError(f"a study needs at least {LEAST_ROWS} cases, so rows must be at least that, not {most}")
    rows = matching(store, "models", where) if where else store.read("models")
    left_out: dict[str, int] = {}
    rows = _kept(rows, rows["status"] == "ok", "did not run", left_out)
    rows = _kept(rows, rows["devices"].fillna(1) <= 1, "ran on several devices", left_out)
    measured = (rows[list(TARGETS)] > 0).any(axis=1)
    rows = _kept(rows, measured, "state no time, memory or energy of a call", left_out)
    cases = _prepared(_once(rows, left_out))
    if len(cases) > most:
        fewer = _sampled(cases, most)
        left_out["were not sampled"] = len(cases) - len(fewer)
        cases = fewer
    if len(cases) < LEAST_ROWS:
        condition = f" that meet {short(where)}" if where else ""
        raise ForerunError(
            f"the store has {len(cases)} measured cases{condition}, fewer than the {LEAST_ROWS} that a study needs; "
            "see: forerun data ls"
        )
    return Rows(cases, left_out, chosen)


def _checked(features: Sequence[str] | None) -> tuple[str, ...]:
    """The features to study; all where none is named."""
    if features is None:
        return FEATURES
    for name in features:
        if name not in FEATURES:
            raise ForerunError(
                f"there is no column {short(name)} to study.{did_you_mean(name, FEATURES)} "
                f"Choose from {', '.join(FEATURES)}"
            )
    if not features:
        raise ForerunError(f"name at least one column to study: {', '.join(FEATURES)}")
    return tuple(dict.fromkeys(features))


def _kept(rows: pd.DataFrame, kept: pd.Series, reason: str, left_out: dict[str, int]) -> pd.DataFrame:
    if not kept.all():
        left_out[reason] = int((~kept).sum())
    return rows[kept]


def _once(rows: pd.DataFrame, left_out: dict[str, int]) -> pd.DataFrame:
    """A line per case: its first row, with medians over its repeats."""
    values = [*TARGETS, "device_ms"]
    first = rows.drop_duplicates("key").set_index("key")
    if len(first) < len(rows):
        left_out["are repeats, taken as the median of their case"] = len(rows) - len(first)
        first[values] = rows.groupby("key")[values].median().reindex(first.index)
    return first.reset_index(drop=True)


def _prepared(rows: pd.DataFrame) -> pd.DataFrame:
    """The features of rows."""
    rows = _with_graphs(rows)
    mode = rows["mode"].where(rows["source"] != "tabular", "tabular").fillna("inference")
    amp = rows["amp"].where(rows["amp"].fillna("") != "")
    precision = ("amp " + amp).where(amp.notna(), rows["dtype"].fillna("fp32")).where(
        rows["quantised"].isna(), rows["quantised"].fillna("").str.split().str[-1]
    )  # fmt: skip
    batch = rows["batch"].clip(lower=1).fillna(1)
    tokens = rows["seq_len"].where(~mode.isin(("decode", "generate"))).fillna(1).clip(lower=1)
    return rows.assign(
        mode=mode, precision=precision, macs_per_item=rows["macs"] / (batch * tokens), batch=batch,
        runtime=rows["runtime"].fillna("eager"), family=rows["family"].fillna(rows["model"]),
    )  # fmt: skip


def _with_graphs(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with `macs` and `nodes`, from the graphs of our rows where forerun-data is installed, else from the row."""
    numbers = _of_graphs()
    own = pd.DataFrame({"macs": rows["flops"] / 2, "nodes": np.nan, "parameters": rows["parameters"]})
    if numbers is not None:
        at = pd.MultiIndex.from_frame(rows[["device", "case_key"]])
        found = numbers.reindex(at).set_index(rows.index)
        own = found.combine_first(own)[list(_OF_GRAPH)]
    return rows.assign(**{name: own[name] for name in _OF_GRAPH})


def _of_graphs() -> pd.DataFrame | None:
    """Numbers of the graphs of our rows by device and case; None where nothing is stored."""
    parts = []
    for part in _PARTS:
        folder = saved_folder("default")
        try:
            stored = stored_predictions(folder, part) if folder else None
        except (ForerunError, MissingPackage):
            continue
        parts += [] if stored is None else [stored[["device", "case_key", *_OF_GRAPH]]]
    if not parts:
        return None
    return pd.concat(parts).drop_duplicates(["device", "case_key"]).set_index(["device", "case_key"])


def _sampled(cases: pd.DataFrame, most: int) -> pd.DataFrame:
    """About `most` lines, whole models at a time, so that what differs in one setting alone stays together."""
    names = cases["model"].drop_duplicates().sample(frac=1.0, random_state=0)
    sizes = cases["model"].value_counts().reindex(names).cumsum()
    chosen = sizes.index[: max(1, int((sizes <= most).sum()))]
    found = cases[cases["model"].isin(chosen)]
    return found.sample(n=min(most, len(found)), random_state=0).sort_index()
