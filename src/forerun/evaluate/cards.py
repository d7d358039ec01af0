"""Training, energy and intervals on cards that nobody measured, judged with each card held out.

The networks that ship were fitted to some of these rows too, with little weight (predictors/default/fit.py); held out
are the constants of `laws/other_cards.py`, which are fitted to the other cards, and the intervals. Every card counts
alike, however many rows it has. Calls that are predicted to be host-bound say nothing of a card and are left out.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate.results import Section
from forerun.evaluate.test_set import GPU as TEST_GPU
from forerun.evaluate.test_set import in_test_set
from forerun.predictors.base import Predictor
from forerun.predictors.cases import Cases
from forerun.predictors.laws import other_cards
from forerun.predictors.laws.other_cards import OtherCards, tried
from forerun.predictors.registry import load_predictor
from forerun.training.cases import Progress, workload_cases
from forerun.training.published import published_cases
from forerun.workload import Workload

SHARE_COLUMNS = ("mape", "bias", "before", "bias before", "interval_coverage", "interval_width", "power")
#: Zeus trains ResNet-50 on the images of ImageNet; its time is that of an epoch.
ZEUS, _PROTOCOL, _IMAGES = "zeus_training_energy", "zeus_training_energy/imagenet", 1_281_167
#: What a factor costs by its logarithm squared: few cards show them apart.
_PRIOR = 0.04
#: The factors that are tried, and the error from which on a row counts in proportion alone.
_MEMORY, _WINOGRAD, _FAR = np.arange(1.0, 2.81, 0.02), np.arange(0.5, 1.21, 0.01), 0.3
_MODES = ("inference", "training")


@dataclass(frozen=True)
class Judged:
    """Device-bound rows of other cards: `rows` has the card, the mode, how far the measurement is from the prediction
    without the law (`log_error`), and the shares of that prediction that each factor multiplies, with the cache's."""

    rows: pd.DataFrame

    def corrected(self, law: OtherCards, rows: pd.DataFrame | None = None) -> np.ndarray:
        """log(measured / predicted by the law) of every row."""
        chosen = self.rows if rows is None else rows
        by = _grown(chosen, np.array([law.memory]), np.array([law.winograd]))[:, 0, 0]
        return np.asarray(chosen["log_error"] - by)


def _grown(rows: pd.DataFrame, memory: np.ndarray, winograd: np.ndarray) -> np.ndarray:
    """[rows, memory, winograd]: by how much the factors lengthen each call, in logarithms."""
    cache, of_memory, of_plain = (rows[name].to_numpy(dtype=float) for name in ("cache", "of_memory", "of_plain"))
    longer = of_memory[:, None] * (memory[None] ** cache[:, None] - 1)
    shorter = of_plain[:, None] * (winograd[None] - 1)
    return np.log(1 + longer[:, :, None] + shorter[:, None, :])


def gathered(store: Store, progress: Progress | None = None) -> list[Cases]:
    """The published rows of the store that are judged."""
    found = [published_cases(store, progress)]
    zeus = zeus_cases(store.read("models"), progress)
    return [*found, zeus] if zeus is not None else found


def zeus_cases(models: pd.DataFrame, progress: Progress | None = None) -> Cases | None:
    """Zeus' training of ResNet-50 at the power limit that the card comes with; None where the set is not imported. The
    dtype is not published: these are the times of fp32."""
    rows = models[(models["dataset"] == ZEUS) & (models["protocol"] == _PROTOCOL)]
    rows = rows[rows["power_limit_w"] == rows["device"].map(lambda name: load_device(name).tdp_w)]
    if rows.empty:
        return None
    step_ms = rows["epoch_s"] / (_IMAGES / rows["batch"]) * 1e3
    rows = rows.assign(
        latency_ms=step_ms, energy_j=rows["power_w"] * step_ms / 1e3, copy_ms=0.0, dtype="fp32",
        case_key=rows["model"] + "|" + rows["batch"].astype(str),
    )  # fmt: skip
    asked = [
        Workload(model, batch=int(batch), mode="training", dtype="fp32", optimizer="momentum")
        for model, batch in zip(rows["model"], rows["batch"], strict=True)
    ]
    return workload_cases(rows.reset_index(drop=True), asked, progress)


