"""A plan of pre-training: the best layout with its numbers and its command, the Pareto front, why the others lost."""

from __future__ import annotations

from collections.abc import Iterator

from forerun._util.readable import pretty
from forerun.decisions.plans.training import Candidate, TrainingPlan
from forerun.prediction import Estimate
from forerun.views.blocks import BLANK, Block, Column, Line, Notes, Row, Table
from forerun.views.rendering import blocks, text
from forerun.views.words import count

_GOALS = {"time": "shortest time", "cost": "least cost", "energy": "least energy"}


@blocks.register
def plan_view(p: TrainingPlan, width: int | None = None) -> Iterator[Block]:
    """The plan as lines and one table."""
    best = p.best
    yield Line(
        f"{p.model} on up to {max(one.devices for one in (best, *p.front))} x {p.device}: {count(p.tokens)} tokens of "
        f"{p.seq_len:,}, {p.precision}, {_GOALS[p.goal]}", "title",
    )  # fmt: skip
    yield Line(f"{p.considered:,} layouts considered", "faint")
    yield _table(p)
    shares = ", ".join(f"{name} {share:.0%}" for name, share in best.parts.items() if share >= 0.005)
    yield Line(f"A step takes {_span(best.step_s)} s: {shares}; {best.utilisation:.0%} of the peak")
    held = ", ".join(f"{name} {mb / 1024:,.1f}" for name, mb in best.memory_mb.items())
    yield Line(f"A device holds {best.needed_mb / 1024:,.1f} GB: {held}")
    yield BLANK
    yield Line("To start it: ", code=best.launch)
    if p.reasons:
        yield BLANK
        yield Line("Why the others lost:")
        yield Notes(p.reasons)
    yield BLANK
    yield Notes(p.notes)


@text.register
def plan_text(p: TrainingPlan) -> str:
    one = p.best
    return f"{p.model} on {one.devices} x {p.device} ({one.layout}): {_span(one.hours)} h\n{one.launch}"


def _table(p: TrainingPlan) -> Table:
    heads = [
        Column("layout", wrap=True),
        *(Column(name, right=True) for name in ("devices", "microbatch", "tokens/s/device", "days", "kUSD", "MWh")),
        Column("GB", right=True), Column("limits"),
    ]  # fmt: skip
    rows = [_row(p.best, "best"), *(_row(one, "") for one in p.front if one is not p.best)]
    return Table(heads, rows, "The best, then the Pareto front of time, devices, cost and energy")


def _row(one: Candidate, tone: str) -> Row:
    again = ", recompute" if one.recomputed else ""
    cells = (
        f"{one.layout}{again}", f"{one.devices:,}", f"{one.micro_batch} x {one.micro_batches}",
        f"{one.tokens_per_s_per_device:,.0f}", _span(one.hours.scaled(1 / 24, "d")),
        "unknown" if one.usd is None else _span(one.usd.scaled(1e-3, "kUSD")),
        "unknown" if one.kwh is None else _span(one.kwh.scaled(1e-3, "MWh")), f"{one.needed_mb / 1024:,.1f}",
        str(one.verdict.value),
    )  # fmt: skip
    return Row(cells, tone)


def _span(e: Estimate) -> str:
    return f"{pretty(e.value)} ({pretty(e.low)} … {pretty(e.high)})"
