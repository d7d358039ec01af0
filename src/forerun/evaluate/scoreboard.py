"""The scoreboard: held-out predictions against measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from forerun.data.splits import hold_out
from forerun.data.summary import noise_floor, regime
from forerun.evaluate import memory_rule
from forerun.evaluate.held_out import PROBED, whole_groups
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
#: Latency of the same calls as CUDA graphs (runtime cudagraph), as which eager rows were measured too.
GRAPH = "graph_ms"
#: Marks a line whose predictor was given the host's speed at the moment of the measurement.
HOST_PROBED = "host probed"


#: Name, values, the low and high ends of their intervals, and which rows the predictor was run on.
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
    """The groups that have lines of their own, by measurement (never by prediction). Compiled calls have lines of their
    own; all other lines are of eager ones."""
    busy = (rows["device_ms"] / rows["latency_ms"]).to_numpy(dtype=float) >= DEVICE_BOUND
    known = rows["device_ms"].notna().to_numpy()
    mode = rows["mode"].to_numpy()
    runs = names_of(rows).to_numpy(dtype=str)
    masks = {
        "all": np.ones(len(rows), dtype=bool),
        "device-bound": busy & known,
        "host-bound": ~busy & known,
        "training, device-bound": busy & known & (mode == "training"),
    }
    masks |= {m: mode == m for m in ("inference", "training", "prefill", "decode")}
    compiled = np.array([of_row(run).calibration is not None for run in runs], dtype=bool)
    return {name: mask & ~compiled for name, mask in masks.items()} | {
        run: runs == run for run in np.unique(runs[compiled])
    }


def with_intervals(
    held_out: pd.DataFrame, target: str, predictor: Predictor, confidence: float = 0.9, folds: int = 8,
    split: str = "family", held_together: pd.Series | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Intervals of each row from the held-out errors of other families (devices, kinds) only; `held_together` are the
    groups of the rows where they are known (`whole_groups`)."""
    predicted = held_out[f"predicted_{target}"].to_numpy(dtype=float)
    groups = np.array(predictor.calibration_groups(held_out, target))
    score, disagreement = log_ratio(held_out, target), disagreement_of(held_out, target)
    low, high = np.full(len(held_out), np.nan), np.full(len(held_out), np.nan)
    together = whole_groups(held_out, split) if held_together is None else held_together
    for train, test in hold_out(together, folds, seed=1):
        made = calibrate(groups[train], score[train], disagreement[train])
        for group in np.unique(groups[test]):
            selected = test & (groups == group)
            sigma = np.zeros(selected.sum())
            low[selected], high[selected] = made.intervals(group, confidence, sigma, disagreement[selected])
    return low * predicted, high * predicted


def board(
    frames: Mapping[str, pd.DataFrame], *, split: str = "family", targets: Sequence[str] = TARGETS,
    only: np.ndarray | None = None,
) -> Scoreboard:  # fmt: skip
    """The lines of one split; `frames` are held-out predictions of the same rows by predictor (evaluate.held_out).

    `only` chooses the rows that are scored; intervals are calibrated on all of them.
    """
    first = next(iter(frames.values()))
    together = {name: whole_groups(frame, split) for name, frame in frames.items() if predictor_class(name).calibrates}
    lines = []
    for target in (*targets, *((GRAPH,) if "latency_ms" in targets and GRAPH in first else ())):
        memory = target.startswith("memory")
        measured = first[target].to_numpy(dtype=float)
        once = first_of_cases(first, measured) & (True if only is None else only)
        able = {n: f for n, f in frames.items() if target != GRAPH or f"predicted_{GRAPH}" in f}
        answers = [
            answer for name, frame in able.items() for answer in _answers(name, frame, target, together.get(name))
        ]
        if memory and (rule := memory_rule.answers(first, target)) is not None:
            answers.insert(0, (memory_rule.NAME, rule, None, None, np.ones(len(first), dtype=bool)))
        for group, chosen in regimes(first).items():
            if (chosen & once).sum() < 5 or (memory and "bound" in group):
                continue
            for name, values, low, high, requested in answers:
                selected = chosen & once & requested
                edges = (low[selected], high[selected]) if low is not None and high is not None else (None, None)
                scores = figures(values[selected], measured[selected], *edges)
                lines.append({"target": target, "split": split, "regime": group, "predictor": name, **scores})
    probed = [frame for frame in frames.values() if any(f"predicted_{t}_probed" in frame for t in PROBED)]
    repeated = (probed or [first])[0]  # the same rows in every frame, but only some have the host's speed
    return Scoreboard(pd.DataFrame(lines, columns=list(COLUMNS)), noise(repeated if only is None else repeated[only]))


def floor_of(noise_floors: pd.DataFrame, target: str, regime: str, predictor: str) -> float:
    """The noise floor of a line: that of a probed host where the predictor was given the speed of the host."""
    quantity = f"{target}, {HOST_PROBED}" if predictor.endswith(f", {HOST_PROBED}") else target
    selected = noise_floors[(noise_floors["quantity"] == quantity) & (noise_floors["regime"] == regime)]
    return float(selected["mean"].iloc[0]) if len(selected) else float("nan")


def first_of_cases(rows: pd.DataFrame, measured: np.ndarray) -> np.ndarray:
    """The first row of every case on its device that has the quantity: repeats show the noise, not the predictor."""
    known = rows[["case_key", "device", "repeat"]].assign(repeat=rows["repeat"].fillna(0))[np.isfinite(measured)]
    known = known.assign(case_key=known["case_key"].fillna(known.index.to_series().astype(str)))
    first = known.sort_values("repeat", kind="stable").drop_duplicates(["case_key", "device"]).index
    return rows.index.isin(first)


def _answers(name: str, frame: pd.DataFrame, target: str, held_together: pd.Series | None) -> list[Answer]:
    """A predictor's line for a target, and one more with the host's speed known; `held_together` is None of predictors
    without intervals."""
    column = f"predicted_{target}"
    requested = frame["asked"].to_numpy(dtype=bool) if "asked" in frame else np.ones(len(frame), dtype=bool)
    if column not in frame:
        return [(name, np.full(len(frame), np.nan), None, None, requested)]
    predictor = predictor_class(name)()
    low, high = None, None
    if held_together is not None:
        low, high = with_intervals(frame, target, predictor, held_together=held_together)
    out: list[Answer] = [(name, frame[column].to_numpy(dtype=float), low, high, requested)]
    if target in PROBED and f"{column}_probed" in frame:
        out.append((f"{name}, {HOST_PROBED}", frame[f"{column}_probed"].to_numpy(dtype=float), None, None, requested))
    return out


def noise(held_out: pd.DataFrame) -> pd.DataFrame:
    """The noise floor of the measurements, and of the same normalised to the usual host: the measurement times the
    prediction for the usual host over the prediction for the host at that moment."""
    bound = regime(held_out)
    plain = _floors(held_out, bound)
    known = [t for t in PROBED if f"predicted_{t}_probed" in held_out]
    if not known:
        return plain
    ratio = {t: held_out[f"predicted_{t}"] / held_out[f"predicted_{t}_probed"] for t in known}
    probed = _floors(held_out.assign(**{t: held_out[t] * ratio[t] for t in known}), bound)
    probed = probed[probed["quantity"].isin(known)]
    return pd.concat([plain, probed.assign(quantity=probed["quantity"] + f", {HOST_PROBED}")])


def _floors(rows: pd.DataFrame, bound: pd.Series) -> pd.DataFrame:
    return pd.concat([noise_floor(rows.assign(regime=which), ["regime"]) for which in ("all", bound)])
