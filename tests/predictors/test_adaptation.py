"""Corrections of a device from a few rows: the law alone, on calls made of invented parts."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.predictors.laws import adaptation as law
from forerun.predictors.laws.adaptation import HOST, PARTS, Calls, Prior

PRIOR = Prior(
    common=0.4, resource=0.2, group=0.3, own=0.2, host=0.4, host_own=0.2, host_half=0.2, model=0.1, alike=0.3,
    noise=0.03,
)  # fmt: skip
NOTHING = np.zeros(len(PARTS))


def invented(count: int, seed: int = 0, host: float = 0.0) -> Calls:
    """Calls of random parts: each of a few groups."""
    rng = np.random.default_rng(seed)
    parts = rng.gamma(0.3, 1.0, (count, HOST)) * rng.lognormal(0, 1, (count, 1))
    launched = host * rng.gamma(1.0, 1.0, (count, len(PARTS) - HOST))
    return Calls(parts, np.full(count, 0.01), launched)


def drawn(calls: Calls, seed: int) -> np.ndarray:
    """Times of a device that differs as the prior says."""
    rng = np.random.default_rng(seed)
    corrections = rng.multivariate_normal(NOTHING, PRIOR.covariance())
    shares = law.shares_of(calls)
    alike = law.likeness(shares, shares, PRIOR) + PRIOR.noise**2 * np.eye(len(calls))
    return calls.latency_ms(corrections) * np.exp(rng.multivariate_normal(np.zeros(len(calls)), alike))


def error(calls: Calls, measured: np.ndarray, rows: int) -> tuple[float, float, float]:
    """Mean error in logarithms on the rows after the first ones, without and with them; coverage of 90 % intervals."""
    first, rest = np.arange(len(calls)) < rows, np.arange(len(calls)) >= rows
    posterior = law.fit(calls.take(first), measured[first], PRIOR)
    others = calls.take(rest)
    predicted = np.log(others.latency_ms(posterior.corrections)) + posterior.particular(others)
    off = np.log(measured[rest]) - predicted
    before = np.abs(np.log(measured[rest] / others.latency_ms(NOTHING))).mean()
    return before, np.abs(off).mean(), (np.abs(off) <= 1.645 * posterior.deviation(others)).mean()


@pytest.mark.parametrize("host", [0.0, 3.0])
def test_slopes_are_the_derivatives_of_the_logarithm_of_latency(host: float) -> None:
    calls, at = invented(20, host=host), np.random.default_rng(1).normal(0, 0.3, len(PARTS))
    for only in (False, True):
        time = calls.device_ms if only else calls.latency_ms
        step = 1e-6 * np.eye(len(PARTS))
        differences = [(np.log(time(at + one)) - np.log(time(at))) / 1e-6 for one in step]
        assert np.allclose(calls.slopes(at, only), np.stack(differences, axis=1), atol=1e-5)


def test_one_row_helps_and_fifty_help_more() -> None:
    found = {rows: [] for rows in (1, 5, 50)}
    for seed in range(40):
        calls = invented(90, seed, host=seed % 2)
        measured = drawn(calls, seed)
        for rows, errors in found.items():
            errors.append(error(calls, measured, rows))
    means = {rows: np.mean(errors, axis=0) for rows, errors in found.items()}
    assert all(after < before for before, after, _ in means.values())
    assert means[50][1] < means[5][1] < means[1][1] < 0.8 * means[1][0]
    assert all(0.85 <= coverage <= 0.95 for *_, coverage in means.values())


def test_a_device_as_predicted_stays_as_predicted() -> None:
    calls = invented(30)
    posterior = law.fit(calls, calls.latency_ms(NOTHING), PRIOR)
    assert np.abs(posterior.corrections).max() < 1e-6 and np.abs(posterior.particular(calls)).max() < 1e-6


def test_one_wrong_row_moves_little_and_shows() -> None:
    calls = invented(20)
    measured = calls.latency_ms(NOTHING)
    measured[3] *= 5
    posterior = law.fit(calls, measured, PRIOR)
    predicted = np.log(calls.latency_ms(posterior.corrections)) + posterior.particular(calls)
    off = predicted - np.log(calls.latency_ms(NOTHING))
    assert np.abs(np.delete(off, 3)).mean() < 0.05
    residual, _ = law.leave_one_out(posterior)
    assert np.argmax(np.abs(residual)) == 3 and residual[3] == pytest.approx(np.log(5), abs=0.3)


def test_held_out_rows_are_predicted_as_if_fitted_without_them() -> None:
    calls = invented(12)
    measured = drawn(calls, 3)
    groups = np.repeat(np.arange(6), 2)
    posterior = law.fit(calls, measured, PRIOR)
    residual, _ = law.held_out(posterior, groups)
    others = law.fit(calls.take(groups != 2), measured[groups != 2], PRIOR)
    mine = calls.take(groups == 2)
    predicted = np.log(mine.latency_ms(others.corrections)) + others.particular(mine)
    assert np.allclose(residual[groups == 2], np.log(measured[groups == 2]) - predicted, atol=0.05)


def test_power_of_waiting_and_of_work_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    static, dynamic = rng.lognormal(0, 1, 20), rng.lognormal(0, 1, 20)
    power, left = law.fit_power(static, dynamic, 1.4 * static + 0.8 * dynamic)
    assert np.exp(power) == pytest.approx([1.4, 0.8], rel=0.05) and left < law.POWER_NOISE
