"""How answers look: rich tables for a terminal, HTML for a notebook. Only this module and the command line use rich.

A `p` here is a Prediction. Its class is not imported, because Prediction imports this module to display itself.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from forerun.readable import pretty, visible

if TYPE_CHECKING:
    import pandas as pd

    from forerun.device import Device
    from forerun.explanation import Explanation

_BASIS = {
    "roofline": "the device's peaks, with efficiencies fitted on one H200: rely on the interval, not on the digits",
    "learned": "the roofline, corrected by what was measured on other models",
    "measured": "this case itself was measured",
}


def interval_heading(confidence: float) -> str:
    """'90 % interval'."""
    return f"{100 * confidence:g} % interval"


def headline(p: Any) -> str:
    """'resnet50 on h200: inference, batch 8, fp32'."""
    return f"{p.model} on {p.device}: {setting_words(p.workload)}"


def command_line(text: str, style: str = "") -> Any:
    """A command to paste: one line, however narrow the terminal."""
    from rich.text import Text

    return Text(visible(text), style=style, no_wrap=True, overflow="ignore")


def setting_words(w: Mapping[str, Any]) -> str:
    """'training, batch 32, fp32, sgd': a workload's settings as people say them, without those at their default."""
    shape = w.get("input_shape")
    words = [
        w["mode"], f"batch {w['batch']}" if "batch" in w else "", w.get("dtype") or "",
        f"input {list(shape) if isinstance(shape, tuple) else shape}" if shape else "",
        f"{w['seq_len']:,} tokens" if w.get("seq_len") else "", w.get("optimizer") or "",
        f"amp {w['amp']}" if w.get("amp") else "", "channels last" if w.get("channels_last") else "",
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


def prediction_view(p: Any) -> Iterator[Any]:
    """What a terminal shows for a prediction."""
    from rich.table import Table
    from rich.text import Text

    yield Text(visible(headline(p)), style="bold")
    yield Text(size_line(p), style="dim")
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("")
    table.add_column("estimate", justify="right", style="bold", no_wrap=True)
    table.add_column(interval_heading(p.confidence), justify="right", no_wrap=True)
    table.add_column("", style="dim")
    for label, value, interval, remark in p.rows():
        bad = value == "unknown" or remark.startswith("does not fit")
        table.add_row(label, value, interval, _text(remark), style="red" if bad else None)
    yield table
    if p.mig_options and (p.fit is None or p.fit.fits):
        yield Text()
        yield _mig_table(p)
    yield Text()
    yield Text(f"Basis: {p.basis} ({_BASIS.get(p.basis, '')})", style="dim")
    for note in p.notes:
        yield Text(visible(f"Note: {note}"), style="yellow")
    if p.check:
        yield Text(visible(f"Check it on the device: {p.check}"), style="dim")


def _mig_table(p: Any) -> Any:
    from rich.table import Table

    title = f"MIG: {p.mig} is the smallest slice that fits" if p.mig else "MIG: no slice is large enough"
    table = Table(box=None, padding=(0, 2, 0, 0), title=title, title_justify="left", title_style="")
    for name in ("slice", "memory", "fits", "latency", "per device"):
        table.add_column(name, justify="left" if name == "slice" else "right")
    for o in p.mig_options:
        style = "bold" if o.profile == p.mig else None if o.fits else "dim"
        table.add_row(o.profile, f"{pretty(o.memory_mb / 1024)} GB", "yes" if o.fits else "no",
                      f"{pretty(o.latency_ms)} ms" if o.fits else "", f"x {o.instances}", style=style)  # fmt: skip
    return table


def prediction_html(p: Any) -> str:
    """What a notebook shows for a prediction."""
    rows = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{html.escape(c.strip())}</td>" for c in row) + "</tr>"
        for row in p.rows()
    )
    notes = "".join(f"<li>{html.escape(n)}</li>" for n in p.notes)
    return (
        f"<b>{html.escape(headline(p))}</b><br><small>{html.escape(size_line(p))}</small>"
        f"<table><tr><th></th><th>estimate</th><th>{interval_heading(p.confidence)}</th><th></th></tr>{rows}</table>"
        f"<small>Basis: {p.basis}</small>" + (f"<ul>{notes}</ul>" if notes else "")
    )


#: A terminal narrower than this gets fewer columns, never cut numbers.
_WIDE = 120


