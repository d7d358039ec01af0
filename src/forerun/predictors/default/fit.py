"""How the default predictor is fitted: networks for device time, launch costs, energy factors, intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun._util.parallel import side_by_side
from forerun.device.kinds import CPU, GPU, part_of
from forerun.graph.profile import CLASSES, UNITS
from forerun.graph.variants import VARIANTS
from forerun.predictors.base import TARGETS, Predictor, disagreement_of, log_ratio
from forerun.predictors.cases import Cases, TrainingCases, join
from forerun.predictors.default import fit_device, fit_energy, fit_host
from forerun.predictors.default.kernel_shares import heavy_share
from forerun.predictors.default.network import Ensemble, Network
from forerun.predictors.default.weights import Weights, network_name
from forerun.predictors.laws.conformal import Calibration, calibrate, device_deviation
from forerun.predictors.laws.energy import FACTORS, back_to_back_ms, terms_over_time
from forerun.predictors.laws.host import COUNTED, HostCosts, idle_ms
from forerun.runtimes import registry
from forerun.runtimes.cudagraph import CudaGraph

if TYPE_CHECKING:
    import pandas as pd

#: The most steps of a fit to CPU rows: with more, a few hundred rows are memorised. And how many times as many networks
#: there are of CPUs: fitted to few rows, they differ much by their seed.
CPU_STEPS, CPU_NETWORKS = 150, 2
#: The weight of a row, relative to one of our own operators, each time it is drawn (fit_device.TURNS).
MODEL_WEIGHT, PUBLISHED_OPERATOR_WEIGHT, PUBLISHED_MODEL_WEIGHT = 20.0, 0.4, 3.0
#: A published model is used where the roofline is this many times the host's time, and where the measured time is at
#: least this share of the roofline. Times far below the roofline show that the spec sheet lacks something (the tensor
#: cores of a Titan V).
DEVICE_BOUND, CREDIBLE = 1.0, 0.7


def fit_weights(cases: TrainingCases, *, seeds: tuple[int, ...], steps: int) -> Weights:
    """All weights but the intervals; of GPUs or CPUs alone where only these have rows."""
    networks: dict[str, Ensemble] = {}
    host, joules, timing_groups = HostCosts(np.zeros(len(COUNTED)), 0.0, 1.0), FACTORS, group_names(cases)
    if cases.models:
        host, joules = fit_costs(cases.models, steps), fit_joules(cases.models, steps)
        networks[GPU.part] = fit_networks(cases, host, timing_groups, seeds=seeds, steps=steps)
    for part, measured in cases.whole_models.items():
        if part != GPU.part:
            networks[part] = fit_cpu(measured, seeds=seeds, steps=steps)
    return Weights(networks, host, joules, domain=domain(cases), timing_groups=timing_groups)


def fit_networks(
    cases: TrainingCases, host: HostCosts, timing_groups: Sequence[str], *, seeds: tuple[int, ...], steps: int
) -> Ensemble:
    """Networks of different seeds on models and operators, ours and published ones."""
    parts = fitted_parts(cases, host)
    whole = join([part for part, _ in parts])
    weight = np.concatenate([np.full(len(part.rows), counts) for part, counts in parts])
    group = np.concatenate([group_numbers(part, timing_groups) for part, _ in parts])
    target, shares = whole.rows["device_ms"].to_numpy(dtype=float), heavy_share(whole.rows)

    def fit(seed: int) -> Network:
        return fit_device.fit(
            whole, target, weight, timing_group=group, heavy_share=shares, seed=seed, steps=steps
        )  # fmt: skip

    return Ensemble(tuple(side_by_side(fit, seeds)))


def fitted_parts(cases: TrainingCases, host: HostCosts) -> list[tuple[Cases, float]]:
    """The tables that the networks of GPUs are fitted to, and the weight of a row of each."""
    parts = [(cases.models, MODEL_WEIGHT), (cases.operators, 1.0)]
    if cases.published_operators:
        parts.append((cases.published_operators, PUBLISHED_OPERATOR_WEIGHT))
    if cases.published_models:
        parts.append((device_bound(cases.published_models, host), PUBLISHED_MODEL_WEIGHT))
    return parts


def fit_cpu(cases: Cases, *, seeds: tuple[int, ...], steps: int) -> Ensemble:
    """Networks of CPUs; on a CPU, device time is the latency."""
    target = cases.rows["latency_ms"].to_numpy(dtype=float)
    ones = np.ones(len(target))

    def fit(seed: int) -> Network:
        return fit_device.fit(cases, target, ones, seed=seed, steps=min(steps, CPU_STEPS))

    more = tuple(max(seeds) + 1 + i for i in range((CPU_NETWORKS - 1) * len(seeds)))
    return Ensemble(tuple(side_by_side(fit, (*seeds, *more))))


def fit_costs(models: Cases, steps: int = fit_host.STEPS) -> HostCosts:
    """The host's launch costs, fitted to all of these rows."""
    eager = models.take(registry.is_usual(models.rows).to_numpy())
    device_ms = eager.rows["device_ms"].to_numpy(dtype=float)
    found = fit_host.fit(eager.rows, eager.launches, device_ms, steps=min(steps, fit_host.STEPS))
    return fit_host.with_runtimes(found, models.rows, models.launches, models.rows["device_ms"].to_numpy(dtype=float))


