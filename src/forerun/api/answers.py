"""One prediction from its parts: times and intervals of a predictor, simulated memory, what was measured, advice."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.advice import carbon as carbon_advice
from forerun.advice import cost as cost_advice
from forerun.advice import host as host_advice
from forerun.advice.fit import as_measured
from forerun.advice.mig import slice_options, slices, smallest_that_fits
from forerun.api.arguments import whole_number
from forerun.api.generation import GenerationAnswers, GenerationQuestion, problem_of, question_of
from forerun.api.questions import Question
from forerun.device import Device
from forerun.device.cloud import Instance
from forerun.errors import ArgumentError, ForerunError
from forerun.graph.ir import Graph
from forerun.graph.profile import UNITS, Profile
from forerun.prediction import AssumedHost, Estimate, Fit, Prediction, WholeTraining, deviations
from forerun.predictors.base import Predictor
from forerun.predictors.baselines.roofline import HOST_SPREAD
from forerun.predictors.laws import memory as memory_model
from forerun.predictors.laws.bounds import Answers, hold_energy, hold_memory
from forerun.predictors.laws.conformal import at_confidence
from forerun.predictors.laws.energy import POWER_SPREAD, back_to_back_ms, power_edges
from forerun.predictors.laws.parallel import ParallelAnswers, communication, in_parallel
from forerun.predictors.laws.specs import substituted
from forerun.predictors.laws.spreads import wider
from forerun.runtimes.registry import USUAL, filed_under, runtime
from forerun.workload import Workload, is_onnx_file

if TYPE_CHECKING:
    from forerun.data.batch_limits import BatchLimit
    from forerun.data.measured import Measured
    from forerun.device.carbon import Grid


def answer(
    workload: Workload, device: Device, predictor: Predictor, host: AssumedHost, *, region: str | None = None,
    instance: str | None = None, measured: bool = True, epochs: int | None = None, dataset_size: int | None = None,
) -> Prediction:  # fmt: skip
    """The prediction of a case on the host that the predictor was set to; `measured` allows what the store knows of the
    very case to take its place. `epochs` over `dataset_size` samples add what the whole training takes."""
    check_epochs(workload, epochs, dataset_size)
    if (reason := problem_of(workload, device, predictor)) is not None:
        raise ForerunError(reason)
    chosen = cost_advice.choose_instance(device, instance)
    grid = carbon_advice.choose_grid(region, chosen if instance else None)
    question = question_of(workload)
    graph, columns, shards = question.graph, question.columns, question.shards
    answers = _asked(question, device, predictor, chosen if instance else None)
    measured = measured and shards is None
    times = answers.times
    if not times.latency_ms.all():
        raise ForerunError(f"{graph.name} runs no operation on {device.id}: there is no time to predict")
    known = _measured(question, device) if measured else None
    values = _Values(question, workload, device, predictor, answers.of_device(0), known)
    latency, energy, memory = values.latency, values.energy, values.memory
    limit = _limit(question, device) if measured else None
    fitting = as_measured(question.fit(device, memory), workload.batch, limit, ran=known is not None)
    unknown, assumptions = dict(values.unknown), {}
    carbon = cost = per_million = None
    if energy is None:
        unknown["carbon_g"] = unknown["energy_j"]
    else:
        carbon = carbon_advice.carbon(energy, grid)
        assumptions["carbon_g"] = carbon_advice.grid_line(grid)
    items, unit = question.items(workload)
    if chosen is None:
        unknown["cost_usd"] = f"no cloud price is known for {device.id} (--instance)"
    elif fitting is not None and not fitting.fits:
        unknown["cost_usd"] = unknown["cost_per_million_usd"] = f"the call does not fit {device.id}"
    else:
        cost = cost_advice.cost_usd(latency, chosen).scaled(workload.devices, "USD")
        per_million = cost.scaled(1e6 / items, "USD")
        assumptions["cost_usd"] = cost_advice.price_line(chosen)
        assumptions["cost_per_million_usd"] = unit
    if device.memory_mb is None:
        unknown["fit"] = f"the memory of {device.id} is not known"
    assumed = None
    if has_host(device, predictor):
        assumptions["host_ms"] = host_advice.line(host)
        assumed = host if known is None else AssumedHost("measured", known.host)
        if values.bound == "host":
            assumed = host_advice.on_known_hosts(
                assumed, lambda slowness: question.latency_on_hosts_ms(times, device, predictor, slowness)
            )
    hourly = None if chosen is None or cost is None else chosen.usd_per_device_hour * workload.devices
    training = _whole_training(latency, energy, workload.batch, epochs, dataset_size, grid, hourly)
    options = slice_options(device, times.latency_ms[0, 1:].tolist(), memory) if shards is None else ()
    flops, macs, moved = question.work
    weighed = graph if shards is None else shards.whole
    first, each = values.tokens(answers.of_device(0))
    return Prediction(
        model=graph.name, device=device.id, workload=workload.to_dict() | {"instance": instance, "region": region},
        basis="measured" if known else predictor.basis_for(device), confidence=predictor.confidence,
        latency_ms=latency, device_ms=values.device_ms, host_ms=values.host_ms,
        throughput=Estimate(
            1e3 * items / latency.value, 1e3 * items / latency.high, 1e3 * items / latency.low, f"{unit}/s"
        ),
        memory_mb=values.memory_mb, memory_allocated_mb=values.memory_allocated_mb, energy_j=energy,
        power_w=values.power, carbon_g=carbon, cost_usd=cost, cost_per_million_usd=per_million,
        mig=smallest_that_fits(options), mig_options=options, fit=fitting,
        bound=values.bound, parameters=weighed.parameters, active_parameters=weighed.active_parameters,
        flops=flops, macs=macs, bytes=moved, memory_parts_mb=memory.parts_mb,
        assumptions=assumptions, unknown=unknown,
        notes=(*_notes(graph, columns, device, predictor, question.workload, known, assumed, fitting, limit),
               *(() if known else answers.of_device(0).notes()), *(_unread(device) if measured else ())),
        host=assumed,
        provenance=_provenance(predictor, known, columns, device, question),
        check=(
            _check_command(workload)
            if device.traits.measured and shards is None and (fitting is None or fitting.fits) else None
        ),
        training=training, first_token_ms=first, token_ms=each, devices=workload.devices,
        exchange_ms=_exchange(answers),
    )  # fmt: skip


def _whole_training(
    step: Estimate, energy: Estimate | None, batch: int, epochs: int | None, dataset_size: int | None, grid: Grid,
    hourly: float | None,
) -> WholeTraining | None:  # fmt: skip
    if epochs is None or dataset_size is None:
        return None
    from forerun.advice.job import whole_training

    return whole_training(
        step, energy, batch, epochs=epochs, dataset_size=dataset_size, grid=grid, usd_per_device_hour=hourly
    )


def _asked(question: Question, device: Device, predictor: Predictor, instance: Instance | None) -> Answers:
    """The predictions for the device and its slices, or for several devices together."""
    shards = question.shards
    devices = [device, *(cut for _, cut in slices(device) if shards is None)]
    answers: Answers = question.ask(predictor, devices)
    if shards is None:
        return answers
    return in_parallel(answers, shards.layout, [communication(shards.row, device, shards.layout, instance=instance)])


def _exchange(answers: Answers) -> Estimate | None:
    if not isinstance(answers, ParallelAnswers):
        return None
    one = answers.exchange[0]
    return Estimate(one.ms, one.low_ms, one.high_ms, "ms")


def check_epochs(workload: Workload, epochs: int | None, dataset_size: int | None) -> None:
    """Refuses epochs of something that is no training, and epochs over nobody knows how many samples."""
    if epochs is None and dataset_size is None:
        return
    if epochs is None or dataset_size is None:
        raise ArgumentError("{} and {} go together: give both", "epochs", "dataset_size")
    if workload.mode != "training":
        raise ArgumentError("{} is of a training: {} must be training", "epochs", "mode")
    for name, value in (("epochs", epochs), ("dataset_size", dataset_size)):
        whole_number(name, value)


def has_host(device: Device, predictor: Predictor) -> bool:
    """Whether the answer depends on the speed of a host: a CPU is its own."""
    return not device.traits.is_host and "host" in predictor.supports


class _Values:
    """The estimates of one case: measured where the store has exactly this case, else predicted."""

    def __init__(
        self, question: Question, workload: Workload, device: Device, predictor: Predictor,
        answers: Answers | GenerationAnswers, known: Measured | None,
    ) -> None:  # fmt: skip
        self.predictor, self.device, self.known, self.times = predictor, device, known, answers.times
        self.unknown: dict[str, str] = {}
        self.devices = workload.devices

        def predicted(target: str, unit: str) -> Estimate | None:
            value = float(getattr(self.times, target)[0, 0])
            if np.isnan(value):
                return None
            low, high = answers.spread(target)[0, 0]
            return Estimate(value, value * float(low), value * float(high), unit)

        latency = self._measured_or("latency_ms", "ms", predicted("latency_ms", "ms"))
        if latency is None:
            raise ForerunError(f"the predictor {predictor.name} does not predict latency")
        self.latency = latency
        self.device_ms = self._or_unknown("device_ms", predicted("device_ms", "ms"), "ms")
        self.host_ms = self._host()
        self.energy = self._energy(predicted("energy_j", "J"), workload.runtime)
        self.power = self._power(workload.runtime)
        self.memory = self._memory(question)
        self.memory_mb = self._measured_or("memory_mb", "MB", self._needed(question))
        self.memory_allocated_mb = self._measured_or("memory_allocated_mb", "MB", self._tensors(question.graph))
        self.bound = self._bound()

    def _bound(self) -> str | None:
        """device or host: which one sets the latency; None where the predictor does not part them."""
        if self.device.traits.is_host:
            return "device"
        if self.known is not None:
            return "host" if self.known.host_bound else "device"
        if self.host_ms is None or self.device_ms is None:
            return None
        return "host" if self.host_ms.value > self.device_ms.value else "device"

    def _measured_or(self, name: str, unit: str, predicted: Estimate | None) -> Estimate | None:
        measured = self.known.estimate(name, unit, self.predictor.confidence) if self.known else None
        return measured or predicted

    def _or_unknown(self, name: str, predicted: Estimate | None, unit: str) -> Estimate | None:
        measured = self._measured_or(name, unit, predicted)
        if measured is None:
            self.unknown[name] = f"the predictor {self.predictor.name} does not predict it"
        return measured

    def _host(self) -> Estimate | None:
        value = float(self.times.host_ms[0, 0])
        if np.isnan(value):
            self.unknown["host_ms"] = f"the predictor {self.predictor.name} does not predict it"
            return None
        low, high = at_confidence(HOST_SPREAD, self.predictor.confidence)
        if self.predictor.host_deviation:
            more = self.predictor.host_deviation * deviations(self.predictor.confidence)
            low, high = wider(np.array((low, high)), np.array(more)).tolist()
        return spread(value, (low, high), "ms")

    def _energy(self, predicted: Estimate | None, runtime: str) -> Estimate | None:
        if predicted is None and self.device.tdp_w is None:
            self.unknown["energy_j"] = f"the power limit (tdp_w) of {self.device.id} is not known"
            return None
        if predicted is not None and self.known is not None:  # its times are measured, and may be shorter
            predicted = hold_energy(predicted, self.latency, self.device_ms, self.device, runtime)
        return self._or_unknown("energy_j", predicted, "J")

    def _power(self, runtime: str) -> Estimate | None:
        if self.energy is None or self.device_ms is None:
            return None
        in_loop_ms = float(back_to_back_ms(self.latency.value, self.device_ms.value, [self.device], runtime)[0])
        watts = self.energy.value / in_loop_ms * 1e3
        count = self.devices
        low, high = power_edges(watts / count, self.device, at_confidence(POWER_SPREAD, self.predictor.confidence))
        return self._measured_or("power_w", "W", Estimate(watts, low * count, high * count, "W"))

    def tokens(self, answers: Answers | GenerationAnswers) -> tuple[Estimate | None, Estimate | None]:
        """Of a generation, the time to its first token and of each further one."""
        if not isinstance(answers, GenerationAnswers):
            return None, None
        low, high = answers.first_token_spread()[0, 0].tolist()
        first = spread(float(answers.first_token_ms[0, 0]), (low, high), "ms")
        more, whole = answers.question.loop.tokens - 1, self.latency
        if not more:
            return first, None
        each = (whole.value - first.value) / more
        shortest, longest = (answers.token_spread()[0, 0] * each).tolist()
        return first, Estimate(each, shortest, longest, "ms")

    def _memory(self, question: Question) -> memory_model.MemoryEstimate:
        """Simulated memory, or the predictor's own, with the interval of what is allocated."""
        memory = memory_model.with_predicted(question.memories([self.device])[0], self.times, self.device)
        return memory_model.with_interval(memory, self.predictor, question.workload.mode)

    def _needed(self, question: Question) -> Estimate:
        ends = memory_model.needed_interval(self.memory, self.device, self.predictor, question.workload.mode)
        return Estimate(self.memory.needed_mb, *hold_memory(ends, self.memory.needed_mb, question.graph), "MB")

    def _tensors(self, graph: Graph) -> Estimate:
        allocated = spread(self.memory.allocated_mb, self.memory.spread, "MB")
        return Estimate(allocated.value, *hold_memory((allocated.low, allocated.high), allocated.value, graph), "MB")


