"""The sentence for a budget that nothing keeps: which limit binds, and the nearest value that could be kept."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.decisions.budget.jobs import Job, JobRow
from forerun.device import Device
from forerun.errors import ForerunError
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


def not_one_fits(found: JobRow, model: str, job: Job, enough: int | None) -> ForerunError:
    """The error of limits that leave no room for one epoch, or one step; `enough` devices have it, where any do."""
    name = found.binds or "hours"
    needs: Estimate | None = getattr(found.each, name)
    where = f"{found.devices} x {found.device}" if found.devices > 1 else found.device
    if needs is None:
        return ForerunError(f"the {LIMITS[name][0]} of a job on {where} is not known, so it cannot be limited")
    limit = amount(name, job.limits.given()[name])
    return ForerunError(
        f"{limit} is not enough for one {job.unit.removesuffix('s')} of {model} on {where}: {LIMITS[name][0]} binds, "
        f"and the nearest budget that fits is {estimate(name, needs)}"
        + (f", or {enough} of the device (gpus)" if enough else "")
    )


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
        nearest = min(rows, key=lambda found: needs(found, name))
        if needs(nearest, name) > limit:
            return ForerunError(
                f"no device does {what} of {model} within {amount(name, limit)}: {LIMITS[name][0]} binds, and the "
                f"nearest is {nearest.device} with {needs_text(nearest, name)}"
            )

    nearest = min(rows, key=lambda found: max(needs(found, name) / limit for name, limit in limits.items()))
    binds = max(limits, key=lambda name: needs(nearest, name) / limits[name])
    return ForerunError(
        f"no device does {what} of {model} within {' and '.join(amount(n, v) for n, v in limits.items())} together: "
        f"{LIMITS[binds][0]} binds, and the nearest is {nearest.device} with "
        f"{' and '.join(needs_text(nearest, name) for name in limits)}"
    )


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
