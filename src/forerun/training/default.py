"""The default predictor's weights: gather what was measured, fit, and see on left-out families how sure it may be."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from forerun.data.splits import in_turns, independent, leave_out
from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.graph.features import VARIANTS
from forerun.graph.profile import CLASSES, UNITS
from forerun.predictors.conformal import Calibration, calibrate
from forerun.predictors.energy import FACTORS, TERMS, burnt_j, lasting, looping_ms
from forerun.predictors.network import Ensemble, Network
from forerun.predictors.weights import Weights
from forerun.training import fit_device, fit_energy, fit_host, operators, published
from forerun.training.cases import Cases, Progress, as_captured, join, model_cases, operator_cases
from forerun.training.parallel import side_by_side

FOLDS, SEEDS, STEPS = 16, (0, 1, 2), 2000
CPU_STEPS = 300  # at most: more rounds over a few hundred rows, and they are learned by heart
#: How much a row of each kind counts beside one of our own operators, each time it comes (fit_device.TURNS).
MODEL_WEIGHT, PUBLIC_WEIGHT, PUBLISHED_WEIGHT = 20.0, 0.4, 3.0
#: Rows taken of each published set, per device, operator, dtype, runtime and protocol.
PUBLIC = {"neusight": 300, "aiconfigurator": 400, "vidur": 300}
#: Where `left_out` puts what it says of each quantity.
TOLD = {
    "latency_ms": "told_latency", "device_ms": "told_device", "energy_j": "told_energy", "memory_mb": "told_memory",
    "memory_allocated_mb": "told_allocated",
}  # fmt: skip
CONTEXTS = {"neusight": 1, "vidur": 2, "timm": 0, "pytorch_gpu_benchmark": 0}  # aiconfigurator: by engine


@dataclass(frozen=True)
class Gathered:
    """What the store offers for training."""

    models: Cases  # GPU models under our protocol
    operators: Cases  # ours
    public: Cases | None  # published operator rows
    cpu: Cases | None  # CPU models under our protocol
    published: Cases | None = None  # published model rows, of other GPUs


def gather(store: Store, progress: Progress | None = None, *, public: bool = True) -> Gathered:
    """Everything that teaches something, as cases."""
    rows = store.read("models")
    own = rows[rows["protocol"].fillna("").str.startswith("forerun/") & (rows["status"] == "ok")]
    own = own[own["source"] != "tabular"]
    kind = own["device"].map({name: kind_of(name) for name in own["device"].unique()})
    gpu = own[(kind == "gpu") & own["device_ms"].notna()]
    cpu = own[kind == "cpu"]
    ops = store.read("operators")
    ops = ops[(ops["status"] == "ok") & (ops["device_ms"] > 0) & ops["op"].map(operators.known)]
    ops = ops[ops["device"].map({name: kind_of(name) for name in ops["device"].unique()}) == "gpu"]
    ours = ops[ops["protocol"].str.startswith("forerun/")]
    others = sample(ops) if public else ops.iloc[:0]
    return Gathered(
        as_captured(model_cases(gpu, progress)),
        operator_cases(ours, progress),
        operator_cases(others, progress) if len(others) else None,
        model_cases(cpu, progress) if len(cpu) else None,
        published.published_cases(store, progress) if public and published.has_any(rows) else None,
    )


def kind_of(device: str) -> str | None:
    """gpu, cpu …; None for what the catalogue does not have, which nothing can be learned from."""
    try:
        return load_device(device).kind
    except ForerunError:
        return None


def sample(ops: pd.DataFrame) -> pd.DataFrame:
    """A part of the published operator rows, the same every time, with all devices and operators in it, long calls as
    well as short ones: one of each octave of time, then a second of each …"""
    by = ["device", "op", "dtype", "runtime", "protocol"]
    parts = []
    for name, count in PUBLIC.items():
        some = ops[(ops["dataset"] == name) & (ops["devices"].fillna(1) <= 1)]
        some = some.sample(frac=1, random_state=0)
        group = some.groupby(by, dropna=False).ngroup().astype(str)
        octave = np.floor(np.log2(some["device_ms"])).astype(str)
        parts.append(some.loc[in_turns(group + "/" + octave)].groupby(by, dropna=False).head(count))
    return pd.concat(parts)


def contexts(rows: pd.DataFrame) -> np.ndarray:
    """Where rows come from, as numbers: 0 is our own protocol."""
    known = rows["dataset"].map(CONTEXTS)
    return known.fillna(rows["runtime"].map({"vllm": 3, "trt-llm": 4}).fillna(5)).to_numpy(dtype=int)


def fit_networks(models: Cases, own: Cases, public: Cases | None, *, published: Cases | None = None,
                 seeds: tuple[int, ...] = SEEDS, steps: int = STEPS) -> Ensemble:  # fmt: skip
    """Networks of different seeds on models, our operators and published ones, and on published models if given."""
    parts = [models, own] + ([public] if public else []) + ([published] if published else [])
    weight = [np.full(len(models.rows), MODEL_WEIGHT), np.ones(len(own.rows))]
    context = [np.zeros(len(models.rows) + len(own.rows), dtype=int)]
    if public:
        weight.append(np.full(len(public.rows), PUBLIC_WEIGHT))
        context.append(contexts(public.rows))
    if published:
        weight.append(np.full(len(published.rows), PUBLISHED_WEIGHT))
        context.append(contexts(published.rows))
    whole = join(parts)
    target = whole.rows["device_ms"].to_numpy(dtype=float)

    def fit(seed: int) -> Network:
        return fit_device.fit(
            whole, target, np.concatenate(weight), context=np.concatenate(context), seed=seed, steps=steps
        )

    return Ensemble(tuple(side_by_side(fit, seeds)))


def fit_costs(models: Cases) -> fit_host.HostFit:
    """What launches cost the host, by all of these rows."""
    return fit_host.fit(models.rows, models.launches, models.rows["device_ms"].to_numpy(dtype=float))


def fit_cpu(cases: Cases, *, seeds: tuple[int, ...] = SEEDS, steps: int = STEPS) -> Ensemble:
    """On a CPU the call is the device's time: its latency."""
    target = cases.rows["latency_ms"].to_numpy(dtype=float)
    ones = np.ones(len(target))

    def fit(seed: int) -> Network:
        return fit_device.fit(cases, target, ones, seed=seed, steps=min(steps, CPU_STEPS))

    return Ensemble(tuple(side_by_side(fit, seeds)))


