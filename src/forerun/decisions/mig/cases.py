"""One workload on every kind of slice of a GPU: its predictions, unmet constraints, why no slice suffices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun._util.readable import pretty
from forerun.advice.mig import slices
from forerun.api.predict import predict_many, predict_workload
from forerun.api.tables import TableRow, read_row
from forerun.decisions.mig.answer import OnSlice
from forerun.decisions.mig.workloads import MigWorkload
from forerun.device import Device, all_devices
from forerun.device.mig import MigProfile
from forerun.errors import ForerunError

if TYPE_CHECKING:
    from forerun.predictors.base import Predictor


class MigCase:
    """One workload with its predictions: on the whole GPU and on every kind of slice."""

    def __init__(self, job: MigWorkload, gpu: Device, **options: Any) -> None:
        self.job = job
        cut = slices(gpu)
        frame = predict_many([job.workload], [gpu, *(part for _, part in cut)], **options)
        answers = [read_row(row) for row in frame.to_dict("records")]
        for reason in answers:
            if isinstance(reason, str):
                raise ForerunError(f"{job.label}: {reason}")
        rows = [row for row in answers if not isinstance(row, str)]
        self.whole_gpu_ms, self.memory_mb = rows[0].latency_ms, rows[0].memory_mb.value
        self.on_slice = {p.name: _on_slice(p, part, row) for (p, part), row in zip(cut, rows[1:], strict=True)}

    def problems(self, predicted: OnSlice) -> list[str]:
        """Constraints that a slice does not meet by the estimates."""
        job, out = self.job, []
        if not predicted.fits:
            have = f"{predicted.usable_mb:,.0f} MB are usable"
            out.append(f"does not fit: it needs {predicted.memory_mb.value:,.0f} MB and {have}")
        if job.max_latency_ms is not None and predicted.latency_ms.value > job.max_latency_ms:
            out.append(
                f"takes {pretty(predicted.latency_ms.value)} ms, over the limit of {pretty(job.max_latency_ms)} ms"
            )
        if job.rate is not None and job.rate * predicted.latency_ms.value > 1e3:
            keeps = pretty(1e3 / predicted.latency_ms.value)
            out.append(f"sustains {keeps} calls/s, below the required {pretty(job.rate)}")
        return out

    def remarks(self, predicted: OnSlice) -> list[str]:
        """Constraints met by the estimates and not by the upper ends of their intervals."""
        job, out = self.job, []
        if predicted.fits and not predicted.surely_fits:
            out.append("fits by the estimate, not by its upper end")
        for limit, met in (
            (job.max_latency_ms, "fast enough"),
            (job.rate and 1e3 / job.rate, "sustains its rate"),
        ):
            if limit is not None and predicted.latency_ms.value <= limit < predicted.latency_ms.high:
                out.append(f"{met} by the estimate, not by its upper end")
        return out


def _on_slice(profile: MigProfile, part: Device, row: TableRow) -> OnSlice:
    return OnSlice(
        profile=profile.name, usable_mb=part.usable_mb or profile.memory_mb, memory_mb=row.memory_mb,
        latency_ms=row.latency_ms, throughput=row.throughput, energy_j=row.energy_j, fits=bool(row.fits),
        surely_fits=bool(row.surely_fits),
    )  # fmt: skip


def infeasible(case: MigCase, gpu: Device, sure: bool, predictor: str | Path | Predictor) -> str:
    """The limiting constraint of this workload on the GPU's slices, and the nearest feasible value."""
    label, job = case.job.label, case.job
    largest = list(case.on_slice.values())[-1]
    holding = [s for s in case.on_slice.values() if (s.surely_fits and s.fits if sure else s.fits)]
    if not holding:
        upper = " by the upper end of its interval" if largest.fits else ""
        need = f"{largest.memory_mb.high if largest.fits else largest.memory_mb.value:,.0f} MB"
        part = next(part for p, part in slices(gpu) if p.name == largest.profile)
        fit = predict_workload(job.workload, part, predictor=predictor, measured=False).fit
        batch = fit.largest_batch if fit is not None else None
        nearest = f"; the largest batch that fits is {batch:,}" if batch and batch < job.workload.batch else ""
        enough = [
            d.id
            for d in all_devices()
            if (cut := slices(d)) and (cut[-1][1].usable_mb or 0.0) >= largest.memory_mb.high
        ]
        where = f"; {', '.join(enough)} would have enough" if enough else "; no GPU with MIG has enough"
        return (
            f"memory is the limiting constraint: {label} needs {need}{upper}, and the largest slice of {gpu.id}, "
            f"{largest.profile}, has {largest.usable_mb:,.0f} MB usable{nearest or where}"
        )
    fastest = min(holding, key=lambda s: s.latency_ms.high if sure else s.latency_ms.value)
    least = fastest.latency_ms.high if sure else fastest.latency_ms.value
    end = " by the upper end of its interval" if sure else ""
    if job.max_latency_ms is not None and least > job.max_latency_ms:
        return (
            f"latency is the limiting constraint: {label} takes {pretty(least)} ms{end} on the fastest slice of "
            f"{gpu.id} that holds it ({fastest.profile}), over the limit of {pretty(job.max_latency_ms)} ms; "
            f"the least is {pretty(least)} ms"
        )
    return (
        f"the rate is the limiting constraint: {fastest.profile} of {gpu.id} sustains "
        f"{pretty(1e3 / least)} calls/s of {label}{end}, below the required {pretty(job.rate or 0.0)}; "
        "use count to share the calls among several slices"
    )
