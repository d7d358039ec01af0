"""What a serving run measured, from the times of its tokens: TTFT, ITL, TPOT, end to end, throughput, and the load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .serving_engine import COLUMNS

PERCENTILES = (50, 90, 99)


@dataclass
class Request:
    """One request, in seconds of one clock."""

    arrival: float
    prompt: int
    output: int
    residual: bool = False  # it stands for one in the middle of its answer, and does not count as a whole request
    submitted: float = 0.0
    token_times: list[float] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return len(self.token_times) >= self.output


@dataclass(frozen=True)
class Window:
    """The steady part of a run, from `start` to `end`; the run itself began at `begin`."""

    begin: float
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def has(self, at: float) -> bool:
        return self.start < at <= self.end


def measures(requests: list[Request], iterations: list[tuple[float, ...]], window: Window) -> dict[str, Any]:
    """All measures of a window, with the requests and iterations that they were computed from.

    An event counts where it ends: a first token, a gap between two tokens, or a last token that lies in the window.
    """
    seen = [r for r in requests if r.token_times]
    first = [r.token_times[0] - r.arrival for r in seen if window.has(r.token_times[0])]
    gaps = [b - a for r in seen for a, b in zip(r.token_times, r.token_times[1:], strict=False) if window.has(b)]
    done = [r for r in seen if r.finished and window.has(r.token_times[-1])]
    whole = [r for r in done if not r.residual]
    per_token = [(r.token_times[-1] - r.token_times[0]) / (r.output - 1) for r in done if r.output > 1]
    tokens = sum(window.has(t) for r in seen for t in r.token_times)
    arrived = [r for r in requests if window.has(r.arrival)]
    lag = [r.submitted - r.arrival for r in requests if r.submitted]
    return {
        "window_s": window.seconds,
        "requests": len(requests),
        "arrived": len(arrived),
        "completed": len(done),
        "requests_per_s": len(done) / window.seconds,
        "output_tokens_per_s": tokens / window.seconds,
        **_spread("ttft", first),
        **_spread("itl", gaps),
        **_spread("tpot", per_token),
        **_spread("e2e", [r.token_times[-1] - r.arrival for r in whole]),
        "submit_lag_ms": 1e3 * float(np.mean(lag)) if lag else None,
        **_load([row for row in iterations if window.has(row[0])], window),
        "window": [window.start - window.begin, window.end - window.begin],
        "trace": [_traced(r, window.begin) for r in requests],
        "iterations": [[row[0] - window.begin, *row[1:]] for row in iterations],
        "iteration_columns": list(COLUMNS),
    }


def _spread(name: str, seconds: list[float]) -> dict[str, Any]:
    """Mean and percentiles in milliseconds, None where nothing was seen, and how many there are."""
    values = 1e3 * np.asarray(seconds)
    some = len(values) > 0
    percentiles = np.percentile(values, PERCENTILES) if some else (None,) * len(PERCENTILES)
    named = {f"{name}_p{p}_ms": _number(v) for p, v in zip(PERCENTILES, percentiles, strict=True)}
    return {f"{name}_ms": float(values.mean()) if some else None, **named, f"{name}_n": len(values)}


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _load(rows: list[tuple[float, ...]], window: Window) -> dict[str, Any]:
    """What the engine computed in the window: means over iterations, or over time where the name says so."""
    if not rows:
        return {"iterations_n": 0}
    column = {name: np.array([row[i] for row in rows]) for i, name in enumerate(COLUMNS)}
    spent = column["prepare_ms"] + column["step_ms"] + column["update_ms"]
    sequences = column["decode"] + column["finished"]
    weights = spent / spent.sum()
    return {
        "iterations_n": len(rows),
        "iteration_ms": float(spent.mean()),
        "prepare_ms": float(column["prepare_ms"].mean()),
        "step_ms": float(column["step_ms"].mean()),
        "update_ms": float(column["update_ms"].mean()),
        "busy": float(min(1.0, 1e-3 * spent.sum() / window.seconds)),
        "running": float((sequences * spent).sum() / 1e3 / window.seconds),
        "waiting": float((column["waiting"] * weights).sum()),
        "context_tokens": float((column["context"] * weights).sum()),
        "used_blocks": float((column["used_blocks"] * weights).sum()),
        "most_used_blocks": float(column["used_blocks"].max()),
        "prompt_tokens_per_s": float(column["prefill"].sum() / window.seconds),
    }


def _traced(request: Request, begin: float) -> list[float | None]:
    """Arrival, prompt, output, first and last token, tokens: all that a replay needs, in seconds since the begin."""
    times = request.token_times
    first, last = (times[0] - begin, times[-1] - begin) if times else (None, None)
    return [request.arrival - begin, request.prompt, request.output, first, last, len(times)]
