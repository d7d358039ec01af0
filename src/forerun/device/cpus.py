"""CPUs by name: how long a launch takes beside one, from its published single-thread rating.

    slowness = reference rating / rating

Launching is the work of one thread, so its time is taken to be inverse to the rating. The law could be checked on one
CPU alone (Xeon Platinum 8480C: 1.09, where published launches say 1.01), so what it is in doubt by is assumed
(`deviation`). Where the launches of a CPU were published, they are used instead.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from forerun.device.hosts import all_hosts
from forerun.device.reading import CATALOG, key, read_yaml
from forerun.errors import ForerunError

_FILE = "cpus.yaml"
RATING = "PassMark's single-thread rating"

#: What a system writes around a CPU's name: Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz, AMD EPYC 7763 64-Core Processor.
_AROUND = re.compile(r"\((?:r|tm|c)\)|@.*$|\b\d+(?:st|nd|rd|th)[ _-]gen\b|\b\d+[ _-]cores?\b|\b(?:cpu|processor)\b")
_MAKERS = ("amd-", "intel-", "nvidia-")


@dataclass(frozen=True)
class Cpu:
    """One CPU: how long a launch takes beside it, and what that is based on."""

    id: str
    name: str
    slowness: float  # times as long as on the reference host
    rating: int | None
    launches: str | None  # those that were published; else the slowness follows from the rating
    source: str
    date: str

    @property
    def basis(self) -> str:
        """What the slowness is based on, in words."""
        if self.launches is not None:
            return f"published launches: {self.launches}"
        return f"{RATING} of {self.rating:,}, where the reference host has about {reference_rating():,.0f}"


def all_cpus() -> list[Cpu]:
    """The CPUs of the catalogue, by name."""
    return sorted(_cpus().values(), key=lambda cpu: cpu.name)


def cpu_ids() -> list[str]:
    return list(_cpus())


def find_cpu(name: str) -> Cpu | None:
    """The CPU of this name, as its maker or the system writes it; but for that, names match exactly."""
    return _cpus().get(cpu_key(name))


def cpu_key(name: str) -> str:
    """The form in which names of CPUs are compared: `amd-epyc-7763` and `AMD EPYC 7763 64-Core Processor` are
    `epyc-7763`."""
    plain = key(_AROUND.sub(" ", name.lower())).strip("-")
    return next((plain.removeprefix(maker) for maker in _MAKERS if plain.startswith(maker)), plain)


@cache
def reference_rating() -> float:
    """The rating of the reference host: the median over the CPUs that it may have."""
    import statistics  # takes as long as a prediction, which seldom needs it

    ratings = {name: rating for table in _content()["cpus"].values() for name, rating in table.items()}
    return float(statistics.median(ratings[name] for name in _content()["reference"]))


@cache
def deviation() -> float:
    """How uncertain the slowness of a host known by its CPU is: a standard deviation, in logarithms. It is that between
    the hosts whose launches were measured, as if the name of their CPU explained nothing."""
    import statistics

    return statistics.stdev(math.log(host.slowness) for host in all_hosts())


def _content() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(CATALOG / _FILE)
    return content


@cache
def _cpus() -> dict[str, Cpu]:
    content = _content()
    cpus: dict[str, Cpu] = {}
    for source, table in content["cpus"].items():
        title, date = _published(content["sources"][source])
        for name, rating in table.items():
            id_ = cpu_key(name)
            if id_ in cpus:
                raise ForerunError(f"{_FILE}: {name} is listed twice")
            cpus[id_] = Cpu(id_, name, reference_rating() / rating, rating, None, title, date)
    for name, facts in content["measured"].items():
        id_ = cpu_key(name)
        rating = cpus[id_].rating if id_ in cpus else None
        title, date = _published(content["sources"][facts["source"]])
        cpus[id_] = Cpu(id_, name, facts["slowness"], rating, facts["launches"], title, date)
    return cpus


def _published(source: dict[str, Any]) -> tuple[str, str]:
    """Title and date of a source."""
    return source["title"], str(source["date"])
