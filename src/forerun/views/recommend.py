"""How a recommendation looks on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from forerun.readable import in_readable_units, pretty, visible
from forerun.show import interval_heading, setting_words

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


def recommendation_view(r: Any, width: int = 160, top: int = 10, everything: bool = False) -> Iterator[Any]:
    """The answer in a sentence, the choices in order, what was left out, and what the numbers assume."""
    from rich.text import Text

    yield Text(visible(_headline(r)), style="bold")
    yield Text(visible(_answer(r)))
    yield Text()
    rows = r.candidates if everything else r.rows[:top]
    yield _table(r, rows, width)
    if not everything and len(r.rows) > top:
        yield Text(f"({len(r.rows) - top} more: --top; every instance: --all)", style="dim")
    yield Text()
    yield from (Text(visible(line), style="dim") for line in (*_fronts(r), *_excluded(r, everything)))
    for note in r.notes:
        yield Text(visible(f"Note: {note}"), style="yellow")


def _table(r: Any, rows: Sequence[Any], width: int) -> Any:
    """The choices: all columns where they fit, else the most needed ones with short headings."""
    from rich.table import Table

    columns, padding = _columns(r, rows, wide=True), 2
    if _width(columns, padding) > width:
        columns, padding = _columns(r, rows, wide=False), 1
        for name in _DISPENSABLE:
            if _width(columns, padding) > width:
                columns.pop(name, None)
    table = Table(box=None, padding=(0, padding, 0, 0))
    for name in columns:
        left = name in ("device", "instance", "cloud", "verdict", "dtype", "front")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
        table.add_row(*map(_text, cells), style=None if row.verdict == "meets" else "dim")
    return table


def _columns(r: Any, rows: Sequence[Any], wide: bool) -> dict[str, list[str]]:
    """The cells of each column by its heading."""
    headings, lines = _headings(r, wide), [_cells(r, row, wide) for row in rows]
    return {name: [line[at] for line in lines] for at, name in enumerate(headings)}


def _width(columns: dict[str, list[str]], padding: int) -> int:
    return sum(max(map(len, (name, *cells))) + padding for name, cells in columns.items())


def _headline(r: Any) -> str:
    return f"{r.model}, {setting_words(r.workload)}: {r.offers:,} offers, by {r.goal}"


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


def _cells(r: Any, c: Any, wide: bool) -> list[str]:
    first, *others = (getattr(c, _FIELDS[name][0]) for name in _shown(r, wide))
    value, interval = _with_interval(first)
    numbers = [value, *([interval] if r.goal != "price" else []), *(_with_interval(e)[0] for e in others)]
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


def _with_interval(e: Any) -> tuple[str, str]:
    """The value with the unit that its heading leaves open, and its interval."""
    if e is None or isinstance(e, float):
        return ("unknown" if e is None else pretty(e)), ""
    if e.unit not in ("ms", "J", "g"):
        return pretty(e.value), f"{pretty(e.low)} … {pretty(e.high)}"
    value, low, high, unit = in_readable_units(e.value, e.low, e.high, e.unit)
    return f"{value} {unit}", f"{low} … {high}"


def _fronts(r: Any) -> Iterator[str]:
    fronts = (("latency and cost", r.latency_cost_front), ("energy and throughput", r.energy_throughput_front))
    for name, front in fronts:
        if len(front) > 1:
            ends = " to ".join(f"{_device(c)} at batch {c.batch} in {c.dtype}" for c in (front[0], front[-1]))
            yield f"Pareto front of {name}: {len(front)} candidates (--json), from {ends}"


def _excluded(r: Any, everything: bool) -> Iterator[str]:
    if not r.excluded:
        return
    shown = r.excluded if everything else _examples(r.excluded)
    yield f"Left out: {len(r.excluded):,}" + ("" if everything else ", for such reasons (--all has them all)")
    for e in shown:
        many = f"{e.count} x " if e.count and e.count > 1 else ""
        yield f"  {many}{e.device}{f' ({e.instance})' if e.instance else ''}: {e.reason}"


def _examples(excluded: Sequence[Any]) -> list[Any]:
    """One candidate for each kind of reason, the most frequent kinds first."""
    kinds = Counter(_kind(e.reason) for e in excluded)
    return [next(e for e in excluded if _kind(e.reason) == kind) for kind, _ in kinds.most_common(_REASONS)]


def _kind(reason: str) -> str:
    """The reason without its names and numbers."""
    return " ".join(word for word in reason.split(":")[0].split() if word.islower() and word.isalpha())


def _text(text: str) -> Any:
    from rich.text import Text

    return Text(visible(text))
