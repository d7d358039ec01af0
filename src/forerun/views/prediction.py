"""View of one prediction: quantities with intervals, MIG slices, a whole training, what it is based on."""

from __future__ import annotations

from collections.abc import Iterator

from forerun._util.readable import in_readable_units, pretty
from forerun.prediction import Estimate, Prediction, SliceOption, WholeTraining
from forerun.views.blocks import BLANK, Block, Cell, Column, Line, Notes, Row, Table, readable_cells
from forerun.views.rendering import blocks, text
from forerun.views.words import basis_line, count, headline, interval_heading

_LABELS = {
    "latency_ms": "Latency", "first_token_ms": "  to the first token", "token_ms": "  each further token",
    "device_ms": "  device time", "exchange_ms": "  exchange", "host_ms": "  host time", "throughput": "Throughput",
    "memory_mb": "Memory needed", "memory_allocated_mb": "  tensors at peak", "energy_j": "Energy per call",
    "power_w": "Power", "carbon_g": "Carbon per call", "cost_usd": "Cost per call",
    "cost_per_million_usd": "Cost per million",
}  # fmt: skip
#: The number of slices that a page shows; a longer table is folded.
FEW_SLICES = 3


@text.register
def prediction_text(p: Prediction) -> str:
    lines = [f"{p.model} on {p.device} ({p.basis})"]
    lines += [f"  {label:<18} {value:>16}  {interval}  {remark}".rstrip() for label, value, interval, remark in rows(p)]
    return "\n".join(lines)


def label(name: str) -> str:
    """The label of a field of a prediction."""
    return _LABELS[name].strip()


def shown(p: Prediction) -> list[str]:
    """The fields that have a row: those with an estimate, and those whose estimate is missing for a reason."""
    return [name for name in _LABELS if getattr(p, name) is not None or name in p.unknown]


def rows(p: Prediction) -> list[tuple[str, str, str, str]]:
    """(quantity, value, interval, remark) for people: the one table behind terminal, notebook and web page."""
    out = []
    for name in shown(p):
        e = getattr(p, name)
        if e is not None:
            value, low, high, unit = in_readable_units(e.value, e.low, e.high, e.unit)
            out.append((_LABELS[name], f"{value} {unit}", f"{low} … {high}", _remark(p, name)))
        else:
            out.append((_LABELS[name], "unknown", "", p.unknown[name]))
    return out


def _remark(p: Prediction, name: str) -> str:
    if name == "latency_ms":
        return {"host": "host-bound (launch overhead)", "device": "device-bound"}.get(p.bound or "", "")
    if name == "memory_mb" and p.fit is not None:
        return p.fit_sentence() + (f"; on each of {p.devices} devices" if p.devices > 1 else "")
    return p.assumptions.get(name, "")


@blocks.register
def prediction_view(p: Prediction, width: int | None = None) -> Iterator[Block]:
    """A prediction: its quantities, MIG slices, its basis, and the command that checks it."""
    yield Line(headline(p), "title")
    if p.parameters or p.flops:  # a tabular model has neither
        yield Line(size_line(p), "faint")
    yield prediction_table(p)
    if p.mig_options and (p.fit is None or p.fit.fits):
        yield BLANK
        yield _mig_table(p)
    if p.training is not None:
        yield BLANK
        yield _training_table(p.training, p.confidence)
    yield BLANK
    yield Line(basis_line(p.basis, p.provenance.get("captured_with")), "faint")
    if p.notes:
        yield Notes(p.notes)
    if p.check:
        yield Line("Check it on the device: ", "faint", code=p.check)


def size_line(p: Prediction) -> str:
    """Parameters, multiply-accumulates and bytes of one call."""
    active = f" ({count(p.active_parameters)} active)" if p.active_parameters != p.parameters else ""
    work = f"{count(p.macs)} MACs and {count(p.bytes)}B of memory traffic"
    return f"{count(p.parameters)} parameters{active}, {work} per call"


def prediction_table(p: Prediction) -> Table:
    """Every quantity with its interval and a remark; parts are indented under their whole."""
    heads = (
        Column("", wrap=True), Column("estimate", right=True, tone="best", units=True),
        Column(interval_heading(p.confidence), right=True, relative=True), Column("", wrap=True, tone="faint"),
    )  # fmt: skip
    table = []
    for name, (label, value, interval, remark) in zip(shown(p), rows(p), strict=True):
        bad = value == "unknown" or remark.startswith("does not fit")
        span: Cell = readable_cells(getattr(p, name))[1] or interval
        depth = 1 if label.startswith(" ") else 0
        table.append(Row((label.strip(), value, span, remark), "bad" if bad else "", depth))
    return Table(heads, table)


def _training_table(t: WholeTraining, confidence: float) -> Table:
    """The totals of a whole training."""
    heads = (
        Column(""), Column("estimate", right=True, tone="best", units=True),
        Column(interval_heading(confidence), right=True, relative=True),
    )  # fmt: skip
    epochs = f"{t.epochs:,} epoch{'s' if t.epochs > 1 else ''}"
    title = f"Training: {epochs} of {t.dataset_size:,} samples, {t.steps:,} steps"
    rows = [Row((label, *readable_cells(e)), "" if e is not None else "bad") for label, e in _training_rows(t)]
    return Table(heads, rows, title)


def _mig_table(p: Prediction) -> Table:
    title = f"MIG: {p.mig} is the smallest slice that fits" if p.mig else "MIG: no slice is large enough"
    heads = [Column("slice"), *(Column(name, right=True) for name in ("memory", "fits", "latency", "per device"))]
    rows = []
    for o in p.mig_options:
        cells = (
            o.profile, f"{pretty(o.memory_mb / 1024)} GB", "yes" if o.fits else "no",
            _slice_latency(o) if o.fits else "", f"x {o.instances}",
        )  # fmt: skip
        rows.append(Row(cells, "best" if o.profile == p.mig else "" if o.fits else "faint"))
    return Table(heads, rows, title, shown=len(rows) if len(rows) <= FEW_SLICES else 0)


def _slice_latency(option: SliceOption) -> str:
    return "unknown" if option.latency_ms is None else f"{pretty(option.latency_ms)} ms"


def _training_rows(t: WholeTraining) -> list[tuple[str, Estimate | None]]:
    return [
        ("Samples", t.samples_per_s), ("Time per epoch", t.epoch_hours), ("Time of all epochs", t.hours),
        ("Energy", t.energy_kwh), ("Carbon", t.carbon_kg), ("Cost", t.cost_usd),
    ]  # fmt: skip
