"""What can be rented or owned: devices and MIG slices, on which instance, how many, at which price, on which grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forerun.advice.carbon import choose_grid
from forerun.advice.limits import Measure
from forerun.advice.mig import slices, unused_w
from forerun.device import Device, all_devices, load_device
from forerun.device.carbon import Grid
from forerun.device.cloud import CLOUDS, Instance, instances_for
from forerun.device.reading import key, unknown
from forerun.device.regions import Regions
from forerun.errors import ForerunError
from forerun.predictors.specs import spec_problem

#: Kinds of device that are candidates unless others are named.
KINDS = ("gpu", "tpu", "asic")
#: What the cost of a single slice supposes.
OTHERS_USED = "if the other slices are used too"


@dataclass(frozen=True)
class Offer:
    """So many devices, or MIG slices of one kind, and the instances that carry them."""

    device: Device
    count: int  # devices, or slices, that work at once
    grid: Grid
    instance: Instance | None = None  # None: no price is known, or none is asked for
    instances: int = 1  # how many of them
    share: float = 1.0  # of the instances' price in the cost of calls: below 1 for a slice beside others
    unused_w: float = 0.0  # a slice's part of what its GPU draws for what no slice has

    @property
    def instance_id(self) -> str | None:
        return None if self.instance is None else self.instance.id

    def supposed(self, measure: Measure) -> str:
        """What a slice's part of its instance supposes, as the end of a sentence."""
        return f", {OTHERS_USED}" if self.share < 1 and measure.column == "usd_per_million" else ""

    @property
    def usd_per_hour(self) -> float:
        """What is rented: whole instances."""
        return float("nan") if self.instance is None else self.instance.usd_per_hour * self.instances


@dataclass(frozen=True)
class Excluded:
    """A candidate that is no answer, and why."""

    device: str
    instance: str | None
    count: int | None
    reason: str


@dataclass(frozen=True)
class Wanted:
    """Where the candidates may come from."""

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
    """What was asked for, with every name known."""
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
    """Every offer among what is wanted, and what is left out of the catalogue for which reason."""
    found: list[Offer] = []
    excluded: list[Excluded] = []
    for device in w.devices or [d for d in all_devices() if d.kind in KINDS]:
        if w.vendors is not None and device.vendor not in w.vendors:
            if w.devices is not None:
                excluded.append(Excluded(device.id, None, None, f"is made by {device.vendor or 'nobody known'}"))
            continue
        problem = spec_problem(device)
        if problem is None and w.devices is None and device.memory_mb is None:
            problem = "its memory is not known, so whether anything fits is not either"
        if problem is not None:
            excluded.append(Excluded(device.id, None, None, problem.removeprefix(f"{device.id} ")))
            continue
        carried = _instances(device, w, excluded)
        if carried:
            found += _rented(device, carried, w)
        elif not (w.priced or w.clouds or w.regions):
            found += _owned(device, w)
    return found, excluded


def _instances(device: Device, w: Wanted, excluded: list[Excluded]) -> list[tuple[Instance, Grid]]:
    """The instances that carry the device, with the grid of each: of those of one cloud with as many devices the
    cheapest, since nothing else of them changes a prediction."""
    whole = load_device(device.id.partition("/")[0]) if "/" in device.id and device.provenance else device
    listed = instances_for(whole) if whole.provenance else []
    if not listed:
        if w.priced or w.clouds or w.regions:
            excluded.append(Excluded(device.id, None, None, f"no cloud price is known for {whole.id}"))
        return []
    kept: dict[tuple[str, int], tuple[Instance, Grid]] = {}
    for instance in sorted(listed, key=lambda i: (i.usd_per_hour, i.id)):
        if w.clouds is not None and instance.cloud not in w.clouds:
            continue
        grid = w.regions.grid_for(instance) if w.regions else choose_grid(None, instance)
        place = (instance.cloud, instance.device_count)
        if grid is None:
            reason = f"{instance.cloud} has no region among {', '.join(w.region_words)}"
        elif place in kept:
            reason = f"{kept[place][0].id} has as many of the same devices for less"
        else:
            kept[place] = (instance, grid)
            continue
        excluded.append(Excluded(device.id, instance.id, instance.device_count, reason))
    if not kept and all(w.clouds and i.cloud not in w.clouds for i in listed):
        excluded.append(Excluded(device.id, None, None, f"is not offered by {', '.join(w.clouds or ())}"))
    return list(kept.values())


def _rented(device: Device, carried: list[tuple[Instance, Grid]], w: Wanted) -> Iterator[Offer]:
    if "/" in device.id:  # a slice that was named
        yield from _sliced(load_device(device.id.partition("/")[0]), device, carried, w)
        return
    for instance, grid in carried:
        for count, instances in _counts(instance, w):
            yield Offer(device, count, grid, instance, instances)
    if w.mig:
        for profile, cut in slices(device):
            if profile.max_instances > 1:  # one that fits once costs as much as the whole device, and is less
                yield from _sliced(device, cut, carried, w)


def _sliced(whole: Device, cut: Device, carried: list[tuple[Instance, Grid]], w: Wanted) -> Iterator[Offer]:
    """One slice beside others that are used too, on the instance of each cloud that is cheapest per device, and whole
    instances cut into such slices, where calls need not wait for each other."""
    per_device = _per_device(whole, cut)
    beside = unused_w(whole, cut, per_device)
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


def _per_device(whole: Device, cut: Device) -> int:
    return next(p.max_instances for p, one in slices(whole) if one.id == cut.id)


def _counts(instance: Instance, w: Wanted) -> list[tuple[int, int]]:
    """(devices, instances): as the instance has them, or as asked for. Several instances serve calls side by side;
    one training step stays in one machine."""
    have = instance.device_count
    if w.gpus is None:
        return [(have, 1)]
    return [(n, n // have) for n in w.gpus if (n == have if w.training else n % have == 0)]


def _owned(device: Device, w: Wanted) -> Iterator[Offer]:
    """A device whose price nobody asks for, on the world's average electricity."""
    grid = choose_grid(None, None)
    own = load_device(device.id.partition("/")[0]) if "/" in device.id else None
    beside = unused_w(own, device, _per_device(own, device)) if own else 0.0
    for count in w.gpus or (1,):
        yield Offer(device, count, grid, unused_w=beside)
    if w.mig and own is None and (w.gpus is None or 1 in w.gpus):
        for profile, cut in slices(device):
            if profile.max_instances > 1:
                yield Offer(cut, 1, grid, unused_w=unused_w(device, cut, profile.max_instances))
