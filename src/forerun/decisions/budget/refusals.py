"""The error for an infeasible budget: the limiting constraint, and the smallest feasible value."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from forerun._util.readable import in_readable_units, pretty
from forerun.decisions.budget.jobs import Job, JobRow
from forerun.device import Device
from forerun.errors import ArgumentError, ForerunError
from forerun.prediction import Estimate

#: The limited quantity, and the unit of the limit.
LIMITS = {
    "hours": ("time", "h"), "cost_usd": ("money", "USD"), "energy_kwh": ("energy", "kWh"),
    "carbon_kg": ("carbon", "kg"),
}  # fmt: skip


def amount(name: str, value: float) -> str:
    """A limit in words: '24 h', '36 s', '0.3 USD'."""
    if value == 0:
        return f"0 {LIMITS[name][1]}"
    number, _, _, unit = in_readable_units(value, value, value, LIMITS[name][1])
    return f"{number} {unit}"


def estimate(name: str, e: Estimate) -> str:
    """'31 h [25 … 44]'."""
    value, low, high, unit = in_readable_units(e.value, e.low, e.high, LIMITS[name][1])
    return f"{value} {unit} [{low} … {high}]"


def refuse_unused(why: str, given: Mapping[str, Any]) -> None:
    """Raises the error for arguments that would have no effect: those of `given` that have a value."""
    names = [name for name, value in given.items() if value]
    if names:
        raise ArgumentError("{why}: omit " + ", ".join(["{}"] * len(names)), *names, why=why)


def not_one_fits(row: JobRow, model: str, job: Job, enough: int | None) -> ForerunError:
    """The error where not one epoch, or step, fits the limits; `enough` is the number of devices that fit the whole
    job, if any."""
    name = row.binds or "hours"
    part: Estimate | None = getattr(row.each, name)
    where = f"{row.devices} x {row.device}" if row.devices > 1 else row.device
    if part is None:
        return not_known(name, where)
    count, unit = job.steps or job.epochs or 1, job.unit.removesuffix("s")
    needs = getattr(row, name) if count > 1 else part
    what = f"{count:,} {unit}s" if count > 1 else f"one {unit}"
    sentence = (
        f"{amount(name, job.limits.given()[name])} is not enough for {what} of {model} on {where}: "
        f"{LIMITS[name][0]} is the limiting constraint; the smallest feasible budget is {estimate(name, needs)}"
    )
    sentence += f"; one {unit} takes {estimate(name, part)}" if count > 1 else ""
    return ArgumentError(
        "{sentence}" + (f", or {enough} of the device ({{}})" if enough else ""), "gpus", sentence=sentence
    )


def not_known(name: str, where: str) -> ForerunError:
    """The error for a limit on a quantity that is unknown for a device."""
    hint = ": name an instance" if name == "cost_usd" else ""
    what = (
        f"no cloud price is known for {where}, so money"
        if hint
        else f"the {LIMITS[name][0]} of a job on {where} is not known, so it"
    )
    return ForerunError(f"{what} cannot be limited{hint}")


def no_device_meets(rows: Sequence[JobRow], model: str, job: Job) -> ForerunError:
    """The error where no device is within the limits, with the nearest one."""
    limits, count = job.limits.given(), job.steps or job.epochs
    what = f"{count:,} {job.unit if count > 1 else job.unit.removesuffix('s')}" if count else "one epoch"

    def needs(row: JobRow, name: str) -> float:
        e = getattr(row if count else row.each, name)
        return float("inf") if e is None else float(e.value)

    def needs_text(row: JobRow, name: str) -> str:
        e = getattr(row if count else row.each, name)
        return "unknown" if e is None else estimate(name, e)

    for name, limit in limits.items():
        if all(needs(candidate, name) > limit for candidate in rows):
            nearest, also = _nearest(rows, functools.partial(needs, name=name))
            known = f"; {also.device} has {needs_text(also, name)} from its peaks alone" if also else ""
            return ForerunError(
                f"no device does {what} of {model} within {amount(name, limit)}: {LIMITS[name][0]} is the limiting "
                f"constraint; the nearest is {_named(nearest)} with {needs_text(nearest, name)}{known}"
            )

    nearest, _ = _nearest(rows, lambda candidate: max(needs(candidate, name) / limit for name, limit in limits.items()))
    limiting = max(limits, key=lambda name: needs(nearest, name) / limits[name])
    return ForerunError(
        f"no device does {what} of {model} within {' and '.join(amount(n, v) for n, v in limits.items())} together: "
        f"{LIMITS[limiting][0]} is the limiting constraint; the nearest is {_named(nearest)} with "
        f"{' and '.join(needs_text(nearest, name) for name in limits)}"
    )


def _nearest(rows: Sequence[JobRow], needs: Callable[[JobRow], float]) -> tuple[JobRow, JobRow | None]:
    """The row of a measured generation that needs least, and one from peaks alone where that needs less."""
    shown = [row for row in rows if row.generation_measured]
    nearest, least = min(shown or rows, key=needs), min(rows, key=needs)
    return nearest, None if needs(least) >= needs(nearest) else least


def _named(row: JobRow) -> str:
    return row.device if row.generation_measured else f"{row.device} (from its peaks alone)"


def too_large(
    row: JobRow, model: str, device: Device, largest_batch: int | None, *, of_all: bool = False
) -> ForerunError:
    """The error where a case does not fit the device; with `of_all`, it is the largest device."""
    memory = "its memory" if device.usable_mb is None else f"{pretty(device.usable_mb / 1024)} GB usable"
    needs = "more" if row.memory_mb is None else f"{pretty(row.memory_mb.value / 1024)} GB"
    start = "no device is large enough: " if of_all else ""
    nearest = f"the largest batch that fits is {largest_batch:,}" if largest_batch else "no batch fits"
    return ForerunError(
        f"{start}{model} at batch {row.batch:,} needs {needs} of memory, {device.id} has {memory}, and {nearest}"
    )
