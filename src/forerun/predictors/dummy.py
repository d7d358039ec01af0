"""The dummy predictor: always the median of what was measured. Whatever is worth its name is better than this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from forerun.device import Device
from forerun.errors import ForerunError
from forerun.graph.profile import Profile
from forerun.predictors.base import Predictor, Times
from forerun.predictors.specs import roofline_ms
from forerun.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from forerun.predictors.cases import Cases, TrainingCases


class DummyPredictor(Predictor):
    """Answers every question with the same number, but never one below the roofline."""

    name = "dummy"
    reads_graphs = False

    def __init__(self) -> None:
        self.median_: dict[str, float] = {}

    def fit(self, cases: TrainingCases) -> Self:
        self.median_ = {target: float(cases.whole_models.rows[target].median()) for target in self.targets}
        return self

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        least = roofline_ms(profile, devices)
        latency, device, energy = (np.full(least.shape, self._known(target)) for target in self.targets)
        return Times(
            latency_ms=np.maximum(latency, least), device_ms=np.maximum(device, least),
            host_ms=np.full(least.shape, np.nan), roofline_ms=least, energy_j=energy,
        )  # fmt: skip

    def predict_cases(self, cases: Cases, host_slowness: np.ndarray | None = None) -> pd.DataFrame:
        import pandas as pd

        least = cases.rows["roofline_ms"].to_numpy(dtype=float)
        return pd.DataFrame({
            f"predicted_{target}": np.maximum(self._known(target), 0.0 if target == "energy_j" else least)
            for target in self.targets
        })  # fmt: skip

    def _known(self, target: str) -> float:
        if not self.median_:
            raise ForerunError("the predictor dummy was not fitted: run forerun train dummy --out FOLDER")
        return self.median_[target]
