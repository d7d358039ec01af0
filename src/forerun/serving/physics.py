"""What simulated estimates are held to: bounds that none passes (what the devices can at best, what the load offers),
and errors of published runs that no draw of an iteration's time knows."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist

from forerun.prediction import Estimate
from forerun.serving.engines import Replica
from forerun.serving.metrics import PARTS
from forerun.serving.requests import Requests


def with_ttft_errors(estimates: Mapping[str, Estimate], one: Replica, confidence: float) -> dict[str, Estimate]:
    """The estimates with intervals of TTFT at least as wide as its errors on held-out runs: much of it happens beside
    iterations."""
    z = NormalDist().inv_cdf((1 + confidence) / 2) / NormalDist().inv_cdf(0.95)
    low, high = (end**z for end in one.one_stage.law.ttft_interval)
    out = dict(estimates)
    for key in (f"ttft_ms.{part}" for part in PARTS):
        if key in out:
            e = out[key]
            out[key] = Estimate(e.value, min(e.low, e.value * low), max(e.high, e.value * high), e.unit)
    return out


def held(estimates: Mapping[str, Estimate], one: Replica, devices: int, requests: Requests) -> dict[str, Estimate]:
    """The estimates within their bounds: gaps no shorter than reading the weights, first tokens no earlier than the
    products of the shortest prompt, no more power than the limit, no more good requests than requests."""
    gap = one.least_itl_ms or 0.0
    shortest = int((requests.inputs - requests.prefix_tokens).min())  # the shared part may be cached
    first = one.least_ttft_ms(max(shortest, 1)) or 0.0
    least = {"itl_ms": gap, "tpot_ms": gap, "ttft_ms": first, "e2e_ms": first + (int(requests.outputs.min()) - 1) * gap}
    out = dict(estimates)
    for name, bound in least.items():
        for key in (f"{name}.{part}" for part in PARTS):
            if key in out:
                out[key] = _within(out[key], bound, float("inf"))
    if one.device.tdp_w is not None and "power_w" in out:
        out["power_w"] = _within(out["power_w"], 0.0, one.device.tdp_w * devices)
    if "goodput" in out:
        out["goodput"] = _within(out["goodput"], 0.0, out["requests_per_s"].high)
    return out


def _within(e: Estimate, low: float, high: float) -> Estimate:
    value, below, above = (min(max(x, low), high) for x in (e.value, e.low, e.high))
    return Estimate(value, below, above, e.unit)
