"""`forerun.budget("cnn")`: which network of the store's accuracy curves is the most accurate within a budget.

The curves say what accuracy a network has after how many epochs; how long an epoch takes on a device is predicted. An
accuracy is interpolated along its curve and never continued beyond the last epoch that was run.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun._util.rendered import Rendered
from forerun.advice import cost as cost_advice
from forerun.advice import job as law
from forerun.advice.job import Limits, Totals
from forerun.advice.verdict import held_back
from forerun.api.predict import predict_many
from forerun.api.tables import read_row
from forerun.decisions.budget.datasets import DataSet, curve_datasets, load_dataset
from forerun.decisions.budget.job_budget import Asked
from forerun.decisions.budget.jobs import Case
from forerun.decisions.budget.refusals import LIMITS, amount, estimate, not_known, refuse_unused
from forerun.device import Device, all_devices
from forerun.device.cloud import instances_for
from forerun.errors import ForerunError
from forerun.networks import family_of
from forerun.prediction import Estimate, deviations
from forerun.runtimes.registry import USUAL
from forerun.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

#: The data set whose images the curves are of.
OF = "cifar10"


@dataclass(frozen=True)
class NetworkRow:
    """A network on a device: the epochs that fit, and the accuracy of our run after that many."""

    device: str
    model: str
    settings: dict[str, int]  # depth, filters ...
    batch: int
    epoch: Totals  # what one epoch of our runs takes
    epoch_of_all: Totals  # what one epoch takes over all images of the data set
    epochs: Estimate  # trained within the limits, at most as many as were run
    accuracy: Estimate  # 0 to 1; the interval covers that of the epochs and the sampling of test images
    whole: Totals  # what these epochs take
    all_epochs: bool  # the limits leave room for every epoch that was run
    basis: str
    generation_measured: bool  # False: no device of its generation was measured


@dataclass(frozen=True)
class CurveChoice(Rendered):
    """Networks by accuracy, best first; of several devices, the best network of each, measured generations first."""

    data: dict[str, Any]  # the images behind the accuracies
    data_of: dict[str, Any]  # the whole data set that they are of
    limits: dict[str, float]
    confidence: float
    rows: tuple[NetworkRow, ...]
    several_devices: bool
    too_slow: int  # networks that finish no epoch
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def choose_network(devices: Sequence[Device], limits: Limits, request: Asked, **settings: Any) -> CurveChoice:
    """The networks of the curves, ranked by the accuracy that the limits leave room for."""
    given = {name: value not in (None, False, USUAL, "fp32") for name, value in settings.items()}
    refuse_unused("the accuracy curves are of training as it was run", given)
    curves, data = _curves()
    candidates = list(devices) or [d for d in all_devices() if d.traits.rented and instances_for(d)]
    answers = list(_rows(curves, data, candidates, limits, request))
    rows = [r for r in answers if not isinstance(r, str)]
    if not rows:
        raise ForerunError(f"no device can run this: {answers[0]}")
    trained = [r for r in rows if r.epochs.value >= 1]
    if not trained:
        raise _no_epoch(rows, limits)
    several = len(candidates) > 1
    best = sorted(trained, key=_rank)
    if several:
        best = sorted({r.device: r for r in reversed(best)}.values(), key=_rank)
    alone = min(best, key=lambda r: _rank(r)[1:])
    return CurveChoice(
        dataclasses.asdict(data), dataclasses.asdict(load_dataset(OF)), limits.given(), request.options["confidence"],
        tuple(best), several, len(rows) - len(trained),
        (*_held_back(best[0], alone), *_notes(data, curves, best, request.options["confidence"])),
    )  # fmt: skip


def _rank(r: NetworkRow) -> tuple[bool, float, float, float]:
    cost = r.whole.cost_usd
    money = cost.value if cost else float("inf")
    return not r.generation_measured, -r.accuracy.value, money, r.whole.hours.value


def _held_back(first: NetworkRow, alone: NetworkRow) -> Iterator[str]:
    """A note where a device of an unmeasured generation would come first by accuracy, or by cost at equal
    accuracy."""
    if alone.generation_measured == first.generation_measured:
        return
    if f"{alone.accuracy.value:.1%}" != f"{first.accuracy.value:.1%}":
        yield held_back(alone.device, first.device, "accuracy", *(f"{r.accuracy.value:.1%}" for r in (alone, first)))
    elif alone.whole.cost_usd and first.whole.cost_usd:
        costs = (estimate("cost_usd", r.whole.cost_usd) for r in (alone, first) if r.whole.cost_usd)
        yield held_back(alone.device, first.device, "cost", *costs)


def _curves() -> tuple[pd.DataFrame, DataSet]:
    """The curves of the store whose images are known, and these images."""
    from forerun.data.store import Store  # needs an extra, which a budget without curves does without

    known = curve_datasets(OF)
    rows = Store().read("curves")
    rows = rows[rows["dataset"].isin(known) & (rows["status"] == "ok") & rows["model"].str.startswith("cnn:")]
    if rows.empty:
        raise ForerunError("the store has no accuracy curves of cnn: networks")
    name = str(rows["dataset"].iloc[0])
    return rows[rows["dataset"] == name], known[name]


def _rows(
    curves: pd.DataFrame, data: DataSet, devices: Sequence[Device], limits: Limits, request: Asked
) -> Iterator[NetworkRow | str]:
    """A row for each network and device, or the reason for none."""
    runs = [(run, _workload(run)) for _, run in curves.sort_values("epoch").groupby("case_key", sort=True)]
    table = predict_many([work for _, work in runs], devices, region=request.region, **request.options)
    prices = cost_advice.choose_instances(devices, request.instance)
    places = [request.place(device, price) for device, price in zip(devices, prices, strict=True)]
    answers = (read_row(row) for row in table.to_dict("records"))
    images = (data.training, load_dataset(OF).training)
    for run, work in runs:
        for device, place in zip(devices, places, strict=True):
            answer = next(answers)
            if isinstance(answer, str):
                yield answer
                continue
            each, of_all = (
                law.totals(
                    answer.latency_ms, answer.energy_j, law.steps_per_epoch(count, work.batch),
                    usd_per_device_hour=place.hourly_usd, grid=place.grid,
                )
                for count in images
            )  # fmt: skip
            noise = _share_noise(data.evaluation, request.options["confidence"])
            yield _row(run, work, Case.of_row(device, answer), each, of_all, limits, noise, place.learned)


def _workload(run: pd.DataFrame) -> Workload:
    case = json.loads(run["case"].iloc[0])
    return Workload(
        str(run["model"].iloc[0]), batch=int(case["batch"]), dtype=case["dtype"], mode="training",
        optimizer=case["optimizer"],
    )  # fmt: skip


def _row(
    run: pd.DataFrame, work: Workload, case: Case, each: Totals, of_all: Totals, limits: Limits,
    noise: Callable[[float], float], learned: bool,
) -> NetworkRow:  # fmt: skip
    last = int(run["epoch"].max())
    settings = family_of(work.model).parse(work.model)
    value, fewest, most = (min(last, _epochs(each, limits, end)) for end in ("value", "high", "low"))
    epochs = Estimate(value, fewest, most, "epochs")  # slow epochs: fewest
    # Before its first epoch ends, a network guesses.
    at = np.array([0.0, *run["epoch"]])
    reached = np.array([1 / settings["classes"], *run["test_accuracy"]])
    between = at[(at > epochs.low) & (at < epochs.high)]
    span = np.interp([epochs.low, epochs.value, epochs.high, *between], at, reached)
    reach = float(span[1])
    low, high = (math.hypot(reach - float(end), noise(reach)) for end in (span.min(), span.max()))
    accuracy = Estimate(reach, max(0.0, reach - low), min(1.0, reach + high), "")
    return NetworkRow(
        case.device.id, str(work.model), {k: v for k, v in settings.items() if k in ("depth", "filters")}, work.batch,
        each, of_all, epochs, accuracy, each.times(epochs.value), epochs.low >= last, case.basis, learned,
    )  # fmt: skip


def _epochs(each: Totals, limits: Limits, end: str) -> float:
    """Epochs, and parts of one, within the limits."""
    counts = [math.inf]
    for name, limit in limits.given().items():
        e: Estimate | None = getattr(each, name)
        counts.append(0.0 if e is None else limit / getattr(e, end))
    return min(counts)


def _no_epoch(rows: Sequence[NetworkRow], limits: Limits) -> ForerunError:
    """The error where no network finishes an epoch within the limits."""
    given = limits.given()
    for name, limit in given.items():
        known = [(e, r) for r in rows if (e := getattr(r.epoch, name)) is not None]
        if not known:
            return not_known(name, ", ".join(dict.fromkeys(r.device for r in rows)))
        e, nearest = min(known, key=lambda pair: (not pair[1].generation_measured, pair[0].value))
        if min(e.value for e, _ in known) > limit:
            peaks = "" if nearest.generation_measured else " (from its peaks alone)"
            return ForerunError(
                f"no network finishes an epoch within {amount(name, limit)}: {LIMITS[name][0]} is the limiting "
                f"constraint; the nearest is {nearest.model} on {nearest.device}{peaks} with {estimate(name, e)}"
            )
    wanted = " and ".join(amount(name, limit) for name, limit in given.items())
    return ForerunError(f"no network finishes an epoch within {wanted} together: raise one of them")


def _share_noise(images: int, confidence: float) -> Callable[[float], float]:
    """The binomial sampling error of an accuracy on a test set of this size."""
    ends = deviations(confidence)
    return lambda accuracy: ends * math.sqrt(accuracy * (1 - accuracy) / images)


def _notes(data: DataSet, curves: pd.DataFrame, rows: Sequence[NetworkRow], confidence: float) -> Iterator[str]:
    last, batches = int(curves["epoch"].max()), sorted(curves["batch"].unique())
    yield (
        f"accuracies are of our own runs on {data.name} ({data.source}): they rank networks and are not those of "
        "all of CIFAR-10; an epoch is over these images"
    )
    noise = math.sqrt(2) * _share_noise(data.evaluation, confidence)(0.5)  # of the difference of two shares
    yield (
        f"one run of each network, {last} epochs, batch {', '.join(map(str, batches))}: differences below about "
        f"{100 * noise:.0f} % are within the noise of {data.evaluation:,} test images"
    )
    if any(r.all_epochs for r in rows):
        yield f"where all {last} epochs fit, the budget allows more than was run; accuracy beyond that is unknown"
    yield "not included: loading images, evaluation, start-up"