def judged(parts: list[Cases], predictor: Predictor | None = None) -> Judged:
    """The rows of all sets with their predictions, as if nobody had measured the cards."""
    one = predictor or load_predictor("default")
    found = pd.concat([_predicted(part, one) for part in parts], ignore_index=True)
    if found.empty:
        raise ForerunError("no published row of another card is device-bound: see forerun data import")
    return Judged(found)


def _predicted(cases: Cases, predictor: Predictor) -> pd.DataFrame:
    """Device-bound rows in eager mode on GPUs."""

    def asked(law: OtherCards) -> pd.DataFrame:
        with tried(law):
            return predictor.predict_cases(cases)

    rows, plain = cases.rows.reset_index(drop=True), asked(OtherCards())
    busy = plain["predicted_device_ms"]
    predicted_w = plain["predicted_energy_j"] / plain["predicted_latency_ms"]
    measured_w = rows["energy_j"] / rows["latency_ms"]
    cache = rows["device"].map({name: other_cards.cache_share(load_device(name)) for name in rows["device"].unique()})
    halved = [other_cards.halved(*each) for each in zip(rows["dtype"], rows["amp"], strict=True)]
    cache = cache * np.array(halved)
    more = asked(OtherCards(memory=2.0))["predicted_device_ms"] - busy
    less = busy - asked(OtherCards(winograd=0.5))["predicted_device_ms"]
    out = rows[["dataset", "device", "family", "model", "mode", "batch", "dtype", "latency_ms", "energy_j"]].assign(
        cache=cache, of_memory=more / np.maximum(2**cache - 1, 1e-9) / busy, of_plain=2 * less / busy,
        log_error=np.log((rows["latency_ms"] - rows["copy_ms"]) / plain["predicted_latency_ms"]),
        log_power=np.log(measured_w / predicted_w),
    )  # fmt: skip
    eager = rows["runtime"].fillna("eager") == "eager"
    bound = busy > plain["predicted_host_ms"]
    return out[(eager & bound & rows["mode"].isin(_MODES)).to_numpy()]


def fitted(found: Judged, without: str | None = None) -> OtherCards:
    """The law that comes nearest to the rows of all cards but one, each card alike; its intervals are their errors.
    Families and the GPU of the test set are left out. The factor of energy is that of the median card, because the
    power that steps draw differs more between cards than its mean over a few says."""
    rows = found.rows[(found.rows["device"] != TEST_GPU) & ~in_test_set(found.rows)]
    rows = rows[rows["device"] != without]
    steps = rows[rows["mode"] == "training"]
    off = steps["log_error"].to_numpy()[:, None, None] - _grown(steps, _MEMORY, _WINOGRAD)
    loss = np.sqrt(1 + (off / _FAR) ** 2) - 1
    names = steps["device"].unique()
    every = sum(loss[(steps["device"] == card).to_numpy()].mean(axis=0) for card in names) / max(len(names), 1)
    every = every + _PRIOR * (np.log(_MEMORY)[:, None] ** 2 + np.log(_WINOGRAD)[None] ** 2)
    at_memory, at_winograd = np.unravel_index(np.argmin(every), every.shape)
    powers = steps.dropna(subset="log_power").groupby("device")["log_power"].mean()
    law = OtherCards(
        memory=round(float(_MEMORY[at_memory]), 2), winograd=round(float(_WINOGRAD[at_winograd]), 2),
        energy=round(float(np.exp(powers.median())), 3) if len(powers) else 1.0,
    )  # fmt: skip
    ends = {}
    for mode in _MODES:
        own = rows[rows["mode"] == mode]
        off = found.corrected(law if mode == "training" else OtherCards(), own)
        if len(own):
            ends[mode] = interval(off, own["device"])
    return replace(law, intervals=ends)


