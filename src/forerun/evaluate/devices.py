"""Devices that were left out: operators and whole models on a GPU of which no row was seen."""

from __future__ import annotations

import numpy as np
import pandas as pd

from forerun.errors import ForerunError
from forerun.evaluate import neusight
from forerun.evaluate.metrics import figures
from forerun.graph.features import VARIANTS
from forerun.graph.profile import CLASSES
from forerun.predictors.conformal import Calibration
from forerun.predictors.default import SHIPPED, apart
from forerun.predictors.network import Ensemble
from forerun.predictors.weights import load_weights
from forerun.training import fit_host
from forerun.training.cases import Cases
from forerun.training.default import Gathered, contexts, device_ms, domain, fit_costs, fit_networks
from forerun.training.parallel import side_by_side
from forerun.training.published import device_bound

LEFT_OUT = {"neusight": neusight.GPUS, "aiconfigurator": ("b200",)}
#: Predictors of whole models, and the column of `models_told` that holds what each says. A ratio is one number per way
#: of measuring and mode, by the set's other GPUs (by all of the set where none has the mode); that of the GPU itself
#: is what nobody knows beforehand, shown for comparison. The hosts of a set are told by its other GPUs, too: one number
#: per way of measuring, where enough calls show it.
PREDICTORS = {
    "roofline": "light_ms", "one ratio": "ratio_ms", "one ratio of the GPU itself": "own_ratio_ms",
    "default": "told_ms", "default, hosts of the set": "told_set_ms",
}  # fmt: skip
TELLING = 10  # calls that the host paces, to say how slow hosts are
OPERATOR_PREDICTORS = ("roofline", "one ratio per op", "default")
_ELEMENTWISE = ("add", "add_scalar", "div", "div_scalar", "mul", "scale", "gelu", "relu", "tanh", "pow", "pow_scalar")


def operators_left_out(
    found: Gathered, tested: Cases, models: pd.DataFrame, *, seeds: tuple[int, ...], steps: int
) -> pd.DataFrame:
    """Figures of operators on each GPU of LEFT_OUT and of a set's GPUs together, by weights that saw no row of each.

    First single rows (`tested`), then sums of a class over a model, where the store's `models` have them.
    """
    asked = [(dataset, device) for dataset, devices in LEFT_OUT.items() for device in devices]

    def told(which: tuple[str, str]) -> pd.DataFrame:
        dataset, device = which
        mine = tested.take(((tested.rows["dataset"] == dataset) & (tested.rows["device"] == device)).to_numpy())
        if mine.rows.empty or found.public is None:
            return pd.DataFrame()
        seen = _unseen(found, device)
        networks = _fitted(seen, fit_costs(seen.models), seeds=seeds, steps=steps)
        return pd.concat([_operators_told(mine, seen, networks), neusight.told(models, device, networks)])

    every = pd.concat(side_by_side(told, asked), ignore_index=True)
    every = every.sort_values("dataset", key=lambda names: names == neusight.DATASET, kind="stable")
    groups = [(*names, rows) for names, rows in every.groupby(["dataset", "device"], sort=False)]
    groups += [
        (name, "all", rows) for name, rows in every.groupby("dataset", sort=False) if rows["device"].nunique() > 1
    ]
    return pd.DataFrame([line for group in groups for line in _operator_lines(*group)])


def _unseen(found: Gathered, device: str) -> Gathered:
    """Everything but one GPU."""
    return Gathered(
        _without(found.models, device), _without(found.operators, device),
        found.public and _without(found.public, device), None, found.published and _without(found.published, device),
    )  # fmt: skip


def _fitted(seen: Gathered, host: fit_host.HostFit, *, seeds: tuple[int, ...], steps: int) -> Ensemble:
    others = seen.published and device_bound(seen.published, host)
    return fit_networks(seen.models, seen.operators, seen.public, published=others, seeds=seeds, steps=steps)


