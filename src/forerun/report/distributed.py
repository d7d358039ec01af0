"""The distributed level: data parallel training on 1 to 8 devices; the formula is in `advice.data_parallel`."""

from __future__ import annotations

from typing import Any

from forerun._util.readable import pretty
from forerun.advice.data_parallel import (
    WORTH_ADDING,
    Scaled,
    gradient_mb,
    in_one_process,
    scaling,
    worth_adding,
)
from forerun.advice.job import steps_per_epoch, totals
from forerun.api.tables import TableRow
from forerun.device import Device
from forerun.device.links import link
from forerun.errors import ForerunError
from forerun.prediction import Estimate
from forerun.report import charts
from forerun.report.parts import Chart, Group, Key, Level, Table, percent, plain, value_text
from forerun.report.study import Precision, Study

COUNTS = tuple(range(1, 9))
ABOUT = (
    "Data parallel (DistributedDataParallel): every GPU has its own batch, and all-reduces of 25 MB sum the gradients "
    "over the interconnect while the backward pass goes on. DataParallel runs all GPUs from one process and is slower. "
    "The precision is the fastest one that fits."
)


def distributed(study: Study) -> Level:
    findings, tables, rows, worth = [], [], [], {}
    epochs, shares = charts.figure("GPUs", "time of an epoch"), charts.figure("GPUs", "efficiency (%)")
    hours: list[float] = []
    fastest = study.fastest(study.training_precisions, "training")
    for number, device in enumerate(study.devices):
        colour = charts.colour(number)
        if device.id not in fastest:
            findings.append(f"On {device.id} no training step at batch {study.batch} is predicted to fit.")
            continue
        precision, answer = fastest[device.id]
        try:
            steps = scaled_steps(study, device, precision, answer)
            threads = _in_one_process(study, device, precision, answer)
            joined = dict.fromkeys(link(device, count) for count in COUNTS[1:])
        except ForerunError as e:
            findings.append(f"{device.id}: {e}.")
            continue
        epoch = [epoch_h(study, step) for step in steps]
        hours += [e.low for e in epoch] + [e.high for e in epoch]
        charts.curve(epochs, COUNTS, epoch, device.id, colour)
        for batch, dash in _batches(study):
            other = study.answer(device, precision=precision, batch=batch, mode="training")
            if isinstance(other, TableRow):
                line = scaled_steps(study, device, precision, other)
                shares.add_scatter(
                    x=list(COUNTS), y=[100 * step.efficiency for step in line], mode="lines+markers",
                    name=f"{device.id}, batch {batch}", line={"color": colour, "width": 2, "dash": dash},
                    marker={"size": 5}, hovertemplate="%{x} GPUs: %{y:.1f} %<extra>%{fullData.name}</extra>",
                )  # fmt: skip
        lines = [
            (
                f"{step.devices}", value_text(step.step_ms), f"{pretty(step.all_reduce_ms)} ms",
                percent(step.efficiency), value_text(e), value_text(_job(study, step)),
                "unknown" if slow is None else value_text(slow),
            )
            for step, e, slow in zip(steps, epoch, threads, strict=True)
        ]  # fmt: skip
        head = ("GPUs", "step", "all-reduce", "efficiency", "epoch", "whole job", "step with DataParallel")
        title = f"{device.name}: {precision.label}, batch {study.batch} per GPU, " + ", then ".join(
            f"{one.name} of {pretty(one.gbs)} GB/s per direction" for one in joined
        )
        tables.append(Table(title, head, lines, range(7), shown=None if len(study.devices) == 1 else 0))
        rows += [
            _row(study, device, precision, step, e) | {"data_parallel_ms": slow and plain(slow)}
            for step, e, slow in zip(steps, epoch, threads, strict=True)
        ]
        worth[device.id] = worth_adding(steps, study.batch)
        findings.append(_finding(study, device, steps, epoch))
    if hours:
        charts.log_axis(epochs, hours)
        _hour_ticks(epochs, hours)
    shares.update_yaxes(range=[0, 104])
    caption = (
        f"Batch {study.batch} on each GPU; the band covers the intervals of the step and of the all-reduces, and how "
        "much of them overlaps. Efficiency is the throughput over that of as many independent GPUs."
    )
    keys = [Key(d.id, charts.colour(at)) for at, d in enumerate(study.devices)]
    keys += [Key(f"batch {batch}", charts.GREY, "line" if dash == "solid" else dash) for batch, dash in _batches(study)]
    pictures = [Chart("Time of an epoch", epochs), Chart("Efficiency", shares)]
    groups = [Group("1 to 8 GPUs", pictures, caption, keys, wide=True)] if rows else []
    return Level("distributed", "Distributed training", ABOUT, findings, groups, tables, {"rows": rows, "worth": worth})


