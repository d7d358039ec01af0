"""What launches cost the host, found in rows of hosts that are now fast and now slow."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from forerun.prediction import DEVICE_BOUND
from forerun.predictors.host import COUNTED
from forerun.training import fit_host


@pytest.fixture(scope="module")
def world() -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """Rows, launches, device times and how slow each host was; every launch costs 10 us on the median host."""
    rng = np.random.default_rng(0)
    n = 400
    counts = np.zeros((n, len(COUNTED)))
    counts[:, :3] = rng.integers(10, 400, (n, 3))
    slow = np.exp(rng.normal(0, 0.3, n))
    device = counts.sum(axis=1) * 10e-3 * np.exp(rng.normal(-0.7, 1.0, n))
    law = fit_host.HostFit(np.full(len(COUNTED), 10.0), 1.0, 5.0)
    rows = pd.DataFrame({
        "latency_ms": law.latency_ms(counts, device, slow), "session": "one", "family": rng.choice([*"abcdef"], n),
        "measured_at": pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(np.arange(n), unit="s"),
        "extra": [json.dumps({"pulse_before": {"launch_us": 8 * s}}) for s in slow],
    })  # fmt: skip
    return rows, counts, device, slow


def off(told: np.ndarray, rows: pd.DataFrame, device: np.ndarray) -> float:
    """The mean error, calls whose pace the device sets counting as much as the others."""
    latency = rows["latency_ms"].to_numpy()
    error, busy = np.abs(told / latency - 1), device >= DEVICE_BOUND * latency
    return float((error[busy].mean() + error[~busy].mean()) / 2)


def test_costs_and_hosts_are_found(world: tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]) -> None:
    rows, counts, device, slow = world
    found = fit_host.fit(rows, counts, device)
    told = fit_host.slowness(rows, found, counts, device)
    np.testing.assert_allclose(told / np.median(told), slow / np.median(slow), rtol=0.1)
    assert np.median(found.cost_us[:3]) == pytest.approx(10 * np.median(slow), rel=0.15)
    assert off(found.latency_ms(counts, device, told), rows, device) < 0.05


def test_a_host_that_nobody_probed_is_guessed_so_that_answers_are_off_least(
    world: tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    rows, counts, device, _ = world
    found = fit_host.fit(rows, counts, device)
    best = off(found.latency_ms(counts, device), rows, device)
    assert found.guess < 1  # what is told too long can be off by more than all of it
    assert best < off(found.latency_ms(counts, device, 1.0), rows, device)
    assert best <= min(off(replace(found, guess=g).latency_ms(counts, device), rows, device) for g in fit_host.LEVELS)


def test_rows_without_a_probe_are_told_by_their_neighbours(
    world: tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    rows, counts, device, _ = world
    law = fit_host.HostFit(np.full(len(COUNTED), 10.0), 1.0, 5.0)
    halves = np.where(np.arange(len(rows)) < 200, 0.7, 1.6)
    alike = rows.assign(
        latency_ms=law.latency_ms(counts, device * 0.01, halves), extra=None, session=halves.astype(str)
    )
    told = fit_host.slowness(alike, law, counts, device * 0.01)
    np.testing.assert_allclose(told, halves, rtol=0.02)


def test_what_a_device_waits_in_a_call_is_found(
    world: tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    rows, counts, device, slow = world
    long = device * 20  # the device paces nearly all
    law = fit_host.HostFit(np.full(len(COUNTED), 10.0), 3.0, 5.0, lead_us=900.0)
    assert law.latency_ms(counts, long, 0.01) == pytest.approx(long + 0.9 + 3e-3 * counts.sum(axis=1), rel=1e-3)
    found = fit_host.fit(rows.assign(latency_ms=law.latency_ms(counts, long, slow)), counts, long)
    waited, known = (f.latency_ms(counts, long, slow) - long for f in (found, law))
    assert np.abs(waited - known).mean() < 0.25 * known.mean()
    assert found.lead_us > 200
