"""A dense network for the training step of small CNNs: from depth, base filters, batch and parameters to the time,
memory and energy of a step, hence the time of an epoch and images per second. Without hidden layers it is linear
regression.

Features and targets are logarithms, standardised. Depth is the number of convolutions, base filters are the output
channels of the first one: both come from the graph and not from the network's name. The optimizer and autocast are
features too, since they change the training step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from forerun.device import Device
from forerun.errors import ForerunError
from forerun.graph.profile import Profile
from forerun.predictors.base import OutOfDistribution
from forerun.predictors.published.whole_model import numbers
from forerun.predictors.published.whole_model.base import ByNumbers
from forerun.predictors.published.whole_model.numbers import Numbers
from forerun.workload import Workload

if TYPE_CHECKING:
    from optuna import Trial

    from forerun.predictors.cases import Cases

FEATURES = ("convolutions", "filters", "batch", "parameters", "optimizer_states", "amp")
#: Number of points of the loss curve that are saved.
_SAVED_LOSSES = 50
#: Predictions are clipped to this far beyond the measured range, as logarithms: e^3 times the longest step.
_BEYOND = 3.0
#: Logarithms that differ by less are equal.
_ROUNDING = 1e-6


class MlpPredictor(ByNumbers):
    """Time, memory and energy of a training step by a dense network."""

    name = "mlp"
    modes = ("training",)

    def __init__(
        self, hidden: Sequence[int] = (64, 64), steps: int = 2000, learning_rate: float = 1e-2, seed: int = 0
    ) -> None:
        self.hidden = hidden
        self.steps = steps
        self.learning_rate = learning_rate
        self.seed = seed

    weights_: np.ndarray  # of all layers, one after another: matrix [inputs, outputs], then biases
    feature_scale_: np.ndarray  # [2, features]: mean and standard deviation of their logarithms
    feature_range_: np.ndarray  # [2, features]: least and largest logarithm, to which features are clipped
    target_scale_: np.ndarray  # [2, targets]
    target_range_: np.ndarray  # [2, targets]: least and largest logarithm that was measured
    losses_: list[float]  # mean squared error of standardised logarithms, from the first step to the last

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of every layer."""
        return list(pairwise((len(FEATURES), *self.hidden, len(self.targets))))

    def learn(self, cases: Cases) -> None:
        features = numbers.matrix(numbers.of_rows(cases.rows, cases.devices), FEATURES, logarithms=True)
        measured = cases.rows[list(self.targets)].to_numpy(dtype=float)
        targets = np.log(np.where(measured > 0, measured, np.nan))
        self.feature_scale_, self.target_scale_ = _scale(features), _scale(targets)
        self.feature_range_ = np.stack([np.nanmin(features, axis=0), np.nanmax(features, axis=0)])
        self.target_range_ = np.stack([np.nanmin(targets, axis=0), np.nanmax(targets, axis=0)])
        inputs, outputs = (_scaled(v, s) for v, s in ((features, self.feature_scale_), (targets, self.target_scale_)))
        fit = self._descend if self.hidden else self._solve
        self.weights_, self.losses_ = fit(inputs, outputs)
        if not np.isfinite(self.weights_).all() or not math.isfinite(self.losses_[-1]):
            raise ForerunError(
                f"the loss of the predictor {self.name} is no number any more: a learning_rate of "
                f"{self.learning_rate:g} is too large"
            )

    def _solve(self, inputs: np.ndarray, outputs: np.ndarray) -> tuple[np.ndarray, list[float]]:
        """Linear regression: least squares of each target."""
        design = np.column_stack([inputs, np.ones(len(inputs))])
        found = np.zeros((design.shape[1], outputs.shape[1]))
        for at, target in enumerate(outputs.T):
            known = np.isfinite(target)
            found[:, at] = np.linalg.lstsq(design[known], target[known], rcond=None)[0]
        errors = [np.nanmean(outputs**2), np.nanmean((design @ found - outputs) ** 2)]
        return found.ravel(), [float(e) for e in errors]

    def _descend(self, inputs: np.ndarray, outputs: np.ndarray) -> tuple[np.ndarray, list[float]]:
        """Adam on all rows at once, with a learning rate that falls to zero as a cosine."""
        import torch

        generator = torch.Generator().manual_seed(self.seed)
        parts: list[torch.Tensor] = []
        for rows, width in self.layers:
            drawn = torch.randn(rows, width, generator=generator, dtype=torch.float64) * math.sqrt(2 / rows)
            parts += [drawn.requires_grad_(), torch.zeros(width, dtype=torch.float64, requires_grad=True)]
        x, y = torch.tensor(inputs), torch.tensor(np.nan_to_num(outputs))
        known = torch.tensor(np.isfinite(outputs) / np.isfinite(outputs).sum())
        adam = torch.optim.Adam(parts, lr=self.learning_rate, fused=True)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, self.steps)
        losses = []
        for _ in range(self.steps):
            adam.zero_grad()
            loss = ((_forward(x, parts) - y) ** 2 * known).sum()
            loss.backward()
            adam.step()
            falling.step()
            losses.append(float(loss.detach()))
        saved = np.unique(np.linspace(0, self.steps - 1, _SAVED_LOSSES).round().astype(int))
        return np.concatenate([p.detach().numpy().ravel() for p in parts]), [losses[i] for i in saved]

    def values_of_question(
        self, profile: Profile, devices: Sequence[Device], workload: Workload
    ) -> dict[str, np.ndarray]:
        if not any(op.kind == "conv" for op in profile.graph.ops):
            raise ForerunError(
                f"the predictor {self.name} goes by convolutions, and {profile.graph.name} has none: leave "
                "predictor at default"
            )
        return super().values_of_question(profile, devices, workload)

    def out_of_distribution(self, profile: Profile, device: Device, workload: Workload) -> list[OutOfDistribution]:
        found = super().out_of_distribution(profile, device, workload)
        features = numbers.matrix(numbers.of_question(profile, [device], workload), FEATURES, logarithms=True)[0]
        for at, name in enumerate(FEATURES):
            low, high = self.feature_range_[:, at]
            if not low - _ROUNDING <= features[at] <= high + _ROUNDING:
                ends = " to ".join(f"{np.expm1(end):,.0f}" for end in (low, high))
                reason = f"{self.name} was fitted to {name} from {ends}: the nearer end counts"
                found.append(OutOfDistribution("ops", reason))
        return found

    def values(self, lines: Numbers) -> dict[str, np.ndarray]:
        seen = np.clip(numbers.matrix(lines, FEATURES, logarithms=True), *self.feature_range_)
        hidden = _scaled(seen, self.feature_scale_)
        at = 0
        for number, (rows, width) in enumerate(self.layers):
            weight = self.weights_[at : at + rows * width].reshape(rows, width)
            hidden = hidden @ weight + self.weights_[at + rows * width : at + (rows + 1) * width]
            at += (rows + 1) * width
            if number < len(self.hidden):
                hidden = np.maximum(hidden, 0)
        logs = hidden * self.target_scale_[1] + self.target_scale_[0]
        logs = np.clip(logs, self.target_range_[0] - _BEYOND, self.target_range_[1] + _BEYOND)
        return dict(zip(self.targets, np.exp(logs).T, strict=True))

    @classmethod
    def load(cls, folder: Path) -> Self:
        out = super().load(folder)
        wanted = sum((rows + 1) * width for rows, width in out.layers)
        if getattr(out, "weights_", np.zeros(0)).size != wanted:
            raise ForerunError(f"{folder} holds no whole predictor mlp: layers {out.hidden} have {wanted:,} weights")
        return out

    @classmethod
    def search_space(cls, trial: Trial) -> dict[str, Any]:
        width, layers = trial.suggest_int("width", 8, 128, log=True), trial.suggest_int("layers", 0, 3)
        return {
            "hidden": [width] * layers,
            "steps": trial.suggest_int("steps", 500, 5000, step=500),
            "learning_rate": trial.suggest_float("learning_rate", 3e-4, 3e-2, log=True),
        }


def _forward(x: Any, parts: Sequence[Any]) -> Any:
    layers = list(zip(parts[::2], parts[1::2], strict=True))
    for weight, bias in layers[:-1]:
        x = (x @ weight + bias).relu()
    return x @ layers[-1][0] + layers[-1][1]


def _scale(values: np.ndarray) -> np.ndarray:
    """Mean and standard deviation of each column; a constant column is scaled to 0."""
    deviation = np.nanstd(values, axis=0)
    return np.stack([np.nanmean(values, axis=0), np.where(deviation > 1e-9, deviation, np.inf)])


def _scaled(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return (values - scale[0]) / scale[1]
