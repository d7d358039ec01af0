"""What can be rented or owned: devices and MIG slices, on which instance, how many, at which price, on which grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forerun.advice.carbon import choose_grid
from forerun.advice.limits import Measure
from forerun.advice.mig import slices, unused_w
from forerun.device import Device, all_devices, load_device
from forerun.device.carbon import Grid
from forerun.device.cloud import CLOUDS, Instance, instances_for, rented_cpus
from forerun.device.reading import key, unknown
from forerun.device.regions import Regions
from forerun.errors import ForerunError
from forerun.predictors.laws.specs import spec_problem

#: What the cost of a single slice supposes.
OTHERS_USED = "if the other slices are used too"


@dataclass(frozen=True)
class Offer:
    """A number of devices, or of equal MIG slices, and the instances that have them."""

    device: Device
    count: int  # devices, or slices, that work at once
    grid: Grid
    instance: Instance | None = None  # None: the price is unknown or not needed
    instances: int = 1  # how many of them
    share: float = 1.0  # of the instances' price in the cost of calls: below 1 for a slice beside others
    unused_w: float = 0.0  # a slice's share of the GPU's power that belongs to no slice

    @property
    def instance_id(self) -> str | None:
        return None if self.instance is None else self.instance.id

    def supposed(self, measure: Measure) -> str:
        """The assumption of a slice's share of its instance, as the end of a sentence."""
        return f", {OTHERS_USED}" if self.share < 1 and measure.column == "usd_per_million" else ""

    @property
    def usd_per_hour(self) -> float:
        """What is rented: whole instances."""
        return float("nan") if self.instance is None else self.instance.usd_per_hour * self.instances


@dataclass(frozen=True)
class Excluded:
    """An infeasible candidate, and why."""

    device: str
    instance: str | None
    count: int | None
    reason: str


@dataclass(frozen=True)
class Wanted:
    """Filters on the candidates."""

    devices: tuple[Device, ...] | None = None
    vendors: tuple[str, ...] | None = None
    clouds: tuple[str, ...] | None = None
    regions: Regions | None = None
    region_words: tuple[str, ...] = ()
    gpus: tuple[int, ...] | None = None
    mig: bool = True
    training: bool = False
    priced: bool = False  # the goal or a limit needs a price


def wanted(
    devices: Sequence[str | Device] | None,
    vendors: Sequence[str] | None,
    clouds: Sequence[str] | None,
    regions: Sequence[str] | None,
    gpus: Sequence[int] | None,
    *,
    mig: bool,
    training: bool,
    priced: bool,
) -> Wanted:
    """The request, with every name checked."""
    for cloud in clouds or ():
        if key(cloud) not in CLOUDS:
            raise unknown("cloud", cloud, CLOUDS, f"Known are {', '.join(CLOUDS)}.")
    makers = {key(d.vendor): d.vendor for d in all_devices() if d.vendor}
    for vendor in vendors or ():
        if key(vendor) not in makers:
            raise unknown("vendor", vendor, makers.values(), f"Known are {', '.join(sorted(makers.values()))}.")
    for count in gpus or ():
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1024:
            raise ForerunError(f"gpus must be whole numbers from 1 to 1024, got {count!r}")
    return Wanted(
        devices=tuple(dict.fromkeys(load_device(d) for d in devices)) if devices else None,
        vendors=tuple(makers[key(v)] for v in vendors) if vendors else None,
        clouds=tuple(key(c) for c in clouds) if clouds else None,
        regions=Regions(regions) if regions else None, region_words=tuple(regions or ()),
        gpus=tuple(sorted(set(gpus))) if gpus else None, mig=mig, training=training, priced=priced,
    )  # fmt: skip


def find_offers(w: Wanted) -> tuple[list[Offer], list[Excluded]]:
    """Every offer that passes the filters, and what is excluded for which reason."""
    offers: list[Offer] = []
    excluded: list[Excluded] = []
    for device in w.devices or [*(d for d in all_devices() if d.traits.rented), *rented_cpus()]:
        if w.vendors is not None and device.vendor not in w.vendors:
            if w.devices is not None:
                excluded.append(Excluded(device.id, None, None, f"is made by {device.vendor or 'an unknown vendor'}"))
            continue
        problem = spec_problem(device)
        if problem is None and w.devices is None and device.memory_mb is None:
            problem = "its memory is unknown, so whether anything fits is too"
        if problem is not None:
            excluded.append(Excluded(device.id, None, None, problem.removeprefix(f"{device.id} ")))
            continue
        carried = _instances(device, w, excluded)
        if carried:
            offers += _rented(device, carried, w)
        elif not (w.priced or w.clouds or w.regions):
            offers += _owned(device, w)
    return offers, excluded


