"""The cloud level: what the training job and a million inferences cost on instances of AWS, GCP and Azure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from forerun.advice.cost import cost_usd
from forerun.advice.data_parallel import gradient_mb, scaled
from forerun.advice.job import steps_per_epoch, totals
from forerun.device import Device, load_device
from forerun.device.cloud import Instance, all_instances, retired_instances
from forerun.errors import ForerunError
from forerun.prediction import Estimate
from forerun.report import charts
from forerun.report.parts import Chart, Group, Level, Table, plain, value_text
from forerun.report.study import Precision, Study

CLOUDS = ("aws", "gcp", "azure")
ABOUT = (
    "GPUs only: other accelerators have software of their own, which was not measured. On-demand prices, one "
    "region each, as of the date shown. Training uses every GPU of an instance, "
    "data parallel, batch {batch} each; a million inferences are calls of batch {batch} that keep every GPU busy. Each "
    "device runs in the fastest precision that it has and that fits."
)
BARS, ROWS = 15, 30


@dataclass(frozen=True)
class Offer:
    """An instance with the cost of the work on it."""

    instance: Instance
    precision: Precision
    usd: Estimate
    hours: Estimate | None = None  # of the training job
    basis: str = "learned"

    def row(self) -> dict[str, Any]:
        i = self.instance
        return {
            "instance": i.id, "cloud": i.cloud, "device": i.device_id, "devices": i.device_count, "region": i.region,
            "usd_per_hour": i.usd_per_hour, "date": i.date, "dtype": self.precision.dtype, "amp": self.precision.amp,
            "cost_usd": plain(self.usd), "hours": plain(self.hours), "basis": self.basis,
        }  # fmt: skip


def cloud(study: Study) -> Level:
    instances = _offered()
    devices = [load_device(name) for name in dict.fromkeys(i.device_id for i in instances)]
    training = _training(study, instances, devices)
    inference = _inference(study, instances, devices)
    own_ids = {d.id for d in study.devices}
    gone = [i for d in study.devices for i in retired_instances(d) if i.cloud in CLOUDS]
    once = (_training(study, gone, study.devices), _inference(study, gone, study.devices))
    findings, pictures, tables = [], [], []
    for offers, what, title in (
        (training, "training", f"Cost of training: {study.job.dataset_size:,} samples, {study.job.epochs} epochs"),
        (inference, "a million inferences", "Cost of a million inferences"),
    ):
        if not offers:
            findings.append(f"The cost of {what} is not predicted.")
            continue
        findings.append(_finding(offers, what, own_ids))
        pictures.append(_bars(offers[:BARS], title, own_ids))
        tables.append(_table(offers, title, own_ids))
    missing = sorted(own_ids - {i.device_id for i in instances})
    if missing:
        findings.append(f"No instance of AWS, GCP or Azure in the catalogue has {' or '.join(missing)}.")
    caption = "Cheapest first, with intervals. Orange: devices of this report."
    groups = [Group("Cheapest instances", pictures, caption, wide=True)] if pictures else []
    if gone:
        tables += _once(*once)
    data = {"training": [o.row() for o in training], "inference": [o.row() for o in inference],
            "no_longer_offered": [{**o.row(), "retired": o.instance.retired} for o in (*once[0], *once[1])],
            }  # fmt: skip
    return Level("cloud", "Cloud", ABOUT.format(batch=study.batch), findings, groups, tables, data)


def _offered() -> list[Instance]:
    """The cheapest instance for each cloud, device and count of devices."""
    cheapest: dict[tuple[str, str, int], Instance] = {}
    for instance in sorted(all_instances(), key=lambda i: i.usd_per_hour):
        kind = load_device(instance.device_id).traits
        if instance.cloud in CLOUDS and (kind.is_board or kind.is_host):
            cheapest.setdefault((instance.cloud, instance.device_id, instance.device_count), instance)
    return list(cheapest.values())


def _once(training: list[Offer], inference: list[Offer]) -> list[Table]:
    """The instances of the report's devices that are no longer offered, at what they cost."""
    calls = {o.instance.id: o for o in inference}
    jobs = {o.instance.id: o for o in training}
    lines = []
    for name in dict.fromkeys((*jobs, *calls)):
        job, call = jobs.get(name), calls.get(name)
        i = (job or calls[name]).instance
        lines.append(
            (
                i.cloud, i.id, f"{i.device_count} x {i.device_id}", f"{i.usd_per_hour:,.2f}",
                value_text(job.hours) if job else "", value_text(job.usd) if job else "",
                value_text(call.usd) if call else "", i.date, (i.retired or "")[:10],
            )
        )  # fmt: skip
    head = ("cloud", "instance", "devices", "USD/h", "training time", "training cost", "a million inferences",
            "price of", "not offered since")  # fmt: skip
    return [Table("No longer offered, at their last price", head, lines, (3, 4, 5, 6), shown=8)] if lines else []


