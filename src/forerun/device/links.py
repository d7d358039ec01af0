"""Links between devices: within a machine and between machines, from the devices' entries and catalog/links.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from forerun.device.device import Device
from forerun.device.reading import CATALOG, key, read_yaml, source_line
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


def links(device: Device, instance: str | None = None) -> tuple[Link, ...]:
    """The levels that join several of a device, the fastest first; `instance` is the cloud instance they are in."""
    content = read_yaml(CATALOG / _FILE)
    machine = int(content["machine"].get(device.id, {}).get("value", _MACHINE))
    found = []
    fabric, source = _fabric(device, content)
    if fabric is not None:
        pairs = device.id in content["bridged"]["devices"]
        name = _NAMES.get(device.maker or "", "interconnect") + (" bridge" if pairs else "")
        mesh = (device.maker or "") in content["mesh"]["vendors"]
        found.append(Link(FABRIC, name, fabric / 2, 2 if pairs else machine, source, mesh))
    if device.pcie_gbs is not None and (fabric is None or found[0].devices == 2):
        found.append(Link(PCIE, "PCIe", device.pcie_gbs, machine, device.provenance.get("pcie_gbs", "")))
    network = _network(device, instance, content, sold=bool(found) and found[0].kind == FABRIC and len(found) == 1)
    return (*found, network) if network else tuple(found)


def link(device: Device, count: int, instance: str | None = None) -> Link:
    """The slowest link that `count` devices, on as few machines as they fit on, must use to reach each other."""
    levels = links(device, instance)
    for level in levels:
        if level.devices is None or level.devices >= count:
            return level
    if not levels:
        raise ForerunError(f"the interconnect of {device.id} is unknown (interconnect_gbs or pcie_gbs)")
    widest = levels[-1]
    raise ForerunError(
        f"{count} of {device.id} need a network between machines, and none is known for it; {widest.name} joins at "
        f"most {widest.devices}"
    )


def in_machine(device: Device) -> int:
    """How many devices one machine joins, by fabric or PCIe."""
    return max((level.devices or 1 for level in links(device) if level.kind != NETWORK), default=1)


def _fabric(device: Device, content: Any) -> tuple[float | None, str]:
    """Gigabytes per second of the fabric, both directions, and where that is from."""
    if device.interconnect_gbs is not None:
        return device.interconnect_gbs, device.provenance.get("interconnect_gbs", "")
    entry = content["links"].get(device.id)
    return (float(entry["value"]), source_line(content["sources"], entry["source"])) if entry else (None, "")


def _network(device: Device, instance: str | None, content: Any, sold: bool) -> Link | None:
    """The network of an instance, or of the machine that the vendor sells with the device, if it is `sold` in one."""
    entry = _instances().get(key(instance)) if instance else None
    if entry is not None:
        gbs = float(entry["value"]) / 8 / _MACHINE
        return Link(NETWORK, f"network of {instance}", gbs, None, source_line(content["sources"], entry["source"]))
    entry = content["networks"].get(device.architecture or "") if sold else None
    if entry is None:
        return None
    gbs = float(entry["value"]) / 8
    return Link(NETWORK, "network", gbs, None, source_line(content["sources"], entry["source"]), assumed=True)


@cache
def _instances() -> dict[str, Any]:
    return {key(name): entry for name, entry in read_yaml(CATALOG / _FILE)["instances"].items()}
