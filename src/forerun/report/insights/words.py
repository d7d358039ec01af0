"""The conclusions: sentences whose every number is computed from the rows, by section."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from forerun._util.readable import pretty
from forerun.prediction import DEVICE_BOUND
from forerun.report.insights.learned import Dependence, Explained, Selection
from forerun.report.insights.pairs import BASES, Effect, SizeLaw
from forerun.report.insights.rows import NAMES, NUMBERS, TARGETS, Rows
from forerun.report.parts import listed, percent

QUANTITY = {"latency_ms": "time", "device_ms": "device time", "memory_mb": "memory", "energy_j": "energy"}
SECTIONS = ("matters", "size", "batch", "prompt", "precision", "device", "selection")
#: Sentences of a section at most, the ones that most cases support.
_MOST = 5
_SIZE = {"macs_per_item": "work (multiply-accumulates of an image or a token)", "parameters": "parameters"}


def conclusions(
    rows: Rows, effects: Sequence[Effect], laws: Sequence[SizeLaw], waits: Sequence[dict[str, Any]],
    explained: Sequence[Explained], selection: Selection | None,
) -> dict[str, list[str]]:  # fmt: skip
    """Sentences by section; every section has at least one."""
    said = {
        "matters": [_matters(one) for one in explained],
        "size": _sizes(laws),
        "batch": _batches(effects) + _waits(waits),
        "prompt": _changes(effects, "seq_len", "doubling the prompt"),
        "precision": _precisions(effects),
        "device": _changes(effects, "device", "") + _devices(explained),
        "selection": _selected(selection),
    }
    absent = {
        "matters": "Too few cases state what a call costs for anything to be fitted to them.",
        "size": "No family has enough networks of different size that ran the same way.",
        "batch": "Too few cases differ in their batch alone.",
        "prompt": "Too few cases differ in the length of their prompt alone.",
        "precision": "Too few cases differ in precision alone.",
        "device": f"Too few cases ran on two devices; the rows are of {listed(_names(rows))}.",
        "selection": "Too few families state their time for features to be selected on held-out ones.",
    }
    return {name: said[name] or [absent[name]] for name in SECTIONS}


def _names(rows: Rows) -> list[str]:
    names = [str(name) for name in rows.frame["device"].value_counts().index]
    return names if len(names) < 6 else [*names[:5], f"{len(names) - 5} more"]


def _matters(one: Explained) -> str:
    top = one.strength.iloc[:3]
    words = listed([f"{_feature(name)} (×{pretty(value)} up or down)" for name, value in top.items()])
    return (
        f"{TARGETS[one.target][0].capitalize()}: what moves it most is {words}, on average over {one.cases:,} cases; "
        f"the trees that say so miss held-out families by {percent(one.error)} (median)."
    )


def _feature(name: Any) -> str:
    return {**NUMBERS, **NAMES}[str(name)]


def _sizes(laws: Sequence[SizeLaw]) -> list[str]:
    lines = []
    for size, words in _SIZE.items():
        chosen = [law for law in laws if law.size == size]
        modes = list(dict.fromkeys(law.mode for law in sorted(chosen, key=lambda law: -law.cases)))[:2]
        for mode in modes:
            same = [law for law in chosen if law.mode == mode]
            parts = [f"{pretty(10**law.power)} times the {QUANTITY[law.target]}" for law in same]
            lines.append(
                f"{_capital(mode)}: within a family, ten times the {words} takes {listed(parts)} "
                f"(powers {listed([pretty(law.power) for law in same])}; {max(law.cases for law in same):,} cases)."
            )
    return lines


def _batches(effects: Sequence[Effect]) -> list[str]:
    """By mode and device: what a doubling takes where batches are small and large, and what it saves a sample."""
    own = [e for e in effects if e.setting == "batch" and e.target == "latency_ms"]
    lines = []
    for where in _most_pairs(own)[:_MOST]:
        times = [e for e in own if e.where == where]
        last = times[-1]
        energy = next((e for e in effects if _same(e, last) and e.target == "energy_j"), None)
        saved = [f"time by {percent(1 - last.factor / 2)}"] if last.factor < 2 else []
        saved += [f"energy by {percent(1 - energy.factor / 2)}"] if energy and energy.factor < 2 else []
        lines.append(
            f"{_capital(where)}: doubling the batch takes "
            f"{listed([f'{_times(e)} {_range(e)}' for e in times])} (medians of {_pairs(times)})"
            + (f"; the last of them lowers {listed(saved)} a sample." if saved else ".")
        )
    return lines


def _range(effect: Effect) -> str:
    return effect.change.removeprefix("batch doubled, ")


def _same(one: Effect, other: Effect) -> bool:
    return (one.setting, one.change, one.where) == (other.setting, other.change, other.where)


def _waits(waits: Sequence[dict[str, Any]]) -> list[str]:
    if not waits:
        return []
    parts = [f"{percent(line['share'])} {_batches_of(line)}" for line in waits]
    return [
        f"Small calls wait for their host (the device is busy for less than {percent(DEVICE_BOUND)} of the call): "
        f"{listed(parts)}, of {sum(line['cases'] for line in waits):,} cases whose device time is known."
    ]


def _batches_of(line: dict[str, Any]) -> str:
    if line["below"] is None:
        return f"from batch {line['from']} on"
    return f"of those from batch {line['from']} to {line['below'] - 1:.0f}"


def _changes(effects: Sequence[Effect], setting: str, words: str) -> list[str]:
    """A sentence for each change and place, those with most pairs first."""
    own = [e for e in effects if e.setting == setting]
    lines = []
    for first in _leading(own)[:_MOST]:
        same = [e for e in own if _same(e, first)]
        parts = [f"{_times(e)} the {QUANTITY[e.target]}" for e in same]
        change = words or " instead of ".join(reversed(first.change.split(" to ", 1)))
        lines.append(f"{_capital(first.where)}: {change} takes {listed(parts)} (medians of {_pairs(same)}).")
    return lines


def _precisions(effects: Sequence[Effect]) -> list[str]:
    bases = BASES["precision"]
    usual = [e for e in effects if e.setting == "precision" and e.change.startswith(f"{bases[0]} ")]
    return _changes(usual or effects, "precision", "")


def _devices(explained: Iterable[Explained]) -> list[str]:
    """Devices by partial dependence, which also compares those that share no case."""
    for one in explained:
        curve = next((c for c in one.dependence if c.feature == "device"), None)
        if one.target == "latency_ms" and curve is not None:
            return [_fastest(curve)]
    return []


def _fastest(curve: Dependence) -> str:
    order = np.argsort(curve.predicted)
    least, most = (int(order[at]) for at in (0, -1))
    ratio = curve.predicted[most] / curve.predicted[least]
    return (
        f"Had all cases run on one device, by the trees: fastest {curve.values[least]}, slowest {curve.values[most]}, "
        f"which would take {pretty(ratio)} times as long. Devices that ran other kinds of work are extrapolated."
    )


def _selected(selection: Selection | None) -> list[str]:
    if selection is None:
        return []
    whole = selection.errors[-1]
    enough = next(line for line in selection.errors if line["features"] == len(selection.enough))
    one = selection.errors[0]
    return [
        f"{len(selection.enough)} of {len(selection.order)} features are enough for the {QUANTITY[selection.target]} "
        f"of a call: {listed([_feature(name) for name in selection.enough])}. Median error on held-out families: "
        f"{percent(one['median'])} with the first alone, {percent(enough['median'])} with these, "
        f"{percent(whole['median'])} with all ({selection.cases:,} cases of {selection.families} families)."
    ]


def _most_pairs(effects: Sequence[Effect]) -> list[str]:
    """The places of effects, those with most pairs first."""
    counts: dict[str, int] = {}
    for effect in effects:
        counts[effect.where] = counts.get(effect.where, 0) + effect.pairs
    return sorted(counts, key=lambda where: -counts[where])


def _leading(effects: Sequence[Effect]) -> list[Effect]:
    """The first effect of each change and place, those with most pairs first."""
    first: dict[tuple[str, str], Effect] = {}
    for effect in effects:
        first.setdefault((effect.change, effect.where), effect)
    return sorted(first.values(), key=lambda effect: -effect.pairs)


def _times(effect: Effect) -> str:
    return f"{pretty(effect.factor)} times"


def _pairs(effects: Sequence[Effect]) -> str:
    counts = sorted({effect.pairs for effect in effects})
    return f"{counts[0]:,} to {counts[-1]:,} pairs" if len(counts) > 1 else f"{counts[0]:,} pairs"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
