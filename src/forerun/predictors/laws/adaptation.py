"""Corrections of a device from a few measured calls: shrunken factors on the parts that a prediction is made of.

The predicted time of a call is a sum over parts (arithmetic, memory and launches of each group of ops, launches on the
host); a device multiplies each part by a factor of its own. In logarithms, the factors have a normal prior whose spread
is that between devices that we know (adaptation.yaml), so that one row helps and fifty do not overfit:

    log time = log sum(part x exp(correction)) + what is particular to a model + noise
    correction = common to all parts + of its resource + of its group + its own      (independent normals)

What is particular to a model is alike for calls whose time is made of like parts: a Gaussian process over the shares of
the parts. The sum is made linear where the corrections are (Gauss-Newton), a few times; the rest is linear algebra.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from forerun.device.adapted import Adaptation
from forerun.errors import ForerunError
from forerun.graph.profile import CLASSES, UNITS
from forerun.prediction import deviations
from forerun.predictors.laws.host import smooth_max

#: Groups of ops with corrections of their own: by the beginning of their kernel class, the first that fits.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "convolution 1x1": ("conv_pointwise",), "grouped convolution": ("conv_depthwise", "conv_grouped"),
    "convolution": ("conv",), "matmul": ("matmul", "batched", "expert", "attention", "rnn"),
    "norm": ("norm", "softmax"), "elementwise": ("elementwise", "fill", "optimizer"),
    "pool": ("pool", "reduce", "resize"), "other": ("",),
}  # fmt: skip
GROUP_OF_CLASS = np.array([
    next(g for g, starts in enumerate(GROUPS.values()) if name.startswith(starts)) for name in CLASSES
])  # fmt: skip
#: What an op spends its time on. How well half precision runs is a matter of its own: other units, other kernels.
RESOURCES = ("arithmetic", "half precision", "memory", "launch")
HALF_UNITS = np.array([unit in ("fp16", "bf16", "fp8", "int8") for unit in UNITS])
#: What the host does: it launches the ops of each group, and does all else of a call. Calls in half precision are parts
#: of their own: libraries launch other kernels for them, and more or fewer (measured: 0.7 to 1.9 times as long).
_LAUNCHED = (*GROUPS, "calls")
HOST_PARTS = (*_LAUNCHED, *(f"{name}, half precision" for name in _LAUNCHED))
#: What is corrected: each resource of each group of ops on the device, then the parts of the host's time.
PARTS = (
    *(f"{group}: {resource}" for group in GROUPS for resource in RESOURCES), *(f"host: {name}" for name in HOST_PARTS)
)  # fmt: skip
HOST = len(GROUPS) * len(RESOURCES)
_ARRAYS = ("corrections", "covariance", "slopes", "shares", "weights", "inverse", "power")
#: Standard deviations between devices of static and dynamic power, and of a row, in logarithms; and how many rows the
#: usual error counts as.
POWER_PRIOR, POWER_NOISE, USUAL_ROWS = (0.5, 0.35), 0.1, 4
#: Of Gauss-Newton, which settles in three to six; the most that a correction moves in a step, in logarithms; and in how
#: many steps rows that stand apart are found: then they stay what they are.
_STEPS, _STRIDE, _SORTED = 12, 0.7, 5
#: How many held-out rows that are as expected are assumed beside those that are there; and by how much intervals may be
#: narrowed and widened. Chosen on the devices of the prior (docs/ADAPT.md).
_AS_EXPECTED, _SCALES = 6, (0.8, 4.0)
#: Noise in multiples of the usual one, and how much against them speaks beforehand.
_NOISES = ((0.5, 0.7), (1.0, 0.0), (2.0, 0.5), (4.0, 1.5))
#: A row this many standard deviations away from what the others say counts less, as if errors had heavy tails.
_HUBER = 2.5


@dataclass(frozen=True)
class Prior:
    """Standard deviations between devices, in logarithms."""

    common: float  # of all parts of the device together
    resource: float  # of a resource of all groups
    group: float  # of a group of ops
    own: float  # of one part
    host: float  # of all parts of the host's time together
    host_own: float  # of one of them
    host_half: float  # of calls in half precision from others
    model: float  # what is particular to a model
    alike: float  # how far shares differ until models are no longer alike
    noise: float  # of a row

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Prior:
        return cls(**{f.name: float(values[f.name]) for f in fields(cls)})

    def shrunken(self, strength: float) -> Prior:
        """A prior under which devices differ less."""
        names = ("common", "resource", "group", "own", "host", "host_own", "host_half")
        return replace(self, **{name: strength * getattr(self, name) for name in names})

    def covariance(self) -> np.ndarray:
        """Of the corrections, over PARTS."""
        groups, resources = np.divmod(np.arange(HOST), len(RESOURCES))
        out = np.zeros((len(PARTS), len(PARTS)))
        out[:HOST, :HOST] = (
            self.common**2
            + self.resource**2 * np.equal.outer(resources, resources)
            + self.group**2 * np.equal.outer(groups, groups)
            + self.own**2 * np.eye(HOST)
        )
        half, launched = np.divmod(np.arange(len(HOST_PARTS)), len(_LAUNCHED))
        out[HOST:, HOST:] = (
            self.host**2
            + self.host_own**2 * np.equal.outer(launched, launched)
            + self.host_half**2 * np.logical_and.outer(half, half)
        )
        return out


@dataclass(frozen=True)
class Calls:
    """Predicted calls by their parts, before any correction."""

    parts_ms: np.ndarray  # [n, HOST] device time by resource of each group
    idle_ms: np.ndarray  # [n] of the device, beside its kernels
    host_ms: np.ndarray  # [n, HOST_PARTS]; 0 where the device is its own host
    sharpness: float = 8.0  # of the larger of device and host

    def __len__(self) -> int:
        return len(self.idle_ms)

    def take(self, chosen: np.ndarray) -> Calls:
        return replace(self, parts_ms=self.parts_ms[chosen], idle_ms=self.idle_ms[chosen], host_ms=self.host_ms[chosen])

    def device_ms(self, corrections: np.ndarray) -> np.ndarray:
        corrected: np.ndarray = self.parts_ms @ np.exp(corrections[:HOST])
        return corrected

    def latency_ms(self, corrections: np.ndarray) -> np.ndarray:
        busy, host = self.device_ms(corrections) + self.idle_ms, self.host_ms @ np.exp(corrections[HOST:])
        return smooth_max(busy, host, self.sharpness)

    def slopes(self, corrections: np.ndarray, device_only: np.ndarray | bool = False) -> np.ndarray:
        """[n, PARTS]: d log(latency) / d correction, which are the shares of the parts; of device time where that was
        measured alone."""
        each = self.parts_ms * np.exp(corrections[:HOST])
        kernels = np.maximum(each.sum(axis=1), 1e-12)
        launching = self.host_ms * np.exp(corrections[HOST:])
        busy, host = kernels + self.idle_ms, launching.sum(axis=1)
        top = np.maximum(busy, host)
        device = (busy / top) ** self.sharpness
        device = device / (device + (host / top) ** self.sharpness)
        of_kernels = np.where(device_only, 1.0, device * kernels / busy)
        out = np.empty((len(self), len(PARTS)))
        out[:, :HOST] = each * (of_kernels / kernels)[:, None]
        of_host = np.where(device_only, 0.0, 1.0 - device)
        out[:, HOST:] = launching * (of_host / np.maximum(host, 1e-12))[:, None]
        return out


def host_parts(launched_ms: np.ndarray, half: bool | np.ndarray) -> np.ndarray:
    """[n, HOST_PARTS] from the host's time [n, launches of each group and the rest], in half precision or not."""
    half = np.broadcast_to(half, len(launched_ms))[:, None]
    return np.concatenate([launched_ms * ~half, launched_ms * half], axis=1)


