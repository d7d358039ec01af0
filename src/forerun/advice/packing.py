"""Packing jobs onto MIG slices: the layouts that a GPU allows, and the choice of layouts and slices with the least
cost.

A layout is a set of slices that fit on one GPU together. How many GPUs get which layout, and which job gets which kind
of slice, is a small integer program; SciPy's HiGHS solves it exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun._util.extras import needed
from forerun.device.mig import MigProfile
from forerun.errors import ForerunError

#: The cost of a GPU where only the jobs have costs: of equally good packings, the one on fewer GPUs is taken.
_TIE = 1e-4
#: Seconds after which the search is stopped; the best packing so far is taken, with its optimality gap.
SEARCH_LIMIT_S = 20.0


@dataclass(frozen=True)
class Placement:
    """One slice on a GPU: its profile, and the memory slices that it occupies."""

    profile: str
    start: int
    size: int

    @property
    def memory_slices(self) -> range:
        return range(self.start, self.start + self.size)


@dataclass(frozen=True)
class Job:
    """`count` equal jobs that need a slice each; `costs` has a number for every profile that suffices."""

    count: int
    costs: Mapping[str, float]


@dataclass(frozen=True)
class Seat:
    """A job on its slice: `job` is the index of the job in the list that was packed."""

    job: int
    placement: Placement


@dataclass(frozen=True)
class Packing:
    """Slices by GPU. `gap` is by how much the cost may exceed the least one: 0 unless the search was stopped."""

    gpus: tuple[tuple[Seat, ...], ...]
    gap: float = 0.0


def layouts(profiles: Sequence[MigProfile]) -> list[tuple[Placement, ...]]:
    """Every maximal set of slices of one GPU, one layout for each."""
    by_profiles: dict[tuple[tuple[str, int], ...], tuple[Placement, ...]] = {}
    for layout in _fillings(tuple(profiles), 0):
        by_profiles.setdefault(tuple(sorted(Counter(p.profile for p in layout).items())), layout)
    counts = {key: Counter(dict(key)) for key in by_profiles}
    return [
        layout for key, layout in by_profiles.items()
        if not any(counts[key] < other for other in counts.values())
    ]  # fmt: skip


def _fillings(profiles: tuple[MigProfile, ...], at: int) -> Iterator[tuple[Placement, ...]]:
    """All sets of slices from memory slice `at` on, each with its slices in order."""
    if all(start < at for p in profiles for start in p.starts):
        yield ()
        return
    yield from _fillings(profiles, at + 1)
    for profile in profiles:
        if at in profile.starts:
            for rest in _fillings(profiles, at + profile.memory_slices):
                yield (Placement(profile.name, at, profile.memory_slices), *rest)


def room_left(profiles: Sequence[MigProfile], taken: Iterable[Placement]) -> list[Placement]:
    """The slices that could still be created besides those taken, the largest first."""
    used = {index for placement in taken for index in placement.memory_slices}
    out = []
    for profile in sorted(profiles, key=lambda p: (-p.compute_slices, -p.memory_slices)):
        for start in profile.starts:
            placement = Placement(profile.name, start, profile.memory_slices)
            if used.isdisjoint(placement.memory_slices):
                used.update(placement.memory_slices)
                out.append(placement)
    return out


def first_fit(profiles: Sequence[MigProfile], wanted: Sequence[str]) -> tuple[tuple[Seat, ...], ...]:
    """Slices of these profiles in the order given, each on the first GPU and at the first start that is free."""
    known = {p.name: p for p in profiles}
    gpus: list[list[Seat]] = []
    for job, name in enumerate(wanted):
        profile = known[name]
        for seats in [*gpus, None]:
            used = {index for seat in seats or () for index in seat.placement.memory_slices}
            places = (Placement(name, start, profile.memory_slices) for start in profile.starts)
            free = next((place for place in places if used.isdisjoint(place.memory_slices)), None)
            if free is None:
                continue
            if seats is None:
                gpus.append([Seat(job, free)])
            else:
                seats.append(Seat(job, free))
            break
    return tuple(tuple(seats) for seats in gpus)


def fewest_gpus(jobs: Sequence[Job], allowed: Sequence[tuple[Placement, ...]]) -> int:
    """How many GPUs the jobs need at least."""
    free = [replace(job, costs=dict.fromkeys(job.costs, 0.0)) for job in jobs]
    return len(least_cost(free, allowed, gpu_cost=1.0).gpus)


def least_cost(
    jobs: Sequence[Job], allowed: Sequence[tuple[Placement, ...]], *, gpus: int | None = None, gpu_cost: float = 0.0
) -> Packing:
    """The packing on at most `gpus` GPUs whose costs, with `gpu_cost` for each GPU in use, add up to the least."""
    packing = _solved(jobs, allowed, gpus, gpu_cost)
    if packing is None:
        raise ForerunError(f"no packing on {gpus} GPUs exists")
    return packing


def least_worst(jobs: Sequence[Job], allowed: Sequence[tuple[Placement, ...]], *, gpus: int) -> Packing:
    """The packing on at most `gpus` GPUs whose largest cost is least and, among those, the one of the least sum."""
    levels = sorted({cost for job in jobs for cost in job.costs.values()})
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        if _solved(_within(jobs, levels[middle]), allowed, gpus, 0.0) is None:
            low = middle + 1
        else:
            high = middle
    return least_cost(_within(jobs, levels[high]), allowed, gpus=gpus, gpu_cost=_TIE * levels[high])


def _within(jobs: Sequence[Job], most: float) -> list[Job]:
    return [replace(job, costs={p: cost for p, cost in job.costs.items() if cost <= most}) for job in jobs]


def _solved(
    jobs: Sequence[Job], allowed: Sequence[tuple[Placement, ...]], gpus: int | None, gpu_cost: float
) -> Packing | None:
    """The integer program. Unknowns: GPUs of each layout, then jobs of each kind on each profile."""
    with needed("packing workloads onto MIG slices"):
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import lil_matrix

    if not all(job.costs for job in jobs):
        return None
    names = sorted({placement.profile for layout in allowed for placement in layout})
    pairs = [(at, name) for at, job in enumerate(jobs) for name in names if name in job.costs]
    size, total = len(allowed), sum(job.count for job in jobs)
    most = total if gpus is None else min(gpus, total)
    rules = lil_matrix((len(jobs) + len(names) + 1, size + len(pairs)))
    for column, (at, name) in enumerate(pairs):
        rules[at, size + column] = 1  # every job has one slice
        rules[len(jobs) + names.index(name), size + column] = 1  # and no more slices are used than the layouts have
    for column, layout in enumerate(allowed):
        for placement in layout:
            rules[len(jobs) + names.index(placement.profile), column] -= 1
        rules[len(jobs) + len(names), column] = 1
    counts = [job.count for job in jobs]
    lower = np.array([*counts, *[-np.inf] * len(names), 0.0])
    upper = np.array([*counts, *[0.0] * len(names), most])
    costs = np.array([gpu_cost] * size + [jobs[at].costs[name] for at, name in pairs])
    scale = 1e-3 * float(np.abs(costs).max()) or 1.0  # the solver's tolerance is absolute: a millionth
    result = milp(
        costs / scale, integrality=np.ones(len(costs)), bounds=Bounds(0, total),
        constraints=LinearConstraint(rules.tocsr(), lower, upper),
        options={"time_limit": SEARCH_LIMIT_S, "mip_rel_gap": 0.0},
    )  # fmt: skip
    if result.x is None:
        if result.status == 2:
            return None
        raise ForerunError(f"the search for a packing of {total} workloads found none in {SEARCH_LIMIT_S:g} s")
    solution = np.rint(result.x).astype(int)
    taken = {pair: int(number) for pair, number in zip(pairs, solution[size:], strict=True) if number}
    chosen = [layout for layout, number in zip(allowed, solution[:size], strict=True) for _ in range(number)]
    return Packing(_seated(taken, chosen), gap=float(result.mip_gap or 0.0) if result.status == 1 else 0.0)


def _seated(
    taken: Mapping[tuple[int, str], int], chosen: Sequence[tuple[Placement, ...]]
) -> tuple[tuple[Seat, ...], ...]:
    """The jobs on the slices of the layouts, GPU by GPU; GPUs without jobs are dropped."""
    waiting = {
        name: [at for (at, wanted), number in sorted(taken.items()) if wanted == name for _ in range(number)]
        for _, name in taken
    }
    gpus = []
    for layout in chosen:
        seats = tuple(Seat(waiting[p.profile].pop(0), p) for p in layout if waiting.get(p.profile))
        if seats:
            gpus.append(seats)
    return tuple(sorted(gpus, key=_order))


def _order(seats: tuple[Seat, ...]) -> tuple[int, tuple[int, ...]]:
    return -sum(seat.placement.size for seat in seats), tuple(seat.job for seat in seats)
