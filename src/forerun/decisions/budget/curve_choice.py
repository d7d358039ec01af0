"""`forerun.budget("cnn")`: which network of the store's accuracy curves is the most accurate within a budget.

The curves say what accuracy a network has after how many epochs; how long an epoch takes on a device is predicted. An
accuracy is interpolated along its curve and never continued beyond the last epoch that was run.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.advice import cost as cost_advice
from forerun.advice import job as law
from forerun.advice.job import Limits, Totals
from forerun.api import predict_many
from forerun.blocks import Block
from forerun.data.store import Store
from forerun.decisions.budget.datasets import DataSet, curve_datasets
from forerun.decisions.budget.job_budget import Asked
from forerun.decisions.budget.jobs import Case
from forerun.decisions.budget.refusals import LIMITS, amount, estimate
from forerun.device import Device, all_devices
from forerun.device.cloud import instances_for
from forerun.errors import ForerunError
from forerun.graph.families import family_of
from forerun.prediction import Estimate
from forerun.workload import Workload

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class NetworkRow:
    """A network on a device: the epochs that fit, and the accuracy that our run had after so many."""

    device: str
    model: str
    settings: dict[str, int]  # depth, filters ...
    batch: int
    epoch: Totals  # what one epoch takes
    epochs: Estimate  # trained within the limits, at most as many as were run
    accuracy: Estimate  # of the test images, 0 to 1; the interval is that of the epochs
    whole: Totals  # what these epochs take
    all_epochs: bool  # the limits leave room for every epoch that was run
    basis: str


@dataclass(frozen=True)
class CurveChoice:
    """Networks by accuracy, best first; of several devices, the best network of each."""

    data: dict[str, Any]  # the images behind the accuracies
    limits: dict[str, float]
    confidence: float
    rows: tuple[NetworkRow, ...]
    several_devices: bool
    too_slow: int  # networks without a finished epoch
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def blocks(self, width: int | None = None) -> Iterator[Block]:
        """What is shown of it, in a terminal of some width or on a page."""
        from forerun.views.choices import curve_view

        yield from curve_view(self, width)

    def __rich_console__(self, console: Any, options: Any) -> Any:
        yield from self.blocks(options.max_width)

    def _repr_html_(self) -> str:
        from forerun.pages import budget_html, notebook

        return notebook(budget_html(self))


def choose_network(devices: Sequence[Device], limits: Limits, asked: Asked, **settings: Any) -> CurveChoice:
    """The networks of the curves, ranked by the accuracy that the limits leave room for."""
    given = [name for name, value in settings.items() if value not in (None, False, "eager", "fp32")]
    if given:
        raise ForerunError(f"the accuracy curves are of training as it was run: leave out {', '.join(given)}")
    curves, data = _curves()
    candidates = list(devices) or [d for d in all_devices() if instances_for(d)]
    found = list(_rows(curves, data, candidates, limits, asked))
    trained = [r for r in found if r.epochs.value >= 1]
    if not trained:
        raise _no_epoch(found, limits)
    best = sorted(trained, key=_rank)
    if len(candidates) > 1:
        best = list({r.device: r for r in reversed(best)}.values())[::-1]
    return CurveChoice(
        dataclasses.asdict(data), limits.given(), asked.options["confidence"], tuple(sorted(best, key=_rank)),
        len(candidates) > 1, len(found) - len(trained), tuple(_notes(data, curves, best)),
    )  # fmt: skip


def _rank(r: NetworkRow) -> tuple[float, float, float]:
    cost = r.whole.cost_usd
    return -r.accuracy.value, cost.value if cost else float("inf"), r.whole.hours.value


def _curves() -> tuple[pd.DataFrame, DataSet]:
    """The curves of the store whose images are known, and these images."""
    known = curve_datasets("cifar10")
    rows = Store().read("curves")
    rows = rows[rows["dataset"].isin(known) & (rows["status"] == "ok") & rows["model"].str.startswith("cnn:")]
    if rows.empty:
        raise ForerunError("the store has no accuracy curves of cnn: networks")
    name = str(rows["dataset"].iloc[0])
    return rows[rows["dataset"] == name], known[name]


def _rows(
    curves: pd.DataFrame, data: DataSet, devices: Sequence[Device], limits: Limits, asked: Asked
) -> Iterator[NetworkRow]:
    runs = [(run, _workload(run)) for _, run in curves.sort_values("epoch").groupby("case_key", sort=True)]
    table = predict_many([work for _, work in runs], devices, region=asked.region, **asked.options)
    prices = cost_advice.choose_instances(devices, asked.instance)
    places = [asked.place(device, price) for device, price in zip(devices, prices, strict=True)]
    answers = iter(table.itertuples())
    for run, work in runs:
        for device, place in zip(devices, places, strict=True):
            found = next(answers)
            if isinstance(found.error, str):
                continue
            case = Case.of_row(device, found)
            each = law.totals(
                case.latency_ms, case.energy_j, law.steps_per_epoch(data.training, work.batch),
                usd_per_device_hour=place.hourly_usd, grid=place.grid,
            )  # fmt: skip
            yield _row(run, work, case, each, limits)


def _workload(run: pd.DataFrame) -> Workload:
    case = json.loads(run["case"].iloc[0])
    return Workload(
        str(run["model"].iloc[0]), batch=int(case["batch"]), dtype=case["dtype"], mode="training",
        optimizer=case["optimizer"],
    )  # fmt: skip


def _row(run: pd.DataFrame, work: Workload, case: Case, each: Totals, limits: Limits) -> NetworkRow:
    last = int(run["epoch"].max())
    settings = family_of(work.model).parse(work.model)
    value, low, high = (_epochs(each, limits, end) for end in ("value", "high", "low"))  # slow epochs are few
    epochs = Estimate(min(last, value), min(last, low), min(last, high), "epochs")
    # Before its first epoch ends, a network guesses.
    at = np.array([0.0, *run["epoch"]])
    reached = np.array([1 / settings["classes"], *run["test_accuracy"]])
    between = at[(at > epochs.low) & (at < epochs.high)]
    span = np.interp([epochs.low, epochs.value, epochs.high, *between], at, reached)
    accuracy = Estimate(float(span[1]), float(span.min()), float(span.max()), "")
    return NetworkRow(
        case.device.id, str(work.model), {k: v for k, v in settings.items() if k in ("depth", "filters")}, work.batch,
        each, epochs, accuracy, each.times(epochs.value), low >= last, case.basis,
    )  # fmt: skip


def _epochs(each: Totals, limits: Limits, end: str) -> float:
    """Epochs, and parts of one, within the limits."""
    counts = [math.inf]
    for name, limit in limits.given().items():
        e: Estimate | None = getattr(each, name)
        counts.append(0.0 if e is None else limit / getattr(e, end))
    return min(counts)


def _no_epoch(rows: Sequence[NetworkRow], limits: Limits) -> ForerunError:
    """The error of limits within which no network ends an epoch."""
    given = limits.given()
    for name, limit in given.items():
        known = [(e, r) for r in rows if (e := getattr(r.epoch, name)) is not None]
        e, nearest = min(known, key=lambda pair: pair[0].value)
        if e.value > limit:
            return ForerunError(
                f"no network ends an epoch within {amount(name, limit)}: {LIMITS[name][0]} binds, and the nearest is "
                f"{nearest.model} on {nearest.device} with {estimate(name, e)}"
            )
    wanted = " and ".join(amount(name, limit) for name, limit in given.items())
    return ForerunError(f"no network ends an epoch within {wanted} together: raise one of them")


def _notes(data: DataSet, curves: pd.DataFrame, rows: Sequence[NetworkRow]) -> Iterator[str]:
    last, batches = int(curves["epoch"].max()), sorted(curves["batch"].unique())
    yield (
        f"accuracies are of our own runs on {data.name} ({data.source}): they rank networks, they are not what all of "
        "CIFAR-10 gives; an epoch is over these images"
    )
    noise = 1.645 * math.sqrt(0.25 * 2 / data.evaluation)  # of the difference of two shares, 90 %
    yield (
        f"one run of each network, {last} epochs, batch {', '.join(map(str, batches))}: differences below about "
        f"{100 * noise:.0f} % are within the noise of {data.evaluation:,} test images"
    )
    if any(r.all_epochs for r in rows):
        yield f"where all {last} epochs fit, the budget allows more than was run; accuracies beyond that are not known"
    yield "not counted: loading the images, evaluation, start-up"
