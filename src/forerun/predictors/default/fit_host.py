"""Fits the host's launch costs while the host's own speed varies: costs and speeds are fitted alternately."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd

from forerun._util.extras import needed
from forerun.prediction import DEVICE_BOUND
from forerun.predictors.laws.host import HostCosts, compiled_counts, launches
from forerun.predictors.laws.kernels import HOST_US, INNER_US
from forerun.runtimes import registry
from forerun.runtimes.base import Runtime

NEAR_S = 20.0  # rows this near in time met the same host
ROUNDS = 3
STEPS = 600  # of each round, at most
BETA = 0.1  # relative errors below this count by their square
CANDIDATES = np.linspace(0.5, 2.5, 201)  # values of slowness to choose from
FEW = 10  # rows that a runtime needs for costs of its own
HIDDEN = 1.3  # a call this many times longer than the device's work shows the host's pace


def fit(rows: pd.DataFrame, counts: np.ndarray, device_ms: np.ndarray, *, steps: int = STEPS) -> HostCosts:
    """Costs from rows (`latency_ms`, `session`, `measured_at`, `family`)."""
    slow, latency = np.ones(len(rows)), rows["latency_ms"].to_numpy(dtype=float)
    even = _even(latency, device_ms)
    found = HostCosts(_start(), 0.7, 4.0, lead_us=40.0)
    for _ in range(ROUNDS):
        found = _costs(found, counts, device_ms, latency, slow, even, steps)
        found = replace(found, probe_law=_probe_law(rows, found.host_ms(counts), device_ms))
        slow = slowness(rows, found, counts, device_ms)
        found = _median_host(found, float(np.median(slow)))
        slow = slow / np.median(slow)

    probe_scale = nearest_slowness(found, counts, device_ms, latency, slow, even)
    found = _median_host(replace(found, probe_scale=probe_scale), probe_scale)
    return replace(found, default_slowness=nearest_slowness(found, counts, device_ms, latency, 1.0, even))


def with_runtimes(found: HostCosts, rows: pd.DataFrame, counts: np.ndarray, device_ms: np.ndarray) -> HostCosts:
    """The same costs, with those of single runtimes, fitted to the rows that show them."""
    runs = registry.names_of(rows).to_numpy()
    latency = rows["latency_ms"].to_numpy(dtype=float)
    slow = slowness(rows, found, counts, device_ms)
    own = dict(found.own)
    for run in registry.runtimes():
        if run.replays:
            whole, shown = _replayed(run, rows, runs, device_ms)
            if shown.sum() >= FEW:  # the time of a call beside its kernels
                counted = compiled_counts(counts[shown])[:, : len(run.waits_us)]
                sides = counted * slow[shown, None] if run.waits_for_host else counted
                seen = counted.any(axis=0)
                waits = np.array(run.waits_us)  # as before where no row shows it
                waits[seen] = _nearest(sides[:, seen], 1e3 * (whole - device_ms)[shown], whole[shown])
                own[run.fitted_name] = tuple(waits.tolist())
        elif run.host_us is not None:
            paced = (runs == run.name) & (latency > HIDDEN * device_ms)
            if paced.sum() >= FEW:
                counted = compiled_counts(counts[paced])[:, : len(run.host_us)]
                seen = counted.any(axis=0)
                costs = np.array(run.host_us)  # as before where no row shows it
                costs[seen] = _nearest(counted[:, seen], 1e3 * (latency / slow)[paced], latency[paced])
                own[run.fitted_name] = tuple(costs.tolist())
    return replace(found, own=own)


def _replayed(
    run: Runtime, rows: pd.DataFrame, runs: np.ndarray, device_ms: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The latency of replayed calls, and which rows have it."""
    if run.column_of_eager is not None:
        nothing = np.full(len(rows), np.nan)
        whole = rows[run.column_of_eager].to_numpy(dtype=float) if run.column_of_eager in rows else nothing
        return whole, (runs == registry.USUAL) & np.isfinite(whole)
    latency = rows["latency_ms"].to_numpy(dtype=float)
    # Where kernels take longer than the call, some ran side by side: what lies between them does not show.
    return latency, (runs == run.name) & (latency > device_ms)


def _nearest(sides: np.ndarray, y: np.ndarray, whole: np.ndarray) -> tuple[float, ...]:
    """The non-negative cost of each column with the least error of y, relative to the total that y is part of."""
    with needed("fitting the predictor default", "evaluate"):
        from scipy.optimize import nnls

    weight = 1 / whole
    for _ in range(10):  # absolute errors by their squares, weighted anew
        found, _ = nnls(sides * weight[:, None], y * weight)
        off = np.abs(sides @ found - y) / (1e3 * whole)
        weight = 1 / whole / np.sqrt(np.maximum(off, 0.02))
    return tuple(map(float, found))


def nearest_slowness(
    law: HostCosts, counts: np.ndarray, device_ms: np.ndarray, latency_ms: np.ndarray, slow: np.ndarray | float = 1.0,
    weight: np.ndarray | None = None,
) -> float:  # fmt: skip
    """The factor on `slow` with the least error of predicted latencies."""
    even = np.full(len(latency_ms), 1 / len(latency_ms)) if weight is None else weight
    off = [np.abs(law.latency_ms(counts, device_ms, by * slow) / latency_ms - 1) @ even for by in CANDIDATES]
    return float(CANDIDATES[np.argmin(off)])


