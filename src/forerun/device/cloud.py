"""What an accelerator costs by the hour: on-demand prices of cloud instances, each with its date."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from forerun.device.device import Device
from forerun.device.loading import load_device
from forerun.device.reading import CATALOG, key, read_yaml, unknown
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

    @property
    def usd_per_device_hour(self) -> float:
        return self.usd_per_hour / self.device_count


def load_instance(spec: str | Instance) -> Instance:
    """An instance type by its name ('p4d.24xlarge') or with its cloud ('aws/p4d.24xlarge'); exact but for case."""
    if isinstance(spec, Instance):
        return spec
    instances = _instances()
    cloud, slash, name = spec.rpartition("/")
    found = instances.get(key(name))
    if found is None or (slash and key(cloud) != found.cloud):
        raise unknown("cloud instance", spec, [i.id for i in instances.values()])
    return found


def instances_for(device: str | Device, cloud: str | None = None) -> list[Instance]:
    """The instances that carry this device, cheapest per accelerator hour first; empty when no price is known."""
    if cloud is not None and cloud not in CLOUDS:
        raise unknown("cloud", cloud, CLOUDS, f"Known are {', '.join(CLOUDS)}.")
    device_id = load_device(device).id
    found = [i for i in _instances().values() if i.device_id == device_id and cloud in (None, i.cloud)]
    return sorted(found, key=lambda i: (i.usd_per_device_hour, i.device_count, i.id))


def all_instances() -> list[Instance]:
    """Every instance of the catalogue, by cloud and name."""
    return sorted(_instances().values(), key=lambda i: (i.cloud, i.id))


@cache
def _instances() -> dict[str, Instance]:
    path: Path = CATALOG / "cloud_instances.yaml"
    content = read_yaml(path)
    instances: dict[str, Instance] = {}
    for cloud, entry in content["clouds"].items():
        for name, row in entry["instances"].items():
            if key(name) in instances:
                raise ForerunError(f"{path.name}: {name} is listed twice")
            instances[key(name)] = Instance(
                id=name,
                cloud=cloud,
                device_id=row["device"],
                device_count=row["count"],
                vcpus=row.get("vcpus"),
                memory_gib=row.get("memory_gib"),
                region=row.get("region", entry["region"]),
                usd_per_hour=float(row["usd_per_hour"]),
                date=str(entry["date"]),
                source=entry["source"],
            )
    return instances
