"""Cases over precision and batch, as rows and as curves: shared by the training and the inference level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forerun.api.tables import TableRow
from forerun.device import Device
from forerun.prediction import Estimate
from forerun.report import charts
from forerun.report.parts import Chart, Group, Key, plain, value_text
from forerun.report.study import Precision, Study

if TYPE_CHECKING:
    from forerun.data.measured import Measured

#: The estimates of a row.
SAME = ("latency_ms", "throughput", "memory_mb", "energy_j", "power_w")


@dataclass(frozen=True)
class Case:
    """One precision and batch on a device, with its prediction and its measurement."""

    device: Device
    precision: Precision
    batch: int
    answer: TableRow
    measured: Measured | None

    @property
    def fits(self) -> bool:
        return self.answer.fits is not False

    @property
    def memory_text(self) -> str:
        return value_text(self.answer.memory_mb) + ("" if self.fits else ", does not fit")

    def row(self) -> dict[str, Any]:
        """The case as JSON: `forerun.predict` gives the same numbers for it."""
        return {
            "device": self.device.id, "batch": self.batch, "dtype": self.precision.dtype, "amp": self.precision.amp,
            **{name: plain(getattr(self.answer, name)) for name in SAME},
            "device_ms": self.answer.device_ms, "host_ms": self.answer.host_ms, "fits": self.fits,
            "bound": self.answer.bound,
            "measured": self.measured and {**self.measured.values, "about": self.measured.line},
        }  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """All predicted cases, and why the others could not be predicted."""

    cases: Sequence[Case]
    refused: dict[str, str]  # "bf16 on v100-16gb" -> why

    def of(self, device: Device, precision: Precision | None = None) -> list[Case]:
        return [c for c in self.cases if c.device is device and precision in (None, c.precision)]

    def precisions(self, device: Device) -> list[Precision]:
        return list(dict.fromkeys(c.precision for c in self.of(device)))


def grid(study: Study, mode: str, precisions: Sequence[Precision], batches: Sequence[int]) -> Grid:
    """Every precision and batch on every device."""
    cases, refused = [], {}
    for device in study.devices:
        for precision in precisions:
            for batch in batches:
                case = {"precision": precision, "batch": batch, "mode": mode}
                answer = study.answer(device, **case)
                if isinstance(answer, str):
                    refused[f"{precision.label} on {device.id}"] = answer
                    break
                cases.append(Case(device, precision, batch, answer, study.measured(device, **case)))
    return Grid(cases, refused)


def refusals(all_cases: Grid) -> list[str]:
    """One sentence per reason."""
    by_reason: dict[str, list[str]] = {}
    for what, why in all_cases.refused.items():
        by_reason.setdefault(why, []).append(what)
    return [f"Not predicted: {', '.join(what)} ({why})." for why, what in by_reason.items()]


def curves(
    all_cases: Grid, study: Study, title: str, y: str, pick: Callable[[Case], Estimate | None],
    measured: Callable[[Case], float | None], caption: str, *, capacity: bool = False,
) -> list[Group]:  # fmt: skip
    """One chart per device: a curve over the batch for each precision, measured points over it, one scale for all."""
    used = dict.fromkeys(c.precision for c in all_cases.cases)
    palette = {p: charts.colour(at) for at, p in enumerate(used)}
    known = [e for c in all_cases.cases if (e := pick(c)) is not None]
    out: list[Chart] = []
    if not known:
        return []
    limits = [e.low for e in known if e.low > 0] + [e.high for e in known]
    for device in study.devices:
        if all(pick(c) is None for c in all_cases.of(device)):
            continue
        chart = charts.figure("batch", y)
        for precision in all_cases.precisions(device):
            cases = [c for c in all_cases.of(device, precision) if pick(c) is not None]
            estimates: list[Any] = [pick(c) for c in cases]
            hollow = [not c.fits for c in cases]
            charts.curve(chart, [c.batch for c in cases], estimates, precision.label, palette[precision], hollow=hollow)
            seen = [
                (c.batch, v, c.measured) for c in cases if c.measured is not None and (v := measured(c)) is not None
            ]
            charts.measured_points(chart, seen, precision.label, palette[precision])
        charts.batches_axis(chart, sorted({c.batch for c in all_cases.of(device)}))
        extra = []
        if capacity and device.usable_mb is not None:
            extra = [device.usable_mb / 1024]
            chart.add_hline(
                y=extra[0], line={"dash": "dash", "width": 1.5, "color": charts.COLOURS[4]},
                annotation={"text": f"usable memory of {device.id}", "font": {"size": 11}},
                annotation_position="top left",
            )  # fmt: skip
        charts.log_axis(chart, [*limits, *extra])
        out.append(Chart(device.name, chart))
    keys = [Key(p.label, colour) for p, colour in palette.items()]
    if any(c.measured is not None and measured(c) is not None for c in all_cases.cases):
        keys.append(Key("measured", charts.GREY, "diamond"))
    return [Group(title, out, caption, keys)]