def device_ms(networks: Ensemble, cases: Cases) -> np.ndarray:
    return cases.sum(networks.seconds(cases.ops)) * 1e3


def fit_joules(cases: Cases) -> np.ndarray:
    """Energy factors from rows with their measured time per call."""
    rows = cases.rows
    known = (rows["energy_j"] > 0).to_numpy() & np.isfinite(cases.joules).all(axis=1)
    seconds = rows["loop_ms"].to_numpy(dtype=float)[known] / 1e3
    terms = cases.joules[known]
    real = rows["energy_j"].to_numpy(dtype=float)[known]
    busy = rows["device_ms"].to_numpy(dtype=float)[known] / 1e3
    return fit_energy.fit(lasting(terms, seconds, busy), seconds, terms[:, 0], real, FACTORS)


def left_out(found: Gathered, *, folds: int = FOLDS, seeds: tuple[int, ...] = SEEDS, steps: int = STEPS,
             tell: Any = None) -> pd.DataFrame:  # fmt: skip
    """Every GPU model row, predicted by weights that never saw its family."""
    models = found.models
    rows = models.rows
    parts = list(leave_out(independent(rows), folds))
    out: dict[str, np.ndarray] = {}

    def fold(part: tuple[np.ndarray, np.ndarray]) -> dict[str, np.ndarray]:
        return _without(found, *part, seeds=seeds, steps=steps)

    for number, ((_, test), told) in enumerate(zip(parts, side_by_side(fold, parts), strict=True)):
        for name, values in told.items():
            out.setdefault(name, np.full(len(rows), np.nan))[test] = values
        if tell:
            tell(number + 1, folds)
    return rows.assign(light_ms=models.light_ms, **{f"told_{name}": value for name, value in out.items()})


def _without(
    found: Gathered, train: np.ndarray, test: np.ndarray, *, seeds: tuple[int, ...], steps: int
) -> dict[str, np.ndarray]:
    """What is said of the rows in `test` by weights that know only those in `train`."""
    models, rows = found.models, found.models.rows
    known, asked = models.take(train), models.take(test)
    host = fit_costs(known)
    others = found.published and published.device_bound(published.other_families(found.published, asked.rows), host)
    networks = fit_networks(known, found.operators, found.public, published=others, seeds=seeds, steps=steps)
    device = device_ms(networks, asked)
    # How slow the host was at each moment, told by a launch timed before or by other families.
    slow = fit_host.slowness(rows, host, models.launches, rows["device_ms"].to_numpy(dtype=float))[test]
    latency, probed = (host.latency_ms(asked.launches, device, hosts) for hosts in (None, slow))
    factors = fit_joules(known)
    return {
        "device": device, "host": host.guess * host.host_ms(asked.launches), "slow": slow, "latency": latency,
        "latency_known": probed,
        "energy": burnt_j(asked.joules, factors, _looping_s(asked, latency, device), device / 1e3),
        "energy_known": burnt_j(asked.joules, factors, _looping_s(asked, probed, device), device / 1e3),
    }  # fmt: skip


