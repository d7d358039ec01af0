"""How rows are split for evaluation: whole families, whole devices, never single rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd


def independent(rows: pd.DataFrame) -> pd.Series:
    """Families, those that share a graph taken as one: leaving out only one of them would leave its twin in."""
    names = rows["family"].fillna("unknown")
    leader = {name: name for name in names}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for _, twins in names.groupby(rows["graph_hash"]):
        first, *others = sorted(set(twins))
        for other in others:
            leader[find(other)] = find(first)
    return names.map(find)


def kinds_of_network(rows: pd.DataFrame) -> pd.Series:
    """The kind of network of every row: what its family of named networks says, else by source and mode."""
    pairs = rows[["source", "mode"]].astype("string").fillna("").agg("/".join, axis=1)
    return pairs.map({pair: _kind(*pair.split("/", 1)) for pair in pairs.unique()})


def _kind(source: str, mode: str) -> str:
    from forerun.graph import families

    if source in families.FILES:
        return families.family(source).kind
    if source != "hf":
        return "image classifier"
    return "encoder" if mode == "inference" else "language model"


def in_turns(groups: pd.Series) -> pd.Index:
    """The rows in another order: the first of each group, then the second of each …"""
    return groups.groupby(groups, dropna=False).cumcount().sort_values(kind="stable").index


def leave_out(groups: pd.Series, folds: int | None = None, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(train, test) masks such that every group is in `test` exactly once and never in both.

    With `folds` several groups are left out together, which is harder than leaving out one and takes fewer fits.
    """
    names = groups.fillna("unknown").to_numpy()
    sizes = pd.Series(names).value_counts()
    if folds is None or folds >= len(sizes):
        parts = [[name] for name in sizes.index]
    else:
        # The largest first, each into the emptiest fold, ties shuffled: folds of like size.
        rng = np.random.default_rng(seed)
        order = sorted(sizes.index, key=lambda name: (-sizes[name], rng.random()))
        parts = [[] for _ in range(folds)]
        filled = np.zeros(folds)
        for name in order:
            at = int(filled.argmin())
            parts[at].append(name)
            filled[at] += sizes[name]
    for part in parts:
        test = np.isin(names, part)
        yield ~test, test
