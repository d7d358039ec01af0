"""The default predictor: physics, corrections learned from measurements, and calibrated intervals.

Device time: every op's roofline times a learned efficiency. Host time: the cost of each launch. Latency: near the
larger of the two. Energy: waiting, arithmetic and bytes. Each has an interval calibrated on held-out families.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from forerun.device import Device
from forerun.device.adapted import Adaptation, corrects_networks, read_adaptation
from forerun.device.kinds import GPU
from forerun.device.together import Devices, together
from forerun.graph.profile import CLASSES, Profile
from forerun.graph.variants import VARIANTS
from forerun.predictors.base import TARGETS, OutOfDistribution, Predictor, Times
from forerun.predictors.baselines.roofline import RooflinePredictor
from forerun.predictors.default import adapted, cards, intervals
from forerun.predictors.default.device_times import on_cores, on_devices
from forerun.predictors.default.domain import domain_of, sigma, unseen_device, unseen_ops
from forerun.predictors.default.parts import calls_of
from forerun.predictors.default.weights import Weights, load_weights, network_name
from forerun.predictors.hold_out import HoldOut
from forerun.predictors.laws import energy as energy_law
from forerun.predictors.laws import engines as engine_law
from forerun.predictors.laws import many_cores, other_cards
from forerun.predictors.laws.adaptation import Calls
from forerun.predictors.laws.conformal import Calibration, at_confidence, ood_deviation, power_deviation
from forerun.predictors.laws.engines import in_engine
from forerun.predictors.laws.features import op_table
from forerun.predictors.laws.host import launch_counts
from forerun.predictors.laws.spreads import not_below
from forerun.predictors.saved import SHIPPED
from forerun.runtimes.cudagraph import CudaGraph
from forerun.runtimes.registry import USUAL, names_of, of_row
from forerun.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from forerun.predictors.cases import Cases, TrainingCases
    from forerun.predictors.default.network import Ensemble

_VALUES = ("latency_ms", "device_ms", "host_ms", "roofline_ms", "energy_j", "disagreement")


class DefaultPredictor(Predictor):
    """Predicts every device whose bandwidth and one peak are known; kinds of device without weights by roofline."""

    name = "default"
    targets = TARGETS
    supports = frozenset({"confidence", "host", "runtime", "adaptation"})
    hold_out = HoldOut(splits=("family", "name", "kind", "device"), fits_kinds_apart=True)

    def __init__(self, *, steps: int = 2000, seeds: Sequence[int] = (0, 1, 2)) -> None:
        self.steps, self.seeds = steps, seeds
        self.weights_: Weights | None = None
        self.corrections: Adaptation | None = None  # corrections for a kind of network, on every device

    @classmethod
    def of(cls, weights: Weights) -> Self:
        out = cls(**weights.parameters)
        out.weights_ = weights
        return out

    @property
    def weights(self) -> Weights:
        """What was fitted, or the weights that ship."""
        return self.weights_ or load_weights(SHIPPED / self.name)

    @property
    def provenance(self) -> dict[str, Any]:
        return dict(self.weights.provenance)

    def record_provenance(self, provenance: dict[str, Any]) -> Self:
        self.weights_ = replace(self.weights, provenance=provenance)
        return self

    def save(self, folder: Path) -> None:
        self.weights.save(folder)

    @classmethod
    def load(cls, folder: Path) -> Self:
        if corrects_networks(folder):
            out = cls()
            out.corrections = read_adaptation(folder)
            return out
        return cls.of(load_weights(folder))

    def fit(self, cases: TrainingCases) -> Self:
        from forerun.predictors.default.fit import fit_weights

        fitted = fit_weights(cases, seeds=tuple(self.seeds), steps=self.steps)
        self.weights_ = replace(fitted, parameters={"steps": self.steps, "seeds": list(self.seeds)})
        return self

    def calibrate(self, held_out: pd.DataFrame, unseen_devices: pd.DataFrame | None = None) -> Self:
        from forerun.predictors.default.fit import calibration_of

        self.weights_ = replace(self.weights, calibration=calibration_of(held_out, self, unseen_devices))
        return self

    @property
    def calibration(self) -> Calibration:
        return self.weights.calibration

    def calibration_groups(self, held_out: pd.DataFrame, target: str) -> list[str]:
        """Time and energy by mode and by host- or device-bound; memory by how much of it libraries decide, by its size,
        by mode and by runtime; CPUs by mode."""
        if target.startswith("memory"):
            each = zip(held_out["memory_group"], held_out["mode"], names_of(held_out), strict=True)
            return [f"{target}/{group}/{mode}/{of_row(run).calibration or run}" for group, mode, run in each]
        side = np.where(held_out["predicted_host_ms"] > held_out["predicted_device_ms"], "host", "device")
        runs = names_of(held_out)
        return [
            f"{target}/{of_row(run).calibration_group(mode, target)}/{s}"
            for mode, run, s in zip(held_out["mode"], runs, side, strict=True)
        ]

    def problem(self, workload: Workload, device: Device) -> str | None:
        part = of_row(workload.runtime).part
        known = part is None or part in self.weights.networks
        return (
            super().problem(workload, device)
            or adapted.problem(self, device)
            or (None if known else f"these weights were fitted without rows of {part}: choose {USUAL}")
        )

    def basis_for(self, device: Device) -> str:
        found = device.adaptation or self.corrections
        if found is not None:
            return found.basis
        return "learned" if self._network(device, USUAL) is not None else "roofline"

    def measured_devices(self) -> frozenset[str]:
        domain = self.weights.domain
        return frozenset(id_ for name in ("devices", "models_of", "operators_of") for id_ in domain.get(name, ()))

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        out = Times(**{name: np.empty((len(profile.batches), len(devices))) for name in _VALUES})
        for kind, places, subset in self._by_network(devices, workload):
            if kind in self.weights.networks:
                found = self._learned(profile, subset, workload)
            else:
                found = self._roofline().times(profile, subset, workload)
                found = replace(found, disagreement=np.zeros_like(found.latency_ms))
            for name in _VALUES:
                getattr(out, name)[:, places] = getattr(found, name)
        return adapted.correct(self, out, profile, devices, workload)

    def calls(self, profile: Profile, device: Device, workload: Workload) -> Calls:
        weights, slowness, run = self.weights, self.assumed_slowness, workload.runtime
        key = ("calls", id(weights), slowness, run, together([device]))  # for times and for every interval
        network, measured = self._network(device, run), self._measured(workload)
        return profile.once(
            key, lambda: (weights, calls_of(network, weights.host, slowness, profile, device, workload, measured))
        )[1]

    def spread(
        self, target: str, times: Times, profile: Profile, devices: Sequence[Device], workload: Workload
    ) -> np.ndarray:
        out = np.empty((*times.latency_ms.shape, 2))
        for kind, places, subset in self._by_network(devices, workload):
            selected = Times(**{name: getattr(times, name)[:, places] for name in _VALUES})
            if kind in self.weights.networks:
                out[:, places] = self._learned_spread(target, selected, profile, subset, workload)
            else:
                out[:, places] = self._roofline().spread(target, selected, profile, subset, workload)
        return adapted.narrow(self, out, target, profile, devices, workload)

    def memory_spread(self, target: str, group: str, mode: str) -> tuple[float, float]:
        return self.weights.calibration.factors(f"{target}/{group}/{mode}", self.confidence)

    def op_times_ms(self, profile: Profile, device: Device, workload: Workload) -> np.ndarray:
        network = self._network(device, workload.runtime)
        if network is None:
            return self._roofline().op_times_ms(profile, device, workload)
        each = self._op_times_ms(network, profile, device, workload, in_graph=True)
        seen = self._cores([device], workload)
        if device.adaptation is not None or self.corrections is not None:
            table = op_table(profile, [device] if seen is None else seen.seen)
            parts = [one.reshape(each.shape) for one in network.parts(table)]
            each = each * adapted.op_factors(self, parts, profile, device, workload)
        return each[:, 0]

    def op_times_by_batch_ms(self, profile: Profile, device: Device, workload: Workload) -> np.ndarray:
        network = self._network(device, workload.runtime)
        if network is None:
            return super().op_times_by_batch_ms(profile, device, workload)
        return self._op_times_ms(network, profile, device, workload, in_graph=False)

    def _op_times_ms(
        self, network: Ensemble, profile: Profile, device: Device, workload: Workload, *, in_graph: bool
    ) -> np.ndarray:
        of, shape = self._cores([device], workload), (1, len(profile.classes), len(profile.batches))
        table = op_table(profile, [device] if of is None else of.seen)
        if of is not None:
            return network.on_cores(table, of.share, of.slower)[0].reshape(shape)[0] * 1e3
        seconds = network.seconds(table) * cards.factors(table, [device], workload, self.weights.domain)
        return in_engine(seconds.reshape(shape), profile, table, in_graph=in_graph)[0] * 1e3

    def out_of_distribution(self, profile: Profile, device: Device, workload: Workload) -> list[OutOfDistribution]:
        if self._network(device, workload.runtime) is None:
            reason = f"nothing like {device.id} ({device.kind}) was measured: roofline only"
            return [OutOfDistribution("device", reason)]
        return [*unseen_device(self.weights, device, workload), *unseen_ops(self.weights, profile, workload)]

    def ood_sigma(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> np.ndarray:
        weights = self.weights  # part of the key, and kept alive with it
        key = ("ood_sigma", id(weights), workload.runtime, together(devices))
        return profile.once(key, lambda: (weights, sigma(weights, profile, devices, workload)))[1]

    def ood_sigma_of_cases(self, cases: Cases) -> np.ndarray:
        known = set(self.weights.domain["ops"])
        pairs = zip(cases.ops.classes, cases.ops.variants, strict=True)
        unseen = [f"{CLASSES[c]}/{VARIANTS[v]}" not in known for c, v in pairs]
        any_unseen = np.bincount(cases.case, unseen, minlength=len(cases.rows)) > 0
        slowed = np.ones(len(cases.rows))
        np.maximum.at(slowed, cases.case, cases.ops.power_slowdown)
        return np.hypot(any_unseen * ood_deviation(["ops"]), power_deviation(slowed))

    def learned_share(self, profile: Profile, device: Device, workload: Workload) -> float:
        if self._network(device, workload.runtime) is None:
            return 0.0
        known = set(domain_of(self.weights, workload).get("ops", ()))
        seen = np.array([
            f"{CLASSES[c]}/{VARIANTS[v]}" in known for c, v in zip(profile.classes, profile.variants, strict=True)
        ])  # fmt: skip
        if seen.all():
            return 1.0
        ms = self.op_times_ms(profile, device, workload) * profile.repeat
        return float(ms[seen].sum() / ms.sum())

    def latency_on_hosts_ms(
        self, times: Times, profile: Profile, device: Device, workload: Workload, slowness: Sequence[float]
    ) -> list[float]:
        """Computed from the given times, since another host changes nothing but the host time."""
        if self._network(device, workload.runtime) is None or device.traits.is_host:
            return super().latency_on_hosts_ms(times, profile, device, workload, slowness)
        host, counts, busy = self.weights.host, launch_counts(profile), times.device_ms[0, 0]
        return [float(host.latency_ms(counts, busy, slow, workload.runtime)) for slow in slowness]

    @property
    def assumed_slowness(self) -> float:
        return self.weights.host.default_slowness if self.host_slowness is None else self.host_slowness

    def slowness_of_launch(self, launch_us: float) -> float | None:
        return self.weights.host.slowness_of_launch(launch_us)

    def host_slowness_of(self, cases: Cases) -> np.ndarray:
        from forerun.predictors.default.fit_host import slowness

        device_ms = cases.rows["device_ms"].to_numpy(dtype=float)
        return slowness(cases.rows, self.weights.host, cases.launches, device_ms)

    def best_host_slowness(self, cases: Cases, device_ms: np.ndarray, latency_ms: np.ndarray) -> float:
        from forerun.predictors.default.fit_host import nearest_slowness

        return nearest_slowness(self.weights.host, cases.launches, device_ms, latency_ms)

    def predict_operators(self, cases: Cases) -> np.ndarray:
        from forerun.predictors.default.fit import device_ms, group_numbers

        network = self.weights.networks[GPU.part]
        floor_us = network.floor_us(group_numbers(cases, self.weights.timing_groups))
        return device_ms(network, cases) + floor_us / 1e3

    def ablation(
        self, cases: TrainingCases, folds: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> dict[str, pd.DataFrame]:  # fmt: skip
        from forerun.predictors.default.ablation import simpler_forms

        return simpler_forms(cases, folds, seeds=tuple(self.seeds), steps=self.steps)

    def predict_cases(self, cases: Cases, host_slowness: np.ndarray | None = None) -> pd.DataFrame:
        """The same law over the operators of all cases at once."""
        import pandas as pd

        from forerun.predictors.default.fit import device_ms_and_spread, in_loop_s

        names = {
            network_name(device.kind, run) for device, run in zip(cases.devices, cases.rows["runtime"], strict=True)
        }
        if len(names) > 1:
            return super().predict_cases(cases, host_slowness)
        slower = cards.factors_of_cases(cases, self.weights.domain)
        busy_ms, disagreement = device_ms_and_spread(self.weights.networks[names.pop()], cases, slower)
        memory = {f"predicted_{name}": cases.rows[f"simulated_{name}"] for name in ("memory_mb", "memory_allocated_mb")}
        if all(device.traits.is_host for device in cases.devices):
            none = np.zeros_like(busy_ms)
            return pd.DataFrame(
                {"predicted_latency_ms": busy_ms, "predicted_device_ms": busy_ms, "predicted_host_ms": none,
                 "predicted_disagreement": disagreement}
            ).assign(**memory)  # fmt: skip
        host, launched = self.weights.host, cases.launches
        runs = names_of(cases.rows).to_numpy()
        slow = np.broadcast_to(host.default_slowness if host_slowness is None else host_slowness, busy_ms.shape)
        latency, host_ms = np.empty_like(busy_ms), np.empty_like(busy_ms)
        for run in np.unique(runs):
            selected = runs == run
            latency[selected] = host.latency_ms(launched[selected], busy_ms[selected], slow[selected], run)
            host_ms[selected] = slow[selected] * host.host_ms(launched[selected], run)
        joules = energy_law.energy_of_terms(
            cases.joules,
            np.stack([energy_law.factors_of(d, self.weights.joules) for d in cases.devices]),
            in_loop_s(cases, latency, busy_ms),
            busy_ms / 1e3,
        ) * other_cards.current().less_energy(cases.devices, self.weights.domain, cases.rows["mode"])
        replayed = host.latency_ms(launched, busy_ms, slow, CudaGraph.name)
        return pd.DataFrame({
            "predicted_latency_ms": latency, "predicted_device_ms": busy_ms, "predicted_host_ms": host_ms,
            "predicted_energy_j": joules, "predicted_graph_ms": np.where(runs == USUAL, replayed, np.nan),
            "predicted_disagreement": disagreement,
        }).assign(**memory)  # fmt: skip

    @property
    def stamp(self) -> str:
        return self.weights.stamp

    def _roofline(self) -> RooflinePredictor:
        return RooflinePredictor().with_settings(confidence=self.confidence, host_slowness=self.host_slowness)

    def _measured(self, workload: Workload) -> frozenset[str]:
        """The devices whose rows networks were fitted to."""
        return frozenset(domain_of(self.weights, workload).get("devices", ()))

    def _cores(self, devices: Sequence[Device], workload: Workload) -> many_cores.Cores | None:
        return many_cores.cores(devices, self._measured(workload), workload.runtime)

    def _network(self, device: Device, runtime: str) -> Ensemble | None:
        return self.weights.networks.get(network_name(device.kind, runtime))

    @staticmethod
    def _by_network(devices: Sequence[Device], workload: Workload) -> list[tuple[str, list[int], Devices]]:
        """Devices that share a network, and their places; "" where there is none for their kind."""
        them = together(devices)
        return them.once(("network", workload.runtime), lambda: DefaultPredictor._parted(them, workload))

    @staticmethod
    def _parted(devices: Devices, workload: Workload) -> list[tuple[str, list[int], Devices]]:
        of_kind = {kind: network_name(kind, workload.runtime) for kind in {d.kind for d in devices}}
        names = np.array([of_kind[d.kind] for d in devices])
        places = {name: np.flatnonzero(names == name).tolist() for name in sorted(set(of_kind.values()))}
        return [(name, chosen, devices.only(chosen)) for name, chosen in places.items()]

    def _learned(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        """The times on devices of one kind that has a network, all in one matrix."""
        network, on_cpu = self._network(devices[0], workload.runtime), devices[0].traits.is_host
        assert network is not None
        # Neither the host nor the confidence changes these. The network is kept in the value, so that its id stays its.
        law, domain = other_cards.current(), self.weights.domain
        steps = workload.mode == "training" and (id(law), workload.dtype, workload.amp)
        key = ("device_ms", id(network), together(devices), steps)

        of = self._cores(devices, workload) if on_cpu else None

        def made() -> tuple[Any, ...]:
            if of is not None:
                return network, law, *on_cores(network, profile, of)
            return network, law, *on_devices(
                network, profile, devices, lambda table: cards.factors(table, devices, workload, domain)
            )  # fmt: skip

        _, _, least, device_ms, disagreement, *launching_ms = profile.once(key, made)
        if on_cpu:
            host_ms = np.zeros_like(device_ms)
            latency = device_ms
        elif of_row(workload.runtime).engine:
            latency = engine_law.latency_ms(profile, devices, workload.runtime, device_ms)
            host_ms = latency - device_ms
        else:
            counts, host = launch_counts(profile), self.weights.host
            host_ms = np.broadcast_to(self.assumed_slowness * host.host_ms(counts, workload.runtime), device_ms.shape)
            latency = host.latency_ms(counts, device_ms, self.assumed_slowness, workload.runtime)
        joules = energy_law.energy_j(profile, devices, latency, device_ms, self.weights.joules, workload.runtime)
        joules = joules * law.less_energy(devices, self.weights.domain, workload.mode)
        if of is not None:
            joules = np.where(of.threads > 1, many_cores.joules(devices, of, latency, launching_ms[0]), joules)
        return Times(
            latency_ms=latency, device_ms=device_ms, host_ms=host_ms, roofline_ms=least, energy_j=joules,
            disagreement=disagreement,
        )  # fmt: skip

    def _learned_spread(
        self, target: str, times: Times, profile: Profile, devices: Sequence[Device], workload: Workload
    ) -> np.ndarray:
        """Quantiles of held-out errors, widened where a case is out of distribution."""
        if of_row(workload.runtime).engine and target in ("latency_ms", "device_ms"):
            value, known = getattr(times, target), engine_law.shipped()
            ends = [at_confidence(known.interval(one.id in known.cards), self.confidence) for one in devices]
            return not_below(np.broadcast_to(np.array(ends), (*value.shape, 2)).copy(), value, times.roofline_ms)
        wider = self.ood_sigma(profile, devices, workload)
        return intervals.learned(self.weights, target, times, profile, devices, workload, wider, self.confidence)
