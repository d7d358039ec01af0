"""The contract that every predictor keeps.

A predictor is an estimator. Its constructor stores parameters and computes nothing; `fit` learns from measured cases
and returns the predictor itself; learned attributes end in an underscore. `times` predicts one graph at any number of
batch sizes on any number of devices at once. All else has a default here, so a predictor needs two methods, `fit` and
`times`, and one line under the entry point group `forerun.predictors`.

`forerun.evaluate.check.check_predictor` says whether a predictor keeps the contract.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from forerun._util.readable import short
from forerun.device import Device, all_devices
from forerun.device.kinds import USUAL as USUAL_KIND
from forerun.device.kinds import part_of
from forerun.errors import ForerunError
from forerun.graph.profile import Profile
from forerun.prediction import CONFIDENCES
from forerun.predictors.hold_out import HoldOut
from forerun.predictors.laws.conformal import Calibration, calibrate, ood_deviation
from forerun.predictors.laws.specs import op_roofline_s
from forerun.predictors.laws.spreads import not_below
from forerun.predictors.saved import Saved
from forerun.runtimes.registry import USUAL as USUAL_RUNTIME
from forerun.runtimes.registry import is_usual, names, runtime
from forerun.workload import MODES, Workload

if TYPE_CHECKING:
    import pandas as pd
    from optuna import Trial

    from forerun.predictors.attribution import Attribution
    from forerun.predictors.cases import Cases, TrainingCases
    from forerun.predictors.laws.adaptation import Calls

#: Quantities that can be predicted, measured and scored. `predicted_<target>` is the column of a table of predictions.
TARGETS = ("latency_ms", "device_ms", "energy_j", "memory_mb", "memory_allocated_mb")
#: The confidence that an interval has when nothing else is asked for.
DEFAULT_CONFIDENCE = 0.9


@dataclass(frozen=True)
class Times:
    """Predictions for one graph, over [batch sizes, devices]; NaN where a quantity is not predicted."""

    latency_ms: np.ndarray
    device_ms: np.ndarray
    host_ms: np.ndarray
    roofline_ms: np.ndarray  # the least time that the device's peaks allow
    energy_j: np.ndarray
    memory_mb: np.ndarray | None = None  # None: by simulation (predictors/laws/memory.py), as for most predictors
    memory_allocated_mb: np.ndarray | None = None
    disagreement: np.ndarray | None = None  # how far networks that differ by their seed disagree, in logarithms
    held: np.ndarray | None = None  # [.., .., bounds.HELD] which predictions were clipped to a bound of physics

    def of_device(self, place: int) -> Times:
        """The predictions for one device."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        chosen: dict[str, Any] = {
            name: None if value is None else value[:, place : place + 1] for name, value in values.items()
        }
        return Times(**chosen)


@dataclass(frozen=True)
class OutOfDistribution:
    """One respect in which a case is outside the training data."""

    what: str  # device | ops | dtype | generation | runtime
    reason: str  # a sentence for people


class TooFewCases(ForerunError):
    """A predictor has too few cases to learn from; its held-out rows then get no prediction."""