def fit_joules(cases: Cases, steps: int = fit_energy.STEPS) -> np.ndarray:
    """Energy factors from rows with their measured time per call."""
    rows = cases.rows
    known = (rows["energy_j"] > 0).to_numpy() & np.isfinite(cases.joules).all(axis=1)
    seconds = rows["loop_ms"].to_numpy(dtype=float)[known] / 1e3
    terms = cases.joules[known]
    measured = rows["energy_j"].to_numpy(dtype=float)[known]
    busy = rows["device_ms"].to_numpy(dtype=float)[known] / 1e3
    shares = terms_over_time(terms, seconds, busy)
    return fit_energy.fit(shares, seconds, terms[:, 0], measured, FACTORS, steps=min(steps, fit_energy.STEPS))


def device_bound(published: Cases, host: HostCosts) -> Cases:
    """Published cases that are device-bound, their roofline well above the host's time; their time as `device_ms`."""
    rows, least = published.rows, published.roofline_ms
    measured = (rows["latency_ms"] - rows["copy_ms"]).to_numpy(dtype=float)
    busy = measured - idle_ms(published.launches, host.lead_us, host.gap_us)
    runs, paced = registry.names_of(rows).to_numpy(), np.empty(len(rows))
    for run in np.unique(runs):
        paced[runs == run] = host.host_ms(published.launches[runs == run], run)
    sure = (least > DEVICE_BOUND * paced) & (busy > CREDIBLE * least)
    kept = published.take(sure)
    kept.rows["device_ms"] = busy[sure]
    return kept


def device_ms(networks: Ensemble, cases: Cases) -> np.ndarray:
    """Device time of every case."""
    return device_ms_and_spread(networks, cases)[0]


