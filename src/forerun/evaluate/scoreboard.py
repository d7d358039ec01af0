"""The scoreboard: what predictors say of cases that they were not fitted to, against what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from forerun.data.splits import leave_out
from forerun.data.summary import noise_floor, regime
from forerun.evaluate import memory_rule
from forerun.evaluate.left_out import PROBED, groups_of, whole_parts
from forerun.evaluate.metrics import figures
from forerun.prediction import DEVICE_BOUND
from forerun.predictors.base import TARGETS, Predictor, disagreement_of, log_ratio
from forerun.predictors.laws.conformal import calibrate
from forerun.predictors.registry import predictor_class
from forerun.runtimes.registry import names_of, of_row

COLUMNS = (
    "target", "split", "regime", "predictor", "n", "coverage", "mape", "median_ape", "rmse", "r2", "tau", "acc5",
    "acc10", "interval_coverage", "interval_width",
)  # fmt: skip
#: Latency of the same calls as CUDA graphs (runtime cudagraph), which eager rows were measured as, too.
GRAPH = "graph_ms"
#: How a line is called whose predictor knew the host's speed at the moment of the measurement.
HOST_PROBED = "host probed"


#: Name, values, the low and high ends of their intervals, and which rows the predictor was asked about.
Answer = tuple[str, np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray]


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
    """The groups that have lines of their own, by what was measured (never by what was predicted). Compiled calls have
    lines of their own; all other lines are of eager ones."""
    busy = (rows["device_ms"] / rows["latency_ms"]).to_numpy(dtype=float) >= DEVICE_BOUND
    known = rows["device_ms"].notna().to_numpy()
    mode = rows["mode"].to_numpy()
    runs = names_of(rows).to_numpy(dtype=str)
    found = {
        "all": np.ones(len(rows), dtype=bool),
        "device-bound": busy & known,
        "host-bound": ~busy & known,
        "training, device-bound": busy & known & (mode == "training"),
    }
    found |= {m: mode == m for m in ("inference", "training", "prefill", "decode")}
    compiled = np.array([of_row(run).calibration is not None for run in runs], dtype=bool)
    return {name: mine & ~compiled for name, mine in found.items()} | {
        run: runs == run for run in np.unique(runs[compiled])
    }


def with_intervals(
    left_out: pd.DataFrame, target: str, predictor: Predictor, confidence: float = 0.9, folds: int = 8,
    split: str = "family",
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Intervals of each row from the left-out errors of other families (devices, kinds) only."""
    predicted = left_out[f"predicted_{target}"].to_numpy(dtype=float)
    groups = np.array(predictor.calibration_groups(left_out, target))
    score, disagreement = log_ratio(left_out, target), disagreement_of(left_out, target)
    low, high = np.full(len(left_out), np.nan), np.full(len(left_out), np.nan)
    parts = whole_parts(left_out) if split == "family" else split  # of one family, networks were left out
    for train, test in leave_out(groups_of(left_out, parts), folds, seed=1):
        made = calibrate(groups[train], score[train], disagreement[train])
        for group in np.unique(groups[test]):
            mine = test & (groups == group)
            low[mine], high[mine] = made.intervals(group, confidence, np.zeros(mine.sum()), disagreement[mine])
    return low * predicted, high * predicted