def _looping_s(cases: Cases, latency_ms: np.ndarray, device_ms: np.ndarray) -> np.ndarray:
    known = {name: load_device(name) for name in cases.rows["device"].unique()}
    return looping_ms(latency_ms, device_ms, [known[name] for name in cases.rows["device"]]) / 1e3


def left_out_cpu(cpu: Cases, *, folds: int = FOLDS, steps: int = STEPS) -> pd.DataFrame:
    """Every CPU model row, predicted by weights that never saw its family."""
    out = np.full(len(cpu.rows), np.nan)
    parts = list(leave_out(independent(cpu.rows), folds))

    def fold(part: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return device_ms(fit_cpu(cpu.take(part[0]), seeds=SEEDS[:1], steps=steps), cpu.take(part[1]))

    for (_, test), told in zip(parts, side_by_side(fold, parts), strict=True):
        out[test] = told
    return cpu.rows.assign(told_latency=out, light_ms=cpu.light_ms)


def calibration_groups(told: pd.DataFrame, name: str) -> list[str]:
    """The group whose errors a row's interval comes from: time and energy by mode and what sets the pace, memory by how
    much of it libraries decide, by its size and by mode."""
    if name.startswith("memory"):
        return [f"{name}/{sort}/{mode}" for sort, mode in zip(told["memory_sort"], told["mode"], strict=True)]
    side = np.where(told["told_host"] > told["told_device"], "host", "device")
    return [f"{name}/{mode}/{s}" for mode, s in zip(told["mode"], side, strict=True)]


def scores(told: pd.DataFrame, told_cpu: pd.DataFrame | None = None) -> Calibration:
    """Intervals from the left-out errors, by quantity, mode and what sets the pace; CPUs by themselves."""
    groups: list[str] = []
    values: list[np.ndarray] = []
    for real, said in TOLD.items():
        groups += calibration_groups(told, real)
        values.append(np.log(told[real].to_numpy(dtype=float) / told[said].to_numpy(dtype=float)))
    if told_cpu is not None:
        groups += [f"cpu/{mode}" for mode in told_cpu["mode"]]
        values.append(np.log((told_cpu["latency_ms"] / told_cpu["told_latency"]).to_numpy(dtype=float)))
    return calibrate(groups, np.concatenate(values))


def train(
    found: Gathered,
    told: pd.DataFrame,
    told_cpu: pd.DataFrame | None = None,
    *,
    seeds: tuple[int, ...] = SEEDS,
    steps: int = STEPS,
) -> Weights:
    """The weights that ship: fitted to everything, with intervals from `left_out`."""
    host = fit_costs(found.models)
    others = found.published and published.device_bound(found.published, host)
    networks = {
        "gpu": fit_networks(found.models, found.operators, found.public, published=others, seeds=seeds, steps=steps)
    }
    if found.cpu is not None:
        networks["cpu"] = fit_cpu(found.cpu, seeds=seeds, steps=steps)
    return Weights(
        networks,
        host.cost_us,
        host.guess,
        host.lead_us,
        host.gap_us,
        host.sharpness,
        fit_joules(found.models),
        scores(told, told_cpu),
        domain(found),
        provenance(found),
    )


def domain(found: Gathered) -> dict[str, Any]:
    """What the training data shows, so that what it does not show can be named."""
    parts = [c for c in (found.models, found.operators, found.public, found.cpu, found.published) if c is not None]
    ops = {
        f"{CLASSES[c]}/{VARIANTS[v]}"
        for part in parts
        for c, v in set(zip(part.ops.classes.tolist(), part.ops.variants.tolist(), strict=True))
    }
    return {
        # Whole models were measured on these; of others operators at most.
        "devices": sorted({d for part in (found.models, found.cpu) if part for d in part.rows["device"].unique()}),
        "models_of": sorted(found.published.rows["device"].unique()) if found.published else [],
        "operators_of": sorted({d for part in parts for d in part.rows["device"].unique()}),
        "families": sorted(found.models.rows["family"].dropna().unique()),
        "ops": sorted(ops),
        "units": sorted({UNITS[u] for part in parts for u in np.unique(part.ops.units)}),
    }


def provenance(found: Gathered) -> dict[str, Any]:
    """Which rows the weights stand on."""
    parts = {"models": found.models, "operators": found.operators, "published operators": found.public,
             "published models": found.published, "CPU models": found.cpu}  # fmt: skip
    counts = {
        name: {str(k): int(v) for k, v in part.rows["dataset"].value_counts().items()}
        for name, part in parts.items()
        if part is not None
    }
    newest = str(found.models.rows["measured_at"].max())[:10]
    return {"rows": counts, "measured_until": newest, "fitted": str(datetime.date.today()), "terms": list(TERMS)}
