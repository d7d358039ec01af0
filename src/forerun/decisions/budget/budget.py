"""`forerun.budget`: what a job takes, what fits into a budget, and which model to choose.

A model's name asks for a job of that model. `timm` and `torchvision` ask which published model is the most accurate
within a limit, `cnn` which network of our own accuracy curves is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from forerun._util.readable import short
from forerun.advice.job import Limits
from forerun.api.arguments import number, several, whole_number
from forerun.api.questions import given_model
from forerun.decisions.budget.curve_choice import CurveChoice, choose_network
from forerun.decisions.budget.datasets import DataSet, load_dataset
from forerun.decisions.budget.job_budget import (
    MOST_DEVICES,
    Asked,
    JobBudget,
    on_many_devices,
    on_one_device,
)
from forerun.decisions.budget.jobs import Job
from forerun.decisions.budget.model_choice import ModelChoice, choose_model
from forerun.decisions.budget.published_accuracy import COLLECTIONS
from forerun.decisions.budget.refusals import refuse_unused
from forerun.device import Device, load_device
from forerun.device.cloud import load_instance
from forerun.errors import ArgumentError, ForerunError
from forerun.predictors.base import Predictor

#: The family whose accuracy curves are in the store.
CURVES = "cnn"
#: Default samples per step: of training, and of a call with a latency limit.
DEFAULT_BATCH = 32
#: The most published models that are tried.
MOST = 40


def budget(
    model: Any,
    *,
    device: str | Path | Device | Sequence[str | Device] | None = None,
    dataset: str | None = None,
    dataset_size: int | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    batch: int | None = None,
    gpus: int = 1,
    max_hours: float | None = None,
    max_seconds: float | None = None,
    max_usd: float | None = None,
    max_kwh: float | None = None,
    max_carbon_kg: float | None = None,
    max_latency_ms: float | None = None,
    eval_size: int | None = None,
    loading_samples_per_s: float | None = None,
    most: int = MOST,
    mode: str | None = None,
    region: str | None = None,
    instance: str | None = None,
    predictor: str | Path | Predictor = "default",
    confidence: float = 0.9,
    host: str | float = "default",
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> JobBudget | ModelChoice | CurveChoice:
    """What a job of `model` takes and what fits into a budget; all numbers are predictions, none from the store.

    A job is `dataset_size` samples (or a `dataset` known by name) over `epochs`, or `steps` steps, at `batch` samples
    per step and device (32) on `gpus` devices of one machine. Without `epochs` and `steps`: as many epochs as fit; in
    inference one. `device` is one device, several, or None: every device with a price (or that of `instance`).
    `eval_size` samples are evaluated after every epoch; `loading_samples_per_s` caps the pace, without it loading
    keeps up. `settings` are those of a workload.

    With `model` 'timm' or 'torchvision': the most accurate published models whose latency (`max_latency_ms`, at batch
    1) or whose job is within the limits on `device`, trying `most` of them. With 'cnn': the network of our accuracy
    curves that is the most accurate within the limits.
    """
    limits = _limits(max_hours, max_seconds, max_usd, max_kwh, max_carbon_kg)
    counts = {"dataset_size": dataset_size, "epochs": epochs, "steps": steps, "eval_size": eval_size}
    _check_numbers({**counts, "most": most, "batch": batch}, gpus, loading_samples_per_s, max_latency_ms)
    given: dict[str, Any] = {**counts, "gpus": gpus != 1, "loading_samples_per_s": loading_samples_per_s}
    request = Asked(region, instance, {"predictor": predictor, "confidence": confidence, "host": host})
    devices = _devices(device, instance)
    known = _dataset(model, dataset, dataset_size)
    if model == CURVES:
        unused = {
            **given, "most": most != MOST, "batch": batch, "mode": mode not in (None, "training"),
            "max_latency_ms": max_latency_ms is not None,
        }  # fmt: skip
        refuse_unused("the accuracy curves are of training as it was run", unused)
        return choose_network(devices, limits, request, **settings)
    if model in COLLECTIONS:
        if max_latency_ms is not None:
            unused = {**given, "dataset": dataset, "mode": mode not in (None, "inference")}
            refuse_unused("the latency of a call is limited", unused)
        else:
            refuse_unused("a job of published models is training", {"mode": mode not in (None, "training")})
        job = _job(limits, known, dataset_size, epochs, steps, eval_size, loading_samples_per_s, required=False)
        return choose_model(
            model, devices, job, request, max_latency_ms=max_latency_ms, batch=batch, gpus=gpus, most=most,
            progress=progress, settings=settings,
        )  # fmt: skip
    if max_latency_ms is not None:
        raise ArgumentError(
            "{} chooses among published models: {known}", "max_latency_ms", known=" or ".join(COLLECTIONS)
        )
    mode = "training" if mode is None else mode
    if mode not in ("training", "inference"):
        raise ArgumentError("a job is of {} training or inference, not {got}", "mode", got=short(mode))
    if mode == "inference" and steps is None:
        epochs = epochs or 1  # every sample once
    job = _job(limits, known, dataset_size, epochs, steps, eval_size, loading_samples_per_s)
    work = given_model(model, {"batch": DEFAULT_BATCH if batch is None else batch, "mode": mode, **settings})
    if len(devices) == 1:
        return on_one_device(work, devices[0], job, request, gpus, known)
    return on_many_devices(work, devices, job, request, gpus, known)


def _check_numbers(integers: dict[str, Any], gpus: int, loading_samples_per_s: Any, max_latency_ms: Any) -> None:
    """Refuses numbers that no job can have."""
    for name, value in integers.items():
        if value is not None:
            whole_number(name, value)
    if loading_samples_per_s is not None:
        number("loading_samples_per_s", loading_samples_per_s, zero=False)
    if max_latency_ms is not None:
        number("max_latency_ms", max_latency_ms)
    if whole_number("gpus", gpus) > MOST_DEVICES:
        raise ArgumentError(
            "{} must be 1 to {most}: links between machines are not known, got {got}", "gpus", most=MOST_DEVICES,
            got=short(gpus),
        )  # fmt: skip


def _dataset(model: Any, name: str | None, size: int | None) -> DataSet | None:
    """The data set by its name, where one is named."""
    known = load_dataset(name) if name is not None else None
    if known is not None and size is not None:
        raise ArgumentError("give {} {dataset} or {}, not both", "dataset", "dataset_size", dataset=name)
    if known is not None and model == CURVES and known.id != "cifar10":
        raise ForerunError(f"the accuracy curves of {CURVES} are of cifar10, not of {known.id}")
    return known


def _limits(
    hours: float | None, seconds: float | None, usd: float | None, kwh: float | None, carbon_kg: float | None
) -> Limits:
    if hours is not None and seconds is not None:
        raise ArgumentError("give {} or {}, not both", "max_hours", "max_seconds")
    given = {"max_hours": hours, "max_seconds": seconds, "max_usd": usd, "max_kwh": kwh, "max_carbon_kg": carbon_kg}
    for name, value in given.items():
        if value is not None:  # a limit of zero is a limit: the answer names the nearest feasible one
            number(name, value)
    return Limits(seconds / 3600 if seconds is not None else hours, usd, kwh, carbon_kg)


def _job(
    limits: Limits, known: DataSet | None, size: int | None, epochs: int | None, steps: int | None,
    eval_size: int | None, rate: float | None, required: bool = True,
) -> Job:  # fmt: skip
    if epochs is not None and steps is not None:
        raise ArgumentError("give {} or {}, not both", "epochs", "steps")
    samples = known.training if known else size
    if required and samples is None and steps is None:
        raise ArgumentError(
            "say how much is trained: {}, or {} by name, and {}; or {}", "dataset_size", "dataset", "epochs", "steps"
        )
    return Job(samples, epochs, steps, limits, eval_size or 0, rate)


def _devices(device: Any, instance: str | None) -> list[Device]:
    if device is None:
        return [load_device(load_instance(instance).device_id)] if instance else []
    many = isinstance(device, Iterable) and not isinstance(device, (str, Path, dict, Device))
    return list(dict.fromkeys(load_device(d) for d in (several("device", device) if many else [device])))
