"""How a recommendation looks on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from forerun.readable import in_readable_units, pretty, visible
from forerun.show import interval_heading, setting_words

#: Columns that a narrow terminal has as far as there is room, the most needed first: numbers are never cut.
_DISPENSABLE = ("interval", "latency", "cost", "throughput", "price", "energy", "front")
#: Below this the cloud stands for the instance, so that numbers have room.
_NARROW = 100
#: Reasons of excluded candidates that are shown unless all are asked for.
_REASONS = 6
#: Members of a front that are shown unless all are asked for.
_MEMBERS = 5
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
    yield from _fronts(r, everything, width)
    yield from (Text(visible(line), style="dim") for line in _excluded(r, everything))
    for note in r.notes:
        yield Text(visible(f"Note: {note}"), style="yellow")


def _table(r: Any, rows: Sequence[Any], width: int) -> Any:
    """The choices: all columns where they fit, else short headings and the columns that are needed most. What tells
    rows apart stays: the instance, or the cloud where each of its devices has one row."""
    from rich.table import Table

    columns, padding = _columns(r, rows, wide=True), 2
    if _width(columns, padding) > width:
        columns, padding = _columns(r, rows, wide=False), 1
        by_cloud = rows is not r.candidates and len({(_device(c), c.cloud) for c in rows}) == len(rows)
        if by_cloud and width < _NARROW:
            columns["instance"] = ("cloud", [c.cloud or "" for c in rows])
        spare = [name for name in _DISPENSABLE if name in columns and name != r.goal]
        left = width - _width({name: cells for name, cells in columns.items() if name not in spare}, padding)
        for name in spare:
            needs = _width({name: columns[name]}, padding)
            if needs > left:
                del columns[name]
            else:
                left -= needs
    table = Table(box=None, padding=(0, padding, 0, 0))
    for name, (heading, _) in columns.items():
        left = name in ("device", "instance", "verdict", "dtype", "runtime", "front")
        table.add_column(heading, justify="left" if left else "right", no_wrap=name != "instance", overflow="fold")
    for row, cells in zip(rows, zip(*(cells for _, cells in columns.values()), strict=True), strict=True):
        table.add_row(*map(_text, cells), style=None if row.verdict == "meets" else "dim")
    return table


def _columns(r: Any, rows: Sequence[Any], wide: bool) -> dict[str, tuple[str, list[str]]]:
    """The heading and the cells of each column, by what it shows; the goal comes first of the quantities."""
    words = {"items": r.items, "item": r.items.removesuffix("s")}
    out = {
        "device": ("device", [_device(c) for c in rows]),
        "instance": ("instance", [f"{c.cloud} {_instance(c)}" if c.instance else "" for c in rows]),
        "batch": ("batch", [str(c.batch) for c in rows]),
        "dtype": ("dtype", [c.dtype for c in rows]),
    }
    if any(c.runtime != r.workload["runtime"] for c in rows):
        out["runtime"] = ("runtime", [c.runtime for c in rows])
    for name in dict.fromkeys((r.goal, "latency", "throughput", "cost", "price", "energy")):
        field, *headings = _FIELDS[name]
        cells = [_with_interval(getattr(c, field)) for c in rows]
        out[name] = (headings[0 if wide else 1].format(**words), [value for value, _ in cells])
        if name == r.goal and name != "price":
            out["interval"] = (interval_heading(r.confidence), [interval for _, interval in cells])
    out["verdict"] = ("verdict", [c.verdict for c in rows])
    on = [(("cost", c.on_latency_cost_front), ("energy", c.on_energy_throughput_front)) for c in rows]
    out["front"] = ("front", [", ".join(name for name, is_on in one if is_on) for one in on])
    return out


def _width(columns: dict[str, tuple[str, list[str]]], padding: int) -> int:
    return sum(max(map(len, (heading, *cells))) + padding for heading, cells in columns.values())


def _headline(r: Any) -> str:
    return f"{r.model}, {setting_words(r.workload)}: {r.offers:,} offers, by {r.goal}"


def _answer(r: Any) -> str:
    """The first choice as people would say it."""
    c = r.best
    verdict = "; ".join(c.reasons) or f"fits with {100 * r.confidence:g} % confidence"
    where = f" ({c.cloud} {_instance(c)})" if c.instance else ""
    how = "" if c.runtime == r.workload["runtime"] else f" with --runtime {c.runtime}"
    return f"Best: {_device(c)}{where} at batch {c.batch} in {c.dtype}{how}: {verdict}."


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


def _fronts(r: Any, everything: bool, width: int) -> Iterator[Any]:
    """The members of each front: a few in a line, all of them as a table."""
    from rich.text import Text

    fronts = ((("latency", "cost"), r.latency_cost_front), (("energy", "throughput"), r.energy_throughput_front))
    for pair, front in fronts:
        if len(front) < 2:
            continue
        name = f"Pareto front of {' and '.join(pair)}"
        if everything:
            yield Text(f"{name}: {len(front)} candidates", style="bold")
            yield _front_table(r, front, pair)
            yield Text()
            continue
        places = sorted({round(k * (len(front) - 1) / (_MEMBERS - 1)) for k in range(_MEMBERS)})
        words = "; ".join(_member(r, front[at], pair) for at in places)
        some = "" if len(places) == len(front) else f" ({len(places)} of {len(front)} shown, --all has them)"
        yield Text(visible(f"{name}{some}: {words}"), style="dim")


def _member(r: Any, c: Any, pair: Sequence[str]) -> str:
    """'l4, batch 8, fp16: 3.2 ms, 0.04 USD/M'."""
    values = []
    for name in pair:
        value, heading = _with_interval(getattr(c, _FIELDS[name][0]))[0], _FIELDS[name][2].format(items=r.items)
        values.append(f"{value} {heading}" if name in ("cost", "throughput") else value)
    how = "" if c.runtime == r.workload["runtime"] else f", {c.runtime}"
    return f"{_device(c)}, batch {c.batch}, {c.dtype}{how}: {', '.join(values)}"


def _front_table(r: Any, front: Sequence[Any], pair: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("device", "instance", "batch", "dtype", *pair):
        heading = _FIELDS[name][2].format(items=r.items) if name in pair else name
        table.add_column(heading, justify="right" if name in ("batch", *pair) else "left", overflow="fold")
    for c in front:
        where = f"{c.cloud} {_instance(c)}" if c.instance else ""
        numbers = (_with_interval(getattr(c, _FIELDS[name][0]))[0] for name in pair)
        table.add_row(*map(_text, (_device(c), where, str(c.batch), c.dtype, *numbers)))
    return table


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
