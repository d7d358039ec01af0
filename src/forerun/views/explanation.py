"""View of an explanation: ops with their times and shares, and the sums by kernel class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forerun._util.readable import pretty
from forerun.api.explanation import Explanation
from forerun.views.blocks import Block, Cell, Column, Line, Row, Share, Table
from forerun.views.html.bars import parts_html
from forerun.views.html.fragments import fragment
from forerun.views.rendering import blocks, html
from forerun.views.words import WIDE

#: The share of the latency from which on Python beyond that of usual models is named.
NOTED = 0.05
#: The number of ops that a terminal and a notebook show by default.
TOP = 15


@blocks.register
def explanation_view(e: Explanation, width: int | None = None, top: int = TOP) -> Iterator[Block]:
    """Ops with their times and shares, and the sums by kernel class."""
    yield from explanation_lines(e)
    yield ops_table(e, top, wide=width is None or width >= WIDE)
    yield Line("By kernel class", "heading")
    yield kernels_table(e)


def explanation_lines(e: Explanation) -> Iterator[Line]:
    """How long the call takes, and whether it is host-bound or device-bound."""
    bound = "host-bound (launch overhead)" if e.host_ms > e.device_ms else "device-bound"
    yield Line(f"{e.model} on {e.device}: {pretty(e.latency_ms)} ms, {bound}", "title")
    where = f" on {e.host}" if e.host else ""
    yield Line(f"device time {pretty(e.device_ms)} ms, host time {pretty(e.host_ms)} ms{where}", "faint")
    if e.python_calls is not None and e.host is not None:
        functions, c_functions = e.python_calls
        words = f"Python outside PyTorch: {functions:,} calls of functions, {c_functions:,} of C functions"
        if e.python_ms >= NOTED * e.latency_ms:
            words += f"; about {pretty(e.python_ms)} ms more than in usual models, which no predicted time has"
        yield Line(words, "faint")
    if e.host_ms > e.device_ms:
        yield Line(
            "The device waits for the host to launch kernels: fewer and larger ops, or CUDA graphs, help. "
            "The shares below are of the device time."
        )


def ops_table(e: Explanation, top: int, wide: bool = True) -> Table:
    """The ops that take most time, and the sum of the others."""
    words = ("op", *(("kernel", "input", "first use") if wide else ("input",)), "bound by")
    numbers = ("calls", "ms", *(("GFLOP", "MB") if wide else ()), "share")
    heads = [Column(name, wrap=not wide, least=12 if name == "op" else None) for name in words]
    heads += [*(Column(name, right=True) for name in numbers), *([Column("")] if wide else [])]
    rows = []
    for o in e.ops[:top]:
        shape = o.shape.replace(" ", "")
        cells: list[Cell] = [o.op, o.kernel, shape, o.scope, o.bound] if wide else [o.op, shape, o.bound]
        cells += [f"{o.calls:,}", pretty(o.time_ms), *((pretty(o.gflops), pretty(o.mb)) if wide else ())]
        rows.append(Row([*cells, f"{o.share:.1%}", *([Share(o.share)] if wide else [])]))
    rest = e.ops[top:]
    if rest:
        calls, ms, share = sum(o.calls for o in rest), sum(o.time_ms for o in rest), sum(o.share for o in rest)
        blank = ([""] * 4, [""] * 2) if wide else ([""] * 2, [])
        sums = [f"({len(rest)} more)", *blank[0], f"{calls:,}", pretty(ms), *blank[1], f"{share:.1%}"]
        rows.append(Row([*sums, *([""] if wide else [])], "faint"))
    return Table(heads, rows)


def kernels_table(e: Explanation) -> Table:
    """The sums by kernel class."""
    heads = [Column("kernel"), *(Column(name, right=True) for name in ("calls", "ms", "share"))]
    rows = [Row((k, f"{calls:,}", pretty(ms), f"{share:.1%}")) for k, calls, ms, share in e.by_kernel()]
    return Table(heads, rows)


@html.register
def explanation_html(e: Explanation, *, top: int = TOP) -> str:
    """Where the time of a call goes: a bar by kernel class, the `top` ops with their shares, sums by class folded."""
    kernels = replace(kernels_table(e), title="By kernel class", shown=0)
    bar = parts_html([(kernel, share) for kernel, _, _, share in e.by_kernel()], "Device time by kernel class")
    return fragment([*explanation_lines(e), _shares_first(ops_table(e, top)), kernels], after_title=bar)


def _shares_first(table: Table) -> Table:
    """The same table with times and shares beside the op, where a narrow page shows them without scrolling."""
    headings = [column.heading for column in table.columns]
    first = [headings.index(name) for name in ("op", "ms", "share", "")]
    order = [*first, *(at for at in range(len(headings)) if at not in first)]
    rows = [replace(row, cells=[row.cells[at] for at in order]) for row in table.rows]
    return replace(table, columns=[table.columns[at] for at in order], rows=rows)
