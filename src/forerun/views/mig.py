"""A packing of workloads onto MIG slices as tables: who runs where, what it takes, how to create it, the plain rule."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from forerun.readable import in_readable_units, pretty, visible
from forerun.show import command_line, interval_heading

if TYPE_CHECKING:
    from forerun.decisions.mig.answer import MigPacking, PlacedWorkload, Totals
    from forerun.prediction import Estimate

#: A terminal narrower than this gets fewer columns, never cut numbers.
_WIDE = 140
_GOALS = {
    "gpus": "fewest GPUs, then least mean slowdown",
    "energy": "fewest GPUs, then least energy",
    "power": "least power at the rates asked",
    "latency": "least worst slowdown",
}


def packing_view(p: MigPacking, width: int = 160) -> Iterator[Any]:
    """What a terminal shows for a packing."""
    from rich.text import Text

    count, goal = len(p.placed), "power" if p.goal == "energy" and p.placed[0].rate is not None else p.goal
    yield Text(f"{count} workload{_s(count)} on {p.totals.gpus} {p.device} with MIG: {_GOALS[goal]}", style="bold")
    yield _table(p.placed, width, p.confidence)
    close = [f"{o.workload} on {o.on_slice.profile}: {remark}" for o in p.placed for remark in o.remarks]
    for line in _counted(close):
        yield Text(visible(f"Note: {line}"), style="yellow")
    yield Text()
    yield Text(_totals(p.totals))
    yield Text(_free(p))
    yield Text()
    yield Text("To create it (GPUs from 0 on; PROFILE:START is read by nvidia-smi of driver 580):")
    for command in p.commands:
        yield command_line(f"  {command}")
    yield command_line("  CUDA_VISIBLE_DEVICES=MIG-… python …    # a slice's UUID, as listed by -L")
    yield Text()
    yield from _rule(p)
    for note in p.notes:
        yield Text(visible(f"Note: {note}"), style="yellow")


def _table(placed: Sequence[PlacedWorkload], width: int, confidence: float) -> Any:
    from rich.table import Table
    from rich.text import Text

    wide, gap = width >= _WIDE, 2 if width >= _WIDE else 1
    span, below = interval_heading(confidence), f"\n{100 * confidence:g} %"
    heads = ["GPU", "slice", "at", "workload"]
    if wide:
        heads += ["memory GB", span, "of slice", "latency ms", span, "whole GPU ms", "slowdown", "throughput"]
    else:  # intervals stand below their values
        heads += [f"memory GB{below}", "of\nslice", f"latency ms{below}", "slow-\ndown"]
    lines: list[list[str]] = []
    for gpu, rows in groupby(placed, key=lambda one: one.gpu):
        for first, one in enumerate(rows):
            s = one.on_slice
            share, slowdown = f"{s.memory_mb.value / s.usable_mb:.0%}", f"x {pretty(one.slowdown)}"
            memory = s.memory_mb.scaled(1 / 1024, "GB")
            cells = [str(gpu) if not first else "", s.profile, _place(one), visible(one.workload)]
            if wide:
                cells += [pretty(memory.value), _span(memory), share, pretty(s.latency_ms.value), _span(s.latency_ms)]
                cells += [pretty(one.whole_gpu_ms.value), slowdown, f"{pretty(s.throughput.value)} {s.throughput.unit}"]
            else:
                cells += [f"{pretty(memory.value)}\n{_span(memory)}", share]
                cells += [f"{pretty(s.latency_ms.value)}\n{_span(s.latency_ms)}", slowdown]
            lines.append(cells)
    taken = sum(_longest(column) + gap for column in zip(heads, *lines, strict=True) if column[0] != "workload")
    table = Table(box=None, padding=(0, gap, 0, 0))
    for name in heads:
        left = name in ("GPU", "slice", "at", "workload")
        table.add_column(name, justify="left" if left else "right", no_wrap=name != "workload", overflow="fold")
    for one, cells in zip(placed, lines, strict=True):
        cells[3] = _folded(cells[3], width - taken - gap)
        table.add_row(*map(Text, cells), style="yellow" if one.remarks else None)
    return table


def _longest(cells: Sequence[str]) -> int:
    return max(len(line) for cell in cells for line in cell.splitlines() or [""])


def _folded(name: str, width: int) -> str:
    """A name in lines that are no longer than `width`, broken where its parts end."""
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
        words.append(f"{pretty(totals.power_w.value)} W ({_span(totals.power_w)}) at these rates, waiting included")
    return ", ".join(words)


def _free(p: MigPacking) -> str:
    if not p.free:
        return "No further slice can be created on these GPUs."
    by_gpu = [
        f"{', '.join(f'{profile} at {start}' for _, profile, start in rows)} on GPU {gpu}"
        for gpu, rows in ((gpu, list(rows)) for gpu, rows in groupby(p.free, key=lambda one: one[0]))
    ]
    return f"Free: {'; '.join(by_gpu)}."


def _rule(p: MigPacking) -> Iterator[Any]:
    """What choosing by nominal memory alone would do."""
    from rich.text import Text

    chosen = [
        f"{name} x {len(list(same))}" for name, same in groupby(sorted(o.on_slice.profile for o in p.rule.placed))
    ]
    yield Text("The memory-threshold rule instead (smallest nominal memory, in the order given):")
    yield Text(f"  {', '.join(chosen)}; {_totals(p.rule.totals)}")
    problems = p.rule.problems
    for line in _counted(problems):
        yield Text(visible(f"  {line}"), style="red")
    close = sum(bool(o.remarks) for o in p.rule.placed)
    if not problems:
        yield Text("  It meets what is asked" + (" by the estimates." if close else "."))
    if close:
        yield Text(f"  {close} workload{_s(close)} not by the upper end of an interval.", style="yellow")


def _counted(sentences: list[str]) -> list[str]:
    """Each sentence once, with how often it was there."""
    return [text + (f" ({times} times)" if times > 1 else "") for text, times in Counter(sentences).items()]


def _span(e: Estimate) -> str:
    return f"{pretty(e.low)} … {pretty(e.high)}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
