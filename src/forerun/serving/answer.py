"""The answer of `forerun.serving`: what clients of a serving engine see, what it costs, each with its interval."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from forerun._util.rendered import Rendered
from forerun.prediction import Estimate


@dataclass(frozen=True)
class Quantiles:
    """The distribution of a quantity over requests, or over gaps between tokens."""

    mean: Estimate
    p50: Estimate
    p90: Estimate
    p99: Estimate


@dataclass(frozen=True)
class ServingPrediction(Rendered):
    """A model in a serving engine on devices under a load; definitions of the quantities are in serving/metrics.py."""

    model: str
    device: str
    devices: int  # all replicas together
    engine: str
    policy: str  # the scheduling: the engine's, or static batching
    dtype: str
    layout: dict[str, int]  # tp, pp, ep, replicas; with disaggregation prefill_replicas
    load: dict[str, Any]
    ttft_ms: Quantiles
    itl_ms: Quantiles | None  # None: answers of one token have no gaps
    tpot_ms: Quantiles | None
    e2e_ms: Quantiles
    throughput: Estimate  # output tokens per second
    throughput_per_device: Estimate
    requests_per_s: Estimate
    goodput: Estimate | None  # requests per second that meet every limit; None: no limit
    energy_per_token_j: Estimate | None
    energy_per_request_j: Estimate | None
    power_w: Estimate | None
    cost_per_million_usd: Estimate | None  # output tokens
    capacity: Estimate | None  # requests per second at most, by the closed form
    limits: dict[str, float] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    means: dict[str, float] = field(default_factory=dict)  # busy, kv_use, in_engine, waiting, prefix_hits, good_share
    kv_tokens: int = 0  # of a replica
    budgets: dict[str, int] = field(default_factory=dict)  # tokens and sequences of an iteration
    preemptions: int = 0
    requests: int = 0
    timeline: dict[str, list[float]] = field(default_factory=dict)
    assumptions: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    basis: str = "learned"
    launch: str | None = None  # the engine's own command
    check: str | None = None  # the engine's own benchmark with this load, against the running server
    confidence: float = 0.9

    def to_dict(self) -> dict[str, Any]:
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ServingPrediction:
        d = dict(data)
        for name in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"):
            parts = d.get(name)
            d[name] = None if parts is None else Quantiles(**{part: Estimate(**e) for part, e in parts.items()})
        for name, value in d.items():
            if isinstance(value, dict) and set(value) == {"value", "low", "high", "unit"}:
                d[name] = Estimate(**value)
        d["notes"] = tuple(d.get("notes", ()))
        return cls(**d)

    @classmethod
    def from_json(cls, text: str) -> ServingPrediction:
        return cls.from_dict(json.loads(text))


def plain(value: Any) -> Any:
    """A value of an answer as JSON has it."""
    if isinstance(value, (Estimate, Quantiles)):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value
