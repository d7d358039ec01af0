"""One workload on every kind of slice of a GPU: its predictions, what a slice does not meet, why none will do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun.advice.mig import slices
from forerun.api import predict_many, predict_workload
from forerun.decisions.mig.answer import OnSlice
from forerun.decisions.mig.workloads import MigWorkload
from forerun.device import Device, all_devices
from forerun.device.mig import MigProfile, profiles
from forerun.errors import ForerunError
from forerun.readable import pretty
from forerun.tables import TableRow, read_row

if TYPE_CHECKING:
    from forerun.predictors.base import Predictor


class MigCase:
    """One workload with its predictions: on the whole GPU and on every kind of slice."""

    def __init__(self, job: MigWorkload, whole: Device, **asked: Any) -> None:
        self.job = job
        cut = slices(whole)
        frame = predict_many([job.workload], [whole, *(part for _, part in cut)], **asked)
        found = [read_row(row) for row in frame.to_dict("records")]
        for reason in found:
            if isinstance(reason, str):
                raise ForerunError(f"{job.label}: {reason}")
        rows = [row for row in found if not isinstance(row, str)]
        self.whole_gpu_ms, self.memory_mb = rows[0].latency_ms, rows[0].memory_mb.value
        self.on_slice = {p.name: _on_slice(p, row) for (p, _), row in zip(cut, rows[1:], strict=True)}

    def problems(self, found: OnSlice) -> list[str]:
        """What a slice does not meet, by the estimates."""
        job, out = self.job, []
        if not found.fits:
            have = f"{found.usable_mb:,.0f} MB can be used"
            out.append(f"does not fit: it needs {found.memory_mb.value:,.0f} MB and {have}")
        if job.max_latency_ms is not None and found.latency_ms.value > job.max_latency_ms:
            out.append(
                f"takes {pretty(found.latency_ms.value)} ms, and at most {pretty(job.max_latency_ms)} were asked"
            )
        if job.rate is not None and job.rate * found.latency_ms.value > 1e3:
            keeps = pretty(1e3 / found.latency_ms.value)
            out.append(f"keeps up with {keeps} calls/s, and {pretty(job.rate)} were asked")
        return out

    def remarks(self, found: OnSlice) -> list[str]:
        """What a slice meets by the estimates and not by the upper ends of their intervals."""
        job, out = self.job, []
        if found.fits and not found.surely_fits:
            out.append("fits by the estimate, not by its upper end")
        for limit, met in (
            (job.max_latency_ms, "fast enough"),
            (job.rate and 1e3 / job.rate, "keeps up with its rate"),
        ):
            if limit is not None and found.latency_ms.value <= limit < found.latency_ms.high:
                out.append(f"{met} by the estimate, not by its upper end")
        return out


def _on_slice(profile: MigProfile, row: TableRow) -> OnSlice:
    return OnSlice(
        profile=profile.name, usable_mb=profile.memory_mb, memory_mb=row.memory_mb, latency_ms=row.latency_ms,
        throughput=row.throughput, energy_j=row.energy_j, fits=bool(row.fits), surely_fits=bool(row.surely_fits),
    )  # fmt: skip


def infeasible(case: MigCase, whole: Device, sure: bool, predictor: str | Path | Predictor) -> str:
    """Which constraint no slice of the GPU meets for this workload, and the nearest value that could be met."""
    label, job = case.job.label, case.job
    largest = list(case.on_slice.values())[-1]
    holding = [s for s in case.on_slice.values() if (s.surely_fits and s.fits if sure else s.fits)]
    if not holding:
        upper = " by the upper end of its interval" if largest.fits else ""
        need = f"{largest.memory_mb.high if largest.fits else largest.memory_mb.value:,.0f} MB"
        part = next(part for p, part in slices(whole) if p.name == largest.profile)
        found = predict_workload(job.workload, part, predictor=predictor, measured=False).fit
        batch = found.largest_batch if found is not None else None
        nearest = f"; the largest batch that fits is {batch:,}" if batch and batch < job.workload.batch else ""
        enough = [
            d.id for d in all_devices() if (cut := profiles(d)) and cut[-1].memory_mb >= largest.memory_mb.high
        ]  # fmt: skip
        where = f"; {', '.join(enough)} would have enough" if enough else "; no GPU with MIG has enough"
        return (
            f"memory binds: {label} needs {need}{upper}, and the largest slice of {whole.id}, {largest.profile}, has "
            f"{largest.usable_mb:,.0f} MB that can be used{nearest or where}"
        )
    fastest = min(holding, key=lambda s: s.latency_ms.high if sure else s.latency_ms.value)
    least = fastest.latency_ms.high if sure else fastest.latency_ms.value
    end = " by the upper end of its interval" if sure else ""
    if job.max_latency_ms is not None and least > job.max_latency_ms:
        return (
            f"latency binds: {label} takes {pretty(least)} ms{end} on the fastest slice of {whole.id} that holds it "
            f"({fastest.profile}), and at most {pretty(job.max_latency_ms)} were asked; the least is {pretty(least)} ms"
        )
    return (
        f"the rate binds: {fastest.profile} of {whole.id} keeps up with {pretty(1e3 / least)} calls/s of {label}{end}, "
        f"and {pretty(job.rate or 0.0)} were asked; use count to share them among several slices"
    )
