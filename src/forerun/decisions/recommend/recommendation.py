"""The answer of `recommend`: choices in order, fronts, what was excluded, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from forerun._util.rendered import Rendered
from forerun.advice.verdict import Verdict
from forerun.decisions.recommend.offers import Excluded
from forerun.prediction import Estimate


@dataclass(frozen=True)
class Choice:
    """One device and instance with its best batch and dtype. Energy is per sample or token, carbon and cost are per
    million of them, and None where they are unknown."""

    device: str
    count: int  # devices, or MIG slices, in use at once
    instance: str | None
    instances: int
    cloud: str | None
    price_region: str | None  # where the price is from
    grid: str  # the grid of the carbon
    share: float  # of the instances' price in the cost of calls: below 1 for a MIG slice, if the others are used too
    batch: int  # of each device
    dtype: str
    runtime: str
    latency_ms: Estimate
    throughput: Estimate  # of all devices together
    memory_mb: Estimate  # of each device
    usd_per_hour: float | None  # of the instances as a whole
    usd_per_million: Estimate | None
    energy_j: Estimate | None
    carbon_g: Estimate | None
    verdict: Verdict  # meets | probably
    reasons: tuple[str, ...]  # the verdict on each limit, as sentences
    basis: str  # learned | roofline
    generation_measured: bool  # False: no device of its generation was measured
    on_latency_cost_front: bool = False
    on_energy_throughput_front: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


@dataclass(frozen=True)
class Recommendation(Rendered):
    """Choices in the order of verdict and goal: `rows` has the best of each device (whole, or cut into MIG slices) in
    each cloud, `candidates` that of each device or slice, instance and count."""

    model: str
    goal: str
    items: str  # samples or tokens: what throughput, energy, carbon and cost are counted in
    workload: dict[str, Any]
    limits: dict[str, float]
    confidence: float
    rows: tuple[Choice, ...]
    candidates: tuple[Choice, ...]
    latency_cost_front: tuple[Choice, ...]
    energy_throughput_front: tuple[Choice, ...]
    excluded: tuple[Excluded, ...]
    notes: tuple[str, ...]
    offers: int  # devices x instances x counts that were considered
    considered: int  # these x batches x dtypes

    @property
    def best(self) -> Choice:
        """The first choice."""
        return self.rows[0]

    def to_dict(self) -> dict[str, Any]:
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent)


def _plain(value: Any) -> Any:
    if isinstance(value, (Estimate, Excluded, Choice)):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value