def interval(errors: np.ndarray, cards: pd.Series, confidence: float = 0.9) -> tuple[float, float]:
    """The interval, as factors, that holds this share of the errors where every card has the same weight; as wide up as
    down, since a dozen cards do not tell the sides apart."""
    weight = 1 / cards.map(cards.value_counts()).to_numpy()
    size = np.abs(errors)
    order = np.argsort(size)
    share = np.cumsum(weight[order]) / weight.sum()
    end = round(float(np.exp(size[order][np.searchsorted(share, confidence)])), 3)
    return round(1 / end, 3), end


def held_out(found: Judged) -> pd.DataFrame:
    """Every row with the law and the interval of the other cards: `error` is log(measured / predicted)."""
    parts = []
    for card in sorted(found.rows["device"].unique()):
        law, own = fitted(found, card), found.rows[found.rows["device"] == card]
        trains = own["mode"] == "training"
        off = np.where(trains, found.corrected(law, own), own["log_error"])
        ends = np.array([law.intervals[mode] for mode in own["mode"]])
        parts.append(own.assign(error=off, low=ends[:, 0], high=ends[:, 1], energy=law.energy))
    return pd.concat(parts)


def sections(found: Judged) -> list[Section]:
    """The tables: training and inference by card, and energy."""
    rows = held_out(found)
    lines = []
    for mode in reversed(_MODES):
        own = rows[rows["mode"] == mode]
        tuned = own[(own["device"] != TEST_GPU) & ~in_test_set(own)]
        groups = [(str(card), one) for card, one in own.groupby("device")]
        for dataset, one in tuned.groupby("dataset"):
            groups.append((f"all of {dataset}", one))
        groups.append(("all", tuned))
        lines += [_line(mode, name, one) for name, one in groups]
    law = fitted(found)
    words = (
        "Published times of device-bound calls in eager mode, with the card held out from the constants of the law and "
        f"from its intervals. With all cards, memory-bound kernels of a step take {law.memory:.2f} times as long where "
        f"the L2 cache is small, plain fp32 convolutions {law.winograd:.2f} times. `before` is without the law. `bias` "
        "is the mean of predicted over measured, less 1. The last lines leave out the test set's families and GPU."
    )
    made = [Section("cards", "Cards that nobody measured, each held out", pd.DataFrame(lines), words)]
    powered = rows.dropna(subset="log_power")
    return [*made, energy(powered)] if len(powered) else made


def _line(mode: str, card: str, rows: pd.DataFrame) -> dict[str, Any]:
    inside = rows["error"].between(np.log(rows["low"]), np.log(rows["high"]))
    miss, before = np.exp(-rows["error"]) - 1, np.exp(-rows["log_error"]) - 1
    width = (rows["high"] - rows["low"]).mean()
    return {
        "mode": mode, "card": card, "n": len(rows), "mape": miss.abs().mean(), "bias": miss.mean(),
        "before": before.abs().mean(), "bias before": before.mean(), "interval_coverage": inside.mean(),
        "interval_width": width, "width over error": f"{width / miss.abs().mean():.1f}",
    }  # fmt: skip


def energy(rows: pd.DataFrame) -> Section:
    """The table of energy and of power at the measured time."""
    power = np.exp(np.log(rows["energy"]) - rows["log_power"]) - 1
    step = np.exp(np.log(rows["energy"]) - rows["log_power"] - rows["error"]) - 1
    before = np.exp(-rows["log_power"] - rows["log_error"]) - 1
    judged_rows = rows.assign(power=power, step=step, earlier=before)
    groups = itertools.chain(judged_rows.groupby("device"), [("all", judged_rows)])
    lines = [
        {"card": card, "n": len(one), "mape": one["step"].abs().mean(), "bias": one["step"].mean(),
         "before": one["earlier"].abs().mean(), "bias before": one["earlier"].mean(),
         "power": one["power"].abs().mean()}
        for card, one in groups
    ]  # fmt: skip
    words = (
        "Energy of a training step of ResNet-50 (Zeus) at the card's own power limit, the card held out. `power` is "
        "the error of power, given the time. `before` is without the law."
    )
    return Section("cards_energy", "Energy on cards that nobody measured, each held out", pd.DataFrame(lines), words)
