"""A packing of workloads onto MIG slices as tables: placement, totals, the commands that create it, the
memory-threshold rule."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from forerun._util.readable import in_readable_units, pretty, visible
from forerun.decisions.mig.answer import MigPacking, PlacedWorkload, Totals
from forerun.prediction import Estimate
from forerun.views.blocks import (
    BLANK,
    Block,
    Cell,
    Column,
    Line,
    Notes,
    Row,
    Table,
    number_cells,
)
from forerun.views.rendering import blocks
from forerun.views.words import interval_heading

#: A terminal narrower than this gets fewer columns, never truncated numbers.
_WIDE = 140
_GOALS = {
    "gpus": "fewest GPUs, then least mean slowdown",
    "energy": "fewest GPUs, then least energy",
    "power": "least power at the requested rates",
    "latency": "least worst slowdown",
}


@blocks.register
def packing_view(p: MigPacking, width: int | None = 160) -> Iterator[Block]:
    """A packing: placement, totals, the commands that create it, and the memory-threshold rule."""
    count, goal = len(p.placed), "power" if p.goal == "energy" and p.placed[0].rate is not None else p.goal
    yield Line(f"{count} workload{_s(count)} on {p.totals.gpus} {p.device} with MIG: {_GOALS[goal]}", "title")
    yield _table(p.placed, width, p.confidence)
    close = [f"{o.workload} on {o.on_slice.profile}: {remark}" for o in p.placed for remark in o.remarks]
    if close:
        yield Notes(_counted(close))
    yield BLANK
    yield Line(_totals(p.totals))
    yield Line(_free(p))
    yield BLANK
    yield Line("To create it (GPUs from 0 on; PROFILE:START is read by nvidia-smi of driver 580):")
    for command in (*p.commands, "CUDA_VISIBLE_DEVICES=MIG-… python …    # a slice's UUID, as listed by -L"):
        yield Line("  ", code=command, wrap=False)
    yield BLANK
    yield from _rule(p)
    if p.notes:
        yield Notes(p.notes)


def _table(placed: Sequence[PlacedWorkload], width: int | None, confidence: float) -> Table:
    wide = width is None or width >= _WIDE
    span, below, gap = interval_heading(confidence), f"\n{100 * confidence:g} %", 2 if wide else 1
    words = ["GPU", "slice", "at", "workload"]
    if wide:
        names = ["memory GB", span, "of slice", "latency ms", span, "whole GPU ms", "slowdown", "throughput"]
    else:  # intervals below their values
        names = [f"memory GB{below}", "of\nslice", f"latency ms{below}", "slow-\ndown"]
    lines: list[list[Cell]] = []
    for gpu, group in groupby(placed, key=lambda placement: placement.gpu):
        for first, placement in enumerate(group):
            s = placement.on_slice
            share, slowdown = f"{s.memory_mb.value / s.usable_mb:.0%}", f"x {pretty(placement.slowdown)}"
            memory, latency = number_cells(s.memory_mb, 1 / 1024), number_cells(s.latency_ms)
            cells: list[Cell] = [str(gpu) if not first else "", s.profile, _place(placement), placement.workload]
            if wide:
                throughput = f"{pretty(s.throughput.value)} {s.throughput.unit}"
                cells += [*memory, share, *latency, pretty(placement.whole_gpu_ms.value), slowdown, throughput]
            else:
                cells += ["\n".join(map(str, memory)), share, "\n".join(map(str, latency)), slowdown]
            lines.append(cells)
    if width is not None:
        columns = zip([*words, *names], *lines, strict=True)
        taken = sum(_longest(column) + gap for column in columns if column[0] != "workload")
        for cells in lines:
            cells[3] = _folded(visible(str(cells[3])), width - taken - gap)
    heads = [Column(name, wrap=name == "workload") for name in words] + [Column(name, right=True) for name in names]
    tones = ["doubtful" if placement.remarks else "" for placement in placed]
    return Table(heads, [Row(cells, tone) for cells, tone in zip(lines, tones, strict=True)], gap=gap)


def _longest(cells: Sequence[Cell]) -> int:
    return max(len(line) for cell in cells for line in str(cell).splitlines() or [""])


def _folded(name: str, width: int) -> str:
    """A name in lines of at most `width` characters, broken between its parts."""
    lines = [""]
    for part in re.findall(r"[^:,/?&_-]*[:,/?&_-]+|[^:,/?&_-]+", name):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _place(placed: PlacedWorkload) -> str:
    """'4-5': the memory slices that it occupies."""
    last = placed.start + placed.size - 1
    return f"{placed.start}-{last}" if last > placed.start else str(placed.start)


def _totals(totals: Totals) -> str:
    words = [f"{totals.gpus} GPU{_s(totals.gpus)}", f"slowdown {pretty(totals.mean_slowdown)} on average"]
    words.append(f"{pretty(totals.worst_slowdown)} at worst")
    if totals.energy_j is not None:
        value, low, high, unit = in_readable_units(
            totals.energy_j.value, totals.energy_j.low, totals.energy_j.high, totals.energy_j.unit
        )
        words.append(f"{value} {unit} ({low} … {high}) for one call of each")
    else:
        words.append("energy unknown")
    if totals.power_w is not None:
        words.append(f"{pretty(totals.power_w.value)} W ({_span(totals.power_w)}) at these rates, idle power included")
    return ", ".join(words)


def _free(p: MigPacking) -> str:
    if not p.free:
        return "No further slice can be created on these GPUs."
    by_gpu = [
        f"{', '.join(f'{profile} at {start}' for _, profile, start in rows)} on GPU {gpu}"
        for gpu, rows in ((gpu, list(rows)) for gpu, rows in groupby(p.free, key=lambda free_slice: free_slice[0]))
    ]
    return f"Free: {'; '.join(by_gpu)}."


def _rule(p: MigPacking) -> Iterator[Block]:
    """The packing by nominal memory alone."""
    chosen = [
        f"{name} x {len(list(same))}" for name, same in groupby(sorted(o.on_slice.profile for o in p.rule.placed))
    ]
    yield Line("The memory-threshold rule instead (smallest nominal memory, in the order given):")
    yield Line(f"  {', '.join(chosen)}; {_totals(p.rule.totals)}")
    problems = p.rule.problems
    for line in _counted(problems):
        yield Line(f"  {line}", "bad")
    close = sum(bool(o.remarks) for o in p.rule.placed)
    if not problems:
        yield Line("  It meets all constraints" + (" by the estimates." if close else "."))
    if close:
        yield Line(f"  {close} workload{_s(close)} not by the upper end of an interval.", "doubtful")


def _counted(sentences: list[str]) -> list[str]:
    """Each sentence once, with its count."""
    return [text + (f" ({times} times)" if times > 1 else "") for text, times in Counter(sentences).items()]


def _span(e: Estimate) -> str:
    return f"{pretty(e.low)} … {pretty(e.high)}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