def spread(value: float, factors: tuple[float, float], unit: str) -> Estimate:
    """A value with an interval given as factors."""
    return Estimate(value, value * factors[0], value * factors[1], unit)


def _measured(question: Question, device: Device) -> Measured | None:
    """What the store knows of exactly this case; whole generations are not filed by their graph."""
    from forerun.data.places import readable

    if isinstance(question, GenerationQuestion) or not readable(device.id):
        return None
    from forerun.data.measured import find

    return find(filed_under(question.graph, question.workload), question.workload, device.id)


def _unread(device: Device) -> Iterator[str]:
    """A note where what was measured on the device cannot be read."""
    from forerun.data.places import unread

    if sentence := unread(device.id):
        yield sentence


def _limit(question: Question, device: Device) -> BatchLimit | None:
    """What was measured of the case's limit of memory on the device: a batch that ran, one that ran out of memory."""
    from forerun.data.places import readable

    if isinstance(question, GenerationQuestion) or not readable(device.id):
        return None
    from forerun.data import batch_limits

    return batch_limits.find(question.graph, question.scalable, question.workload, device.id)


def _provenance(
    predictor: Predictor, known: Measured | None, columns: Profile, device: Device, question: Question
) -> dict[str, Any]:
    captured = {"captured_with": software} if (software := question.graph.facts.get("software")) else {}
    if known is not None:
        measured = {"rows": known.rows, "measured_at": known.measured_at}
        return {**measured, "software": known.software, "host": known.host, **captured}
    share = predictor.learned_share(columns, device, question.workload)
    return {**predictor.provenance, **({} if share is None else {"learned_share": round(share, 4)}), **captured}


