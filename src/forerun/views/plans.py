"""A plan of pre-training: the best layout with its numbers and its command, the Pareto front, why the others lost."""

from __future__ import annotations

from collections.abc import Iterator

from forerun._util.readable import pretty
from forerun.decisions.plans.training import Candidate, TrainingPlan
from forerun.prediction import Estimate
from forerun.views.blocks import BLANK, Block, Cell, Column, Folded, Line, Notes, Row, Span, Table
from forerun.views.rendering import blocks, text
from forerun.views.words import count, interval_heading

_GOALS = {"time": "the shortest time", "cost": "the least cost", "energy": "the least energy"}
#: Below this width a terminal has each interval below its number.
_WIDE = 150
#: And below this one no column of microbatches and tokens per second.
_NARROW = 100
_PARTS = {"exchange": "communication", "bubble": "pipeline bubble"}
_BASIS = (
    "Basis: learned (a law of the step, fitted to published runs of Megatron and LLM Foundry; its errors on models and "
    "GPUs held out: docs/PARALLEL.md)"
)
_CHECK = (
    "Check it: run the command for 20 steps; after the first few, a step should take "
    "{low} to {high} s ({tokens} tokens/s on each device)"
)


@blocks.register
def plan_view(p: TrainingPlan, width: int | None = None) -> Iterator[Block]:
    """The answer in a sentence, the front, what the best spends time and memory on, why others lost, its command."""
    best = p.best
    yield Line(
        f"Pre-training {p.model} on {count(p.tokens).strip().replace(' G', ' B')} tokens in sequences of "
        f"{p.seq_len:,}, {p.precision}, on {p.device}: {_GOALS[p.goal]}", "title",
    )  # fmt: skip
    yield Line(_answer(p))
    yield BLANK
    yield _table(p, width)
    yield BLANK
    shares = ", ".join(
        f"{_PARTS.get(name, name)} {100 * share:.0f} %" for name, share in best.parts.items() if share >= 0.005
    )
    yield Line(f"A step takes {_span(best.step_s)} s: {shares}; {100 * best.utilisation:.0f} % of the peak (MFU)")
    held = ", ".join(f"{name} {mb / 1024:,.1f}" for name, mb in best.memory_mb.items())
    yield Line(f"Each device holds {best.needed_mb / 1024:,.1f} GB: {held}")
    yield Line(_BASIS, "faint")
    if p.reasons:
        yield Folded(f"{p.considered:,} layouts considered; why others lost:", p.reasons)
    yield Notes(p.notes)
    yield Line("Start it: ", code=best.launch, wrap=False)
    step = best.step_s
    tokens = f"{best.tokens_per_s_per_device:,.0f}"
    yield Line(_CHECK.format(low=pretty(step.low), high=pretty(step.high), tokens=tokens), "faint")


@text.register
def plan_text(p: TrainingPlan) -> str:
    return f"{p.model}: {_answer(p)}\n{p.best.launch}"


def layout_words(one: Candidate) -> str:
    """'tp 2, dp 32, ZeRO 1, sp, recompute': as the options of trainers are called."""
    layout = one.layout
    words = [f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "cp", "dp", "ep") if getattr(layout, name) > 1]
    words += [f"ZeRO {layout.zero}"] if layout.zero else []
    words += [*(["sp"] if layout.sp else []), *(["recompute"] if one.recomputed else [])]
    return ", ".join(words) or "one device"


def _answer(p: TrainingPlan) -> str:
    best = p.best
    words = [f"{best.devices:,} x {p.device}, {layout_words(best)}: {_span(best.hours.scaled(1 / 24, 'd'))} days"]
    words += [] if best.usd is None else [f"{_span(best.usd.scaled(1e-3, 'kUSD'))} thousand USD"]
    words += [] if best.kwh is None else [f"{_span(best.kwh.scaled(1e-3, 'MWh'))} MWh"]
    told = {"meets": "; meets every limit", "probably": "; probably meets every limit"}.get(str(best.verdict.value), "")
    return ", ".join(words) + f" ({interval_heading(p.confidence)}s)" + (told if p.limits else "")


def _table(p: TrainingPlan, width: int | None) -> Table:
    beside = width is not None and width >= _WIDE
    roomy = width is None or width >= _NARROW
    heads = [Column("devices", right=True), Column("layout", wrap=True, least=20)]
    heads += [Column("microbatches", right=True), Column("tokens/s each", right=True, rank=2)] if roomy else []
    for name in ("days", "kUSD", "MWh"):
        heads += [Column(name, right=True), *([Column(interval_heading(p.confidence), right=True)] if beside else [])]
    heads += [Column("GB each", right=True), *([Column("limits")] if p.limits else [])]
    rows = [
        _row(p, p.best, "best", beside, roomy),
        *(_row(p, one, "", beside, roomy) for one in p.front if one is not p.best),
    ]
    below = "" if beside else f"; under each number its {interval_heading(p.confidence)}"
    return Table(heads, rows, f"The best, then the Pareto front of time, devices, cost and energy{below}", gap=1)


def _row(p: TrainingPlan, one: Candidate, tone: str, beside: bool, roomy: bool) -> Row:
    cells: list[Cell] = [f"{one.devices:,}", layout_words(one)]
    if roomy:
        cells += [f"{one.micro_batches} of {one.micro_batch}", f"{one.tokens_per_s_per_device:,.0f}"]
    for e, factor in ((one.hours, 1 / 24), (one.usd, 1e-3), (one.kwh, 1e-3)):
        cells += _cells(e, factor, beside)
    cells += [f"{one.needed_mb / 1024:,.1f}", *([str(one.verdict.value)] if p.limits else [])]
    return Row(cells, tone)


def _cells(e: Estimate | None, factor: float, beside: bool) -> list[Cell]:
    if e is None:
        return ["unknown", ""] if beside else ["unknown"]
    low, value, high = (x * factor for x in (e.low, e.value, e.high))
    words = f"{pretty(low)} … {pretty(high)}"
    if beside:
        return [pretty(value), Span(low, value, high, words)]
    return [Span(low, value, high, words, pretty(value))]


def _span(e: Estimate) -> str:
    return f"{pretty(e.value)} ({pretty(e.low)} … {pretty(e.high)})"
