"""What is shown of predictions, comparisons, explanations, measurements and devices, as lines and tables.

A `p` here is a Prediction. Its class is not imported, because Prediction imports this module to display itself. A
`width` is that of a terminal, in characters: a narrow one gets fewer columns, never cut numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from forerun.blocks import BLANK, Block, Cell, Column, Line, Notes, Row, Share, Table, readable_cells
from forerun.readable import pretty

if TYPE_CHECKING:
    import pandas as pd

    from forerun.device import Device
    from forerun.explanation import Explanation

#: From this width on a terminal has all columns.
_WIDE = 120
_BASIS = {
    "roofline": "the device's peaks, with efficiencies fitted on one H200: rely on the interval, not on the digits",
    "learned": "from what was measured on other models, never below the roofline",
    "measured": "this case itself was measured",
}


def interval_heading(confidence: float) -> str:
    """'90 % interval'."""
    return f"{100 * confidence:g} % interval"


def headline(p: Any) -> str:
    """'resnet50 on h200: inference, batch 8, fp32'."""
    return f"{p.model} on {p.device}: {setting_words(p.workload)}"


def setting_words(w: Mapping[str, Any]) -> str:
    """'training, batch 32, fp32, sgd': a workload's settings as people say them, without those at their default."""
    shape, tokens = w.get("input_shape"), w.get("seq_len")
    words = [
        w["mode"], f"batch {w['batch']}" if "batch" in w else "", w.get("dtype") or "",
        f"input {list(shape) if isinstance(shape, tuple) else shape}" if shape else "",
        f"{tokens:,.0f} tokens" if tokens and tokens == tokens else "",  # not a number: none, in a table of pandas
        w.get("optimizer") or "", f"amp {w['amp']}" if w.get("amp") else "",
        "channels last" if w.get("channels_last") else "",
        w["runtime"] if w.get("runtime") not in (None, "eager") else "",
    ]  # fmt: skip
    return ", ".join(word for word in words if word)


def size_line(p: Any) -> str:
    """Parameters, multiply-accumulates and bytes of one call."""
    active = f" ({count(p.active_parameters)} active)" if p.active_parameters != p.parameters else ""
    return f"{count(p.parameters)} parameters{active}, {count(p.macs)} MACs and {count(p.bytes)}B moved per call"


def count(x: float) -> str:
    """4.09 G, 25.6 M."""
    for limit, suffix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= limit:
            return f"{x / limit:.3g} {suffix}"
    return f"{x:.3g} "


def prediction_view(p: Any) -> Iterator[Block]:
    """A prediction: its quantities, MIG slices, what it stands on, and the command that checks it."""
    yield Line(headline(p), "title")
    yield Line(size_line(p), "faint")
    yield prediction_table(p)
    if p.mig_options and (p.fit is None or p.fit.fits):
        yield BLANK
        yield _mig_table(p)
    if p.training is not None:
        yield BLANK
        yield _training_table(p.training, p.confidence)
    yield BLANK
    yield Line(basis_line(p.basis), "faint")
    if p.notes:
        yield Notes(p.notes)
    if p.check:
        yield Line("Check it on the device: ", "faint", code=p.check)


def basis_line(basis: str) -> str:
    """'Basis: measured (this case itself was measured)'."""
    return f"Basis: {basis} ({_BASIS.get(basis, '')})"


def prediction_table(p: Any) -> Table:
    """Every quantity with its interval and a remark; parts are indented under their whole."""
    heads = (
        Column("", wrap=True), Column("estimate", right=True, tone="best", units=True),
        Column(interval_heading(p.confidence), right=True, relative=True), Column("", wrap=True, tone="faint"),
    )  # fmt: skip
    rows = []
    for name, (label, value, interval, remark) in zip(p.shown(), p.rows(), strict=True):
        bad = value == "unknown" or remark.startswith("does not fit")
        span: Cell = readable_cells(getattr(p, name))[1] or interval
        depth = 1 if label.startswith(" ") else 0
        rows.append(Row((label.strip(), value, span, remark), "bad" if bad else "", depth))
    return Table(heads, rows)


