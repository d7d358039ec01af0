"""The prediction of a tabular model: a fit, or one call that predicts rows, on a CPU."""

from __future__ import annotations

import shlex
from typing import Any

from forerun.advice import carbon as carbon_advice
from forerun.advice import cost as cost_advice
from forerun.device import Device
from forerun.errors import ForerunError
from forerun.frontends.tabular import fitted as estimators
from forerun.frontends.tabular import kinds, settings
from forerun.frontends.tabular.kinds import Tabular
from forerun.prediction import Estimate, Fit, Prediction
from forerun.predictors.laws import tabular as law
from forerun.predictors.laws import tabular_work
from forerun.predictors.laws.tabular import Answered, TabularLaw
from forerun.workload import Workload

_BEYOND = 0.1  # factors of ten beyond the largest measured table from which on a note says so


def tabular_model(model: Any) -> Tabular | None:
    """The tabular model that a name or a fitted estimator is; None for any other model."""
    if kinds.is_tabular(model):
        return kinds.parse(model)
    return estimators.read(model) if estimators.is_estimator(model) else None


def rows_of(workload: Workload, model: Tabular) -> int:
    """The rows of a call: those that a fit reads, or the batch that is predicted."""
    return model.settings["rows"] if workload.mode == "training" else workload.batch


def check(workload: Workload, model: Tabular, device: Device) -> None:
    """Raises the sentence of a question that has no answer."""
    settings.check(workload, model)
    if not device.traits.is_host:
        raise ForerunError(
            f"{device.id} is a {device.kind.upper()}: no law of tabular models is known there, only on CPUs"
        )
    if workload.mode == "training" and "rows" not in model.settings:
        raise ForerunError(
            f"this estimator does not keep how many rows it was fitted to: name it by its settings, as in "
            f"{kinds.PREFIX}{model.kind},rows=100000,columns={model.settings['columns']}"
        )


def predict_tabular(
    workload: Workload, model: Tabular, device: Device, *, confidence: float = 0.9, region: str | None = None,
    instance: str | None = None, fitted: TabularLaw | None = None,
) -> Prediction:  # fmt: skip
    """Time, memory and energy with intervals, from the law of tabular models."""
    check(workload, model, device)
    used = fitted or law.shipped()
    mode, rows = workload.mode, rows_of(workload, model)
    latency = _estimate(used.time(model, mode, rows, device, confidence), "ms")
    memory = _estimate(used.needed_mb(model, mode, rows, device, confidence), "MB")
    arrays = _estimate(used.call_mb(model, mode, rows, device, confidence), "MB")
    unknown: dict[str, str] = {}
    assumptions: dict[str, str] = {}
    watts = used.power(model, mode, rows, device, confidence)
    energy = power = carbon = cost = per_million = None
    chosen = cost_advice.choose_instance(device, instance)
    grid = carbon_advice.choose_grid(region, chosen if instance else None)
    if watts is None:
        for name in ("energy_j", "power_w", "carbon_g"):
            unknown[name] = f"the power limit (tdp_w) of {device.id} is not known"
    else:
        power = _estimate(watts, "W")
        seconds = latency.value / 1e3
        energy = Estimate(watts.value * seconds, watts.low * latency.low / 1e3, watts.high * latency.high / 1e3, "J")
        carbon = carbon_advice.carbon(energy, grid)
        assumptions["carbon_g"] = carbon_advice.grid_line(grid, "processor")
    fitting = _fit(memory, device)
    if fitting is None:
        unknown["fit"] = f"the memory of {device.id} is not known"
    if chosen is None:
        unknown["cost_usd"] = f"no cloud price is known for {device.id} (--instance)"
    elif fitting is not None and not fitting.fits:
        unknown["cost_usd"] = unknown["cost_per_million_usd"] = f"the call does not fit {device.id}"
    else:
        cost = cost_advice.cost_usd(latency, chosen)
        per_million = cost.scaled(1e6 / rows, "USD")
        assumptions["cost_usd"], assumptions["cost_per_million_usd"] = cost_advice.price_line(chosen), "rows"
    return Prediction(
        model=model.name, device=device.id, bound=None,
        workload=_asked(workload, rows) | {"instance": instance, "region": region},
        basis="learned", confidence=confidence, latency_ms=latency,
        throughput=Estimate(1e3 * rows / latency.value, 1e3 * rows / latency.high, 1e3 * rows / latency.low, "rows/s"),
        memory_mb=memory, memory_allocated_mb=arrays, energy_j=energy, power_w=power, carbon_g=carbon, cost_usd=cost,
        cost_per_million_usd=per_million, fit=fitting, assumptions=assumptions, unknown=unknown,
        memory_parts_mb={"process": law.PROCESS_MB[model.library], "call": arrays.value},
        notes=tuple(_notes(used, model, mode, rows, device)), check=_command(workload, model, device),
        provenance={"law": "tabular", "rows": used.rows, "measured_on": list(used.measured_on)},
    )  # fmt: skip


def _asked(workload: Workload, rows: int) -> dict[str, Any]:
    """The settings of the question: a fit reads all its rows, and its library has its own optimizer."""
    return workload.to_dict() | ({"batch": rows, "optimizer": None} if workload.mode == "training" else {})


def _estimate(found: Answered, unit: str) -> Estimate:
    return Estimate(found.value, found.low, found.high, unit)


def _fit(memory: Estimate, device: Device) -> Fit | None:
    usable = device.usable_mb
    if usable is None:
        return None
    return Fit(
        memory.value <= usable, usable - memory.value, None, sure=memory.high <= usable,
        reason="a table has as many rows as it has",
    )  # fmt: skip


def _notes(used: TabularLaw, model: Tabular, mode: str, rows: int, device: Device) -> list[str]:
    out = []
    threads = law.threads_of(device)
    if not tabular_work.takes_threads(model.kind, mode):
        out.append("scikit-learn runs it with one thread, whatever number it is given")
    elif threads > law.MEASURED_THREADS:
        out.append(
            f"up to {threads} threads work on it; rows were measured with up to {law.MEASURED_THREADS}, so the "
            "interval is wider"
        )
    if not law.is_measured(device, used.measured_on):
        basis = "from its published single-thread rating" if law.rated(device) else "assumed to be a median one"
        out.append(f"nothing was measured on {device.id}: the speed of its threads is {basis}")
    if used.beyond(model, mode, rows) > _BEYOND:
        out.append("the table is larger than any that was measured with this kind, so the interval is wider")
    if mode == "training":
        out.append(
            "the time is that of one fit on a table that is in memory, without cross-validation or early stopping"
        )
    if model.kind == "logistic_regression" and mode == "training":
        out.append("how many iterations it takes depends on the data")
    if model.kind == "svm":
        out.append("how many support vectors it keeps depends on the data")
    return out


def _command(workload: Workload, model: Tabular, device: Device) -> str | None:
    if "rows" not in model.settings:
        return None
    parts = ["forerun", "measure", model.name]
    parts += ["--mode", "training"] if workload.mode == "training" else ["--batch", str(workload.batch)]
    return shlex.join(parts)