def _training(study: Study, instances: list[Instance], devices: Sequence[Device]) -> list[Offer]:
    best = study.fastest(study.training_precisions, "training", devices)
    by_id = {d.id: d for d in devices}
    out = []
    parameters = study.graph(mode="training").parameters if best else 0
    for i in instances:
        if i.device_id not in best:
            continue
        precision, answer = best[i.device_id]
        weights = study.workload(precision=precision, mode="training").weight_dtype
        try:
            gradients = gradient_mb(parameters, weights)
            step = scaled(answer.latency_ms, gradients, by_id[i.device_id], i.device_count, i).step_ms
        except ForerunError:  # the interconnect is unknown
            continue
        steps = steps_per_epoch(study.job.dataset_size, study.batch, i.device_count) * study.job.epochs
        job = totals(step, None, steps, usd_per_device_hour=i.usd_per_device_hour, devices=i.device_count)
        if job.cost_usd is not None:
            out.append(Offer(i, precision, job.cost_usd, job.hours, answer.basis))
    return sorted(out, key=lambda o: o.usd.value)


def _inference(study: Study, instances: list[Instance], devices: Sequence[Device]) -> list[Offer]:
    best = study.fastest(study.inference_precisions, study.mode, devices)
    out = []
    for i in instances:
        if i.device_id in best:
            precision, answer = best[i.device_id]
            calls = 1e6 / study.batch
            usd = cost_usd(answer.latency_ms, i).scaled(calls, "USD")
            out.append(Offer(i, precision, usd, None, answer.basis))
    return sorted(out, key=lambda o: o.usd.value)


def _finding(offers: list[Offer], what: str, own_ids: set[str]) -> str:
    first = offers[0]
    text = f"Cheapest for {what}: {_name(first)}, {value_text(first.usd)}"
    text += f" in {value_text(first.hours, interval=False)}" if first.hours else ""
    chosen = next((o for o in offers if o.instance.device_id in own_ids), None)
    if chosen is not None and chosen is not first:
        text += f"; of the report's devices, {_name(chosen)} at {value_text(chosen.usd)}"
        text += f" in {value_text(chosen.hours, interval=False)}" if chosen.hours else ""
    quick = min((o for o in offers if o.hours), key=lambda o: o.hours.value, default=None)  # type: ignore[union-attr]
    if quick is not None and quick is not first:
        took, paid = (value_text(e, interval=False) for e in (quick.hours, quick.usd))
        text += f"; fastest is {_name(quick)}: {took}, {paid}"
    return text + "."


def _name(offer: Offer) -> str:
    i = offer.instance
    return f"{i.cloud} {i.id} ({i.device_count} x {i.device_id}, {offer.precision.label})"


def _bars(offers: list[Offer], title: str, own_ids: set[str]) -> Chart:
    chart = charts.figure("US dollars", "", height=60 + 26 * len(offers))
    chart.add_bar(
        x=[o.usd.value for o in offers],
        y=[f"{o.instance.id} · {o.instance.device_count} x {o.instance.device_id}" for o in offers],
        orientation="h", showlegend=False,
        marker={"color": [charts.COLOURS[1 if o.instance.device_id in own_ids else 0] for o in offers]},
        error_x={"type": "data", "symmetric": False, "array": [o.usd.high - o.usd.value for o in offers],
                 "arrayminus": [o.usd.value - o.usd.low for o in offers], "thickness": 1.2, "width": 3,
                 "color": "#8b8f98"},
        hovertemplate="%{y}: %{x:.3g} USD<extra></extra>",
    )  # fmt: skip
    chart.update_yaxes(autorange="reversed", ticksuffix=" ")
    chart.update_xaxes(rangemode="tozero")
    return Chart(title, chart)


def _table(offers: list[Offer], title: str, own_ids: set[str]) -> Table:
    lines = [
        (
            o.instance.cloud, o.instance.id, f"{o.instance.device_count} x {o.instance.device_id}", o.precision.label,
            f"{o.instance.usd_per_hour:,.2f}", *([value_text(o.hours)] if o.hours else []), value_text(o.usd),
            o.instance.date,
        )
        for o in offers[:ROWS]
    ]  # fmt: skip
    timed = offers[0].hours is not None
    head = ("cloud", "instance", "devices", "precision", "USD/h", *(["time"] if timed else []), "cost", "price of")
    marked = [at for at, o in enumerate(offers) if o.instance.device_id in own_ids]
    return Table(title, head, lines, (4, 5, 6) if timed else (4, 5), marked, shown=8)
