"""Named hosts: their launch speed, and the measured rows that it is based on."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

from forerun.device.reading import CATALOG, key, read_yaml
from forerun.errors import ForerunError

_FILE = "hosts.yaml"


@dataclass(frozen=True)
class Host:
    """One host: its slowness relative to the reference host, and the rows that it is based on."""

    id: str
    name: str
    slowness: float
    rows: str  # the measurements that it is based on
    source: str
    date: str
    low: float | None = None  # where it was probed: a tenth of the probes say less, since a host's speed moves
    high: float | None = None  # a tenth say more
    note: str = ""


#: What an entry of the catalogue may give; the others follow from its name and its source.
_GIVEN = {field.name for field in fields(Host)} - {"id", "source", "date"}


def all_hosts() -> list[Host]:
    """The hosts of the catalogue, fastest first."""
    return sorted(_hosts().values(), key=lambda host: host.slowness)


def host_ids() -> list[str]:
    return list(_hosts())


def known_range() -> tuple[float, float]:
    """The range of slowness over all known hosts, with their variation."""
    hosts = all_hosts()
    return min(h.low or h.slowness for h in hosts), max(h.high or h.slowness for h in hosts)


def find_host(name: str) -> Host | None:
    """The host of this name; names match exactly, but for case and for space, underscore and dash."""
    return _hosts().get(key(name))


@cache
def _hosts() -> dict[str, Host]:
    content = read_yaml(CATALOG / _FILE)
    hosts: dict[str, Host] = {}
    for name, entry in content["hosts"].items():
        source = content["sources"][entry["source"]]
        if key(name) in hosts:
            raise ForerunError(f"{_FILE}: {name} is listed twice")
        facts = {n: value for n, value in entry.items() if n != "source"}
        if wrong := [n for n in facts if n not in _GIVEN]:
            raise ForerunError(f"{_FILE}: {name}: {wrong[0]} is no field of a host")
        hosts[key(name)] = Host(id=name, **facts, source=source["title"], date=str(source["date"]))
    return hosts
