"""A graph in words: its nodes, edges, work and weights, and each kind of layer. Written by program, and read back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from forerun.graph.profile import CLASSES, Profile

#: What is said of a whole graph, in this order, and of each kind of layer.
WHOLE = ("nodes", "edges", "batch", "FLOPs", "parameters", "MACs")
OF_KIND = ("count", "FLOPs", "parameters")
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_NUMBER = r"(\d{1,9}(?:\.\d{1,6})?)([KMGTP]?)"


@dataclass(frozen=True)
class Description:
    """The numbers of a graph at one batch size. An op counts as often as it runs, weights once."""

    whole: Mapping[str, float]  # WHOLE
    kinds: Mapping[str, Mapping[str, float]]  # OF_KIND of every kind of layer, most FLOPs first

    def text(self, most: int = 10) -> str:
        """In words, with the kinds of layer that have most FLOPs."""
        whole = ", ".join(f"{name} {short_number(self.whole[name])}" for name in WHOLE)
        lines = [
            f"{kind}: {', '.join(f'{name} {short_number(of[name])}' for name in OF_KIND)}"
            for kind, of in list(self.kinds.items())[:most]
        ]
        return ". ".join([whole, *lines]) + "."

    def numbers(self) -> dict[str, float]:
        """Every number by what it is of: `FLOPs`, `conv count`."""
        of_kinds = {f"{kind} {name}": value for kind, of in self.kinds.items() for name, value in of.items()}
        return {**self.whole, **of_kinds}


def describe(columns: Profile, place: int = 0) -> Description:
    """The description of a profile's graph at one of its batch sizes."""
    graph, repeat = columns.graph, columns.repeat
    flops, macs = (each[:, place] * repeat for each in (columns.flops, columns.macs))
    owners = _weights(columns)
    whole = {
        "nodes": float(repeat.sum()),
        "edges": float(sum(repeat[consumer] for _, consumer in graph.edges())),
        "batch": float(columns.batches[place]),
        "FLOPs": float(flops.sum()),
        "parameters": float(graph.parameters),
        "MACs": float(macs.sum()),
    }
    kinds: dict[str, dict[str, float]] = {}
    for index in np.unique(columns.classes).tolist():
        chosen = columns.classes == index
        values = (float(repeat[chosen].sum()), float(flops[chosen].sum()), float(owners[chosen].sum()))
        kinds[CLASSES[index]] = dict(zip(OF_KIND, values, strict=True))
    ordered = sorted(kinds, key=lambda kind: (-kinds[kind]["FLOPs"], -kinds[kind]["count"], kind))
    return Description(whole, {kind: kinds[kind] for kind in ordered})


def _weights(columns: Profile) -> np.ndarray:
    """[ops]: elements of the weights that each op is the first to read; a folded block has as many as it runs."""
    graph, seen = columns.graph, set()
    out = np.zeros(len(graph.ops))
    for place, op in enumerate(graph.ops):
        for tensor in (graph.tensors[t] for t in op.inputs):
            if graph.storages[tensor.storage].role == "parameter" and tensor.storage not in seen:
                seen.add(tensor.storage)
                out[place] += math.prod(tensor.shape) * columns.repeat[place]
    return out


def short_number(value: float) -> str:
    """Three significant digits and a unit: 4.09G, 25.6M, 175."""
    unit, scale = next(((u, s) for u, s in reversed(_UNITS.items()) if value >= s), ("", 1.0))
    scaled = float(f"{value / scale:.3g}")
    if scaled >= 1000 and unit != "P":
        unit, scaled = list(_UNITS)[list(_UNITS).index(unit) + 1], scaled / 1000
    return f"{np.format_float_positional(scaled, trim='-')}{unit}"


def read_numbers(text: str) -> dict[str, float]:
    """The numbers that a text in the form of `Description.text` states, by what each is of; all else is passed over."""
    found: dict[str, float] = {}
    kinds = "|".join(re.escape(kind) for kind in sorted(CLASSES, key=len, reverse=True))
    for part in re.split(r"\.\s+|\.$", text[:20_000]):
        kind = re.match(rf"\s*({kinds}):", part)
        names, prefix = (OF_KIND, f"{kind[1]} ") if kind else (WHOLE, "")
        for name in names:
            if (number := re.search(rf"\b{name} {_NUMBER}(?![\w.])", part)) is not None:
                found.setdefault(prefix + name, float(number[1]) * _UNITS[number[2]])
    return found


def errors(told: Mapping[str, float], known: Description) -> dict[str, float | None]:
    """By number, how far what was told is off, as a share; None where nothing was told."""
    out: dict[str, float | None] = {}
    for name, true in known.numbers().items():
        said = told.get(name)
        out[name] = None if said is None else abs(said - true) / true if true else float(said != 0)
    return out