def _operators_told(asked: Cases, seen: Gathered, networks: Ensemble) -> pd.DataFrame:
    """Rows with what each of OPERATOR_PREDICTORS says of them."""
    public = seen.public
    assert public is not None
    # How a set measures is told by its other devices: as a ratio per operator, or by what its timing adds to a launch.
    ratio = _shift(public.light_ms, public, asked.rows)
    light = asked.light_ms
    default = device_ms(networks, asked) + networks.floor_us(contexts(asked.rows)) / 1e3
    said = zip(OPERATOR_PREDICTORS, (light, light * ratio, default), strict=True)
    group = asked.rows["op"].where(~asked.rows["op"].isin(_ELEMENTWISE), "elementwise")
    return asked.rows[["dataset", "device", "device_ms"]].assign(op=group, **dict(said))


def _operator_lines(dataset: str, device: str, told: pd.DataFrame) -> list[dict[str, object]]:
    out: list[dict[str, object]] = []
    summed = dataset == neusight.DATASET
    for op in [*([] if summed else ["all"]), *sorted(told["op"].unique())]:
        mine = told[(told["op"] == op) | (op == "all")]
        for name in neusight.PREDICTORS if summed else OPERATOR_PREDICTORS:
            errors = figures(mine[name].to_numpy(dtype=float), mine["device_ms"].to_numpy(dtype=float))
            out.append({"data set": dataset, "device": device, "op": op, "predictor": name, **errors})
    return out


def _shift(said: np.ndarray, public: Cases, rows: pd.DataFrame) -> np.ndarray:
    """Median ratio of measured to predicted on the devices that were seen, by operator and way of measuring."""
    ratio = pd.Series(public.rows["device_ms"].to_numpy(dtype=float) / said)
    by = ratio.groupby([pd.Series(contexts(public.rows)), public.rows["op"].reset_index(drop=True)]).median()
    return np.array([by.get(key, 1.0) for key in zip(contexts(rows), rows["op"], strict=True)], dtype=float)


def models_left_out(
    found: Gathered, *, seeds: tuple[int, ...], steps: int, calibration: Calibration | None = None
) -> pd.DataFrame:
    """Published models on each of their GPUs, by weights that saw no row of that GPU: figures by set and mode.

    Intervals are of `calibration` (training.default.scores), or of the weights that ship.
    """
    return model_lines(models_told(found, seeds=seeds, steps=steps, calibration=calibration))


def models_told(
    found: Gathered, *, seeds: tuple[int, ...], steps: int, calibration: Calibration | None = None
) -> pd.DataFrame:
    """Every published row with what was predicted for it; published rows of the other GPUs taught too."""
    published = found.published
    if published is None:
        raise ForerunError("the store has no published times of models: see forerun data import timm")
    scores = calibration or load_weights(SHIPPED).calibration

    def told(device: str) -> pd.DataFrame:
        asked, known = published.take((published.rows["device"] == device).to_numpy()), _without(published, device)
        seen = _unseen(found, device)
        host = fit_costs(seen.models)
        networks = _fitted(seen, host, seeds=seeds, steps=steps)
        mine, theirs = _tell(asked, networks, host), _tell(known, networks, host)
        mine = mine.assign(
            ratio_ms=mine["light_ms"] * _ratio(mine, theirs),
            own_ratio_ms=mine["light_ms"] * _ratio(mine, mine),
            told_set_ms=_of_the_set(asked, mine, known, theirs, host),
        )
        return _with_interval(mine, asked, seen, scores)

    return pd.concat(side_by_side(told, sorted(published.rows["device"].unique())), ignore_index=True)


def _without(cases: Cases, device: str) -> Cases:
    return cases.take((cases.rows["device"] != device).to_numpy())


def _tell(cases: Cases, networks: Ensemble, host: fit_host.HostFit) -> pd.DataFrame:
    """Rows with their roofline and the default's times, without what copying the inputs takes."""
    busy = device_ms(networks, cases)
    return cases.rows.assign(
        light_ms=cases.light_ms,
        device_told=busy,
        host_told=host.guess * host.host_ms(cases.launches),
        told_ms=host.latency_ms(cases.launches, busy),
    )


def _ratio(asked: pd.DataFrame, known: pd.DataFrame) -> np.ndarray:
    """Median of measured to roofline over known rows measured in the same way and mode; of the set where there are
    none."""
    ratio = (known["latency_ms"] - known["copy_ms"]) / known["light_ms"]
    by_mode = ratio.groupby([known["protocol"], known["mode"]]).median()
    by_set = ratio.groupby(known["dataset"]).median()
    return np.array([
        by_mode.get((way, mode), by_set.get(name, 1.0))
        for name, way, mode in zip(asked["dataset"], asked["protocol"], asked["mode"], strict=True)
    ])  # fmt: skip


