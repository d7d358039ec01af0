"""The answer of `plan serving`: deployments in order, the Pareto front, what was left out, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from forerun._util.rendered import Rendered
from forerun.prediction import Estimate
from forerun.serving.answer import plain


@dataclass(frozen=True)
class Deployment:
    """Devices, a layout and budgets, and what they give under the load."""

    device: str
    devices: int
    replicas: int
    tp: int
    pp: int
    ep: int
    dtype: str
    max_tokens: int  # token budget of an iteration
    max_sequences: int
    ttft_ms: Estimate | None  # mean; of simulated deployments the 90th percentile is in `reasons`
    itl_ms: Estimate  # mean
    throughput: Estimate  # output tokens per second
    capacity: float  # requests per second
    energy_per_token_j: Estimate
    usd_per_hour: float | None
    cost_per_million_usd: Estimate | None  # output tokens
    verdict: str  # meets | probably | does not
    reasons: tuple[str, ...]
    confirmed: bool  # simulated; else from the closed form
    measured: bool  # engines were measured on this device
    launch: str
    on_front: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


@dataclass(frozen=True)
class LeftOut:
    """A device or a layout that cannot be, or does not meet the limits."""

    device: str
    layout: str
    reason: str
    possible: bool = True  # the layout itself, apart from memory and limits


@dataclass(frozen=True)
class ServingPlan(Rendered):
    """Deployments by verdict and goal: `rows` has the best of each device, `candidates` all."""

    model: str
    engine: str
    goal: str
    load: dict[str, Any]
    limits: dict[str, float]
    rows: tuple[Deployment, ...]
    candidates: tuple[Deployment, ...]
    front: tuple[Deployment, ...]  # cost (or devices) against the time of an answer
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]
    considered: int  # layouts and budgets
    confidence: float

    @property
    def best(self) -> Deployment:
        return self.rows[0]

    @property
    def missing(self) -> dict[str, str]:
        """Devices without a deployment, and why."""
        reasons = {one.device: one.reason for one in reversed(self.left_out)}
        return {device: reason for device, reason in reasons.items() if device not in {row.device for row in self.rows}}

    def to_dict(self) -> dict[str, Any]:
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("rows", "candidates", "front"):
            out[name] = [d.to_dict() for d in out[name]]
        out["left_out"] = [vars(one) for one in self.left_out]
        return out | {"notes": list(self.notes)}

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent)
