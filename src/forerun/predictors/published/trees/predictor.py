"""XGBoost on numbers of model and device: a booster for each quantity, on its logarithm.

Designed for language models: it predicts latency (hence tokens per second), peak memory and energy; fitted to several
devices, it predicts others by their datasheets. It can be fitted to any rows. The features may be the
multiply-accumulates alone, these with parameters and bytes moved, or all numbers, each with or without those of the
device, and with those of the host where that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from forerun.device import Device
from forerun.errors import ForerunError
from forerun.graph.profile import Profile
from forerun.predictors.attribution import Attribution, FeatureFactor
from forerun.predictors.hold_out import HoldOut
from forerun.predictors.laws.specs import roofline_ms
from forerun.predictors.published.trees import boosters
from forerun.predictors.published.whole_model import numbers
from forerun.predictors.published.whole_model.base import ByNumbers
from forerun.predictors.published.whole_model.numbers import Numbers
from forerun.workload import Workload

if TYPE_CHECKING:
    from optuna import Trial
    from xgboost import Booster

    from forerun.predictors.cases import Cases, TrainingCases

#: The features of a network, by the name of a choice; those of the device are added.
FEATURES: dict[str, tuple[str, ...]] = {
    "macs": ("macs",),
    "macs+parameters+memory": ("macs", "parameters", "bytes"),
    "all": numbers.MODEL_NUMBERS,
}
#: The settings that a search by grid tries, every combination.
GRID: dict[str, Sequence[Any]] = {
    "trees": (200, 600, 1000),
    "depth": (4, 6, 8),
    "learning_rate": (0.02, 0.05, 0.1),
    "subsample": (0.8, 1.0),
    "column_share": (0.8, 1.0),
}
#: The squared logarithm that a split must gain: late trees stay small, and predictions change by less than noise.
_LEAST_GAIN = 1e-4


class TreesPredictor(ByNumbers):
    """Latency, memory and energy by gradient-boosted trees."""

    name = "trees"
    sees_devices = True
    hold_out = HoldOut(splits=("random", "family", "device"), keeps_all_columns=False)

    def __init__(
        self, trees: int = 600, depth: int = 6, learning_rate: float = 0.05, subsample: float = 0.8,
        column_share: float = 0.8, min_child_weight: float = 1.0, l2: float = 1.0, features: str = "all",
        hardware: bool = True, host: bool = False, seed: int = 0,
    ) -> None:  # fmt: skip
        self.trees = trees
        self.depth = depth
        self.learning_rate = learning_rate
        self.subsample = subsample
        self.column_share = column_share
        self.min_child_weight = min_child_weight
        self.l2 = l2
        self.features = features
        self.hardware = hardware
        self.host = host
        self.seed = seed
        self.boosters_: dict[str, Booster] = {}

    @property
    def seen(self) -> tuple[str, ...]:
        """The names of the features."""
        if self.features not in FEATURES:
            raise ForerunError(f"features must be {', '.join(FEATURES)}, got {self.features!r}")
        device = numbers.DEVICE_NUMBERS if self.hardware else ()
        return (*FEATURES[self.features], *device, *(numbers.HOST_NUMBERS if self.host else ()))

    def prepare(self, cases: TrainingCases) -> None:
        boosters.xgboost()  # once, and not in every process that fits

    def learn(self, cases: Cases) -> None:
        settings = {
            "max_depth": self.depth, "eta": self.learning_rate, "subsample": self.subsample,
            "colsample_bytree": self.column_share, "min_child_weight": self.min_child_weight, "lambda": self.l2,
            "gamma": _LEAST_GAIN, "seed": self.seed,
        }  # fmt: skip
        lines = numbers.matrix(numbers.of_rows(cases.rows, cases.devices), self.seen, logarithms=False)
        self.boosters_ = {}
        for target in self.targets:
            measured = cases.rows[target].to_numpy(dtype=float)
            known = measured > 0  # not where it is NaN
            self.boosters_[target] = boosters.trained(lines[known], np.log(measured[known]), self.trees, settings)

    def values(self, lines: Numbers) -> dict[str, np.ndarray]:
        seen = numbers.matrix(lines, self.seen, logarithms=False)
        return {target: np.exp(boosters.predicted(self.boosters_[target], seen)) for target in self.targets}

    def contributions(self, profile: Profile, device: Device, workload: Workload) -> Attribution:
        lines = numbers.matrix(numbers.of_question(profile, [device], workload), self.seen, logarithms=False)[:1]
        shares = boosters.contributions(self.boosters_["latency_ms"], lines)[0]
        found = [
            FeatureFactor(name, None if np.isnan(value) else float(value), float(np.exp(share)))
            for name, value, share in zip(self.seen, lines[0], shares[:-1], strict=True)
        ]
        return Attribution(
            profile.graph.name, device.id, workload.to_dict(), self.name, float(np.exp(shares[-1])),
            float(np.exp(shares.sum())), float(roofline_ms(profile, [device])[0, 0]),
            tuple(sorted(found, key=lambda one: -one.strength)),
        )  # fmt: skip

    def learned(self) -> dict[str, Any]:
        return {name: value for name, value in super().learned().items() if name != "boosters_"}

    def save(self, folder: Path) -> None:
        """Beside `predictor.json`, the trees of each quantity in a JSON file of XGBoost's own format."""
        folder.mkdir(parents=True, exist_ok=True)
        # The description names the trees by their hash, so that other trees are other weights (`weights_hash`).
        self.hashes_ = {t: boosters.write(one, folder / f"{t}.json") for t, one in self.boosters_.items()}
        super().save(folder)

    @classmethod
    def load(cls, folder: Path) -> Self:
        out = super().load(folder)
        out.boosters_ = {t: boosters.read(folder / f"{t}.json", len(out.seen)) for t in out.targets}
        return out

    @classmethod
    def search_space(cls, trial: Trial) -> dict[str, Any]:
        return {
            "trees": trial.suggest_int("trees", 100, 1000, step=100),
            "depth": trial.suggest_int("depth", 3, 9),
            "learning_rate": trial.suggest_float("learning_rate", 0.01, 0.3, log=True),
            "subsample": trial.suggest_float("subsample", 0.5, 1.0),
            "column_share": trial.suggest_float("column_share", 0.4, 1.0),
            "min_child_weight": trial.suggest_float("min_child_weight", 0.5, 10.0, log=True),
            "l2": trial.suggest_float("l2", 0.01, 10.0, log=True),
        }

    @classmethod
    def grid(cls) -> dict[str, Sequence[Any]]:
        return GRID