def comparison_view(
    frame: pd.DataFrame, title: str, width: int = 160, confidence: float = 0.9, carbon: bool = False
) -> Iterator[Any]:
    """One row per device; devices without an answer are listed below, each with the reason. `carbon` adds grams."""
    from rich.table import Table
    from rich.text import Text

    wide = width >= _WIDE
    unit = next((u for u in frame["throughput_unit"] if isinstance(u, str)), "samples/s")
    headers = ["device", "latency ms", interval_heading(confidence), unit, "memory GB", "fits"]
    headers += (
        ["set by", "energy J", "power W", f"USD per million {unit.removesuffix('/s')}"] if wide else ["USD/million"]
    )
    headers += ["CO2 g"] if carbon else []
    table = Table(box=None, padding=(0, 2 if wide else 1, 0, 0))
    for name in headers:
        table.add_column(name, justify="left" if name in ("device", "set by") else "right", no_wrap=True)
    problems = []
    for row in frame.itertuples():
        if isinstance(row.error, str):
            problems.append(Text(visible(row.error), style="red"))
            continue
        usd = row.cost_usd / (row.throughput * row.latency_ms / 1e3) * 1e6
        cells = [
            _text(row.device), pretty(row.latency_ms), f"{pretty(row.latency_low_ms)} … {pretty(row.latency_high_ms)}",
            pretty(row.throughput), pretty(row.memory_mb / 1024), {True: "yes", False: "no"}.get(row.fits, "?"),
        ]  # fmt: skip
        cells += [row.bound, _or_unknown(row.energy_j), _or_unknown(row.power_w)] if wide else []
        cells += [_or_unknown(usd), *([_or_unknown(row.carbon_g)] if carbon else [])]
        table.add_row(*cells, style=None if row.fits is not False else "dim")
    yield Text(visible(title), style="bold")
    yield table
    yield from problems


def _or_unknown(x: float) -> str:
    return "unknown" if x != x else pretty(x)


def explanation_view(e: Explanation, top: int, width: int = 160) -> Iterator[Any]:
    """Ops with their times and shares, and the sums by kernel class."""
    from rich.table import Table
    from rich.text import Text

    binds = "host (launch overhead)" if e.host_ms > e.device_ms else "device"
    yield Text(visible(f"{e.model} on {e.device}: {pretty(e.latency_ms)} ms, set by the {binds}"), style="bold")
    where = f" on {e.host}" if e.host else ""
    yield Text(f"device time {pretty(e.device_ms)} ms, host time {pretty(e.host_ms)} ms{where}", style="dim")
    if e.host_ms > e.device_ms:
        yield Text(
            "The device waits for the host to launch kernels: fewer and larger ops, or CUDA graphs, help. "
            "The shares below are of the device time."
        )
    wide = width >= _WIDE
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("op", *(("kernel", "input", "first use") if wide else ("input",)), "bound by"):
        table.add_column(name, overflow="fold", no_wrap=wide, min_width=12 if name == "op" else None)
    for name in ("calls", "ms", *(("GFLOP", "MB") if wide else ()), "share"):
        table.add_column(name, justify="right", no_wrap=True)
    if wide:
        table.add_column("", no_wrap=True)
    for o in e.ops[:top]:
        shape = o.shape.replace(" ", "")
        words = (o.op, o.kernel, shape, o.scope, o.bound) if wide else (o.op, shape, o.bound)
        sizes = (pretty(o.gflops), pretty(o.mb)) if wide else ()
        bar = ("█" * round(o.share * 20),) if wide else ()
        table.add_row(*map(_text, words), f"{o.calls:,}", pretty(o.time_ms), *sizes, f"{o.share:.1%}", *bar)
    rest = e.ops[top:]
    if rest:
        calls, ms, share = sum(o.calls for o in rest), sum(o.time_ms for o in rest), sum(o.share for o in rest)
        blank = ([""] * 4, [""] * 2) if wide else ([""] * 2, [])
        table.add_row(
            f"({len(rest)} more)", *blank[0], f"{calls:,}", pretty(ms), *blank[1], f"{share:.1%}", style="dim"
        )
    yield table
    yield Text("\nBy kernel class", style="bold")
    classes = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("kernel", "calls", "ms", "share"):
        classes.add_column(name, justify="left" if name == "kernel" else "right")
    for kernel, calls, ms, share in e.by_kernel():
        classes.add_row(kernel, f"{calls:,}", pretty(ms), f"{share:.1%}")
    yield classes


def measurement_view(row: dict[str, Any]) -> Iterator[Any]:
    """One measured row: latency, memory, energy, and the software it ran with."""
    from rich.table import Table
    from rich.text import Text

    case, wall = row["case"], row["wall_ms"]
    yield Text(
        f"{case['name']} on {row['device']['name']}: {case['mode']}, batch {case['batch']}, {case['dtype']}",
        style="bold",
    )
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    spread = f"median {pretty(wall['median'])}, p90 {pretty(wall['p90'])}, {row['timed_calls']} calls"
    table.add_row("Latency", f"{pretty(wall['mean'])} ms", spread)
    for name, value in row["memory"].items():
        if value is not None:
            table.add_row(f"Memory, {name.removesuffix('_mb')}", f"{pretty(value)} MB", "")
    if row["energy_j"] is not None:
        table.add_row("Energy per call", f"{pretty(row['energy_j'])} J", f"{pretty(row['power_w'])} W")
    else:
        table.add_row("Energy per call", "unknown", str(row.get("energy_reason", "")))
    yield table
    software = row["software"]
    runtime = row["case"].get("runtime", "torch")
    yield Text(f"{runtime} {software[runtime]}, protocol {row['protocol']}", style="dim")