def device_ms_and_spread(
    networks: Ensemble, cases: Cases, factors: np.ndarray | float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Device time of every case, its ops multiplied by `factors`, and how far the networks disagree on its ops, by
    their share of that time."""
    seconds, spread = networks.seconds_and_spread(cases.ops)
    seconds = seconds * factors
    whole = cases.sum(seconds)
    return whole * 1e3, cases.sum(seconds * spread) / np.maximum(whole, 1e-15)


def in_loop_s(cases: Cases, latency_ms: np.ndarray, busy_ms: np.ndarray) -> np.ndarray:
    """Seconds of every call in a loop that does not wait for each call to end."""
    return back_to_back_ms(latency_ms, busy_ms, cases.devices, cases.rows["runtime"].to_numpy(dtype=str)) / 1e3


def group_names(cases: TrainingCases) -> tuple[str, ...]:
    """How published rows were timed; "" is our own protocol."""
    parts = [part for part in (cases.published_operators, cases.published_models) if part]
    return ("", *sorted({name for part in parts for name in part.rows["timing_group"].unique()} - {""}))


def group_numbers(cases: Cases, names: Sequence[str]) -> np.ndarray:
    """The index of every row's timing group in the names; 0, our own protocol, for a group that is not there."""
    if "timing_group" not in cases.rows:
        return np.zeros(len(cases.rows), dtype=int)
    numbers = {name: i for i, name in enumerate(names)}
    return cases.rows["timing_group"].map(numbers).fillna(0).to_numpy(dtype=int)


def domain(cases: TrainingCases) -> dict[str, Any]:
    """The domain of the training data, by which cases are recognised as out of distribution; parts that are learned
    apart have their own."""
    apart = list(cases.apart.values())
    parts = [part for part in cases.parts.values() if not any(part is one for one in apart)]
    published, own = cases.published_models, [part for part in (cases.models, cases.cpu_models) if part]
    return {
        # Devices with whole models; others have operators at most.
        "devices": sorted({d for part in own for d in part.rows["device"].unique()}),
        "models_of": sorted(published.rows["device"].unique()) if published else [],
        "operators_of": sorted({d for part in parts for d in part.rows["device"].unique()}),
        "families": sorted(cases.models.rows["family"].dropna().unique()),
        **_ops_seen(parts),
        "runtimes": sorted({str(run) for part in cases.whole_models.values() for run in registry.names_of(part.rows)}),
        **{
            name: {"devices": sorted(part.rows["device"].unique()), **_ops_seen([part])}
            for name, part in cases.apart.items()
        },
    }  # fmt: skip


def _ops_seen(parts: Sequence[Cases]) -> dict[str, list[str]]:
    ops = {
        f"{CLASSES[c]}/{VARIANTS[v]}"
        for part in parts
        for c, v in set(zip(part.ops.classes.tolist(), part.ops.variants.tolist(), strict=True))
    }
    return {"ops": sorted(ops), "units": sorted({UNITS[u] for part in parts for u in np.unique(part.ops.units)})}


def calibration_of(
    held_out: pd.DataFrame, predictor: Predictor, unseen_devices: pd.DataFrame | None = None
) -> Calibration:
    """Intervals by target and group; CUDA graphs, as which eager rows were measured too, and CPUs have their own. The
    further error on unseen devices comes from published cases on held-out devices."""
    on_cpu = (held_out["device_kind"].map(part_of) == CPU.part).to_numpy()
    gpu, cpu = held_out[~on_cpu], held_out[on_cpu]
    parts = [(predictor.calibration_groups(gpu, target), gpu, target) for target in TARGETS]
    if "predicted_graph_ms" in gpu:
        parts.append(([f"latency_ms/{CudaGraph.name}/device"] * len(gpu), gpu, str(CudaGraph.column_of_eager)))
    by_runtime = zip(cpu["runtime"], cpu["mode"], strict=True)
    parts.append(([f"{network_name(CPU.name, run)}/{mode}" for run, mode in by_runtime], cpu, "latency_ms"))
    scores = np.concatenate([log_ratio(rows, target) for _, rows, target in parts])
    disagreement = np.concatenate([disagreement_of(rows, target) for _, rows, target in parts])
    made = calibrate([group for groups, _, _ in parts for group in groups], scores, disagreement)
    if unseen_devices is None:
        return made
    groups = predictor.calibration_groups(unseen_devices, "latency_ms")
    scores, disagreement = log_ratio(unseen_devices, "latency_ms"), disagreement_of(unseen_devices, "latency_ms")
    return replace(made, unseen_device=device_deviation(made, groups, scores, disagreement))