def _training_table(t: Any, confidence: float) -> Table:
    """What a whole training takes."""
    heads = (
        Column(""), Column("estimate", right=True, tone="best", units=True),
        Column(interval_heading(confidence), right=True, relative=True),
    )  # fmt: skip
    epochs = f"{t.epochs:,} epoch{'s' if t.epochs > 1 else ''}"
    title = f"Training: {epochs} of {t.dataset_size:,} samples, {t.steps:,} steps"
    rows = [Row((label, *readable_cells(e)), "" if e is not None else "bad") for label, e in t.rows()]
    return Table(heads, rows, title)


def _mig_table(p: Any) -> Table:
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


def _slice_latency(option: Any) -> str:
    return "unknown" if option.latency_ms is None else f"{pretty(option.latency_ms)} ms"


#: So many slices a page shows at once; a longer table is folded.
FEW_SLICES = 3


def comparison_view(
    frame: pd.DataFrame, title: str, width: int = 160, confidence: float = 0.9, carbon: bool = False
) -> Iterator[Block]:
    """One row per device; devices without an answer are listed below, each with the reason. `carbon` adds grams."""
    wide = width >= _WIDE
    unit = next((u for u in frame["throughput_unit"] if isinstance(u, str)), "samples/s")
    headings = ["device", "latency ms", interval_heading(confidence), unit, "memory GB", "fits"]
    headings += (
        ["set by", "energy J", "power W", f"USD per million {unit.removesuffix('/s')}"] if wide else ["USD/million"]
    )
    headings += ["CO2 g"] if carbon else []
    problems, rows = [], []
    for row in frame.itertuples():
        if isinstance(row.error, str):
            problems.append(Line(row.error, "bad"))
            continue
        usd = row.cost_usd / (row.throughput * row.latency_ms / 1e3) * 1e6
        cells = [
            row.device, pretty(row.latency_ms), f"{pretty(row.latency_low_ms)} … {pretty(row.latency_high_ms)}",
            pretty(row.throughput), pretty(row.memory_mb / 1024), {True: "yes", False: "no"}.get(row.fits, "?"),
        ]  # fmt: skip
        cells += [row.bound or "unknown", _or_unknown(row.energy_j), _or_unknown(row.power_w)] if wide else []
        cells += [_or_unknown(usd), *([_or_unknown(row.carbon_g)] if carbon else [])]
        rows.append(Row(cells, "" if row.fits is not False else "faint"))
    yield Line(title, "title")
    heads = [Column(name, right=name not in ("device", "set by")) for name in headings]
    yield Table(heads, rows, gap=2 if wide else 1)
    yield from problems


def _or_unknown(x: float) -> str:
    return "unknown" if x != x else pretty(x)


def explanation_view(e: Explanation, top: int, width: int = 160) -> Iterator[Block]:
    """Ops with their times and shares, and the sums by kernel class."""
    yield from explanation_lines(e)
    yield ops_table(e, top, wide=width >= _WIDE)
    yield Line("By kernel class", "heading")
    yield kernels_table(e)


def explanation_lines(e: Explanation) -> Iterator[Line]:
    """How long the call takes, and what sets the pace."""
    binds = "host (launch overhead)" if e.host_ms > e.device_ms else "device"
    yield Line(f"{e.model} on {e.device}: {pretty(e.latency_ms)} ms, set by the {binds}", "title")
    where = f" on {e.host}" if e.host else ""
    yield Line(f"device time {pretty(e.device_ms)} ms, host time {pretty(e.host_ms)} ms{where}", "faint")
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


def measurement_view(row: dict[str, Any]) -> Iterator[Block]:
    """One measured row: latency, memory, energy, and the software it ran with."""
    case, wall = row["case"], row["wall_ms"]
    where = row["device"]["name"]
    yield Line(f"{case['name']} on {where}: {case['mode']}, batch {case['batch']}, {case['dtype']}", "title")
    spread = f"median {pretty(wall['median'])}, p90 {pretty(wall['p90'])}, {row['timed_calls']} calls"
    rows = [Row(("Latency", f"{pretty(wall['mean'])} ms", spread))]
    for name, value in row["memory"].items():
        if value is not None:
            rows.append(Row((f"Memory, {name.removesuffix('_mb')}", f"{pretty(value)} MB", "")))
    if row["energy_j"] is not None:
        rows.append(Row(("Energy per call", f"{pretty(row['energy_j'])} J", f"{pretty(row['power_w'])} W")))
    else:
        rows.append(Row(("Energy per call", "unknown", str(row.get("energy_reason", "")))))
    yield Table([Column("", wrap=True)] * 3, rows)
    runtime = case.get("runtime", "torch")
    yield Line(f"{runtime} {row['software'][runtime]}, protocol {row['protocol']}", "faint")


