"""pack_mig: several workloads onto MIG slices, on the fewest GPUs, with the least energy or the least latency."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun.advice.mig import slices, threshold_profile
from forerun.advice.packing import (
    Job,
    Packing,
    Seat,
    fewest_gpus,
    first_fit,
    layouts,
    least_cost,
    least_worst,
    room_left,
)
from forerun.api.arguments import whole_number
from forerun.decisions.mig.answer import MigPacking, OnSlice, PlacedWorkload, RuleOutcome, Totals
from forerun.decisions.mig.cases import MigCase, infeasible
from forerun.decisions.mig.workloads import MigWorkload, read_workloads
from forerun.device import Device, load_device
from forerun.device.mig import MigProfile, geometry, profiles, with_mig
from forerun.errors import ForerunError, did_you_mean
from forerun.prediction import Estimate
from forerun.predictors.laws.energy import waiting_w

if TYPE_CHECKING:
    from forerun.predictors.base import Predictor

GOALS = ("gpus", "energy", "latency")


def pack_mig(
    workloads: Iterable[Any],
    device: str | Path | Device | dict[str, Any],
    *,
    goal: str = "gpus",
    gpus: int | None = None,
    max_latency_ms: float | None = None,
    sure: bool = False,
    predictor: str | Path | Predictor = "default",
    confidence: float = 0.9,
    host: str | float = "default",
) -> MigPacking:
    """Places workloads on MIG slices of `device`, on at most `gpus` of them.

    A workload is text ("resnet50:batch=8,count=3,max-latency=20ms,rate=50"), a mapping of the same settings or a
    `Workload`. `goal`: "gpus" takes the fewest GPUs and, on these, the least mean slowdown; "energy" the least power at
    the requested rates or, without rates, the least energy of a call of each on the fewest GPUs; "latency" the least
    worst slowdown on `gpus` GPUs, or on the fewest. With `sure`, the upper ends of intervals must fit and be fast
    enough. All numbers are predictions: they equal `forerun.predict(..., measured=False)` for the slice, which is a
    device.
    """
    if not isinstance(goal, str) or goal not in GOALS:
        raise ForerunError(
            f"goal {goal!r} is not known.{did_you_mean(str(goal), GOALS) or ' Choose from gpus, energy, latency.'}"
        )
    if gpus is not None:
        whole_number("gpus", gpus)
    full_gpu = _with_mig(device)
    jobs, order = read_workloads(workloads, max_latency_ms)
    cases = [MigCase(job, full_gpu, predictor=predictor, confidence=confidence, host=host) for job in jobs]
    chooser = _Chooser(full_gpu, cases, sure)
    for case in cases:
        if not chooser.usable(case):
            raise ForerunError(infeasible(case, full_gpu, sure, predictor))
    packing = chooser.packed(goal, gpus)
    placed = chooser.placed(packing.gpus)
    rule = chooser.by_rule(order)
    free = [
        (gpu, place.profile, place.start) for gpu, seats in enumerate(packing.gpus)
        for place in room_left(chooser.profiles, [seat.placement for seat in seats])
    ]  # fmt: skip
    return MigPacking(
        device=full_gpu.id, goal=goal, confidence=confidence, totals=chooser.totals(placed), placed=placed,
        free=tuple(free), commands=_commands(packing.gpus), rule=rule, notes=tuple(_notes(full_gpu, packing, jobs)),
    )  # fmt: skip


class _Chooser:
    """Which slices suffice, and which packing is best."""

    def __init__(self, gpu: Device, cases: Sequence[MigCase], sure: bool) -> None:
        self.gpu, self.cases, self.sure = gpu, cases, sure
        self.profiles: list[MigProfile] = [p for p, _ in slices(gpu)]
        self.parts = {p.name: part for p, part in slices(gpu)}

    def usable(self, case: MigCase) -> list[OnSlice]:
        """The slices that meet the constraints."""
        met = [s for s in case.on_slice.values() if not case.problems(s)]
        return [s for s in met if not case.remarks(s)] if self.sure else met

    def packed(self, goal: str, gpus: int | None) -> Packing:
        allowed = layouts(self.profiles)
        slowdowns = self._jobs(lambda case, s: s.latency_ms.value / case.whole_gpu_ms.value)
        fewest = fewest_gpus(slowdowns, allowed)
        if gpus is not None and fewest > gpus:
            raise ForerunError(
                f"the number of GPUs is the limiting constraint: these workloads need at least {fewest} "
                f"{self.gpu.id}, and at most {gpus} "
                "were allowed"
            )
        if goal == "latency":
            return least_worst(slowdowns, allowed, gpus=gpus or fewest)
        if goal == "gpus":
            return least_cost(slowdowns, allowed, gpus=fewest)
        if any(s.energy_j is None for case in self.cases for s in case.on_slice.values()):
            raise ForerunError(f"the energy of calls on {self.gpu.id} is unknown: choose another goal")
        if self.cases[0].job.rate is None:
            return least_cost(self._jobs(lambda _, s: _joules(s)), allowed, gpus=fewest)
        watts = self._jobs(lambda case, s: self._watts(case.job.rate or 0.0, s))
        return least_cost(watts, allowed, gpus=gpus, gpu_cost=waiting_w(self.gpu) or 0.0)

    def _jobs(self, cost: Callable[[MigCase, OnSlice], float]) -> list[Job]:
        """The jobs to pack: the workloads with the cost of every slice that suffices."""
        return [Job(case.job.count, {s.profile: cost(case, s) for s in self.usable(case)}) for case in self.cases]

    def _watts(self, rate: float, predicted: OnSlice) -> float:
        """What a rate of calls adds to the idle power of a GPU: their slice is not idle meanwhile."""
        busy = min(1.0, rate * predicted.latency_ms.value / 1e3)
        return rate * _joules(predicted) - busy * (waiting_w(self.parts[predicted.profile]) or 0.0)

    def placed(self, gpus: Sequence[Sequence[Seat]]) -> tuple[PlacedWorkload, ...]:
        out = []
        for gpu, seats in enumerate(gpus):
            for seat in sorted(seats, key=lambda seat: seat.placement.start):
                case, place = self.cases[seat.job], seat.placement
                predicted = case.on_slice[place.profile]
                out.append(
                    PlacedWorkload(
                        gpu=gpu, start=place.start, size=place.size, workload=case.job.label,
                        settings=case.job.workload.to_dict(), on_slice=predicted, whole_gpu_ms=case.whole_gpu_ms,
                        max_latency_ms=case.job.max_latency_ms, rate=case.job.rate,
                        remarks=tuple(case.remarks(predicted)), problems=tuple(case.problems(predicted)),
                    )
                )  # fmt: skip
        return tuple(out)

    def totals(self, placed: Sequence[PlacedWorkload]) -> Totals:
        slowdowns = [p.slowdown for p in placed]
        energies = [p.on_slice.energy_j for p in placed]
        known = [e for e in energies if e is not None]
        energy = power = None
        gpus = 1 + max(p.gpu for p in placed)
        if len(known) == len(energies):
            energy = Estimate(sum(e.value for e in known), sum(e.low for e in known), sum(e.high for e in known), "J")
            waiting = waiting_w(self.gpu)
            if waiting is not None and placed[0].rate is not None:
                value = gpus * waiting + sum(self._watts(p.rate or 0.0, p.on_slice) for p in placed)
                below = sum((p.rate or 0.0) * (e.value - e.low) for p, e in zip(placed, known, strict=True))
                above = sum((p.rate or 0.0) * (e.high - e.value) for p, e in zip(placed, known, strict=True))
                power = Estimate(value, max(0.0, value - below), value + above, "W")
        return Totals(gpus, sum(slowdowns) / len(slowdowns), max(slowdowns), energy, power)

    def by_rule(self, order: Sequence[int]) -> RuleOutcome:
        """The memory-threshold rule on the same workloads, in this order."""
        largest = self.profiles[-1].name
        names = [threshold_profile(self.cases[at].memory_mb, self.profiles) or largest for at in order]
        seats = [
            [Seat(order[seat.job], seat.placement) for seat in gpu] for gpu in first_fit(self.profiles, names)
        ]  # fmt: skip
        placed = self.placed(seats)
        return RuleOutcome(self.totals(placed), placed)


def _joules(predicted: OnSlice) -> float:
    assert predicted.energy_j is not None, "called only where all energies are known"
    return predicted.energy_j.value


def _with_mig(device: str | Path | Device | dict[str, Any]) -> Device:
    known = load_device(device)
    if "/" in known.id:
        raise ForerunError(f"{known.id} is a slice: give the whole GPU, {known.id.partition('/')[0]}")
    if not profiles(known):
        raise ForerunError(f"{known.id} has no MIG profiles in the catalogue; these have: {', '.join(with_mig())}")
    return known


def _commands(gpus: Sequence[Sequence[Seat]]) -> tuple[str, ...]:
    """The commands that create the slices at exactly these places, with a compute instance on each (-C)."""
    out = [f"sudo nvidia-smi -i {','.join(map(str, range(len(gpus))))} -mig 1"]
    for gpu, seats in enumerate(gpus):
        places = sorted((seat.placement for seat in seats), key=lambda place: place.start)
        names = ",".join(f"{place.profile}:{place.start}" for place in places)
        out.append(f"sudo nvidia-smi mig -i {gpu} -cgi {names} -C")
    return (*out, "nvidia-smi -L")


def _notes(gpu: Device, packing: Packing, jobs: Sequence[MigWorkload]) -> Iterable[str]:
    layout = geometry(gpu)
    if layout is not None and layout.assumed:
        yield f"{gpu.id}: {layout.source}"
    if packing.gap:
        yield f"the search was stopped: a packing may exist that is {100 * packing.gap:.2g} % better"
    if jobs[0].rate is not None and waiting_w(gpu) is None:
        yield f"the idle power of {gpu.id} is unknown and not included"
