"""What is shown of a recommendation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from forerun.blocks import BLANK, Block, Cell, Column, Folded, Line, Notes, Row, Table, number_cells, readable_cells
from forerun.readable import pretty
from forerun.show import interval_heading

#: Columns that go, one after another, where a terminal is too narrow for all: numbers are never cut.
_DISPENSABLE = ("cloud", "latency", "USD/M")
#: Reasons of excluded candidates that are shown unless all are asked for.
_REASONS = 6
#: What is shown of a choice: the field, its heading, and its heading where there is little room.
_FIELDS = {
    "latency": ("latency_ms", "latency", "latency"), "cost": ("usd_per_million", "USD/million {items}", "USD/M"),
    "throughput": ("throughput", "{items}/s", "{items}/s"), "price": ("usd_per_hour", "USD/h", "USD/h"),
    "energy": ("energy_j", "energy/{item}", "energy"), "carbon": ("carbon_g", "CO2/million {items}", "CO2/M"),
}  # fmt: skip


def recommendation_view(r: Any, width: int | None = 160, top: int = 10, everything: bool = False) -> Iterator[Block]:
    """The answer in a sentence, the choices in order, what was left out, and what the numbers assume.

    No width: a page, which has all columns and folds the rows beyond `top` away.
    """
    yield Line(_headline(r), "title")
    yield Line(_answer(r))
    yield BLANK
    yield _table(r, r.candidates if everything else r.rows if width is None else r.rows[:top], width, top)
    if width is not None and not everything and len(r.rows) > top:
        yield Line(f"({len(r.rows) - top} more: --top; every instance: --all)", "faint")
    yield BLANK
    yield from (Line(line, "faint") for line in _fronts(r, in_terminal=width is not None))
    if r.excluded:
        yield _excluded(r, everything, in_terminal=width is not None)
    if r.notes:
        yield Notes(r.notes)


def _table(r: Any, rows: Sequence[Any], width: int | None, top: int) -> Table:
    """The choices: all columns where they fit, else the most needed ones with short headings."""
    found, gap = _columns(r, rows, wide=True), 2
    if width is not None and _width(found, gap) > width:
        found, gap = _columns(r, rows, wide=False), 1
        for name in _DISPENSABLE:
            if _width(found, gap) > width:
                found.pop(name, None)
    words = ("device", "instance", "cloud", "verdict", "dtype", "front")
    heads = [Column(name, right=name not in words) for name in found]
    tones = ["" if row.verdict == "meets" else "faint" for row in rows]
    cells = zip(*found.values(), strict=True)
    return Table(heads, [Row(c, tone) for c, tone in zip(cells, tones, strict=True)], gap=gap, shown=top)


def _columns(r: Any, rows: Sequence[Any], wide: bool) -> dict[str, list[Cell]]:
    """The cells of each column by its heading."""
    headings, lines = _headings(r, wide), [_cells(r, row, wide) for row in rows]
    return {name: [line[at] for line in lines] for at, name in enumerate(headings)}


def _width(columns: dict[str, list[Cell]], gap: int) -> int:
    return sum(max(len(str(cell)) for cell in (name, *cells)) + gap for name, cells in columns.items())


def _headline(r: Any) -> str:
    w = r.workload
    words = [
        w["mode"], f"{w['seq_len']:,} tokens" if w.get("seq_len") else "", w.get("optimizer") or "",
        f"amp {w['amp']}" if w.get("amp") else "", "channels last" if w.get("channels_last") else "",
        w["runtime"] if w["runtime"] != "eager" else "",
    ]  # fmt: skip
    return f"{r.model}, {', '.join(word for word in words if word)}: {r.offers:,} offers, by {r.goal}"


def _answer(r: Any) -> str:
    """The first choice as people would say it."""
    c = r.best
    verdict = "; ".join(c.reasons) or f"fits with {100 * r.confidence:g} % confidence"
    where = f" ({c.cloud} {_instance(c)})" if c.instance else ""
    return f"Best: {_device(c)}{where} at batch {c.batch} in {c.dtype}: {verdict}."


def _shown(r: Any, wide: bool) -> list[str]:
    """The quantities that have a column beside the goal, which comes first."""
    others = ("latency", "throughput", "cost", "price", "energy") if wide else ("latency", "cost")
    return [r.goal, *(name for name in others if name != r.goal)][: None if wide else 2]


def _headings(r: Any, wide: bool) -> list[str]:
    words = {"items": r.items, "item": r.items.removesuffix("s")}
    first, *others = (_FIELDS[name][1 if wide else 2].format(**words) for name in _shown(r, wide))
    interval = [interval_heading(r.confidence)] if r.goal != "price" else []
    if not wide:
        return ["device", "cloud", "batch", "dtype", first, *interval, *others, "verdict"]
    return ["device", "instance", "batch", "dtype", first, *interval, *others, "verdict", "front"]


def _cells(r: Any, c: Any, wide: bool) -> list[Cell]:
    first, *others = (getattr(c, _FIELDS[name][0]) for name in _shown(r, wide))
    value, interval = _with_interval(first)
    numbers: list[Cell] = [value, *([interval] if r.goal != "price" else []), *(_with_interval(e)[0] for e in others)]
    if not wide:
        return [_device(c), c.cloud or "", str(c.batch), c.dtype, *numbers, c.verdict]
    front = [name for name, on in (("cost", c.on_latency_cost_front), ("energy", c.on_energy_throughput_front)) if on]
    where = f"{c.cloud} {_instance(c)}" if c.instance else ""
    return [_device(c), where, str(c.batch), c.dtype, *numbers, c.verdict, ", ".join(front)]


def _device(c: Any) -> str:
    return c.device if c.count == 1 else f"{c.count} x {c.device}"


def _instance(c: Any) -> str:
    part = "part of " if c.share < 1 else f"{c.instances} x " if c.instances > 1 else ""
    return f"{part}{c.instance}"


def _with_interval(e: Any) -> tuple[str, Cell]:
    """The value with the unit that its heading leaves open, and its interval."""
    if isinstance(e, float):
        return pretty(e), ""
    return readable_cells(e) if e is None or e.unit in ("ms", "J", "g") else number_cells(e)


def _fronts(r: Any, in_terminal: bool) -> Iterator[str]:
    fronts = (("latency and cost", r.latency_cost_front), ("energy and throughput", r.energy_throughput_front))
    for name, front in fronts:
        if len(front) > 1:
            ends = " to ".join(f"{_device(c)} at batch {c.batch} in {c.dtype}" for c in (front[0], front[-1]))
            where = " (--json)" if in_terminal else ""
            yield f"Pareto front of {name}: {len(front)} candidates{where}, from {ends}"


def _excluded(r: Any, everything: bool, in_terminal: bool) -> Folded:
    shown = r.excluded if everything else _examples(r.excluded)
    more = "" if everything else f", for such reasons{' (--all has them all)' if in_terminal else ''}"
    lines = []
    for e in shown:
        many = f"{e.count} x " if e.count and e.count > 1 else ""
        lines.append(f"{many}{e.device}{f' ({e.instance})' if e.instance else ''}: {e.reason}")
    return Folded(f"Left out: {len(r.excluded):,}{more}", lines)


def _examples(excluded: Sequence[Any]) -> list[Any]:
    """One candidate for each kind of reason, the most frequent kinds first."""
    kinds = Counter(_kind(e.reason) for e in excluded)
    return [next(e for e in excluded if _kind(e.reason) == kind) for kind, _ in kinds.most_common(_REASONS)]


def _kind(reason: str) -> str:
    """The reason without its names and numbers."""
    return " ".join(word for word in reason.split(":")[0].split() if word.islower() and word.isalpha())