def _notes(
    graph: Graph, columns: Profile, device: Device, predictor: Predictor, workload: Workload, known: Measured | None,
    host: AssumedHost | None, fitting: Fit | None, limit: BatchLimit | None,
) -> Iterable[str]:  # fmt: skip
    if known is not None:
        yield known.line
    if limit is not None:
        yield limit.line
    yield from graph.notes
    if host is not None:
        yield from host_advice.notes(host)
    if fitting is not None and not fitting.fits:
        yield (
            f"it does not fit {device.id}: time, throughput, energy and carbon are those of the same chip with enough "
            "memory, and costs are left out"
        )
    used = {UNITS[u] for u in columns.units_used}
    for unit in sorted(used - {"vector"}):
        other = substituted(device, unit)
        if other and device.supports(unit) is None:
            yield f"the {unit} peak of {device.id} is not known: {other} are assumed to do that work"
    if device.tdp_w is not None and "static_w" not in device.calibrated:
        yield f"energy: {device.id} has no measured idle power, a typical share of its power limit is assumed"
    if known is None:
        for found in predictor.out_of_distribution(columns, device, workload):
            yield f"out of domain, so the interval is wider: {found.reason}"


def _check_command(workload: Workload) -> str | None:
    """The command that measures the same case on real hardware, where `forerun measure` can run it."""
    from forerun.measure.cases import case_of

    parts = ["forerun", "measure", str(workload.model), "--batch", str(workload.batch)]
    if is_onnx_file(workload.model):
        if not runtime(workload.runtime).runs_files:
            return None
        for name, shape in workload.input_shape.items() if isinstance(workload.input_shape, dict) else ():
            parts += ["--input-shape", f"{name}={','.join(map(str, shape))}"]
    else:
        try:
            case_of(workload)
        except ForerunError:
            return None
        parts += ["--dtype", workload.dtype]
    if isinstance(workload.input_shape, tuple):
        parts += ["--input-shape", ",".join(map(str, workload.input_shape))]
    if workload.mode != "inference":
        parts += ["--mode", workload.mode]
    for option, value in (
        ("--seq-len", workload.seq_len),
        *((f"--{name.replace('_', '-')}", given) for name, given in workload.generation.items()),
        ("--optimizer", workload.optimizer),
        ("--amp", workload.amp),
    ):
        if value:
            parts += [option, str(value)]
    if workload.channels_last:
        parts.append("--channels-last")
    if workload.runtime != USUAL and not is_onnx_file(workload.model):
        parts += ["--runtime", workload.runtime]
    return shlex.join(parts)
