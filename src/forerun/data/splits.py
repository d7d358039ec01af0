"""Splits of rows for evaluation: by complete families or devices, never by single rows."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

import numpy as np
import pandas as pd

from forerun.runtimes.registry import is_usual


def independent(rows: pd.DataFrame) -> pd.Series:
    """Groups of related families, since holding out only one of them would leak its relatives into training.

    Relatives share a graph, or their blocks are alike (graph/blocks.py) in a mode that both were measured in: BERT and
    RoBERTa, Llama and Mistral. Rows without blocks are grouped by their graphs only.
    """
    blocks = family_blocks(rows)
    return _joined(rows, _relatives(tuple((name, tuple(blocks[name].items())) for name in sorted(blocks))))


@functools.lru_cache(maxsize=8)
def _relatives(blocks: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]) -> list[set[str]]:
    """Pairs of families with similar blocks, of families by name with their blocks by mode. Every table of a scoreboard
    is of the same families."""
    known = [(name, dict(by_mode)) for name, by_mode in blocks]
    return [{a, b} for (a, one), (b, other) in combinations(known, 2) if related(one, other)]


def by_name(rows: pd.DataFrame) -> pd.Series:
    """Groups of families with a shared graph; relatives under another name stay separate."""
    return _joined(rows, [])


def family_blocks(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    """By family and mode, the block of most of its networks under the eager runtime.

    One block represents a family, so that a single network of a mixed one (`cnn`, random architectures) does not
    connect two others.
    """
    if "block" not in rows:
        return {}
    plain = rows[is_usual(rows) & rows["block"].notna() & rows["family"].notna()]
    counted = plain.drop_duplicates(["family", "mode", "model", "block"]).groupby(["family", "mode", "block"]).size()
    ordered = counted.reset_index(name="networks").sort_values(["networks", "block"], ascending=[False, True])
    blocks: dict[str, dict[str, str]] = {}
    for one in ordered.drop_duplicates(["family", "mode"]).itertuples():
        blocks.setdefault(str(one.family), {})[str(one.mode)] = str(one.block)
    return blocks


def related(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether the blocks of two families (`family_blocks`) are similar in some mode."""
    from forerun.graph.blocks import alike

    return any(mode in other and alike(block, other[mode]) for mode, block in one.items())


def relatives(rows: pd.DataFrame, targets: pd.DataFrame) -> pd.Series:
    """Which rows are of relatives of the families that are asked about."""
    theirs = list(family_blocks(targets).values())
    kin = [name for name, blocks in family_blocks(rows).items() if any(related(blocks, other) for other in theirs)]
    return rows["family"].isin(kin)


def _joined(rows: pd.DataFrame, together: Iterable[set[str]]) -> pd.Series:
    """The group of every row, named after one of its families; families of one set or one graph form a group."""
    names = rows["family"].fillna("unknown")
    leader = {name: name for name in names}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    filed = pd.DataFrame({"graph": rows["graph_hash"], "name": names}).dropna().drop_duplicates()
    shared = filed[filed.duplicated("graph", keep=False)]  # graphs of one family join nothing
    for twins in [*together, *(set(members) for _, members in shared.groupby("graph")["name"])]:
        first, *others = sorted(twins)
        for other in others:
            leader[find(other)] = find(first)
    return names.map(find)


def kinds_of_network(rows: pd.DataFrame) -> pd.Series:
    """The kind of network of every row: by its family of `networks/`, else by source and mode."""
    source, mode = (rows[name].astype("string").fillna("") for name in ("source", "mode"))
    pairs = source + "/" + mode
    return pairs.map({pair: _kind(*pair.split("/", 1)) for pair in pairs.unique()})


def _kind(source: str, mode: str) -> str:
    from forerun import networks

    if source in networks.FILES:
        return networks.family(source).kind
    if source != "hf":
        return "image classifier"
    return "encoder" if mode == "inference" else "language model"


def in_turns(groups: pd.Series) -> pd.Index:
    """The rows in round-robin order: the first of each group, then the second of each …"""
    return groups.groupby(groups, dropna=False).cumcount().sort_values(kind="stable").index


def stratified(
    cases: pd.Series, strata: pd.Series, folds: int, seed: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray]]:  # fmt: skip
    """(train, test) masks of single cases, such that every fold has about the same share of each stratum. Rows of one
    case, which are repeats, stay together."""
    first = pd.DataFrame({"case": cases.to_numpy(), "stratum": strata.to_numpy()}).drop_duplicates("case")
    dealt = first.sample(frac=1, random_state=seed).sort_values("stratum", kind="stable")["case"]
    fold = dict(zip(dealt, np.arange(len(dealt)) % folds, strict=True))
    of_row = cases.map(fold).to_numpy()
    for number in range(min(folds, len(dealt))):
        yield of_row != number, of_row == number


def hold_out(groups: pd.Series, folds: int | None = None, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(train, test) masks such that every group is in `test` exactly once and never in both.

    With `folds` several groups are held out together, which is harder than holding out one and takes fewer fits.
    """
    names = groups.fillna("unknown").to_numpy()
    sizes = pd.Series(names).value_counts()
    if folds is None or folds >= len(sizes):
        parts = [[name] for name in sizes.index]
    else:
        # The largest first, each into the smallest fold, ties shuffled: folds of similar size.
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