def _instances(device: Device, w: Wanted, excluded: list[Excluded]) -> list[tuple[Instance, Grid]]:
    """The instances with the device, and the grid of each: of those of one cloud with as many devices the cheapest,
    since nothing else of them changes a prediction."""
    gpu = load_device(device.id.partition("/")[0]) if "/" in device.id and device.provenance else device
    listed = instances_for(gpu) if gpu.provenance else []
    if not listed:
        if w.priced or w.clouds or w.regions:
            excluded.append(Excluded(device.id, None, None, f"no cloud price is known for {gpu.id}"))
        return []
    cheapest: dict[tuple[str, int], tuple[Instance, Grid]] = {}
    for instance in sorted(listed, key=lambda i: (i.usd_per_hour, i.id)):
        if w.clouds is not None and instance.cloud not in w.clouds:
            continue
        grid = w.regions.grid_for(instance) if w.regions else choose_grid(None, instance)
        place = (instance.cloud, instance.device_count)
        if grid is None:
            reason = f"{instance.cloud} has no region among {', '.join(w.region_words)}"
        elif place in cheapest:
            reason = f"{cheapest[place][0].id} has as many of the same devices for less"
        else:
            cheapest[place] = (instance, grid)
            continue
        excluded.append(Excluded(device.id, instance.id, instance.device_count, reason))
    if not cheapest and all(w.clouds and i.cloud not in w.clouds for i in listed):
        excluded.append(Excluded(device.id, None, None, f"is not offered by {', '.join(w.clouds or ())}"))
    return list(cheapest.values())


def _rented(device: Device, carried: list[tuple[Instance, Grid]], w: Wanted) -> Iterator[Offer]:
    if "/" in device.id:  # a slice that was named
        yield from _sliced(load_device(device.id.partition("/")[0]), device, carried, w)
        return
    for instance, grid in carried:
        for count, instances in _counts(instance, w):
            yield Offer(device, count, grid, instance, instances)
    if w.mig:
        for profile, cut in slices(device):
            if profile.max_instances > 1:  # a profile that fits once costs as much as the whole device, for less
                yield from _sliced(device, cut, carried, w)


def _sliced(gpu: Device, cut: Device, carried: list[tuple[Instance, Grid]], w: Wanted) -> Iterator[Offer]:
    """One slice beside others in use, on the instance of each cloud that is cheapest per device, and whole instances
    cut into such slices, where calls need not wait for each other."""
    per_device = _per_device(gpu, cut)
    beside = unused_w(gpu, cut, per_device)
    cheapest: dict[str, tuple[Instance, Grid]] = {}
    for instance, grid in sorted(carried, key=lambda c: (c[0].usd_per_device_hour, c[0].device_count)):
        cheapest.setdefault(instance.cloud, (instance, grid))
    for instance, grid in cheapest.values():
        if w.gpus is None or 1 in w.gpus:
            yield Offer(
                cut, 1, grid, instance, share=1 / (instance.device_count * per_device), unused_w=beside
            )  # fmt: skip
    for instance, grid in () if w.training else carried:
        for count, instances in _counts(instance, w):
            yield Offer(cut, count * per_device, grid, instance, instances, unused_w=beside)


def _per_device(gpu: Device, cut: Device) -> int:
    return next(p.max_instances for p, part in slices(gpu) if part.id == cut.id)


def _counts(instance: Instance, w: Wanted) -> list[tuple[int, int]]:
    """(devices, instances): as the instance has them, or as requested. Several instances serve calls side by side;
    one training step stays in one machine."""
    have = instance.device_count
    if w.gpus is None:
        return [(have, 1)]
    return [(n, n // have) for n in w.gpus if (n == have if w.training else n % have == 0)]


def _owned(device: Device, w: Wanted) -> Iterator[Offer]:
    """A device without a price, on the world's average electricity."""
    grid = choose_grid(None, None)
    parent = load_device(device.id.partition("/")[0]) if "/" in device.id else None
    beside = unused_w(parent, device, _per_device(parent, device)) if parent else 0.0
    for count in w.gpus or (1,):
        yield Offer(device, count, grid, unused_w=beside)
    if w.mig and parent is None and (w.gpus is None or 1 in w.gpus):
        for profile, cut in slices(device):
            if profile.max_instances > 1:
                yield Offer(cut, 1, grid, unused_w=unused_w(device, cut, profile.max_instances))
