"""What launches cost the host, found in rows measured on hosts whose speed changes."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from forerun.graph.profile import CLASSES
from forerun.prediction import DEVICE_BOUND
from forerun.predictors.default import fit_host
from forerun.predictors.laws.host import COUNTED, HostCosts
from forerun.runtimes.compile import Compile

#: Rows, launches, device times and how slow each host was.
World = tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def world() -> World:
    """Rows, launches, device times and how slow each host was; every launch costs 10 us on the median host."""
    rng = np.random.default_rng(0)
    n = 400
    counts = np.zeros((n, len(COUNTED)))
    counts[:, :3] = rng.integers(10, 400, (n, 3))
    slow = np.exp(rng.normal(0, 0.3, n))
    device = counts.sum(axis=1) * 10e-3 * np.exp(rng.normal(-0.7, 1.0, n))
    law = HostCosts(np.full(len(COUNTED), 10.0), 1.0, 5.0)
    rows = pd.DataFrame({
        "latency_ms": law.latency_ms(counts, device, slow), "session": "one", "family": rng.choice([*"abcdef"], n),
        "measured_at": pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(np.arange(n), unit="s"),
        "extra": [json.dumps({"pulse_before": {"launch_us": 8 * s}}) for s in slow],
    })  # fmt: skip
    return rows, counts, device, slow


@pytest.fixture(scope="module")
def fitted(world: World) -> HostCosts:
    rows, counts, device, _ = world
    return fit_host.fit(rows, counts, device)


def mean_error(predicted: np.ndarray, rows: pd.DataFrame, device: np.ndarray) -> float:
    """The mean error, calls whose pace the device sets counting as much as the others."""
    latency = rows["latency_ms"].to_numpy()
    error, busy = np.abs(predicted / latency - 1), device >= DEVICE_BOUND * latency
    return float((error[busy].mean() + error[~busy].mean()) / 2)


def test_costs_and_hosts_are_found(world: World, fitted: HostCosts) -> None:
    rows, counts, device, slow = world
    found = fitted
    slowness = fit_host.slowness(rows, found, counts, device)
    np.testing.assert_allclose(slowness / np.median(slowness), slow / np.median(slow), rtol=0.1)
    assert np.median(found.cost_us[:3]) == pytest.approx(10 * np.median(slow), rel=0.15)
    assert mean_error(found.latency_ms(counts, device, slowness), rows, device) < 0.05


def test_the_slowness_of_a_host_that_nobody_probed_makes_errors_smallest(world: World, fitted: HostCosts) -> None:
    rows, counts, device, _ = world
    found = fitted
    best = mean_error(found.latency_ms(counts, device), rows, device)
    assert found.default_slowness < 1  # a prediction that is too long can err by more than 100 %
    assert best < mean_error(found.latency_ms(counts, device, 1.0), rows, device)
    others = (replace(found, default_slowness=s).latency_ms(counts, device) for s in fit_host.CANDIDATES)
    assert best <= min(mean_error(other, rows, device) for other in others)


def test_rows_without_a_probe_take_the_slowness_of_rows_measured_near_them(
    world: World,
) -> None:
    rows, counts, device, _ = world
    law = HostCosts(np.full(len(COUNTED), 10.0), 1.0, 5.0)
    two_speeds = np.where(np.arange(len(rows)) < 200, 0.7, 1.6)
    unprobed = rows.assign(
        latency_ms=law.latency_ms(counts, device * 0.01, two_speeds), extra=None, session=two_speeds.astype(str)
    )
    found = fit_host.slowness(unprobed, law, counts, device * 0.01)
    np.testing.assert_allclose(found, two_speeds, rtol=0.02)


def test_what_a_device_waits_in_a_call_is_found(
    world: World,
) -> None:
    rows, counts, device, slow = world
    long = device * 20  # the device paces nearly all
    law = HostCosts(np.full(len(COUNTED), 10.0), 3.0, 5.0, lead_us=900.0)
    assert law.latency_ms(counts, long, 0.01) == pytest.approx(long + 0.9 + 3e-3 * counts.sum(axis=1), rel=1e-3)
    found = fit_host.fit(rows.assign(latency_ms=law.latency_ms(counts, long, slow)), counts, long)
    waited, known = (f.latency_ms(counts, long, slow) - long for f in (found, law))
    assert np.abs(waited - known).mean() < 0.25 * known.mean()
    assert found.lead_us > 200


def test_a_compiled_training_step_costs_the_host_by_its_modules_too(fitted: HostCosts) -> None:
    """Launches of compiled code cost the same everywhere; gradients and optimizer of a step stay with Python."""
    rng = np.random.default_rng(1)
    n = 80
    counts = np.zeros((n, len(COUNTED)))
    counts[:, 0] = rng.integers(20, 400, n)
    trains = np.arange(n) % 2 == 0
    counts[trains, len(CLASSES)] = rng.integers(20, 400, trains.sum())
    counts[:, COUNTED.index("modules")] = rng.integers(20, 300, n)
    law = replace(
        fitted, probe_law=(-np.log(8.0), 1.0), probe_scale=1.0, own={"compiled_us": (300.0, 24.0, 3000.0, 35.0)}
    )
    rows = pd.DataFrame({
        "latency_ms": law.host_ms(counts, "compile"), "session": "one", "family": rng.choice([*"abcdef"], n),
        "measured_at": pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(np.arange(n), unit="s"),
        "extra": json.dumps({"host_probe_before": {"launch_us": 8.0}}), "runtime": "compile",
    })  # fmt: skip
    found = fit_host.with_runtimes(replace(law, own={"compiled_us": (1.0, 1.0)}), rows, counts, np.full(n, 1e-6))
    np.testing.assert_allclose(found.own["compiled_us"], law.own["compiled_us"], rtol=0.02)


def test_costs_that_no_compiled_call_shows_stay(fitted: HostCosts) -> None:
    n = 20
    counts = np.zeros((n, len(COUNTED)))
    counts[:, 0] = np.linspace(20, 400, n)
    law = replace(fitted, probe_law=(-np.log(8.0), 1.0), probe_scale=1.0, own={"compiled_us": (300.0, 24.0, 0.0, 0.0)})
    rows = pd.DataFrame({
        "latency_ms": law.host_ms(counts, "compile"), "session": "one", "family": "a",
        "measured_at": pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(np.arange(n), unit="s"),
        "extra": json.dumps({"host_probe_before": {"launch_us": 8.0}}), "runtime": "compile",
    })  # fmt: skip
    found = fit_host.with_runtimes(law, rows, counts, np.full(n, 1e-6))
    np.testing.assert_allclose(found.own["compiled_us"], (300.0, 24.0, *Compile.host_us[2:]), rtol=0.02)


def test_graphs_that_the_compiler_keeps_have_waits_of_their_own(fitted: HostCosts) -> None:
    """They follow the host's speed, since Python runs around a replay; a training step waits for its optimizer too."""
    n = 24
    counts = np.zeros((n, len(COUNTED)))
    counts[:, 0] = np.linspace(40, 400, n)
    counts[::3, len(CLASSES)] = 10
    trains, slow = np.arange(n) % 3 == 0, np.where(np.arange(n) < 12, 1.0, 2.0)
    device = np.linspace(0.2, 3.0, n)
    waits = slow * (0.2 + 2e-3 * counts[:, : 2 * len(CLASSES)].sum(axis=1) + 1.0 * trains)
    rows = pd.DataFrame({
        "latency_ms": device + waits, "session": "one", "family": "a",
        "measured_at": pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(np.arange(n), unit="s"),
        "extra": [json.dumps({"host_probe_before": {"launch_us": 8.0 * s}}) for s in slow],
        "runtime": "compile-reduce-overhead",
    })  # fmt: skip
    rows.loc[4, "latency_ms"] = device[4] / 2  # kernels ran side by side
    law = replace(fitted, probe_law=(-np.log(8.0), 1.0), probe_scale=1.0)
    found = fit_host.with_runtimes(law, rows, counts, device)
    np.testing.assert_allclose(found.own["compiled_replay_us"], (200.0, 2.0, 1000.0), rtol=0.02)
    assert "replay_us" not in found.own
    answered = found.latency_ms(counts, device, slow, "compile-reduce-overhead")
    np.testing.assert_allclose(answered[5:], rows["latency_ms"][5:], rtol=0.02)
    assert (found.latency_ms(counts, device, 1.0, "cudagraph") < answered).all()


def test_weights_of_two_costs_still_answer() -> None:
    counts = np.zeros((1, len(COUNTED)))
    counts[:, 0] = 100
    old = HostCosts.from_scalars(np.ones(len(COUNTED)), {"gap_us": 0.0, "sharpness": 4.0, "compiled_us": [100.0, 20.0]})
    assert old.host_ms(counts, "compile") == pytest.approx([2.1])
