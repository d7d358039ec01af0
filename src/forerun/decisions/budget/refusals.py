"""The sentence for a budget that nothing keeps: which limit binds, and the nearest value that could be kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from forerun.decisions.budget.jobs import Job, JobRow
from forerun.device import Device
from forerun.errors import ArgumentError, ForerunError
from forerun.prediction import Estimate
from forerun.readable import in_readable_units, pretty

#: What is limited, and the unit of the limit.
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
    """Raises the error of arguments that the answer would not heed: those of `given` that have a value."""
    names = [name for name, value in given.items() if value]
    if names:
        raise ArgumentError("{why}: leave out " + ", ".join(["{}"] * len(names)), *names, why=why)


def not_one_fits(found: JobRow, model: str, job: Job, enough: int | None) -> ForerunError:
    """The error of limits that leave no room for one epoch, or one step; `enough` devices have room for all that is
    asked, where any do."""
    name = found.binds or "hours"
    one: Estimate | None = getattr(found.each, name)
    where = f"{found.devices} x {found.device}" if found.devices > 1 else found.device
    if one is None:
        return not_known(name, where)
    asked, unit = job.steps or job.epochs or 1, job.unit.removesuffix("s")
    needs = getattr(found, name) if asked > 1 else one
    what = f"{asked:,} {unit}s" if asked > 1 else f"one {unit}"
    sentence = (
        f"{amount(name, job.limits.given()[name])} is not enough for {what} of {model} on {where}: "
        f"{LIMITS[name][0]} binds, and the nearest budget that fits is {estimate(name, needs)}"
    )
    sentence += f"; one {unit} takes {estimate(name, one)}" if asked > 1 else ""
    return ArgumentError(
        "{sentence}" + (f", or {enough} of the device ({{}})" if enough else ""), "gpus", sentence=sentence
    )


def not_known(name: str, where: str) -> ForerunError:
    """The error of a limit on what is not known of a device."""
    hint = ": name an instance" if name == "cost_usd" else ""
    what = (
        f"no cloud price is known for {where}, so money"
        if hint
        else f"the {LIMITS[name][0]} of a job on {where} is not known, so it"
    )
    return ForerunError(f"{what} cannot be limited{hint}")


def no_device_meets(rows: Sequence[JobRow], model: str, job: Job) -> ForerunError:
    """The error of limits that no device keeps, with the device that comes nearest."""
    limits, asked = job.limits.given(), job.steps or job.epochs
    what = f"{asked:,} {job.unit if asked > 1 else job.unit.removesuffix('s')}" if asked else "one epoch"

    def needs(found: JobRow, name: str) -> float:
        e = getattr(found if asked else found.each, name)
        return float("inf") if e is None else float(e.value)

    def needs_text(found: JobRow, name: str) -> str:
        e = getattr(found if asked else found.each, name)
        return "unknown" if e is None else estimate(name, e)

    for name, limit in limits.items():
        if all(needs(found, name) > limit for found in rows):
            nearest, also = _nearest(rows, functools.partial(needs, name=name))
            known = f"; {also.device} has {needs_text(also, name)} by its peaks alone" if also else ""
            return ForerunError(
                f"no device does {what} of {model} within {amount(name, limit)}: {LIMITS[name][0]} binds, and the "
                f"nearest is {_named(nearest)} with {needs_text(nearest, name)}{known}"
            )

    nearest, _ = _nearest(rows, lambda found: max(needs(found, name) / limit for name, limit in limits.items()))
    binds = max(limits, key=lambda name: needs(nearest, name) / limits[name])
    return ForerunError(
        f"no device does {what} of {model} within {' and '.join(amount(n, v) for n, v in limits.items())} together: "
        f"{LIMITS[binds][0]} binds, and the nearest is {_named(nearest)} with "
        f"{' and '.join(needs_text(nearest, name) for name in limits)}"
    )


def _nearest(rows: Sequence[JobRow], needs: Callable[[JobRow], float]) -> tuple[JobRow, JobRow | None]:
    """The row that needs least of those that measurements show, and one by its peaks alone where that needs less."""
    shown = [found for found in rows if found.generation_measured]
    nearest, least = min(shown or rows, key=needs), min(rows, key=needs)
    return nearest, None if needs(least) >= needs(nearest) else least


def _named(found: JobRow) -> str:
    return found.device if found.generation_measured else f"{found.device}, by its peaks alone,"


def too_large(
    found: JobRow, model: str, device: Device, largest_batch: int | None, *, of_all: bool = False
) -> ForerunError:
    """The error of a case that does not fit the device, which is the largest where no other is large enough either."""
    memory = "its memory" if device.memory_gb is None else f"{pretty(device.memory_gb)} GB"
    needs = "more" if found.memory_mb is None else f"{pretty(found.memory_mb.value / 1024)} GB"
    start = "no device is large enough: " if of_all else ""
    nearest = f"the largest batch that fits is {largest_batch:,}" if largest_batch else "no batch fits"
    return ForerunError(
        f"{start}{model} at batch {found.batch:,} needs {needs} of memory, {device.id} has {memory}, and {nearest}"
    )