def join_calls(several: Sequence[Calls]) -> Calls:
    return Calls(
        np.concatenate([one.parts_ms for one in several]), np.concatenate([one.idle_ms for one in several]),
        np.concatenate([one.host_ms for one in several]), several[0].sharpness,
    )  # fmt: skip


@dataclass(frozen=True)
class Posterior:
    """What rows say of the corrections, and what else predictions need."""

    corrections: np.ndarray  # [PARTS]
    covariance: np.ndarray  # [PARTS, PARTS] of the corrections alone
    slopes: np.ndarray  # [rows, PARTS]
    shares: np.ndarray  # [rows, ...] before any correction: which models are alike (shares_of)
    weights: np.ndarray  # [rows] the rows' residuals, solved against their covariance
    inverse: np.ndarray  # [rows, rows] of that covariance
    prior: Prior
    scale: float = 1.0  # what intervals are multiplied by: residuals of rows over what was expected of them
    excess: np.ndarray | None = None  # [rows] variance beyond the noise of rows that stand apart; not kept
    power: np.ndarray = field(default_factory=lambda: np.zeros(2))  # corrections of static and of dynamic power
    power_deviation: float | None = None  # of energy beyond that of time; None: no row had energy

    def particular(self, calls: Calls) -> np.ndarray:
        """[n] in logarithms: what rows of models alike say beyond the corrections."""
        return self._alike(calls) @ self.weights

    def deviation(self, calls: Calls, device_only: bool = False) -> np.ndarray:
        """[n] of the logarithm of a new call's time: a standard deviation."""
        prior = self.prior
        slopes = calls.slopes(self.corrections, device_only)
        between = slopes @ prior.covariance() @ self.slopes.T + self._alike(calls)
        known = np.einsum("nr,rs,ns->n", between, self.inverse, between)
        before = np.einsum("np,pq,nq->n", slopes, prior.covariance(), slopes) + prior.model**2
        deviation: np.ndarray = self.scale * np.sqrt(np.maximum(before - known, 0.0) + prior.noise**2)
        return deviation

    def _alike(self, calls: Calls) -> np.ndarray:
        return likeness(shares_of(calls), self.shares, self.prior)