def board(
    frames: Mapping[str, pd.DataFrame], *, split: str = "family", targets: Sequence[str] = TARGETS,
    only: np.ndarray | None = None,
) -> Scoreboard:  # fmt: skip
    """The lines of one split; `frames` are left-out predictions of the same rows by predictor (evaluate.left_out).

    `only` chooses the rows that are scored; intervals are calibrated on all of them.
    """
    first = next(iter(frames.values()))
    lines = []
    for target in (*targets, *((GRAPH,) if "latency_ms" in targets and GRAPH in first else ())):
        memory = target.startswith("memory")
        measured = first[target].to_numpy(dtype=float)
        once = first_of_cases(first, measured) & (True if only is None else only)
        able = {n: f for n, f in frames.items() if target != GRAPH or f"predicted_{GRAPH}" in f}
        answers = [answer for name, frame in able.items() for answer in _answers(name, frame, target, split)]
        if memory and (rule := memory_rule.answers(first, target)) is not None:
            answers.insert(0, (memory_rule.NAME, rule, None, None, np.ones(len(first), dtype=bool)))
        for group, chosen in regimes(first).items():
            if (chosen & once).sum() < 5 or (memory and "bound" in group):
                continue
            for name, values, low, high, asked in answers:
                mine = chosen & once & asked
                edges = (low[mine], high[mine]) if low is not None and high is not None else (None, None)
                found = figures(values[mine], measured[mine], *edges)
                lines.append({"target": target, "split": split, "regime": group, "predictor": name, **found})
    probed = [frame for frame in frames.values() if any(f"predicted_{t}_probed" in frame for t in PROBED)]
    repeated = (probed or [first])[0]  # the same rows in every frame, but only some know of the host's speed
    return Scoreboard(pd.DataFrame(lines, columns=list(COLUMNS)), noise(repeated if only is None else repeated[only]))


def floor_of(noise_floors: pd.DataFrame, target: str, regime: str, predictor: str) -> float:
    """The noise floor of a line: that of a probed host where the predictor knew the speed of the host."""
    quantity = f"{target}, {HOST_PROBED}" if predictor.endswith(f", {HOST_PROBED}") else target
    mine = noise_floors[(noise_floors["quantity"] == quantity) & (noise_floors["regime"] == regime)]
    return float(mine["mean"].iloc[0]) if len(mine) else float("nan")


def first_of_cases(rows: pd.DataFrame, measured: np.ndarray) -> np.ndarray:
    """The first row of every case on its device that has the quantity: repeats show the noise, not the predictor."""
    known = rows[["case_key", "device", "repeat"]].assign(repeat=rows["repeat"].fillna(0))[np.isfinite(measured)]
    known = known.assign(case_key=known["case_key"].fillna(known.index.to_series().astype(str)))
    first = known.sort_values("repeat", kind="stable").drop_duplicates(["case_key", "device"]).index
    return rows.index.isin(first)


def _answers(name: str, frame: pd.DataFrame, target: str, split: str) -> list[Answer]:
    """What is shown of a predictor's answers for a target, and again with the host's speed known."""
    column = f"predicted_{target}"
    asked = frame["asked"].to_numpy(dtype=bool) if "asked" in frame else np.ones(len(frame), dtype=bool)
    if column not in frame:
        return [(name, np.full(len(frame), np.nan), None, None, asked)]
    predictor = predictor_class(name)()
    low, high = with_intervals(frame, target, predictor, split=split) if predictor.calibrates else (None, None)
    out: list[Answer] = [(name, frame[column].to_numpy(dtype=float), low, high, asked)]
    if target in PROBED and f"{column}_probed" in frame:
        out.append((f"{name}, {HOST_PROBED}", frame[f"{column}_probed"].to_numpy(dtype=float), None, None, asked))
    return out


def noise(left_out: pd.DataFrame) -> pd.DataFrame:
    """The noise floor of what was measured, and of the same as a probed host would have it: measured times what is
    predicted for the usual host over what is predicted for the host at that moment."""
    bound = regime(left_out)
    plain = _floors(left_out, bound)
    known = [t for t in PROBED if f"predicted_{t}_probed" in left_out]
    if not known:
        return plain
    ratio = {t: left_out[f"predicted_{t}"] / left_out[f"predicted_{t}_probed"] for t in known}
    probed = _floors(left_out.assign(**{t: left_out[t] * ratio[t] for t in known}), bound)
    probed = probed[probed["quantity"].isin(known)]
    return pd.concat([plain, probed.assign(quantity=probed["quantity"] + f", {HOST_PROBED}")])


def _floors(rows: pd.DataFrame, bound: pd.Series) -> pd.DataFrame:
    return pd.concat([noise_floor(rows.assign(regime=which), ["regime"]) for which in ("all", bound)])
