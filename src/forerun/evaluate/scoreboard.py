"""The scoreboard: what was predicted for families and devices that were left out, against what was measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from forerun.data.splits import independent, leave_out
from forerun.data.summary import DEVICE_BOUND, noise_floor, regime
from forerun.evaluate.metrics import figures
from forerun.predictors.conformal import calibrate
from forerun.training.default import TOLD, calibration_groups

COLUMNS = ("target", "split", "regime", "predictor", "n", "coverage", "mape", "median_ape", "rmse", "tau", "acc10",
           "interval_coverage", "interval_width")  # fmt: skip
_PROBED = {"latency_ms": "told_latency_known", "energy_j": "told_energy_known"}


@dataclass(frozen=True)
class Scoreboard:
    """Lines of figures, and the noise floor of the same rows."""

    lines: pd.DataFrame
    noise: pd.DataFrame

    def value(self, target: str, regime: str, predictor: str, column: str) -> float:
        """One figure of the board."""
        chosen = self.lines[
            (self.lines["target"] == target) & (self.lines["regime"] == regime) & (self.lines["predictor"] == predictor)
        ]
        return float(chosen[column].iloc[0])


def regimes(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """The groups that are told apart, by what was measured (never by what was predicted)."""
    busy = (rows["device_ms"] / rows["latency_ms"]).to_numpy() >= DEVICE_BOUND
    mode = rows["mode"].to_numpy()
    everything = np.ones(len(rows), dtype=bool)
    found = {
        "all": everything,
        "device-bound": busy,
        "host-bound": ~busy,
        "training, device-bound": busy & (mode == "training"),
    }
    return found | {m: mode == m for m in ("inference", "training", "prefill", "decode")}


def with_intervals(
    told: pd.DataFrame, name: str, confidence: float = 0.9, folds: int = 8
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of each row from the left-out errors of the other families only."""
    real, said = told[name].to_numpy(dtype=float), told[TOLD[name]].to_numpy(dtype=float)
    groups = np.array(calibration_groups(told, name))
    low, high = np.full(len(told), np.nan), np.full(len(told), np.nan)
    with np.errstate(invalid="ignore"):
        score = np.log(real / said)
    for train, test in leave_out(independent(told), folds, seed=1):
        made = calibrate(groups[train], score[train])
        for i in np.flatnonzero(test):
            factors = made.factors(groups[i], confidence)
            low[i], high[i] = said[i] * factors[0], said[i] * factors[1]
    return low, high


def board(
    told: pd.DataFrame, baselines: dict[str, dict[str, np.ndarray]], split: str = "leave families out"
) -> Scoreboard:
    """The lines of one split: `told` from training.left_out, `baselines` as {predictor: {target: values}}."""
    lines = []
    first = (told["repeat"] == 0).to_numpy()
    for target, name in TOLD.items():
        real = told[target].to_numpy(dtype=float)
        low, high = with_intervals(told, target)
        memory = target.startswith("memory")
        for group, chosen in regimes(told).items():
            mine = chosen & first
            if mine.sum() < 5 or (memory and "bound" in group):
                continue
            said = {p: values[target] for p, values in baselines.items() if target in values}
            said["default"] = told[name].to_numpy(dtype=float)
            if target in _PROBED:
                said["default, host probed"] = told[_PROBED[target]].to_numpy(dtype=float)
            for predictor, values in said.items():
                edges = (low[mine], high[mine]) if predictor == "default" else (None, None)
                found = figures(values[mine], real[mine], *edges)
                how = "constants of our own rows" if memory else split
                lines.append({"target": target, "split": how, "regime": group, "predictor": predictor, **found})
    return Scoreboard(pd.DataFrame(lines, columns=list(COLUMNS)), _noise(told))


def _noise(told: pd.DataFrame) -> pd.DataFrame:
    """The noise floor of what was measured, and of the same as a probed host would have it: measured times what is
    predicted for the usual host over what is predicted for the host at that moment."""
    bound = regime(told)
    steady = told.assign(**{q: told[q] * told[TOLD[q]] / told[known] for q, known in _PROBED.items()})
    plain, probed = (
        pd.concat([noise_floor(rows.assign(regime=which), ["regime"]) for which in ("all", bound)])
        for rows in (told, steady)
    )
    probed = probed[probed["quantity"].isin(_PROBED)]
    return pd.concat([plain, probed.assign(quantity=probed["quantity"] + ", host probed")])


def dummy(told: pd.DataFrame, target: str, folds: int = 8) -> np.ndarray:
    """Always the median of the other families."""
    real = told[target].to_numpy(dtype=float)
    out = np.full(len(told), np.nan)
    for train, test in leave_out(independent(told), folds):
        out[test] = np.nanmedian(real[train])
    return out


def one_ratio(told: pd.DataFrame, target: str, light_ms: np.ndarray, folds: int = 8) -> np.ndarray:
    """The plain roofline times one number, fitted on the other families."""
    real = told[target].to_numpy(dtype=float)
    out = np.full(len(told), np.nan)
    for train, test in leave_out(independent(told), folds):
        out[test] = light_ms[test] * np.nanmedian(real[train] / light_ms[train])
    return out
