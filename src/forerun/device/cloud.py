"""Hourly costs of accelerators: on-demand prices of cloud instances, each with its date."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from forerun.device.device import Device
from forerun.device.loading import load_device
from forerun.device.reading import CATALOG, key, read_yaml, unknown
from forerun.device.threads import part_id, whole_id
from forerun.errors import ForerunError

CLOUDS = ("aws", "gcp", "azure", "lambda", "runpod")


@dataclass(frozen=True)
class Instance:
    """One instance type in its reference region, at its on-demand price on that date."""

    id: str
    cloud: str
    device_id: str
    device_count: int
    vcpus: int | None
    memory_gib: float | None
    region: str
    usd_per_hour: float
    date: str
    source: str
    retired: str | None = None  # the date since which the cloud does not offer it, and who says so
    priced_by: str | None = None  # a CPU that it does not have: priced by the core, as which CPU

    @property
    def usd_per_device_hour(self) -> float:
        return self.usd_per_hour / self.device_count


def load_instance(spec: str | Instance) -> Instance:
    """An instance type by its name ('p4d.24xlarge') or with its cloud ('aws/p4d.24xlarge'); exact but for case.

    A retired one is found too: what it cost is history worth asking for, and its price line says that it is retired.
    """
    if isinstance(spec, Instance):
        return spec
    instances = _instances()
    cloud, slash, name = key(spec).rpartition("/")
    instance = instances.get(key(name))
    if instance is None or (slash and key(cloud) != instance.cloud):
        raise unknown("cloud instance", spec, [i.id for i in instances.values()])
    return instance


def instances_for(device: str | Device, cloud: str | None = None) -> list[Instance]:
    """The instances on offer with this device, cheapest per accelerator hour first; empty when no price is known."""
    if cloud is not None and cloud not in CLOUDS:
        raise unknown("cloud", cloud, CLOUDS, f"Known are {', '.join(CLOUDS)}.")
    device_id = load_device(device).id
    offers = [i for i in _offered() if i.device_id == device_id and cloud in (None, i.cloud)]
    return sorted(offers, key=lambda i: (i.usd_per_device_hour, i.device_count, i.id))


def retired_instances(device: str | Device) -> list[Instance]:
    """The instances with this device that their clouds no longer offer, with what they cost on their dates."""
    device_id = load_device(device).id
    return sorted(
        (i for i in _instances().values() if i.retired is not None and i.device_id == device_id),
        key=lambda i: (i.cloud, i.device_count, i.id),
    )


def rented_cpus() -> list[Device]:
    """The CPUs, or some of their cores, that instances on offer have, each with the memory of its instance."""
    found: dict[str, Device] = {}
    for instance in all_instances():
        device = load_device(instance.device_id)
        if device.traits.is_host and device.id not in found:
            found[device.id] = with_memory(device, instance)
    return list(found.values())


def with_memory(device: Device, instance: Instance) -> Device:
    """A CPU with its part of the memory of an instance, where nothing says what its machine has."""
    if device.memory_mb is not None or instance.memory_gib is None:
        return device
    line = f"memory of {instance.cloud} {instance.id}, {instance.date}"
    return dataclasses.replace(
        device, memory_gb=instance.memory_gib / instance.device_count,
        provenance={**device.provenance, "memory_gb": line},
    )  # fmt: skip


def by_the_core(device: Device) -> Instance | None:
    """What a CPU would cost at the cheapest price of a core: of an instance with this CPU in another number of cores,
    else with one of its microarchitecture, else of its maker; None for other devices and where no price is known."""
    if not device.traits.is_host or device.sm_count is None:
        return None
    offered = [(i, load_device(i.device_id)) for i in all_instances()]
    cpus = [(i, d) for i, d in offered if d.traits.is_host and d.sm_count]
    own = whole_id(device.id)
    ways: tuple[Callable[[Device], bool], ...] = (
        lambda d: whole_id(d.id) == own, lambda d: d.architecture == device.architecture,
        lambda d: d.maker == device.maker,
    )  # fmt: skip
    for alike in ways:
        prices = [(i.usd_per_device_hour / float(d.sm_count or 1), i.id, i, d) for i, d in cpus if alike(d)]
        if prices:
            each, _, instance, priced = min(prices, key=lambda p: p[:2])
            return dataclasses.replace(
                instance, device_id=device.id, device_count=1, usd_per_hour=each * device.sm_count, vcpus=None,
                memory_gib=None, priced_by=whole_id(priced.id),
            )  # fmt: skip
    return None


def all_instances() -> list[Instance]:
    """Every instance that its cloud still offers, by cloud and name."""
    return sorted(_offered(), key=lambda i: (i.cloud, i.id))


def _offered() -> Iterator[Instance]:
    return (i for i in _instances().values() if i.retired is None)


@cache
def _instances() -> dict[str, Instance]:
    path: Path = CATALOG / "cloud_instances.yaml"
    content = read_yaml(path)
    instances: dict[str, Instance] = {}
    for cloud, entry in content["clouds"].items():
        for name, row in entry["instances"].items():
            if key(name) in instances:
                raise ForerunError(f"{path.name}: {name} is listed twice")
            listed = content["lists"][row["list"]] if "list" in row else entry
            instances[key(name)] = Instance(
                id=name,
                cloud=cloud,
                device_id=part_id(row["device"], row.get("threads")),
                device_count=row["count"],
                vcpus=row.get("vcpus"),
                memory_gib=row.get("memory_gib"),
                region=row.get("region", entry["region"]),
                usd_per_hour=float(row["usd_per_hour"]),
                date=str(listed["date"]),
                source=listed["source"],
                retired=_retirement(content["retirements"], row.get("retired")),
            )
    return instances


def _retirement(listed: dict[str, dict[str, object]], name: str | None) -> str | None:
    """'2023-08-31 (who says so)' of an instance whose retirement is listed under this name; None for one on offer."""
    return None if name is None else f"{listed[name]['date']} ({listed[name]['source']})"