def _even(latency_ms: np.ndarray, device_ms: np.ndarray) -> np.ndarray:
    """The weight of each row, such that device-bound calls count as much as all others."""
    busy = device_ms >= DEVICE_BOUND * latency_ms
    return np.where(busy, 0.5 / max(busy.sum(), 1), 0.5 / max((~busy).sum(), 1))


def _median_host(found: HostCosts, slow: float) -> HostCosts:
    """The same law in units of a host that is `slow` times slower."""
    law = found.probe_law and (found.probe_law[0] - np.log(slow), found.probe_law[1])
    return replace(found, cost_us=found.cost_us * slow, probe_law=law)


def probe_us(rows: pd.DataFrame) -> np.ndarray:
    """Microseconds of a tiny launch just before each row was measured; NaN where none was timed."""
    extras = [json.loads(text) if isinstance(text, str) else {} for text in rows["extra"]]
    # Older rows hold the same probe under another key.
    probes = [extra.get("host_probe_before") or extra.get("pulse_before") or {} for extra in extras]
    return np.array([probe.get("launch_us", np.nan) for probe in probes], dtype=float)


def _probe_law(rows: pd.DataFrame, host_ms: np.ndarray, device_ms: np.ndarray) -> tuple[float, float] | None:
    """How the latency of host-bound calls follows the time of a tiny launch, in logarithms."""
    latency, probe = rows["latency_ms"].to_numpy(dtype=float), probe_us(rows)
    host_bound = np.isfinite(probe) & (latency > HIDDEN * device_ms)
    if host_bound.sum() < 30:
        return None
    slower, launch = np.log(latency / host_ms)[host_bound], np.log(probe[host_bound])
    slope = np.polyfit(launch, slower, 1)[0]
    return float(np.median(slower - slope * launch)), float(slope)  # the median, since delays have a long tail


def _start() -> np.ndarray:
    return np.concatenate([HOST_US * 0.6, HOST_US * 0.9, [15.0, 2.0, 5.0, 100.0, INNER_US, 40.0]])


def _costs(
    start: HostCosts, counts: np.ndarray, device_ms: np.ndarray, latency_ms: np.ndarray, slow: np.ndarray,
    even: np.ndarray, steps: int,
) -> HostCosts:  # fmt: skip
    import torch

    log_cost = torch.nn.Parameter(torch.tensor(np.log(start.cost_us), dtype=torch.float32))
    log_gap = torch.nn.Parameter(torch.tensor(np.log(start.gap_us), dtype=torch.float32))
    log_lead = torch.nn.Parameter(torch.tensor(np.log(start.lead_us), dtype=torch.float32))
    log_sharp = torch.nn.Parameter(torch.tensor(np.log(start.sharpness - 1.5), dtype=torch.float32))
    first = log_cost.detach().clone()
    n, d, y, s, e, gaps = (
        torch.tensor(v, dtype=torch.float32) for v in (counts, device_ms, latency_ms, slow, even, launches(counts))
    )
    optimizer = torch.optim.Adam([log_cost, log_gap, log_lead, log_sharp], lr=0.03)
    for _ in range(steps):
        host = s * (n @ torch.exp(log_cost)) / 1e3
        sharp = 1.5 + torch.exp(log_sharp)
        busy = d + (torch.exp(log_lead) + torch.exp(log_gap) * gaps) / 1e3
        top, low = torch.maximum(host, busy), torch.minimum(host, busy)
        predicted = top * (1 + (low / top) ** sharp) ** (1 / sharp)
        loss = e @ torch.nn.functional.smooth_l1_loss(predicted / y, torch.ones_like(y), beta=BETA, reduction="none")
        loss = loss + 0.1 * ((log_cost - first) ** 2).mean()  # costs that no row shows stay at their start
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        found = torch.exp(log_cost).numpy().astype(float)
        gap, lead, sharpness = (float(torch.exp(log)) for log in (log_gap, log_lead, log_sharp))
        return HostCosts(found, gap, 1.5 + sharpness, lead)


def slowness(rows: pd.DataFrame, found: HostCosts, counts: np.ndarray, device_ms: np.ndarray) -> np.ndarray:
    """The slowness of the host at each row: from the launch that was timed just before it or, where none was, from the
    rows of other families measured about the same time."""
    latency = rows["latency_ms"].to_numpy()
    score = np.log(latency / found.host_ms(counts))
    host_bound = latency > HIDDEN * device_ms
    seconds = pd.to_datetime(rows["measured_at"], utc=True).astype("int64").to_numpy() / 1e9
    unit = 1e3 if seconds.max() < 1e8 else 1.0  # pandas may count in microseconds
    seconds = seconds * unit
    session, family = rows["session"].to_numpy(), rows["family"].fillna("unknown").to_numpy()
    overall = np.median(score[host_bound]) if host_bound.any() else 0.0
    out = np.full(len(rows), overall)
    for name in pd.unique(session):
        places_here = np.flatnonzero(session == name)
        useful = places_here[host_bound[places_here]]
        for i in places_here:
            others = useful[family[useful] != family[i]]
            whole = np.median(score[others]) if len(others) >= 3 else overall
            near = others[np.abs(seconds[others] - seconds[i]) < NEAR_S]
            # With few neighbours the session's median counts as three more.
            out[i] = (np.median(score[near]) * len(near) + 3 * whole) / (len(near) + 3) if len(near) else whole
    if found.probe_law is not None:
        timed = found.probe_law[0] + found.probe_law[1] * np.log(probe_us(rows))
        out = np.where(np.isfinite(timed), timed, out)
    return found.probe_scale * np.exp(out)