class Predictor(Saved, abc.ABC):
    """Predicts time and energy of a graph on a device, with intervals."""

    #: Its name in commands, tables and files; the same as its entry point.
    name: ClassVar[str]
    #: What its predictions are based on: learned, or roofline (physics and a spec sheet).
    basis: ClassVar[str] = "learned"
    #: The quantities that it predicts, and the modes.
    targets: ClassVar[tuple[str, ...]] = ("latency_ms", "device_ms", "energy_j")
    modes: ClassVar[tuple[str, ...]] = MODES
    #: What changes its predictions: confidence, host, runtime, adaptation (of a device). All others are refused.
    supports: ClassVar[frozenset[str]] = frozenset({"confidence"})

    #: Whether it must be fitted before it can predict.
    needs_fit: ClassVar[bool] = True
    #: Whether its intervals come from errors on held-out cases (`calibrate`); False: they are constants.
    calibrates: ClassVar[bool] = True
    #: Whether `fit` and `predict_cases` read operators and graphs; False: the columns of the table only.
    reads_graphs: ClassVar[bool] = True
    #: Whether rows that the default predictor makes for other devices teach it anything (`simulated_models`).
    learns_simulated: ClassVar[bool] = False
    #: Whether numbers of the device are features, so that several are learned from together (published predictors).
    sees_devices: bool = False
    #: Columns that they read beyond those that every table has (predictors/cases.py).
    columns: ClassVar[tuple[str, ...]] = ()
    #: How cases are held out when it is evaluated, where the defaults do not suit it.
    hold_out: ClassVar[HoldOut] = HoldOut()

    confidence: float = DEFAULT_CONFIDENCE
    host_slowness: float | None = None  # times slower than the reference host; None: the host was not measured
    host_deviation: float = 0.0  # how uncertain that is beyond a probe's: a standard deviation, in logarithms
    calibration_: Calibration | None = None
    provenance_: dict[str, Any] = {}  # noqa: RUF012 - replaced as a whole, never changed

    @abc.abstractmethod
    def fit(self, cases: TrainingCases) -> Self:
        """Learns from measured cases (columns: predictors/cases.py)."""

    def prepare(self, cases: TrainingCases) -> None:
        """Computes what `fit` and `predict_cases` need of the graphs (`Cases.made`), before fits run in parallel."""

    @abc.abstractmethod
    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        """The times of a graph at the profile's batch sizes on every device."""

    def calibrate(self, held_out: pd.DataFrame, unseen_devices: pd.DataFrame | None = None) -> Self:
        """Learns intervals from held-out errors (`evaluate.held_out`); `unseen_devices` are published cases, each on a
        device that was held out."""
        groups = [group for target in self.targets for group in self.calibration_groups(held_out, target)]
        self.calibration_ = calibrate(groups, np.concatenate([log_ratio(held_out, t) for t in self.targets]))
        return self

    @property
    def calibration(self) -> Calibration | None:
        """The calibration that `calibrate` learned; None where intervals are constants or not learned yet."""
        return self.calibration_

    def calibration_groups(self, held_out: pd.DataFrame, target: str) -> list[str]:
        """The group whose errors decide the interval of each row: `spread` looks up the same names."""
        pairs = zip(kinds_of_rows(held_out), held_out["mode"], strict=True)
        return [f"{target}/{part_of(kind)}/{mode}" for kind, mode in pairs]

    def spread(
        self, target: str, times: Times, profile: Profile, devices: Sequence[Device], workload: Workload
    ) -> np.ndarray:
        """The interval of a target at the predictor's confidence: (low, high) as factors on the value, last axis."""
        value = getattr(times, target)
        calibration = self.calibration or Calibration({}, {})
        wider = self.ood_sigma(profile, devices, workload).tolist()
        kinds = [device.traits.part for device in devices]
        factors = [
            calibration.factors(f"{target}/{kind}/{workload.mode}", self.confidence, by)
            for kind, by in zip(kinds, wider, strict=True)
        ]
        out = np.broadcast_to(np.array(factors), (*value.shape, 2)).copy()
        return not_below(out, value, times.roofline_ms) if target in ("latency_ms", "device_ms") else out

    @property
    def predicts(self) -> bool:
        """Whether a fit with these parameters leaves a predictor; False where it is one stage before that."""
        return True

    def check_parameters(self) -> None:
        """Raises the sentence of a parameter that cannot be, or of a package that is missing, before a long fit."""

    def says(self, profile: Profile) -> str | None:
        """What it says of a graph in words, at the profile's first batch size; None where it has no words."""
        return None

    def memory_spread(self, target: str, group: str, mode: str) -> tuple[float, float] | None:
        """Interval factors of simulated memory; None where the predictor learned none."""
        return None

    def basis_for(self, device: Device) -> str:
        """The basis of predictions on this device; a predictor may know less of some devices."""
        return self.basis

    def measured_devices(self) -> frozenset[str] | None:
        """The ids of the devices in its training data; None where that is not known."""
        return None

    def generation_measured(self, device: Device) -> bool:
        """Whether this generation of devices is in its training data; else predictions are based on peaks."""
        if self.basis_for(device) == "roofline":
            return False
        measured = self.measured_devices()
        if measured is None:
            return True
        return device.id in measured or device.architecture in {
            d.architecture for d in all_devices() if d.id in measured
        }

    def out_of_distribution(self, profile: Profile, device: Device, workload: Workload) -> list[OutOfDistribution]:
        """All respects in which a case is outside the training data."""
        return []

    def ood_sigma(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> np.ndarray:
        """Per device, the further error of being out of distribution: a standard deviation, in logarithms."""
        found = [self.out_of_distribution(profile, device, workload) for device in devices]
        return np.array([ood_deviation([one.what for one in many]) for many in found])

    def ood_sigma_of_cases(self, cases: Cases) -> np.ndarray:
        """The same for every case of a table, without the part of an unseen device."""
        if type(self).out_of_distribution is Predictor.out_of_distribution:
            return np.zeros(len(cases))
        found = [self.out_of_distribution(*one) for one in cases.profiles()]
        return np.array([ood_deviation([one.what for one in many if one.what != "device"]) for many in found])

    def calls(self, profile: Profile, device: Device, workload: Workload) -> Calls | None:
        """The parts of a call that corrections of a device apply to; None where it knows none (`adaptation`)."""
        return None

    @property
    def stamp(self) -> str:
        """Which weights it has: corrections of a device belong to them."""
        return ""

    def learned_share(self, profile: Profile, device: Device, workload: Workload) -> float | None:
        """The share of device time in kinds of op that the training data has; None where that has no meaning."""
        return None

    def op_times_ms(self, profile: Profile, device: Device, workload: Workload) -> np.ndarray:
        """Device time of one launch of every op, at the first batch size; by default in proportion to rooflines."""
        compute, memory, _ = op_roofline_s(profile, [device])
        each = np.maximum(compute, memory)[0, :, 0]
        total = float((each * profile.repeat).sum())
        whole = float(self.times(profile, [device], workload).device_ms[0, 0])
        return each * (whole / total if total else 0.0)

    def op_times_by_batch_ms(self, profile: Profile, device: Device, workload: Workload) -> np.ndarray:
        """[ops, batch sizes] of every op by itself, as operators are measured; by default like the rooflines."""
        compute, memory, _ = op_roofline_s(profile, [device])
        each = np.maximum(compute, memory)[0]
        total = profile.repeat @ each
        whole = self.times(profile, [device], workload).device_ms[:, 0]
        return each * np.where(total > 0, whole / np.maximum(total, 1e-30), 0.0)

    def contributions(self, profile: Profile, device: Device, workload: Workload) -> Attribution | None:
        """The contribution of each feature to the latency at the first batch size; None where it has no attribution."""
        return None

    def predict_operators(self, cases: Cases) -> np.ndarray | None:
        """Device time in milliseconds of single operators, with the overhead of the way they were timed
        (`timing_group`; by default our own protocol); None: it predicts whole models alone."""
        return None

    def ablation(
        self, cases: TrainingCases, folds: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> dict[str, pd.DataFrame]:  # fmt: skip
        """Predictions (`predicted_<target>`) of simpler forms of it for `cases.models`, by the name of the part that
        each adds to the one before. `folds` has training and test rows, part by part. Empty where it has no simpler
        forms."""
        return {}

    @classmethod
    def search_space(cls, trial: Trial) -> dict[str, Any]:
        """The constructor's parameters that a trial of `forerun tune` suggests; none where there is nothing to tune."""
        return {}

    @classmethod
    def grid(cls) -> dict[str, Sequence[Any]]:
        """Values of the constructor's parameters of which `forerun tune --grid` tries every combination."""
        return {}

    @property
    def assumed_slowness(self) -> float:
        """How many times slower than the reference host the host is taken to be."""
        return self.host_slowness or 1.0

    @property
    def provenance(self) -> dict[str, Any]:
        """Its training rows and weights, and their dates."""
        return dict(self.provenance_)

    def record_provenance(self, provenance: dict[str, Any]) -> Self:
        """Notes what it was fitted to (training/provenance.py), to be saved with it."""
        self.provenance_ = provenance
        return self

    def problem(self, workload: Workload, device: Device) -> str | None:
        """Why it cannot predict this workload on this device, as a sentence, or None."""
        if workload.mode not in self.modes:
            return f"the predictor {self.name} answers {', '.join(self.modes)}, not {workload.mode}"
        run = runtime(workload.runtime)
        if not run.measured:
            able = ", ".join(names(measured=True))
            return f"{run.name} is not measured on any device, so no time is predicted for it: choose {able}"
        if (problem := run.problem(workload) or run.device_problem(device)) is not None:
            return problem
        if run.name != USUAL_RUNTIME and "runtime" not in self.supports:
            return f"the predictor {self.name} knows runtime {USUAL_RUNTIME} only, not {run.name}"
        if device.adaptation is not None and "adaptation" not in self.supports:
            return f"the predictor {self.name} knows nothing of adapted devices: give {device.id} as a .yaml file"
        if self.host_slowness is not None and device.traits.is_host:
            return f"{device.id} is a CPU and its own host: leave host at default"
        return None

    def answers_row(self, rows: pd.DataFrame) -> np.ndarray:
        """Which measured rows are of a kind that it predicts: its modes, run eagerly."""
        eager = is_usual(rows)
        return (eager & rows["mode"].isin(self.modes)).to_numpy()

    def parts_answered(self, cases: TrainingCases) -> list[str]:
        """The parts of `cases.whole_models` that it can predict."""
        return [part for part in cases.whole_models if part not in cases.apart or "runtime" in self.supports]

    def with_settings(
        self, *, confidence: float = DEFAULT_CONFIDENCE, host_slowness: float | None = None, host_deviation: float = 0.0
    ) -> Self:
        """The same predictor for another confidence and another host; settings that it does not support are refused."""
        known = isinstance(confidence, (int, float)) and not isinstance(confidence, bool)
        least, most = CONFIDENCES
        if not known or not least <= confidence <= most:
            raise ForerunError(f"confidence must be from {least} to {most}, got {short(confidence)}")
        if confidence != DEFAULT_CONFIDENCE and "confidence" not in self.supports:
            raise ForerunError(f"the predictor {self.name} has intervals of {DEFAULT_CONFIDENCE:.0%} only")
        if host_slowness is not None and "host" not in self.supports:
            raise ForerunError(f"the predictor {self.name} knows nothing of hosts: leave host at default")
        out = copy.copy(self)
        out.confidence, out.host_slowness, out.host_deviation = confidence, host_slowness, host_deviation
        return out

    def latency_on_hosts_ms(
        self, times: Times, profile: Profile, device: Device, workload: Workload, slowness: Sequence[float]
    ) -> list[float]:
        """The latency of a call, whose `times` on one device are known, on hosts that are `slowness` times slower."""
        on_hosts = [self.with_settings(confidence=self.confidence, host_slowness=slow) for slow in slowness]
        return [float(one.times(profile, [device], workload).latency_ms[0, 0]) for one in on_hosts]

    def slowness_of_launch(self, launch_us: float) -> float | None:
        """How many times slower than the reference host one is whose tiny launches take so long; None: not modelled."""
        return None

    def host_slowness_of(self, cases: Cases) -> np.ndarray | None:
        """How many times slower than the reference host the host was at each row; None: it does not model hosts."""
        return None

    def best_host_slowness(self, cases: Cases, device_ms: np.ndarray, latency_ms: np.ndarray) -> float | None:
        """The one host slowness that fits these calls best, given predicted device times; None: it does not model
        hosts."""
        return None

    def predict_cases(self, cases: Cases, host_slowness: np.ndarray | None = None) -> pd.DataFrame:
        """`predicted_<target>` of every case, with `predicted_host_ms`; one graph at a time unless overridden."""
        import pandas as pd

        lines: list[dict[str, float]] = []
        for i, (columns, device, workload) in enumerate(cases.profiles()):
            slow = None if host_slowness is None else float(host_slowness[i])
            on_host = self if slow is None else self.with_settings(host_slowness=slow)
            if on_host.problem(workload, device) is not None:
                lines.append({})
                continue
            times = on_host.times(columns, [device], workload)
            named = ("host_ms", *(t for t in TARGETS if getattr(times, t) is not None))
            lines.append({f"predicted_{n}": float(getattr(times, n)[0, 0]) for n in named})
        wanted = [f"predicted_{n}" for n in ("host_ms", *self.targets)]
        out = pd.DataFrame(lines, index=range(len(cases.rows))).reindex(columns=wanted).astype(float)
        simulated = {f"predicted_{n}": cases.rows[f"simulated_{n}"] for n in ("memory_mb", "memory_allocated_mb")}
        return out.fillna({name: values for name, values in simulated.items() if name in out})


def log_ratio(held_out: pd.DataFrame, target: str) -> np.ndarray:
    """log(measured / predicted) of every row; NaN where one of them is missing."""
    measured, predicted = (held_out[name].to_numpy(dtype=float) for name in (target, f"predicted_{target}"))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.log(measured / predicted)


def disagreement_of(held_out: pd.DataFrame, target: str) -> np.ndarray:
    """The disagreement of a predictor's networks on each row; 0 where it has one network, and for simulated memory."""
    if target.startswith("memory") or "predicted_disagreement" not in held_out:
        return np.zeros(len(held_out))
    return held_out["predicted_disagreement"].to_numpy(dtype=float)


def kinds_of_rows(rows: pd.DataFrame) -> list[str]:
    """The kind of device of every row of a table of cases."""
    return rows["device_kind"].tolist() if "device_kind" in rows else [USUAL_KIND] * len(rows)


def for_kind(learned: dict[str, Any], kind: str) -> Any:
    """The value learned for a kind of device: that of CPUs for a CPU, else that of GPUs, or whichever there is."""
    wanted = part_of(kind)
    return learned[wanted] if wanted in learned else next(iter(learned.values()))
