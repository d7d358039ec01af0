"""View of a serving prediction: what clients see, what it costs, and the engine over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forerun._util.readable import in_readable_units, pretty
from forerun.prediction import Estimate
from forerun.serving.answer import Quantiles, ServingPrediction
from forerun.serving.metrics import DEFINITIONS
from forerun.views.blocks import BLANK, Block, Cell, Column, Line, Notes, Row, Span, Table, readable_cells
from forerun.views.html.bars import COLOURS, text
from forerun.views.html.fragments import fragment
from forerun.views.rendering import blocks, html
from forerun.views.rendering import text as as_text
from forerun.views.words import dtype_words, interval_heading

_LABELS = {"ttft_ms": "TTFT", "itl_ms": "ITL", "tpot_ms": "TPOT", "e2e_ms": "End to end"}
_TOTALS = {
    "throughput": "Throughput", "throughput_per_device": "  per device", "requests_per_s": "Requests answered",
    "goodput": "Goodput", "capacity": "Capacity", "energy_per_token_j": "Energy per token",
    "energy_per_request_j": "Energy per request", "power_w": "Power", "cost_per_million_usd": "Cost per million",
}  # fmt: skip
_LIMITS = {"ttft_ms": "TTFT", "itl_ms": "ITL"}
#: The quantity whose 90th percentile decides about a limit; that of gaps is the mean gap of each request.
_DECIDES = {"ttft_ms": "ttft_ms", "itl_ms": "tpot_ms"}
_VERDICTS = {"meets": ("Meets", "best"), "probably": ("Probably meets", "doubtful"), "does not": ("Misses", "bad")}
#: What every answer about a serving engine is based on.
BASIS = (
    "iterations by a law fitted to published runs of engines, requests simulated; its errors on models and devices "
    "held out: docs/SERVING.md"
)
#: From this width on a terminal has room for the intervals of all quantiles.
_WIDE_TABLE = 150
_PARTS = ("mean", "p50", "p90", "p99")


@blocks.register
def serving_view(p: ServingPrediction, width: int | None = 160) -> Iterator[Block]:
    """Distributions over requests, totals, limits, and the command that starts the engine."""
    yield Line(headline(p), "title")
    yield Line(load_words(p), "faint")
    yield from _verdicts(p)
    yield _distributions(p, width)
    yield BLANK
    yield _totals(p)
    yield BLANK
    yield Line(_use_words(p), "faint")
    yield Line(f"Basis: {p.basis} ({BASIS})", "faint")
    if p.notes:
        yield Notes(p.notes)
    if p.launch:
        yield Line("Serve it: ", code=p.launch, wrap=False)
    if p.check:
        yield Line("Check it, against the running server: ", "faint", code=p.check, wrap=False)


@as_text.register
def serving_text(p: ServingPrediction) -> str:
    """The means in a few lines."""
    shown = {label: getattr(p, name).mean for name, label in _LABELS.items() if getattr(p, name) is not None}
    shown |= {title.strip(): getattr(p, name) for name, title in _TOTALS.items() if getattr(p, name) is not None}
    return "\n".join([headline(p), *(f"  {label:<24} {estimate}" for label, estimate in shown.items())])


@html.register
def serving_html(p: ServingPrediction) -> str:
    """The same with the queue and the KV cache over time."""
    return fragment([*serving_view(p, None)]) + timeline_html(p)


def headline(p: ServingPrediction) -> str:
    """'llama on 2 x h100-sxm, vllm: tp 2, bf16'."""
    layout = ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in p.layout.items() if n > 1 or name == "tp")
    policy = "" if p.policy == p.engine else f", {p.policy} batching"
    return f"{p.model} on {p.devices} x {p.device}, {p.engine}{policy}: {layout}, {dtype_words(p.dtype)}"


def _verdicts(p: ServingPrediction) -> Iterator[Line]:
    """Whether each limit is met, with the number that decides."""
    for name, limit in p.limits.items():
        column, words, tone = _DECIDES[name], *_VERDICTS.get(p.verdicts.get(name, ""), ("Unknown whether it meets", ""))
        found = getattr(p, column)
        told = "" if found is None else (
            f": p90 of {_LABELS[column]} is {_readable(found.p90)}, {interval_heading(p.confidence)}")  # fmt: skip
        yield Line(f"{words} {_LIMITS[name]} of {_ms(limit)} for 90 % of the requests{told}", tone)


def _readable(e: Estimate) -> str:
    """'131 ms (81 … 190)'."""
    value, low, high, unit = in_readable_units(e.value, e.low, e.high, e.unit)
    return f"{value} {unit} ({low} … {high})"


def load_words(p: ServingPrediction) -> str:
    """The load in words."""
    w = p.load
    asked = [f"{w['rate']:g} requests/s" if "rate" in w else "", f"bursts of cv {w['cv']:g}" if "cv" in w else "",
             f"{w['concurrency']:,} clients" if "concurrency" in w else "",
             f"trace {w['trace']}" if "trace" in w else ""]  # fmt: skip
    lengths = [
        f"{w['input']:,.0f} input{_spread(w, 'input')}",
        f"{w['output']:,.0f} output tokens{_spread(w, 'output')}",
    ]
    prefix = f", {w['prefix']:,} of them shared" if "prefix" in w else ""
    return f"{', '.join(filter(None, asked))}; {' and '.join(lengths)}{prefix}; {p.requests:,} requests simulated"


def _spread(words: dict[str, float], name: str) -> str:
    spread = words.get(f"{name}_spread")
    return f" (± {100 * spread:.0f} %)" if spread else ""


def _distributions(p: ServingPrediction, width: int | None) -> Table:
    """Mean and quantiles; on a narrow terminal each has its interval below it, and there are no definitions."""
    wide = width is None or width >= _WIDE_TABLE
    heads, rows = [Column("")], list[Row]()
    for part in _PARTS:
        heads += [Column(part, right=True), *([Column(interval_heading(p.confidence), right=True)] if wide else [])]
    heads += [Column("", wrap=True, tone="faint")] if wide else []
    for name, label in _LABELS.items():
        found: Quantiles | None = getattr(p, name)
        if found is None:
            rows.append(Row((label, "unknown", *[""] * (len(heads) - 2)), "faint"))
            continue
        cells: list[Cell] = [label]
        for part in _PARTS:
            value, interval = readable_cells(getattr(found, part))
            assert isinstance(interval, Span)
            cells += [value, interval] if wide else [replace(interval, number=value)]
        rows.append(Row((*cells, *([DEFINITIONS[name]] if wide else [])), ""))
    title = "" if wide else f"Under each number its {interval_heading(p.confidence)}"
    return Table(heads, rows, title, gap=1 if wide else 2)


def _totals(p: ServingPrediction) -> Table:
    heads = [Column("", wrap=True), Column("estimate", right=True, tone="best", units=True)]
    heads += [Column(interval_heading(p.confidence), right=True, relative=True), Column("", wrap=True)]
    rows = []
    for name, title in _TOTALS.items():
        estimate: Estimate | None = getattr(p, name)
        if estimate is not None:
            rows.append(Row((title, *readable_cells(estimate), _remark(p, name))))
        elif name in p.unknown:
            rows.append(Row((title, "unknown", "", p.unknown[name]), "faint"))
    return Table(heads, rows)


def _remark(p: ServingPrediction, name: str) -> str:
    remarks = {
        "throughput": "output tokens per second",
        "goodput": f"requests that meet every limit: {100 * p.means.get('good_share', 0.0):.0f} %",
        "capacity": "at most, in closed form", "cost_per_million_usd": "output tokens",
        "energy_per_token_j": "output tokens; idle time included",
        "power_w": f"of all {p.devices:,} devices" if p.devices > 1 else "",
    }  # fmt: skip
    return "; ".join(filter(None, (remarks.get(name, ""), p.assumptions.get(name, ""))))


def _use_words(p: ServingPrediction) -> str:
    m = p.means
    words = [f"{m['in_engine']:.3g} requests in the engine on average, {pretty(m['waiting'])} of them waiting"]
    words.append(f"KV cache {100 * m['kv_use']:.0f} % in use ({p.kv_tokens:,} tokens in each replica)")
    words.append(f"an iteration running {100 * m['busy']:.0f} % of the time")
    if p.preemptions:
        words.append(f"{p.preemptions:,} preemptions")
    return "; ".join(words)


def _ms(value: float) -> str:
    number, _, _, unit = in_readable_units(value, value, value, "ms")
    return f"{number} {unit}"


#: Sizes of a chart over time, in units of its drawing.
_WIDE, _HIGH = 640, 120


def timeline_html(p: ServingPrediction) -> str:
    """Requests that wait and run, and the share of the KV cache in use, over the time of the simulation, as drawings
    that need no script: notebooks and pages show them alike."""
    t = p.timeline
    if not t.get("seconds"):
        return ""
    most = max(*t["waiting"], *t["running"], 1)
    requests = _chart(
        t["seconds"], {"running": t["running"], "waiting": t["waiting"]}, most, f"{most:,.0f}", "requests"
    )
    cache = _chart(t["seconds"], {"KV cache in use": t["kv_use"]}, 1.0, "100 %", "share of the KV cache")
    return f'<div class="forerun answer"><h3>The engine over time</h3>{requests}{cache}</div>'


def _chart(seconds: list[float], lines: dict[str, list[float]], most: float, top: str, words: str) -> str:
    span = max(seconds[-1], 1e-9)
    drawn, keys = "", ""
    for at, (name, values) in enumerate(lines.items()):
        points = " ".join(
            f"{_WIDE * s / span:.1f},{_HIGH * (1 - min(v / most, 1.0)):.1f}"
            for s, v in zip(seconds, values, strict=True)
        )
        colour = COLOURS[at % len(COLOURS)]
        drawn += f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>'
        keys += f'<span style="color:{colour}">{text(name)}</span> '
    label = text(f"{words} over {pretty(span)} s")
    return (
        f'<figure class="chart"><figcaption>{keys}(0 to {text(top)}, over {pretty(span)} s)</figcaption>'
        f'<svg viewBox="0 -2 {_WIDE} {_HIGH + 4}" width="100%" role="img" aria-label="{label}">{drawn}</svg></figure>'
    )
