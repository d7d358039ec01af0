"""Views of devices: the catalogue, and one device with the source of every field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forerun.device import Device
from forerun.device.links import links
from forerun.views.blocks import Block, Column, Line, Notes, Row, Table
from forerun.views.words import WIDE


def devices_table(devices: Iterable[Device], width: int = 160) -> Table:
    """The catalogue, one row per device; a narrow terminal gets fewer columns."""
    wide = width >= WIDE
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
    plain = ("memory_gb", "memory_mb", "usable_mb", "bandwidth_gbs", "l2_cache_mb", "sm_count", "boost_clock_mhz",
             "tdp_w", "idle_w", "interconnect_gbs", "pcie_gbs", "release_date", "launch_price_usd")  # fmt: skip
    values |= {n: getattr(d, n) for n in plain}
    sources = {**d.provenance, **d.capacity_sources}
    rows = []
    for name, value in values.items():
        if value is None:
            rows.append(Row((name, "unknown", ""), "faint"))
        else:
            text = value if isinstance(value, str) else f"{value:,.7g}"
            rows.append(Row((name, text, str(sources.get(name, "")))))
    for name, value in d.calibrated.items():
        if name not in d.ceilings:  # those have a table of their own
            rows.append(Row((f"{name} (measured)", f"{value:,g}", str(d.provenance.get(name, "")))))
    if d.generation is not None:
        for name in ("fp32_gflops_per_watt", "half_gflops_per_watt", "cublas_workspace_mb", "cudnn_layout_copies"):
            if (value := getattr(d.generation, name)) is not None:
                text = f"{value:,g}" if not isinstance(value, bool) else "yes" if value else "no"
                rows.append(Row((f"{name} ({d.generation.id})", text, str(d.generation.provenance[name]))))
    yield Table([Column("field", wrap=True), Column("value", right=True, wrap=True), Column("source", wrap=True)], rows)
    if joined := links(d):
        heads = [Column("interconnect"), Column("GB/s per direction", right=True), Column("devices", right=True)]
        rows = [
            Row(
                (
                    one.name + (", assumed" if one.assumed else ""),
                    f"{one.gbs:,.4g}",
                    f"{one.devices or 'any'}",
                    one.source,
                )
            )
            for one in joined
        ]
        yield Table([*heads, Column("source", wrap=True)], rows, title="Interconnects")
    if d.unsupported:
        yield Line(f"No arithmetic units for: {', '.join(d.unsupported)}", "faint")
    if d.generation_note:
        yield Notes([d.generation_note])


def _or_blank(x: float | None) -> str:
    return "" if x is None else f"{x:,g}"