def shares_of(calls: Calls) -> np.ndarray:
    """Which calls are alike: by the square roots of the shares of their parts, and a little by their length."""
    shares = calls.slopes(np.zeros(len(PARTS)))
    both = shares[:, HOST:].reshape(len(calls), 2, -1).sum(axis=1)  # a model stays itself in half precision
    shares = np.sqrt(np.column_stack([shares[:, :HOST], both]))
    length = np.log(np.maximum(calls.latency_ms(np.zeros(len(PARTS))), 1e-6))
    return np.column_stack([shares, 0.1 * length])


def likeness(a: np.ndarray, b: np.ndarray, prior: Prior) -> np.ndarray:
    """The covariance of what is particular to the models of calls."""
    apart = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=-1)
    return prior.model**2 * np.exp(-apart / (2 * prior.alike**2))


def fit(
    calls: Calls, measured_ms: np.ndarray, prior: Prior, *, device_only: np.ndarray | bool = False,
    rounding: np.ndarray | float = 0.0,
) -> Posterior:  # fmt: skip
    """The corrections that measured times say. `rounding` is a standard deviation in logarithms that rows have beyond
    the usual noise (times in whole milliseconds)."""
    count = len(calls)
    before, shares = prior.covariance(), shares_of(calls)
    device_only, rounding = np.broadcast_to(device_only, count), np.broadcast_to(rounding, count)
    alike, logs = likeness(shares, shares, prior), np.log(measured_ms)
    corrections, trust = np.zeros(len(PARTS)), np.ones(count)
    for step in range(_STEPS):
        slopes = calls.slopes(corrections, device_only)
        predicted = np.where(device_only, calls.device_ms(corrections), calls.latency_ms(corrections))
        noise = (prior.noise**2 + rounding**2) / trust
        within = alike + np.diag(noise)
        inverse = np.linalg.inv(slopes @ before @ slopes.T + within)
        weights = inverse @ (logs - np.log(predicted) + slopes @ corrections)
        stride = before @ slopes.T @ weights - corrections
        longest = float(np.abs(stride).max())
        corrections = corrections + stride * min(1.0, _STRIDE / max(longest, 1e-12))
        if step < _SORTED and count > 4:
            apart = np.abs(weights) / np.sqrt(np.diag(inverse))
            trust = np.where(apart > _HUBER, (_HUBER / np.maximum(apart, 1e-9)) ** 2, 1.0)
        elif longest < 1e-4:
            break
    after = before - before @ slopes.T @ inverse @ slopes @ before
    excess = noise - prior.noise**2 - rounding**2
    return Posterior(corrections, after, slopes, shares, weights, inverse, prior, excess=excess)


def surprise(posterior: Posterior) -> float:
    """The negative logarithm of the likelihood of the rows, under the prior: the linear one around the corrections."""
    _, logdet = np.linalg.slogdet(posterior.inverse)
    weights = posterior.weights
    return 0.5 * float(weights @ np.linalg.solve(posterior.inverse, weights)) - 0.5 * float(logdet)