def verification_view(v: Any) -> Iterator[Block]:
    """A prediction and the measurement of the same case, side by side."""
    yield Line(headline(v.prediction), "title")
    names = ("", "predicted", interval_heading(v.prediction.confidence), "measured", "error", "")
    heads = [Column(name, right=bool(name), wrap=True, relative=True) for name in names]
    yield Table(heads, [Row((v.prediction.label(check.name), *_check_cells(check))) for check in v.checks])
    software = f"torch {v.row['software']['torch']}, protocol {v.row['protocol']}"
    yield Line(f"basis: {v.prediction.basis}; {software}", "faint")


def _check_cells(check: Any) -> list[str]:
    """Predicted, interval, measured, error and remark of one quantity."""
    e = check.predicted
    cells = ["", ""] if e is None else [f"{pretty(e.value)} {e.unit}", f"{pretty(e.low)} … {pretty(e.high)}"]
    measured = "unknown" if check.measured is None else f"{pretty(check.measured)} {e.unit if e else ''}".strip()
    error = "" if check.error is None else f"{check.error:+.0%}"
    inside = {True: "inside the interval", False: "OUTSIDE the interval", None: check.reason}[check.inside]
    return [*cells, measured, error, inside]


def devices_table(devices: Iterable[Device], width: int = 160) -> Table:
    """The catalogue, one row per device; a narrow terminal gets fewer columns."""
    wide = width >= _WIDE
    texts = ("id", *(("name", "kind") if wide else ()))
    dtypes = ("fp32", "fp16", *(("bf16",) if wide else ()))
    names = (*texts, "memory GB" if wide else "GB", "GB/s", *dtypes, "TDP W", "released")
    rows = []
    for d in devices:
        numbers = (d.memory_gb, d.bandwidth_gbs, *(d.peak_tflops.get(t) for t in dtypes), d.tdp_w)
        words = (d.id, d.name, d.kind) if wide else (d.id,)
        rows.append(Row((*words, *map(_or_blank, numbers), d.release_date or "")))
    heads = [Column(name, right=name not in (*texts, "released")) for name in names]
    return Table(heads, rows, gap=2 if wide else 1)


def device_view(d: Device) -> Iterator[Block]:
    """One device: every field with its source, then the facts of its generation."""
    yield Line(f"{d.name} ({d.id})", "title")
    if d.note:
        yield Line(d.note, "faint")
    values = {f"{t}_{'tops' if t.startswith('int') else 'tflops'}": v for t, v in d.peak_tflops.items()}
    plain = ("memory_gb", "bandwidth_gbs", "l2_cache_mb", "sm_count", "boost_clock_mhz", "tdp_w", "idle_w",
             "interconnect_gbs", "pcie_gbs", "release_date", "launch_price_usd")  # fmt: skip
    values |= {n: getattr(d, n) for n in plain}
    rows = []
    for name, value in values.items():
        if value is None:
            rows.append(Row((name, "unknown", ""), "faint"))
        else:
            text = value if isinstance(value, str) else f"{value:,g}"
            rows.append(Row((name, text, str(d.provenance.get(name, "")))))
    for name, value in d.calibrated.items():
        if name not in d.ceilings:  # those have a table of their own
            rows.append(Row((f"{name} (measured)", f"{value:,g}", str(d.provenance.get(name, "")))))
    if d.generation is not None:
        for name in ("fp32_gflops_per_watt", "half_gflops_per_watt", "cublas_workspace_mb", "cudnn_layout_copies"):
            if (value := getattr(d.generation, name)) is not None:
                text = f"{value:,g}" if not isinstance(value, bool) else "yes" if value else "no"
                rows.append(Row((f"{name} ({d.generation.id})", text, str(d.generation.provenance[name]))))
    yield Table([Column("field", wrap=True), Column("value", right=True, wrap=True), Column("source", wrap=True)], rows)
    if d.unsupported:
        yield Line(f"No arithmetic units for: {', '.join(d.unsupported)}", "faint")
    if d.generation_note:
        yield Notes([d.generation_note])


def _or_blank(x: float | None) -> str:
    return "" if x is None else f"{x:,g}"
