"""What simulated estimates are held to: bounds that none passes (what the devices can at best, what the load offers),
and errors of published runs that no draw of an iteration's time knows."""

from __future__ import annotations

from collections.abc import Mapping

from forerun.prediction import Estimate
from forerun.predictors.laws.conformal import at_confidence
from forerun.serving.engines import Replica
from forerun.serving.metrics import PARTS
from forerun.serving.requests import Requests

_FIRST = tuple(f"ttft_ms.{part}" for part in PARTS)
_ENERGY = ("energy_per_token_j", "energy_per_request_j", "power_w")


def with_run_errors(estimates: Mapping[str, Estimate], one: Replica, confidence: float) -> dict[str, Estimate]:
    """The estimates with intervals of TTFT and of energy at least as wide as their errors on held-out runs: much of
    TTFT happens beside iterations, and a draw of their time moves power little."""
    law, out = one.one_stage.law, dict(estimates)
    for names, ends in ((_FIRST, law.ttft_interval), (_ENERGY, law.energy_interval)):
        low, high = at_confidence(ends, confidence)
        for name in names:
            if name in out:
                e = out[name]
                out[name] = Estimate(e.value, min(e.low, e.value * low), max(e.high, e.value * high), e.unit)
    return out


def held(estimates: Mapping[str, Estimate], one: Replica, devices: int, requests: Requests) -> dict[str, Estimate]:
    """The estimates within their bounds: gaps no shorter than reading the weights, first tokens no earlier than the
    matmuls of the shortest prompt, no more power than the limit, no more good requests than requests."""
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
        limit = one.device.tdp_w * devices
        out["power_w"] = _within(out["power_w"], 0.0, limit)
        for name, rate in (("energy_per_token_j", "throughput"), ("energy_per_request_j", "requests_per_s")):
            if name in out and out[rate].low > 0:
                out[name] = _within(out[name], 0.0, max(limit / out[rate].low, out[name].value))
    if requests.rate is not None:  # no more is answered than is asked
        for name, most in (("requests_per_s", requests.rate), ("throughput", requests.rate * requests.outputs.mean())):
            for key, share in ((name, 1), (f"{name}_per_device", devices)):
                if key in out:
                    out[key] = _within(out[key], 0.0, max(most / share, out[key].value))
    if "goodput" in out:
        out["goodput"] = _within(out["goodput"], 0.0, out["requests_per_s"].high)
    return out


def _within(e: Estimate, low: float, high: float) -> Estimate:
    value, below, above = (min(max(x, low), high) for x in (e.value, e.low, e.high))
    return Estimate(value, below, above, e.unit)
