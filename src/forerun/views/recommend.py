"""View of a recommendation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from forerun._util.readable import pretty
from forerun.decisions.recommend.recommendation import Recommendation
from forerun.views.blocks import (
    BLANK,
    Block,
    Cell,
    Column,
    Folded,
    Line,
    Notes,
    Row,
    Table,
    number_cells,
    readable_cells,
)
from forerun.views.rendering import blocks
from forerun.views.words import interval_heading, setting_words

#: Columns that a narrow terminal shows as far as they fit, the most needed first: numbers are never truncated.
_DISPENSABLE = ("interval", "latency", "cost", "throughput", "price", "energy", "front")
#: Below this width the cloud replaces the instance, so that numbers fit.
_NARROW = 100
#: Columns of words, aligned left.
_WORDS = ("device", "instance", "verdict", "dtype", "runtime", "front")
#: Columns that a narrow page hides, the highest first. The goal always stays.
_RANKS = {"batch": 1, "verdict": 1, "latency": 1, "cost": 1, "throughput": 2, "dtype": 2, "runtime": 2, "instance": 3,
          "price": 3, "energy": 4, "carbon": 4, "front": 5}  # fmt: skip
#: Reasons of excluded candidates that are shown by default.
_REASONS = 6
#: Members of a front that are shown by default.
_MEMBERS = 5
#: The columns of a choice: the field, its heading, and its short heading.
_FIELDS = {
    "latency": ("latency_ms", "latency", "latency"), "cost": ("usd_per_million", "USD/million {items}", "USD/M"),
    "throughput": ("throughput", "{items}/s", "{items}/s"), "price": ("usd_per_hour", "USD/h", "USD/h"),
    "energy": ("energy_j", "energy/{item}", "energy"), "carbon": ("carbon_g", "CO2/million {items}", "CO2/M"),
}  # fmt: skip


@blocks.register
def recommendation_view(
    r: Recommendation, width: int | None = 160, top: int = 10, everything: bool = False
) -> Iterator[Block]:
    """The answer in a sentence, the choices in order, what was excluded, and the assumptions.

    No width: a page, which has all columns and folds the rows beyond `top` away.
    """
    yield Line(_headline(r), "title")
    yield Line(_answer(r))
    yield BLANK
    yield _table(r, r.candidates if everything else r.rows if width is None else r.rows[:top], width, top)
    if width is not None and not everything and len(r.rows) > top:
        yield Line(f"({len(r.rows) - top} more: --top; every instance: --all)", "faint")
    yield BLANK
    yield from _fronts(r, everything, in_terminal=width is not None)
    if r.excluded:
        yield _excluded(r, everything, in_terminal=width is not None)
    if r.notes:
        yield Notes(r.notes)


def _table(r: Any, rows: Sequence[Any], width: int | None, top: int) -> Table:
    """The choices: all columns where they fit, else short headings and the columns that are needed most. What
    distinguishes rows stays: the instance, or the cloud where each of its devices has one row."""
    columns, gap = _columns(r, rows, wide=True), 2
    if width is not None and _width(columns, gap) > width:
        columns, gap = _columns(r, rows, wide=False), 1
        by_cloud = rows is not r.candidates and len({(_device(c), c.cloud) for c in rows}) == len(rows)
        if by_cloud and width < _NARROW:
            columns["instance"] = ("cloud", [c.cloud or "" for c in rows])
        spare = [name for name in _DISPENSABLE if name in columns and name != r.goal]
        room = width - _width({name: column for name, column in columns.items() if name not in spare}, gap)
        for name in spare:
            needs = _width({name: columns[name]}, gap)
            if needs > room:
                del columns[name]
            else:
                room -= needs
    ranks = _RANKS | {r.goal: 0}
    heads = [
        Column(head, right=name not in _WORDS, wrap=name == "instance", rank=ranks.get(name, 0))
        for name, (head, _) in columns.items()
    ]
    tones = ["" if row.verdict == "meets" else "faint" for row in rows]
    cells = zip(*(cells for _, cells in columns.values()), strict=True)
    return Table(heads, [Row(c, tone) for c, tone in zip(cells, tones, strict=True)], gap=gap, shown=top)


def _columns(r: Any, rows: Sequence[Any], wide: bool) -> dict[str, tuple[str, list[Cell]]]:
    """The heading and the cells of each column, by what it shows; the goal comes first of the quantities."""
    words = {"items": r.items, "item": r.items.removesuffix("s")}
    out = _identity(r, rows)
    for name in dict.fromkeys((r.goal, "latency", "throughput", "cost", "price", "energy")):
        field, *headings = _FIELDS[name]
        cells = [_with_interval(getattr(c, field)) for c in rows]
        out[name] = (headings[0 if wide else 1].format(**words), [value for value, _ in cells])
        if name == r.goal and name != "price":
            out["interval"] = (interval_heading(r.confidence), [interval for _, interval in cells])
    out["verdict"] = ("verdict", [c.verdict for c in rows])
    on = [(("cost", c.on_latency_cost_front), ("energy", c.on_energy_throughput_front)) for c in rows]
    out["front"] = ("front", [", ".join(name for name, is_on in fronts if is_on) for fronts in on])
    return out


def _identity(r: Any, rows: Sequence[Any]) -> dict[str, tuple[str, list[Cell]]]:
    """The columns that identify a row: the runtime only where it is not the requested one."""
    out: dict[str, tuple[str, list[Cell]]] = {
        "device": ("device", [_device(c) for c in rows]),
        "instance": ("instance", [f"{c.cloud} {_instance(c)}" if c.instance else "" for c in rows]),
        "batch": ("batch", [str(c.batch) for c in rows]),
        "dtype": ("dtype", [c.dtype for c in rows]),
    }
    if any(c.runtime != r.workload["runtime"] for c in rows):
        out["runtime"] = ("runtime", [c.runtime for c in rows])
    return out


def _width(columns: dict[str, tuple[str, list[Cell]]], gap: int) -> int:
    return sum(max(len(str(cell)) for cell in (heading, *cells)) + gap for heading, cells in columns.values())


def _headline(r: Any) -> str:
    return f"{r.model}, {setting_words(r.workload)}: {r.offers:,} offers, by {r.goal}"


def _answer(r: Any) -> str:
    """The first choice in a sentence."""
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


def _with_interval(e: Any) -> tuple[str, Cell]:
    """The value with the unit that its heading lacks, and its interval."""
    if isinstance(e, float):
        return pretty(e), ""
    return readable_cells(e) if e is None or e.unit in ("ms", "J", "g") else number_cells(e)


def _fronts(r: Any, everything: bool, in_terminal: bool) -> Iterator[Block]:
    """The members of each front: a few in a line of a terminal, all of them as a table, which a page folds."""
    fronts = ((("latency", "cost"), r.latency_cost_front), (("energy", "throughput"), r.energy_throughput_front))
    for pair, front in fronts:
        if len(front) < 2:
            continue
        name = f"Pareto front of {' and '.join(pair)}"
        if not in_terminal:
            yield _front_table(r, front, pair, f"{name}: {len(front)} candidates")
        elif everything:
            yield Line(f"{name}: {len(front)} candidates", "best")
            yield _front_table(r, front, pair)
            yield BLANK
        else:
            places = sorted({round(k * (len(front) - 1) / (_MEMBERS - 1)) for k in range(_MEMBERS)})
            words = "; ".join(_member(r, front[at], pair) for at in places)
            shown_of = "" if len(places) == len(front) else f" ({len(places)} of {len(front)} shown, --all has them)"
            yield Line(f"{name}{shown_of}: {words}", "faint")


def _member(r: Any, c: Any, pair: Sequence[str]) -> str:
    """'l4, batch 8, fp16: 3.2 ms, 0.04 USD/M'."""
    values = []
    for name in pair:
        value, heading = _with_interval(getattr(c, _FIELDS[name][0]))[0], _FIELDS[name][2].format(items=r.items)
        values.append(f"{value} {heading}" if name in ("cost", "throughput") else value)
    how = "" if c.runtime == r.workload["runtime"] else f", {c.runtime}"
    return f"{_device(c)}, batch {c.batch}, {c.dtype}{how}: {', '.join(values)}"


def _front_table(r: Any, front: Sequence[Any], pair: Sequence[str], folded_under: str = "") -> Table:
    columns = _identity(r, front)
    for name in pair:
        values: list[Cell] = [_with_interval(getattr(c, _FIELDS[name][0]))[0] for c in front]
        columns[name] = (_FIELDS[name][2].format(items=r.items), values)
    ranks = _RANKS | dict.fromkeys(pair, 0)
    heads = [
        Column(head, right=name not in _WORDS, wrap=name in ("device", "instance"), rank=ranks.get(name, 0))
        for name, (head, _) in columns.items()
    ]
    rows = [Row(cells) for cells in zip(*(cells for _, cells in columns.values()), strict=True)]
    return Table(heads, rows, folded_under, shown=0 if folded_under else None)


def _excluded(r: Any, everything: bool, in_terminal: bool) -> Folded:
    shown = r.excluded if everything else _examples(r.excluded)
    more = "" if everything else f", for such reasons{' (--all has them all)' if in_terminal else ''}"
    lines = []
    for e in shown:
        many = f"{e.count} x " if e.count and e.count > 1 else ""
        lines.append(f"{many}{e.device}{f' ({e.instance})' if e.instance else ''}: {e.reason}")
    return Folded(f"Excluded: {len(r.excluded):,}{more}", lines)


def _examples(excluded: Sequence[Any]) -> list[Any]:
    """One candidate for each kind of reason, the most frequent kinds first."""
    kinds = Counter(_kind(e.reason) for e in excluded)
    return [next(e for e in excluded if _kind(e.reason) == kind) for kind, _ in kinds.most_common(_REASONS)]


def _kind(reason: str) -> str:
    """The reason without its names and numbers."""
    return " ".join(word for word in reason.split(":")[0].split() if word.islower() and word.isalpha())
