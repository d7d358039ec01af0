"""The one-ratio predictor: the plain roofline times one number, the baseline that any learned predictor must beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from forerun.device import Device
from forerun.errors import ForerunError
from forerun.graph.profile import Profile
from forerun.predictors.base import Predictor, Times, for_kind, kinds_of_rows
from forerun.predictors.hold_out import HoldOut
from forerun.predictors.laws.specs import roofline_ms
from forerun.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from forerun.predictors.cases import Cases, TrainingCases


class OneRatioPredictor(Predictor):
    """Times as multiples of the roofline: the median of measured to roofline over all cases."""

    name = "one-ratio"
    targets = ("latency_ms", "device_ms")
    reads_graphs = False
    hold_out = HoldOut(cheap_to_fit=True)

    def __init__(self) -> None:
        self.ratio_: dict[str, dict[str, float]] = {}  # by kind of device (gpu, cpu) and target

    def fit(self, cases: TrainingCases) -> Self:
        for kind, part in cases.whole_models.items():
            ratios = {t: (part.rows[t] / part.rows["roofline_ms"]).median() for t in self.targets}
            self.ratio_[kind] = {target: max(1.0, float(ratio)) for target, ratio in ratios.items() if ratio == ratio}
        return self

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        least = roofline_ms(profile, devices)
        unknown = np.full(least.shape, np.nan)
        latency, device = ([self._known(d.kind, target) for d in devices] for target in self.targets)
        return Times(
            latency_ms=least * latency, device_ms=least * device, host_ms=unknown, roofline_ms=least, energy_j=unknown
        )

    def predict_cases(self, cases: Cases, host_slowness: np.ndarray | None = None) -> pd.DataFrame:
        import pandas as pd

        least = cases.rows["roofline_ms"].to_numpy(dtype=float)
        kinds = kinds_of_rows(cases.rows)
        return pd.DataFrame(
            {f"predicted_{target}": least * [self._known(kind, target) for kind in kinds] for target in self.targets}
        )

    def _known(self, kind: str, target: str) -> float:
        if not self.ratio_:
            raise ForerunError("the predictor one-ratio was not fitted: run forerun train one-ratio --out FOLDER")
        return for_kind(self.ratio_, kind).get(target, float("nan"))
