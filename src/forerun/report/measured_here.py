"""`--measured`: ceilings and a short training run of the report's device on this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from forerun._util.readable import pretty
from forerun.device import Device
from forerun.errors import ForerunError
from forerun.report import charts
from forerun.report.parts import Chart, Group, Level, Table, percent, value_text
from forerun.report.study import Study

#: Seconds that ceilings take where none are saved.
CEILINGS_S = 30.0
ABOUT = (
    "Measured on this machine, not predicted: a run of a few seconds that learns one batch of random numbers by heart, "
    "so that its loss shows that steps learn, and is no accuracy. Loading is of images in memory by one process; "
    "decoding files comes on top."
)


def device_here(devices: Sequence[Device]) -> Device:
    """The one of the devices that this machine has; a ForerunError in one sentence if it has none of them."""
    from forerun.measure.machine import this_device

    here = this_device()
    for device in devices:
        if device.id == here.id:
            return device
    asked = " or ".join(d.id for d in devices)
    raise ForerunError(
        f"--measured measures {asked} where it is, and this machine has {here.name} ({here.id}): leave it out, or run "
        "the same command there"
    )


def with_ceilings(device: Device) -> Device:
    """The device with its ceilings as measured on this machine: those that `forerun measure machine` saved, else new
    ones."""
    from forerun.measure import ceilings, saved_ceilings

    found = saved_ceilings.saved(device.id) or ceilings.measured(budget_s=CEILINGS_S)
    return dataclasses.replace(device, calibrated={**device.calibrated, **found.values})


def measured_here(study: Study) -> Level | None:
    """The level of the short run; None without --measured."""
    device = study.here
    if device is None:
        return None
    from forerun.measure.short_run import short_run

    workload = study.workload(mode="training")
    try:
        run = short_run(workload)
    except ForerunError as e:
        return Level("measured", "Measured here", ABOUT, [f"The training step could not be measured: {e}."])
    answer = study.answer(device, mode="training")
    lines = [
        (f"{e['epoch']:g}", f"{e['steps']:g}", f"{e['seconds']:.2f} s", f"{e['loss']:.4g}",
         f"{e['power_w']:.0f} W" if e["power_w"] is not None else "unknown",
         f"{e['temperature_c']:.0f} °C" if e["temperature_c"] is not None else "unknown")
        for e in run.epochs
    ]  # fmt: skip
    head = ("epoch", "steps", "time", "loss", "power", "temperature")
    caption = "; ".join(f"{name}: {why}" for name, why in run.reasons.items())
    tables = [Table(f"A short training run on {run.device}", head, lines, range(6), caption=caption)]
    if run.top_kernels:
        rows = [(name, f"{pretty(ms)} ms", f"{count:g}") for name, ms, count in run.top_kernels]
        tables.append(Table("Longest kernels of a step", ("kernel", "time", "calls"), rows, (1, 2)))
    losses = charts.figure("epoch", "loss", height=300)
    losses.add_scatter(
        x=[e["epoch"] for e in run.epochs], y=[e["loss"] for e in run.epochs], mode="lines+markers",
        line={"color": charts.colour(0), "width": 2}, hovertemplate="epoch %{x}: %{y:.4g}<extra></extra>",
    )  # fmt: skip
    losses.update_xaxes(dtick=1)
    words = [_step(study, run, answer), *_counters(study, run, device)]
    words += [f"{run.disturbed[0].upper()}{run.disturbed[1:]}."] if run.disturbed else []
    data = {**dataclasses.asdict(run), "busy": run.busy, "ceilings": dict(device.calibrated)}
    picture = Group("Loss of the short run", [Chart("training loss by epoch", losses)])
    return Level("measured", "Measured here", ABOUT, words, [picture], tables, data)


def _step(study: Study, run: Any, answer: Any) -> str:
    predicted = "" if isinstance(answer, str) else f" (predicted: {value_text(answer.latency_ms)})"
    return (
        f"On {run.device} a training step of {study.precision.label} at batch {run.batch} takes "
        f"{pretty(run.step_ms)} ms{predicted}: {pretty(1e3 * run.batch / run.step_ms)} samples per second."
    )


def _counters(study: Study, run: Any, device: Device) -> list[str]:
    out = []
    if run.busy is not None:
        out.append(f"Its kernels take {pretty(run.device_ms)} ms: the device is busy {percent(run.busy)} of the step.")
    if run.tensor_core_share is not None:
        out.append(
            f"By their names, {percent(run.tensor_core_share)} of the time of the longest kernels is on tensor cores."
        )
    if run.loading_samples_per_s is not None:
        need = 1e3 * run.batch / run.step_ms
        enough = "keeps up with" if run.loading_samples_per_s >= need else "is slower than"
        out.append(
            f"One loading process delivers {pretty(run.loading_samples_per_s)} images per second and {enough} it."
        )
    try:
        ops = study.explain(device, mode="training").ops
    except ForerunError:
        return out
    moved = sum(op.mb if op.memory_level_mb is None else op.memory_level_mb for op in ops)
    rate = moved * 2**20 / run.step_ms / 1e6
    if device.bandwidth_gbs:
        share = f"{percent(rate / device.bandwidth_gbs)} of the memory's bandwidth"
        beyond = "more than the memory's bandwidth, so caches serve a part"
        out.append(
            f"By the count of its graph a step moves {pretty(moved / 1024)} GB: {pretty(rate)} GB/s, "
            f"{share if rate <= device.bandwidth_gbs else beyond}."
        )
    return out