def _of_the_set(
    asked: Cases, mine: pd.DataFrame, known: Cases, theirs: pd.DataFrame, host: fit_host.HostFit
) -> np.ndarray:
    """The default told by calls that the host paces on other GPUs, measured in the same way, how slow the hosts are."""
    slow = np.full(len(mine), host.guess)
    paced = theirs["host_told"] > theirs["device_told"]
    for way in mine["protocol"].unique():
        there = (paced & (theirs["protocol"] == way)).to_numpy()
        if there.sum() >= TELLING:
            measured = (theirs["latency_ms"] - theirs["copy_ms"]).to_numpy(dtype=float)[there]
            busy = theirs["device_told"].to_numpy(dtype=float)[there]
            slow[mine["protocol"] == way] = fit_host.nearest(host, known.launches[there], busy, measured)
    return host.latency_ms(asked.launches, mine["device_told"].to_numpy(dtype=float), slow)


def _with_interval(told: pd.DataFrame, cases: Cases, seen: Gathered, calibration: Calibration) -> pd.DataFrame:
    """The default's 90 % interval on a device that nobody measured, as DefaultPredictor gives it."""
    familiar = set(domain(seen)["ops"])
    pairs = zip(cases.ops.classes, cases.ops.variants, strict=True)
    strange = [f"{CLASSES[c]}/{VARIANTS[v]}" not in familiar for c, v in pairs]
    odd = np.bincount(cases.case, strange, minlength=len(told)) > 0
    bound = np.where(told["host_told"] > told["device_told"], "host", "device")
    factors = np.array([
        calibration.factors(f"latency_ms/{mode}/{side}", 0.9, apart(["device", *(["ops"] if some else [])]))
        for mode, side, some in zip(told["mode"], bound, odd, strict=True)
    ])  # fmt: skip
    low = np.maximum(told["told_ms"] * factors[:, 0], np.minimum(told["light_ms"], told["told_ms"]))
    return told.assign(bound=bound, low_ms=low, high_ms=told["told_ms"] * factors[:, 1])


def model_lines(told: pd.DataFrame) -> pd.DataFrame:
    """Figures of `models_told` by set, GPU, mode and what is predicted to set the pace; of all sets together, too."""
    lines = []
    alone = [(*name, rows) for name, rows in told.groupby(["dataset", "device"])]
    together = [(name, "all", rows) for name, rows in told.groupby("dataset")]
    for dataset, device, rows in [*alone, *together, ("all", "all", told)]:
        for mode in ("all", *sorted(rows["mode"].unique())):
            for bound in ("all", "device", "host"):
                mine = rows[((rows["mode"] == mode) | (mode == "all")) & ((rows["bound"] == bound) | (bound == "all"))]
                if mine.empty:
                    continue
                # What copying takes is known from the inputs, to every predictor.
                real, copied = mine["latency_ms"].to_numpy(dtype=float), mine["copy_ms"].to_numpy(dtype=float)
                low, high = (mine[c].to_numpy(dtype=float) + copied for c in ("low_ms", "high_ms"))
                for name, column in PREDICTORS.items():
                    held = (low, high) if name == "default" else ()
                    said = mine[column].to_numpy(dtype=float) + copied
                    lines.append({"data set": dataset, "device": device, "mode": mode, "bound": bound,
                                  "predictor": name, **figures(said, real, *held)})  # fmt: skip
    return pd.DataFrame(lines)


def shown(lines: pd.DataFrame) -> pd.DataFrame:
    """What a page shows of `model_lines`: sets by GPU, all modes together; all GPUs by what sets the pace, too."""
    kept = lines[(lines["mode"] == "all") & ((lines["bound"] == "all") | (lines["device"] == "all"))]
    regime = kept["bound"].replace({"device": "device-bound", "host": "host-bound"})
    return kept.assign(bound=regime).rename(columns={"bound": "regime"}).drop(columns=["mode", "rmse", "coverage"])
