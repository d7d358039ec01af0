"""What `recommend` answers: choices in order, fronts, what was left out, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from forerun.decisions.recommend.offers import Excluded
from forerun.prediction import Estimate


@dataclass(frozen=True)
class Choice:
    """One device and instance with its best batch and dtype. Energy is per sample or token, carbon and cost are per
    million of them, and None where they are not known."""

    device: str
    count: int  # devices, or MIG slices, at work at once
    instance: str | None
    instances: int
    cloud: str | None
    price_region: str | None  # where the price is from
    grid: str  # whose electricity carbon is counted for
    share: float  # of the instances' price that is charged: below 1 for a single MIG slice
    batch: int  # of each device
    dtype: str
    latency_ms: Estimate
    throughput: Estimate  # of all devices together
    memory_mb: Estimate  # of each device
    usd_per_hour: float | None
    usd_per_million: Estimate | None
    energy_j: Estimate | None
    carbon_g: Estimate | None
    verdict: str  # meets | probably
    reasons: tuple[str, ...]  # the verdict on each limit, as sentences
    basis: str  # learned | roofline
    generation_measured: bool  # False: no measurement shows a device of its generation
    on_latency_cost_front: bool = False
    on_energy_throughput_front: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


@dataclass(frozen=True)
class Recommendation:
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
    offers: int  # devices x instances x counts that were looked at
    considered: int  # these x batches x dtypes

    @property
    def best(self) -> Choice:
        """The first choice."""
        return self.rows[0]

    def to_dict(self) -> dict[str, Any]:
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent)

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from forerun.views.recommend import recommendation_view

        yield from recommendation_view(self, width=options.max_width)

    def _repr_html_(self) -> str:
        from forerun.pages import notebook, recommendation_html

        return notebook(recommendation_html(self))


def _plain(value: Any) -> Any:
    if isinstance(value, (Estimate, Excluded, Choice)):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value
