"""The dummy predictor: always the median of the measurements, a baseline that any useful predictor beats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from forerun.device import Device
from forerun.errors import ForerunError
from forerun.graph.profile import Profile
from forerun.predictors.base import Predictor, Times, for_kind, kinds_of_rows
from forerun.predictors.hold_out import HoldOut
from forerun.predictors.laws.bounds import hold
from forerun.predictors.laws.specs import roofline_ms
from forerun.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from forerun.predictors.cases import Cases, TrainingCases


class DummyPredictor(Predictor):
    """Always predicts the same number, clipped to the bounds of physics."""

    name = "dummy"
    reads_graphs = False
    hold_out = HoldOut(cheap_to_fit=True)

    def __init__(self) -> None:
        self.median_: dict[str, dict[str, float]] = {}  # by kind of device (gpu, cpu) and target

    def fit(self, cases: TrainingCases) -> Self:
        tables = {kind: part.rows[list(self.targets)] for kind, part in cases.whole_models.items()}
        self.median_ = {kind: rows.astype(float).median().to_dict() for kind, rows in tables.items()}
        return self

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        least = roofline_ms(profile, devices)
        kinds = [device.kind for device in devices]
        latency, device, energy = (
            np.broadcast_to([self._known(kind, target) for kind in kinds], least.shape) for target in self.targets
        )
        unknown = np.full(least.shape, np.nan)
        times = Times(latency_ms=latency, device_ms=device, host_ms=unknown, roofline_ms=least, energy_j=energy)
        return hold(times, profile, devices, workload)

    def predict_cases(self, cases: Cases, host_slowness: np.ndarray | None = None) -> pd.DataFrame:
        import pandas as pd

        least = cases.rows["roofline_ms"].to_numpy(dtype=float)
        out = {}
        for target in self.targets:
            known = np.array([self._known(kind, target) for kind in kinds_of_rows(cases.rows)])
            out[f"predicted_{target}"] = known if target == "energy_j" else np.maximum(known, least)
        return pd.DataFrame(out)

    def _known(self, kind: str, target: str) -> float:
        if not self.median_:
            raise ForerunError("the predictor dummy was not fitted: run forerun train dummy --out FOLDER")
        return for_kind(self.median_, kind)[target]