def verification_view(v: Any) -> Iterator[Any]:
    """A prediction and the measurement of the same case, side by side."""
    from rich.table import Table
    from rich.text import Text

    yield Text(visible(headline(v.prediction)), style="bold")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", "predicted", interval_heading(v.prediction.confidence), "measured", "error", ""):
        table.add_column(name, justify="left" if not name else "right")
    for check in v.checks:
        table.add_row(v.prediction.label(check.name), *_check_cells(check))
    yield table
    yield Text(
        f"basis: {v.prediction.basis}; torch {v.row['software']['torch']}, protocol {v.row['protocol']}", style="dim"
    )


def _check_cells(check: Any) -> list[str]:
    """Predicted, interval, measured, error and remark of one quantity."""
    e = check.predicted
    cells = ["", ""] if e is None else [f"{pretty(e.value)} {e.unit}", f"{pretty(e.low)} … {pretty(e.high)}"]
    measured = "unknown" if check.measured is None else f"{pretty(check.measured)} {e.unit if e else ''}".strip()
    error = "" if check.error is None else f"{check.error:+.0%}"
    inside = {True: "inside the interval", False: "OUTSIDE the interval", None: check.reason}[check.inside]
    return [*cells, measured, error, inside]


def devices_table(devices: Iterable[Device], width: int = 160) -> Any:
    """The catalogue, one row per device; a narrow terminal gets fewer columns."""
    from rich.table import Table

    wide = width >= _WIDE
    table = Table(box=None, padding=(0, 2 if wide else 1, 0, 0))
    texts = ("id", *(("name", "kind") if wide else ()))
    dtypes = ("fp32", "fp16", *(("bf16",) if wide else ()))
    for name in (*texts, "memory GB" if wide else "GB", "GB/s", *dtypes, "TDP W", "released"):
        table.add_column(name, justify="left" if name in (*texts, "released") else "right", no_wrap=True)
    for d in devices:
        numbers = (d.memory_gb, d.bandwidth_gbs, *(d.peak_tflops.get(t) for t in dtypes), d.tdp_w)
        words = (d.id, d.name, d.kind) if wide else (d.id,)
        table.add_row(*words, *map(_or_blank, numbers), d.release_date or "")
    return table


def device_view(d: Device) -> Iterator[Any]:
    """One device: every field with its source, then the facts of its generation."""
    from rich.table import Table
    from rich.text import Text

    yield Text(visible(f"{d.name} ({d.id})"), style="bold")
    if d.note:
        yield Text(visible(d.note), style="dim")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("field", "value", "source"):
        table.add_column(name, justify="right" if name == "value" else "left")
    values = {f"{t}_{'tops' if t.startswith('int') else 'tflops'}": v for t, v in d.peak_tflops.items()}
    plain = ("memory_gb", "bandwidth_gbs", "l2_cache_mb", "sm_count", "boost_clock_mhz", "tdp_w", "idle_w",
             "interconnect_gbs", "pcie_gbs", "release_date", "launch_price_usd")  # fmt: skip
    values |= {n: getattr(d, n) for n in plain}
    for name, value in values.items():
        if value is None:
            table.add_row(name, "unknown", "", style="dim")
        else:
            table.add_row(name, value if isinstance(value, str) else f"{value:,g}", _text(d.provenance.get(name, "")))
    for name, value in d.calibrated.items():
        if name not in d.ceilings:  # those have a table of their own
            table.add_row(_text(f"{name} (measured)"), f"{value:,g}", _text(d.provenance.get(name, "")))
    if d.generation is not None:
        for name in ("fp32_gflops_per_watt", "half_gflops_per_watt", "cublas_workspace_mb", "cudnn_layout_copies"):
            if (value := getattr(d.generation, name)) is not None:
                text = f"{value:,g}" if not isinstance(value, bool) else "yes" if value else "no"
                table.add_row(f"{name} ({d.generation.id})", text, d.generation.provenance[name])
    yield table
    if d.unsupported:
        yield Text(f"No arithmetic units for: {', '.join(d.unsupported)}", style="dim")
    if d.generation_note:
        yield Text(f"Note: {d.generation_note}", style="yellow")


def _text(value: Any) -> Any:
    """A user's text as a cell: rich interprets nothing in it, and no sign in it moves the cursor."""
    from rich.text import Text

    return Text(visible(str(value)))


def _or_blank(x: float | None) -> str:
    return "" if x is None else f"{x:,g}"