def fit_noise(
    calls: Calls, measured_ms: np.ndarray, prior: Prior, rounding: np.ndarray | float = 0.0
) -> Posterior:  # fmt: skip
    """`fit`, with the noise that makes the rows most likely: some devices are measured with a steadier hand."""
    found = []
    for times, doubt in _NOISES:
        posterior = fit(calls, measured_ms, replace(prior, noise=times * prior.noise), rounding=rounding)
        found.append((surprise(posterior) + doubt, posterior))
    return min(found, key=lambda one: one[0])[1]


def fit_power(static_j: np.ndarray, dynamic_j: np.ndarray, measured_j: np.ndarray) -> tuple[np.ndarray, float]:
    """Corrections of static and of dynamic power, of calls whose predicted energy is the sum of the two; and the
    deviation that is left, in logarithms."""
    power, before, logs = np.zeros(2), np.diag(np.square(POWER_PRIOR)), np.log(measured_j)
    for _ in range(_STEPS):
        each = np.column_stack([static_j, dynamic_j]) * np.exp(power)
        slopes = each / each.sum(axis=1, keepdims=True)
        missing = logs - np.log(each.sum(axis=1)) + slopes @ power
        weights = np.linalg.solve(slopes @ before @ slopes.T + POWER_NOISE**2 * np.eye(len(logs)), missing)
        power = before @ slopes.T @ weights
    residual = logs - np.log((np.column_stack([static_j, dynamic_j]) * np.exp(power)).sum(axis=1))
    # As if a few rows had been seen whose errors are the usual ones.
    left = np.sqrt((USUAL_ROWS * POWER_NOISE**2 + float((residual**2).sum())) / (USUAL_ROWS + max(len(logs) - 2, 0)))
    return power, float(left)


def to_adaptation(posterior: Posterior, rows: int, predictor: str, values: Mapping[str, Any]) -> Adaptation:
    """What a folder holds of it (device/adapted.py)."""
    arrays = {name: np.ascontiguousarray(getattr(posterior, name)) for name in _ARRAYS}
    numbers = {
        "prior": asdict(posterior.prior), "scale": posterior.scale, "power_deviation": posterior.power_deviation,
    }  # fmt: skip
    return Adaptation(rows, predictor, {**values, **numbers}, arrays)


@functools.lru_cache(maxsize=32)
def posterior_of(adaptation: Adaptation) -> Posterior:
    """The corrections of an adapted device."""
    values = adaptation.values
    try:
        found = Posterior(
            **{name: adaptation.arrays[name] for name in _ARRAYS}, prior=Prior.of(values["prior"]),
            scale=float(values["scale"]), power_deviation=values["power_deviation"],
        )  # fmt: skip
        if found.corrections.shape != (len(PARTS),) or len(found.slopes) != len(found.inverse):
            raise ValueError("its arrays have other shapes")
    except (KeyError, TypeError, ValueError) as error:
        raise ForerunError(
            f"the adapted device is not whole: {type(error).__name__} {error}; adapt it again"
        ) from error
    return found


def leave_one_out(posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Per row, log(measured / what the other rows say), and the deviation expected of that."""
    precision = np.diag(posterior.inverse)
    return posterior.weights / precision, 1 / np.sqrt(precision)


def held_out(posterior: Posterior, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same with all rows of a group (those of one model) held out together, and with no more noise expected of rows
    that stand apart than of others: a new row may stand apart as well, and nobody knows it beforehand."""
    residual, variance = np.empty(len(groups)), np.empty(len(groups))
    for group in np.unique(groups):
        mine = np.flatnonzero(groups == group)
        between = np.linalg.inv(posterior.inverse[np.ix_(mine, mine)])
        residual[mine], variance[mine] = between @ posterior.weights[mine], np.diag(between)
    if posterior.excess is not None:
        variance = variance - posterior.excess
    return residual, np.sqrt(np.maximum(variance, posterior.prior.noise**2))


def calibrated_scale(residual: np.ndarray, expected: np.ndarray) -> float:
    """What intervals are multiplied by, so that nine in ten held-out rows are inside: the quantile of their residuals,
    beside a few rows that are as expected, and wider where rows are few, whose residuals are those of what was fitted
    to them."""
    assumed = np.array([deviations((place + 0.5) / _AS_EXPECTED) for place in range(_AS_EXPECTED)])
    every = np.concatenate([np.abs(residual / expected), assumed])
    level = min(1.0, 0.9 * (len(every) + 1) / len(every))
    scale = np.clip(np.quantile(every, level) / deviations(0.9), *_SCALES)
    return float(scale) * (1 + 1 / (len(residual) + 3))
