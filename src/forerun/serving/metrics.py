"""What a client of a serving engine sees, and what its owner pays: the definitions, and their numbers of a simulation.

TTFT: arrival to first token. ITL: gaps between consecutive tokens of a request. TPOT: (last - first token) /
(tokens - 1) of a request. End to end: arrival to last token. Throughput: output tokens per second. Goodput: requests
per second that meet every limit given, TTFT and the mean gap of the request.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.serving.log import Times
from forerun.serving.simulator import Simulated, concurrency_at

#: What a quantity with a distribution is told by.
PARTS = ("mean", "p50", "p90", "p99")
#: The quantities with a distribution, and how each is defined in words.
DEFINITIONS = {
    "ttft_ms": "time to first token: arrival to first token",
    "itl_ms": "inter-token latency: gaps between consecutive tokens of a request",
    "tpot_ms": "time per output token: (last - first token) / (tokens - 1) of a request",
    "e2e_ms": "end to end: arrival to last token",
}
#: Share of the requests that come before the steady state, and after it.
_BEFORE, _AFTER = 0.1, 0.05


@dataclass(frozen=True)
class Limits:
    """The service level that requests are to meet, in milliseconds; None: any."""

    ttft_ms: float | None = None
    itl_ms: float | None = None  # of the mean gap of a request

    def __bool__(self) -> bool:
        return self.ttft_ms is not None or self.itl_ms is not None


@dataclass(frozen=True)
class Window:
    """The requests and the time that are counted."""

    which: np.ndarray  # of the requests
    start_s: float
    end_s: float


def steady_window(s: Simulated) -> Window:
    """Without the ramp at the beginning and the end: requests that arrive between, and the time in which they do. The
    ramp takes at least as long as a request is answered in. All of them where the rest is shorter than that: there is
    no steady state then."""
    count, clients = len(s.requests), s.requests.concurrency or 0
    order = np.argsort(s.times.arrival, kind="stable")
    low = min(max(int(_BEFORE * count), 2 * clients), count // 2)
    answered_s = 0.0 if clients else float(np.median(s.times.last - s.times.arrival))
    arrived = s.times.arrival[order]
    low = min(max(low, int(np.searchsorted(arrived, arrived[0] + answered_s))), count - 1)
    high = max(count - max(int(_AFTER * count), min(clients, count // 4)), low + 1)
    which = np.zeros(count, dtype=bool)
    which[order[low:high]] = True
    start, end = float(arrived[low]), float(arrived[high - 1])
    return Window(which, start, end) if end - start > answered_s else whole_window(s)


def whole_window(s: Simulated) -> Window:
    """All requests, from the first arrival to the last token."""
    which = np.ones(len(s.requests), dtype=bool)
    return Window(which, float(s.times.arrival.min()), float(s.times.last.max()))


def measured(s: Simulated, window: Window, limits: Limits, *, idle_w: float = 0.0) -> dict[str, float]:
    """All numbers by name; `idle_w` is the power of a device between iterations."""
    host_ms = s.models[0].request_ms
    times, which = s.times, window.which
    outputs = s.requests.outputs[which]
    ttft = (times.first - times.arrival)[which] * 1e3 + host_ms
    last = (times.last - times.arrival)[which] * 1e3 + host_ms
    several = outputs > 1
    tpot = ((times.last - times.first)[which] * 1e3)[several] / (outputs[several] - 1)
    gaps = np.concatenate([each.gaps for each in s.replicas])
    gaps = gaps[(gaps[:, 0] >= window.start_s) & (gaps[:, 0] <= window.end_s)]
    out = {f"ttft_ms.{part}": value for part, value in _parts(ttft).items()}
    out |= {f"itl_ms.{part}": value for part, value in _parts(gaps[:, 1] * 1e3, gaps[:, 2]).items()}
    out |= {f"tpot_ms.{part}": value for part, value in _parts(tpot).items()}
    out |= {f"e2e_ms.{part}": value for part, value in _parts(last).items()}
    rates = _rates(s, window, idle_w)
    return out | rates | _good(ttft, tpot, several, limits, rates["requests_per_s"])


def _parts(values: np.ndarray, weights: np.ndarray | None = None) -> dict[str, float]:
    """Mean and quantiles; not a number where there are no values."""
    if len(values) == 0:
        return dict.fromkeys(PARTS, float("nan"))
    order = np.argsort(values)
    weights = np.ones(len(values)) if weights is None else weights
    reached = np.cumsum(weights[order]) / weights.sum()
    out = {"mean": float(np.average(values, weights=weights))}
    for part in PARTS[1:]:
        at = min(int(np.searchsorted(reached, int(part[1:]) / 100 - 1e-12)), len(values) - 1)
        out[part] = float(values[order[at]])
    return out


def _rates(s: Simulated, window: Window, idle_w: float) -> dict[str, float]:
    seconds = window.end_s - window.start_s
    tokens = joules = ran = used = 0.0
    for replica, model in zip(s.replicas, s.models, strict=True):
        inside = (replica.ends_s > window.start_s) & (replica.ends_s <= window.end_s)
        tokens += float((np.asarray(replica.load.decode) + np.asarray(replica.load.finished))[inside].sum())
        busy = min(float(replica.durations_s[inside].sum()), seconds)
        joules += float(replica.energy_j[inside].sum()) + idle_w * model.devices * (seconds - busy)
        ran += busy / seconds
        used += _mean_kv(replica.kv, window) / max(model.kv_tokens // model.block, 1)
    moments = np.linspace(window.start_s, window.end_s, 400)
    begun = int(((s.times.arrival >= window.start_s) & (s.times.arrival < window.end_s)).sum())
    ended = int(((s.times.last > window.start_s) & (s.times.last <= window.end_s)).sum())
    inputs = max(float(s.requests.inputs[window.which].sum()), 1.0)
    return {
        "throughput": tokens / seconds, "throughput_per_device": tokens / seconds / s.devices,
        "requests_per_s": ended / seconds, "arrivals_per_s": begun / seconds,
        "energy_per_token_j": joules / tokens if tokens else float("nan"),
        "energy_per_request_j": joules / ended if ended else float("nan"),
        "power_w": joules / seconds, "busy": ran / len(s.replicas), "kv_use": used / len(s.replicas),
        "in_engine": float(concurrency_at(s.times, moments).mean()),
        "waiting": float(waiting_at(s.times, moments).mean()),
        "prefix_hits": float(s.times.cached[window.which].sum()) / inputs,
    }  # fmt: skip


def _mean_kv(kv: np.ndarray, window: Window) -> float:
    """Blocks in use, averaged over the time."""
    if len(kv) == 0:
        return 0.0
    moments = np.linspace(window.start_s, window.end_s, 400)
    return float(kv_at(kv, moments).mean())


def kv_at(kv: np.ndarray, when: np.ndarray) -> np.ndarray:
    """Blocks in use at these times."""
    place = np.searchsorted(kv[:, 0], when, side="right") - 1
    return np.where(place >= 0, kv[np.maximum(place, 0), 1], 0.0)


def waiting_at(times: Times, when: np.ndarray) -> np.ndarray:
    """Requests that have arrived and are not admitted yet."""
    arrived = np.searchsorted(np.sort(times.arrival), when, side="right")
    return np.asarray(arrived - np.searchsorted(np.sort(times.admitted), when, side="right"))


def _good(ttft: np.ndarray, tpot: np.ndarray, several: np.ndarray, limits: Limits, answered: float) -> dict[str, float]:
    if not limits:
        return {}
    good = np.ones(len(ttft), dtype=bool)
    if limits.ttft_ms is not None:
        good &= ttft <= limits.ttft_ms
    if limits.itl_ms is not None:
        good[several] &= tpot <= limits.itl_ms
    return {"goodput": float(good.mean()) * answered, "good_share": float(good.mean())}


def timeline(s: Simulated, points: int = 240) -> dict[str, list[float]]:
    """The queue, the running requests and the share of the KV cache in use, at so many moments from begin to end."""
    window = whole_window(s)
    moments = np.linspace(window.start_s, window.end_s, points)
    waiting = waiting_at(s.times, moments)
    blocks = sum(kv_at(r.kv, moments) for r in s.replicas if len(r.kv))
    most = sum(m.kv_tokens // m.block for m in s.models)
    return {
        "seconds": (moments - window.start_s).round(4).tolist(), "waiting": waiting.tolist(),
        "running": (concurrency_at(s.times, moments) - waiting).tolist(),
        "kv_use": np.round(np.broadcast_to(blocks, moments.shape) / max(most, 1), 4).tolist(),
    }  # fmt: skip
