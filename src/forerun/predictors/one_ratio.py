"""The one-ratio predictor: the plain roofline times one number, the baseline that any learned predictor must beat."""

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


class OneRatioPredictor(Predictor):
    """Times as multiples of the roofline: the median of measured to roofline over all cases."""

    name = "one-ratio"
    targets = ("latency_ms", "device_ms")
    reads_graphs = False

    def __init__(self) -> None:
        self.ratio_: dict[str, float] = {}

    def fit(self, cases: TrainingCases) -> Self:
        rows = cases.whole_models.rows
        ratios = {t: (rows[t] / rows["roofline_ms"]).dropna() for t in self.targets}
        self.ratio_ = {t: max(1.0, float(ratio.median())) for t, ratio in ratios.items() if len(ratio)}
        return self

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        least = roofline_ms(profile, devices)
        unknown = np.full(least.shape, np.nan)
        return Times(
            latency_ms=least * self._known("latency_ms"), device_ms=least * self._known("device_ms"), host_ms=unknown,
            roofline_ms=least, energy_j=unknown,
        )  # fmt: skip

    def predict_cases(self, cases: Cases, host_slowness: np.ndarray | None = None) -> pd.DataFrame:
        import pandas as pd

        least = cases.rows["roofline_ms"].to_numpy(dtype=float)
        return pd.DataFrame({f"predicted_{target}": least * self._known(target) for target in self.targets})

    def _known(self, target: str) -> float:
        if not self.ratio_:
            raise ForerunError("the predictor one-ratio was not fitted: run forerun train one-ratio --out FOLDER")
        return self.ratio_.get(target, float("nan"))
