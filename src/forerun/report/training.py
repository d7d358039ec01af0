"""The training level: precision and batch, with step, epoch and total time, memory, power and energy."""

from __future__ import annotations

from forerun._util.readable import pretty
from forerun.advice.job import Totals, paced, steps_per_epoch, totals
from forerun.api.tables import TableRow
from forerun.device import Device
from forerun.prediction import Estimate
from forerun.report.grid import Case, curves, grid, refusals
from forerun.report.parts import Level, Table, percent, plain, value_text
from forerun.report.study import Study

ABOUT = (
    "A step is a forward pass, a backward pass and {optimizer}. An epoch is {samples:,} samples, the job {epochs} of "
    "them (--dataset-size, --epochs); {loading}. Busy is the device's time over the step's; the memory rate is the "
    "bytes of the step over its time, and its share of the memory's bandwidth."
)


def epoch_and_job(study: Study, answer: TableRow, batch: int) -> tuple[Totals, Totals]:
    """Totals of an epoch and the whole job on one device, at the rate of a predicted step."""
    steps = steps_per_epoch(study.job.dataset_size, batch)
    step = paced(answer.latency_ms, batch, study.loading_samples_per_s)
    return (totals(step, answer.energy_j, steps), totals(step, answer.energy_j, steps * study.job.epochs))


def training(study: Study) -> Level:
    all_cases = grid(study, "training", study.training_precisions, study.training_batches)
    rate = study.loading_samples_per_s
    loading = (
        "data loading is assumed to keep up (--loading-rate), at the samples per second that are shown" if rate is None
        else f"data loading delivers {pretty(rate)} samples per second, and an epoch is no faster"
    )  # fmt: skip
    about = ABOUT.format(
        optimizer=study.optimizer, samples=study.job.dataset_size, epochs=study.job.epochs, loading=loading
    )
    if not all_cases.cases:
        reason = next(iter(all_cases.refused.values()), "no precision can be trained")
        return Level("training", "Training", about, [f"Training is not predicted: {reason}."], data={"refused": reason})
    rows, tables = [], []
    for device in study.devices:
        lines: list[tuple[str, ...]] = []
        marked = []
        best = min((c for c in all_cases.of(device) if c.fits), key=_ms_per_sample, default=None)
        for case in all_cases.of(device):
            epoch, job = epoch_and_job(study, case.answer, case.batch)
            rows.append(
                {**case.row(), "epoch_h": plain(epoch.hours), "total_h": plain(job.hours),
                 "total_kwh": plain(job.energy_kwh), "busy": case.answer.busy, "memory_gbs": _memory_gbs(study, case),
                 "loading_waits": _waits(study, case)}
            )  # fmt: skip
            if case is best:
                marked.append(len(lines))
            lines.append(
                (
                    case.precision.label, f"{case.batch:,}", value_text(case.answer.latency_ms),
                    value_text(epoch.hours), value_text(job.hours), case.memory_text,
                    value_text(case.answer.power_w), value_text(job.energy_kwh),
                    percent(case.answer.busy) if case.answer.busy else "", _memory_text(study, case, device),
                    _loading_text(study, case),
                )
            )  # fmt: skip
        head = ("precision", "batch", "step", "epoch", "whole job", "memory needed", "power", "energy of the job",
                "busy", "memory rate", "loading")  # fmt: skip
        if lines:
            tables.append(Table(f"Training on {device.name}", head, lines, range(1, 11), marked, shown=0))
    caption = "Bands are intervals; hollow points do not fit the device's memory."
    pictures = [
        *curves(all_cases, study, "Training throughput", "samples per second", _rate,
                _measured_rate, caption),
        *curves(all_cases, study, "Memory of a training step", "GB",
                lambda c: c.answer.memory_mb.scaled(1 / 1024, "GB"),
                lambda c: _scaled(c, "memory_mb", 1 / 1024), caption, capacity=True),
        *curves(all_cases, study, "Energy of a training step, per sample", "J per sample",
                lambda c: c.answer.energy_j and c.answer.energy_j.scaled(1 / c.batch, "J"),
                lambda c: _scaled(c, "energy_j", 1 / c.batch), caption),
    ]  # fmt: skip
    findings = [_finding(study, all_cases.of(device), device.id) for device in study.devices]
    data = {"optimizer": study.optimizer, "rows": rows, "refused": all_cases.refused}
    return Level(
        "training", "Training", about, [f for f in findings if f] + refusals(all_cases), pictures, tables, data
    )  # fmt: skip


def _memory_gbs(study: Study, case: Case) -> float:
    """GB/s that a step moves on average, by the bytes of its operators."""
    return study.step_mb(case.precision, case.batch) * 2**20 / case.answer.latency_ms.value / 1e6


def _memory_text(study: Study, case: Case, device: Device) -> str:
    rate = _memory_gbs(study, case)
    of = f" ({percent(rate / device.bandwidth_gbs)})" if device.bandwidth_gbs else ""
    return f"{pretty(rate)} GB/s{of}"


def _waits(study: Study, case: Case) -> float | None:
    """The share of a step that waits for samples; None without a rate of loading."""
    if study.loading_samples_per_s is None:
        return None
    step = case.answer.latency_ms.value
    return 1 - step / paced(case.answer.latency_ms, case.batch, study.loading_samples_per_s).value


def _loading_text(study: Study, case: Case) -> str:
    waits = _waits(study, case)
    if waits is None:
        return f"{pretty(1e3 * case.batch / case.answer.latency_ms.value)}/s"
    return f"waits {percent(waits)}" if waits > 0 else "keeps up"


def _finding(study: Study, cases: list[Case], device: str) -> str | None:
    able = [c for c in cases if c.fits]
    if not able:
        return f"On {device} no batch that was tried fits." if cases else None
    best = min(able, key=_ms_per_sample)
    epoch, job = epoch_and_job(study, best.answer, best.batch)
    same = next((c for c in able if c.precision == study.precision and c.batch == study.batch), None)
    gain = ""
    if same and same is not best:
        times = _ms_per_sample(same) / _ms_per_sample(best)
        gain = f", {times:.1f} times the throughput of {same.precision.label} at batch {same.batch}"
    energy = f" and {value_text(job.energy_kwh)}" if job.energy_kwh else ""
    return (
        f"On {device} training is fastest in {best.precision.label} at batch {best.batch:,}: an epoch takes "
        f"{value_text(epoch.hours)}, the job {value_text(job.hours)}{energy}{gain}."
    )


def _ms_per_sample(case: Case) -> float:
    return case.answer.latency_ms.value / case.batch


def _rate(case: Case) -> Estimate:
    ms = case.answer.latency_ms
    return Estimate(1e3 * case.batch / ms.value, 1e3 * case.batch / ms.high, 1e3 * case.batch / ms.low, "samples/s")


def _measured_rate(case: Case) -> float | None:
    ms = case.measured.values["latency_ms"] if case.measured else None
    return ms and 1e3 * case.batch / ms


def _scaled(case: Case, name: str, factor: float) -> float | None:
    value = case.measured.values[name] if case.measured else None
    return value and value * factor