def scaled_steps(study: Study, device: Device, precision: Precision, answer: TableRow) -> list[Scaled]:
    """The step on 1 to 8 devices, by the formula of data parallelism."""
    weights = study.workload(precision=precision, mode="training").weight_dtype
    parameters = study.graph(mode="training").parameters
    return scaling(answer.latency_ms, gradient_mb(parameters, weights), device, COUNTS)


def _in_one_process(study: Study, device: Device, precision: Precision, answer: TableRow) -> list[Estimate | None]:
    """The step on 1 to 8 devices under DataParallel; None where the host's time is not predicted."""
    weights = study.workload(precision=precision, mode="training").weight_dtype
    size = gradient_mb(study.graph(mode="training").parameters, weights)
    host = answer.host_ms
    return [None if host is None else in_one_process(answer.latency_ms, host, size, device, n) for n in COUNTS]


def epoch_h(study: Study, step: Scaled) -> Estimate:
    steps = steps_per_epoch(study.job.dataset_size, study.batch, step.devices)
    return totals(step.step_ms, None, steps, devices=step.devices).hours


def _job(study: Study, step: Scaled) -> Estimate:
    return epoch_h(study, step).scaled(study.job.epochs, "h")


def _row(study: Study, device: Device, precision: Precision, step: Scaled, epoch: Estimate) -> dict[str, Any]:
    return {
        "device": device.id, "dtype": precision.dtype, "amp": precision.amp, "batch": study.batch, "gpus": step.devices,
        "step_ms": plain(step.step_ms), "all_reduce_ms": step.all_reduce_ms, "efficiency": step.efficiency,
        "epoch_h": plain(epoch),
    }  # fmt: skip


def _finding(study: Study, device: Device, steps: list[Scaled], epoch: list[Estimate]) -> str:
    most, last = worth_adding(steps, study.batch), steps[-1]
    share = f"{percent(last.efficiency)} of {last.devices} times the throughput"
    gain = f"an epoch falls from {value_text(epoch[0], interval=False)} to {value_text(epoch[-1], interval=False)}"
    if most == last.devices:
        return f"{device.id}: every GPU up to {most} is worth adding; {last.devices} of them reach {share}: {gain}."
    return (
        f"{device.id}: beyond {most} GPU{'s' if most > 1 else ''} another adds less than {percent(WORTH_ADDING)} of a "
        f"GPU at batch {study.batch}; {last.devices} of them reach {share}, and {gain}. A larger batch per GPU scales "
        "further."
    )


def _batches(study: Study) -> list[tuple[int, str]]:
    """The report's batch and a smaller one, which overlaps less of the all-reduce."""
    return list({max(1, study.batch // 8): "dot", study.batch: "solid"}.items())


def _hour_ticks(chart: Any, hours: list[float]) -> None:
    """Ticks of the epoch axis in seconds, minutes and hours."""
    marks = [s / 3600 for s in (1, 2, 5, 10, 20, 30)] + [m / 60 for m in (1, 2, 5, 10, 20, 30)]
    marks += [1, 2, 5, 10, 24, 48, 120, 240, 480, 960]
    able = [m for m in marks if 0.7 * min(hours) <= m <= 1.4 * max(hours)] or [min(hours)]
    able = able[:: max(1, len(able) // 8)]
    chart.update_yaxes(tickvals=able, ticktext=[value_text(Estimate(m, m, m, "h"), interval=False) for m in able])
