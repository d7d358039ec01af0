"""Links between devices: within a machine and between machines, from the devices' entries and catalog/links.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forerun.device.cloud import Instance
from forerun.device.device import Device
from forerun.device.reading import CATALOG, read_yaml, source_line
from forerun.errors import ForerunError

_FILE = "links.yaml"
#: Devices of a machine, where the catalogue lists no other number.
_MACHINE = 8
#: What PCIe, a network or any other link is called.
FABRIC, PCIE, NETWORK = "fabric", "PCIe", "network"
_NAMES = {"nvidia": "NVLink", "amd": "Infinity Fabric"}


@dataclass(frozen=True)
class Link:
    """One level of the topology: what joins up to `devices` devices, each with `gbs` gigabytes per second in one
    direction."""

    kind: str  # FABRIC, PCIE or NETWORK: what the law of collectives tells apart
    name: str  # NVLink, PCIe, network ...
    gbs: float
    devices: int | None  # None: any number
    source: str
    mesh: bool = False  # a link of its own to each peer: few devices use few of them
    assumed: bool = False  # the rate is that of a machine that a vendor sells, not of the user's own

    def rate_gbs(self, count: int) -> float:
        """Gigabytes per second that each of `count` devices can send to the others."""
        return self.gbs * (count - 1) / (self.devices - 1) if self.mesh and self.devices else self.gbs


def links(device: Device, instance: Instance | None = None) -> tuple[Link, ...]:
    """The levels that join several of a device, the fastest first; `instance` is the cloud instance they are in."""
    content = read_yaml(CATALOG / _FILE)
    if any(device.id.startswith(name) for name in content["alone"]):
        return ()
    if instance is not None and instance.device_id != device.id:
        raise ForerunError(f"{instance.id} has {instance.device_id}, not {device.id}")
    machine = int(content["machine"].get(device.id, {}).get("value", _MACHINE))
    machine = max(machine, instance.device_count) if instance else machine
    found = []
    fabric, source = _fabric(device, content)
    bridged = device.id in content["bridged"]["devices"]
    if fabric is not None:
        name = _NAMES.get(device.maker or "", "interconnect") + (" bridge" if bridged else "")
        mesh = device.maker in content["mesh"]["vendors"] or device.id in content["mesh"]["devices"]
        found.append(Link(FABRIC, name, fabric / 2, 2 if bridged else machine, source, mesh, assumed=bridged))
    if device.pcie_gbs is not None and (fabric is None or bridged):
        found.append(Link(PCIE, "PCIe", device.pcie_gbs, machine, device.provenance.get("pcie_gbs", "")))
    network = _network(device, instance, content, sold=fabric is not None and not bridged)
    return (*found, network) if network else tuple(found)


def link(device: Device, count: int, instance: Instance | None = None) -> Link:
    """The slowest link that `count` devices, on as few machines as they fit on, must use to reach each other."""
    levels = links(device, instance)
    for level in levels:
        if level.devices is None or level.devices >= count:
            return level
    if not levels:
        raise ForerunError(
            f"the interconnect of {device.id} is unknown: a device file states it as interconnect_gbs or pcie_gbs"
        )
    widest = levels[-1]
    raise ForerunError(
        f"{count} of {device.id} need a network between machines, and none is known for it; {widest.name} joins at "
        f"most {widest.devices}"
    )


def in_machine(device: Device, instance: Instance | None = None) -> int:
    """How many devices one machine joins, by fabric or PCIe."""
    return max((level.devices or 1 for level in links(device, instance) if level.kind != NETWORK), default=1)


def _fabric(device: Device, content: Any) -> tuple[float | None, str]:
    """Gigabytes per second of the fabric, both directions, and where that is from."""
    entry = content["links"].get(device.id)
    if entry is not None:
        return float(entry["value"]), source_line(content["sources"], entry["source"])
    return device.interconnect_gbs, device.provenance.get("interconnect_gbs", "")


def _network(device: Device, instance: Instance | None, content: Any, sold: bool) -> Link | None:
    """The network of an instance, or of the machine that the vendor sells with the device, if it is `sold` in one."""
    entry = content["instances"].get(instance.id) if instance else None
    if entry is not None and instance is not None:
        gbs = float(entry["value"]) / 8 / instance.device_count
        return Link(NETWORK, f"network of {instance.id}", gbs, None, source_line(content["sources"], entry["source"]))
    networks = content["networks"]
    entry = networks.get(device.id) or networks.get(device.architecture or "") if sold else None
    if entry is None:
        return None
    gbs = float(entry["value"]) / 8
    return Link(NETWORK, "network", gbs, None, source_line(content["sources"], entry["source"]), assumed=True)
