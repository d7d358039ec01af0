"""View of a plan of a service: the deployments in order, the front, what was left out, and the command of the best."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from forerun._util.readable import in_readable_units, pretty
from forerun.decisions.plans.serving_answer import Deployment, LeftOut, ServingPlan
from forerun.prediction import Estimate
from forerun.views.blocks import (
    BLANK,
    Block,
    Cell,
    Column,
    Folded,
    Line,
    Notes,
    Row,
    Span,
    Table,
    number_cells,
    readable_cells,
)
from forerun.views.rendering import blocks
from forerun.views.serving import BASIS
from forerun.views.words import dtype_words, interval_heading
from forerun.workload import PUBLISHED

_GOALS = {"cost": "the least cost", "energy": "the least energy", "devices": "the fewest devices"}
_LIMITS = {"ttft_ms": "TTFT", "itl_ms": "ITL"}
_MET = {"meets": "meets every limit", "probably": "probably meets every limit", "does not": "misses a limit"}
_TONES = {"meets": "", "probably": "doubtful", "does not": "faint"}
#: Below this width a terminal has fewer columns.
_WIDE = 120
#: Reasons that are shown, and deployments of the front.
_REASONS, _FRONT = 8, 6


@blocks.register
def plan_view(p: ServingPlan, width: int | None = 160) -> Iterator[Block]:
    """The answer in a sentence, the best of each device, the front, and why the others lost."""
    yield Line(f"{p.model} served by {p.engine}, {load_words(p)}: {_GOALS[p.goal]}{_limit_words(p)}", "title")
    yield Line(_answer(p))
    for reason in p.best.reasons:
        yield Line(f"  {reason}", "faint")
    yield BLANK
    yield deployments_table(p, p.rows, width)
    yield BLANK
    if len(p.front) > 1:
        front = [_deployment(one) for one in p.front[:_FRONT]]
        yield Folded(
            f"Pareto front of cost and token gap: {len(p.front)} deployments (by the closed form where not simulated)",
            front,
        )
    if p.left_out:
        yield Folded(f"{len(p.left_out)} layout{'s' if len(p.left_out) > 1 else ''} left out", [*_reasons(p.left_out)])
    if p.notes:
        yield Notes(p.notes)
    yield Line(f"Basis: learned ({BASIS})", "faint")
    yield Line("Serve it: ", code=p.best.launch, wrap=False)
    yield Line("Every number of it, and the command that checks them: ", "faint", code=serving_command(p), wrap=False)


def serving_command(p: ServingPlan) -> str:
    """`forerun serving` of the best deployment under the same load."""
    best, words = p.best, ["forerun", "serving", p.model, "--device", p.best.device, "--engine", p.engine]
    words += ["--tp", f"{best.tp}", *(["--pp", f"{best.pp}"] if best.pp > 1 else [])]
    words += [*(["--ep", f"{best.ep}"] if best.ep > 1 else []), "--count", f"{best.devices}"]
    words += [] if best.dtype == PUBLISHED else ["--dtype", best.dtype]
    words += ["--max-tokens", f"{best.max_tokens}"]
    for name, value in p.load.items():
        words += [f"--{name.replace('_', '-')}", f"{value:.15g}"]
    for name, value in p.limits.items():
        words += [f"--max-{name.removesuffix('_ms')}", f"{value:.15g}ms"]
    return shlex.join(words)


def load_words(p: ServingPlan) -> str:
    """'20 requests/s of 1,024 input and 256 output tokens'."""
    asked = f"{p.load['rate']:g} requests/s" if "rate" in p.load else f"{p.load['concurrency']:,} clients"
    return f"{asked} of {p.load['input']:,.0f} input and {p.load['output']:,.0f} output tokens"


def _limit_words(p: ServingPlan) -> str:
    words = [f"{_LIMITS[name]} within {_ms(value)}" for name, value in p.limits.items()]
    return f" with {' and '.join(words)}" if words else ""


def _ms(value: float) -> str:
    number, _, _, unit = in_readable_units(value, value, value, "ms")
    return f"{number} {unit}"


def layout_words(one: Deployment) -> str:
    """'4 replicas, tp 2, pp 2'."""
    words = [f"{one.replicas} replicas" if one.replicas > 1 else "", f"tp {one.tp}",
             f"pp {one.pp}" if one.pp > 1 else "", f"ep {one.ep}" if one.ep > 1 else ""]  # fmt: skip
    return ", ".join(filter(None, words))


def _deployment(one: Deployment) -> str:
    cost = (
        "" if one.cost_per_million_usd is None else f", {pretty(one.cost_per_million_usd.value)} USD per million tokens"
    )
    return (
        f"{one.devices} x {one.device} ({layout_words(one)}, {dtype_words(one.dtype)}): "
        f"{pretty(one.itl_ms.value)} ms between tokens{cost}"
    )


def _answer(p: ServingPlan) -> str:
    best = p.best
    met = f"; {_MET.get(best.verdict, best.verdict)}" if p.limits else ""
    price = "" if best.usd_per_hour is None else f", {pretty(best.usd_per_hour)} USD per hour"
    return (
        f"{best.devices} x {best.device}, {layout_words(best)}, {dtype_words(best.dtype)}, {best.max_tokens:,} tokens "
        f"an iteration{price}{met}"
    )


def deployments_table(p: ServingPlan, rows: Sequence[Deployment], width: int | None) -> Table:
    """A row per deployment."""
    wide = width is None or width >= _WIDE
    heads = [Column("deployment", wrap=True, least=None if wide else 18)]
    heads += [Column("token budget", right=True, rank=2)] if wide else []
    heads += [Column("TTFT", right=True), Column("ITL", right=True)]
    heads += [Column("tokens/s", right=True)] if wide else []
    heads += [Column("USD per million" if wide else "USD/M", right=True)]
    heads += [Column("J per token", right=True, rank=3)] if wide else []
    heads += [Column("verdict", wrap=True, least=None if wide else 8)]
    out = []
    for one in rows:
        cells: list[Cell] = [f"{one.devices:,} x {one.device}, {layout_words(one)}, {dtype_words(one.dtype)}"]
        cells += [f"{one.max_tokens:,}"] if wide else []
        cells += [_stacked(one.ttft_ms), _stacked(one.itl_ms)]
        cells += [_stacked(one.throughput, bare=True)] if wide else []
        cells += [_stacked(one.cost_per_million_usd, bare=True)]
        cells += [_stacked(one.energy_per_token_j, bare=True)] if wide else []
        cells += [one.verdict if one.confirmed else f"{one.verdict} (closed form)"]
        out.append(Row(cells, _TONES.get(one.verdict, "")))
    title = f"The best of each device; means over the requests, below each its {interval_heading(p.confidence)}"
    return Table(heads, out, title, gap=2 if wide else 1)


def _stacked(e: Estimate | None, bare: bool = False) -> Cell:
    """A number with its interval below it; the closed form has none."""
    value, interval = number_cells(e) if bare else readable_cells(e)
    if not isinstance(interval, Span) or e is None or e.low == e.high:
        return value
    return replace(interval, number=value)


def _reasons(left: Sequence[LeftOut]) -> Iterator[str]:
    """Reasons with what they are about; the same of several layouts once."""
    counted = Counter((one.device, one.reason) for one in left)
    first = {(one.device, one.reason): one.layout for one in reversed(left)}
    for (device, reason), count in counted.most_common(_REASONS):
        more = f" and {count - 1} more" if count > 1 else ""
        yield f"{device}, {first[device, reason]}{more}: {reason}"
    if len(counted) > _REASONS:
        yield f"({len(counted) - _REASONS} more reasons: --json)"
