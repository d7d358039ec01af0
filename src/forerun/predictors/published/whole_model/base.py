"""A predictor that sees a network as a whole: from features of the network (and of the device) to quantities of a call.

It has no physics built in, so its predictions are clipped to the bounds of physics (predictors/laws/bounds.py).
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from forerun.device import Device, load_device
from forerun.device.kinds import GPU
from forerun.errors import ForerunError
from forerun.graph.profile import Profile
from forerun.predictors.base import OutOfDistribution, Predictor, Times, TooFewCases
from forerun.predictors.hold_out import HoldOut
from forerun.predictors.laws.bounds import hold
from forerun.predictors.laws.specs import roofline_ms
from forerun.predictors.published.whole_model import numbers
from forerun.predictors.published.whole_model.numbers import Numbers
from forerun.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from forerun.predictors.cases import Cases, TrainingCases

#: The fewest cases to learn from.
FEWEST = 20
#: The fewest GPUs, or CPUs, from which the effect of datasheets is learned.
FEWEST_DEVICES = 3


class WholeModelPredictor(Predictor):
    """Learns quantities of a call from the network as a whole."""

    targets = ("latency_ms", "memory_mb", "energy_j")
    hold_out: ClassVar[HoldOut] = HoldOut(splits=("random", "family"), keeps_all_columns=False)
    learns_simulated = True

    devices_: list[str]
    simulated_devices_: list[str] = []  # noqa: RUF012 - replaced as a whole; devices known from simulated rows alone
    kinds_: list[str]  # kinds of op in the graphs that it was fitted to

    def fit(self, cases: TrainingCases) -> Self:
        self.prepare(cases)
        selected = self.cases_of(cases)
        made = _simulated(selected.rows)
        self.devices_ = sorted(selected.rows["device"][~made].unique())
        self.simulated_devices_ = sorted(selected.rows["device"][made].unique())
        self.kinds_ = sorted(selected.op_kinds)
        self.learn(selected)
        return self

    @abc.abstractmethod
    def learn(self, cases: Cases) -> None:
        """Learns from the cases of a kind that it predicts; sets learned attributes."""

    @abc.abstractmethod
    def values_of_cases(self, cases: Cases) -> dict[str, np.ndarray]:
        """By target, its prediction for every case."""

    @abc.abstractmethod
    def values_of_question(
        self, profile: Profile, devices: Sequence[Device], workload: Workload
    ) -> dict[str, np.ndarray]:
        """By target, its prediction over [batch sizes, devices]."""

    def cases_of(self, cases: TrainingCases) -> Cases:
        """The cases that it learns from."""
        from forerun.predictors.cases import join

        parts = [cases.models, cases.cpu_models, cases.published_models, cases.simulated_models]
        if not self.sees_devices:
            parts = [cases.simulated_models or cases.models]
        selected = [part.take(self.answers_row(part.rows)) for part in parts if part]
        selected = [part for part in selected if len(part)]
        if sum(map(len, selected)) < FEWEST:
            raise TooFewCases(
                f"the predictor {self.name} learns from rows of {' and '.join(self.modes)} that ran eagerly, and there "
                f"are {sum(map(len, selected))} of these: it needs {FEWEST}"
            )
        joined = selected[0] if len(selected) == 1 else join(selected)
        devices = sorted(joined.rows["device"].unique())
        if len(devices) > 1 and not self.sees_devices:
            raise ForerunError(
                f"the predictor {self.name} sees no datasheets, so it learns one device at a time, and there are rows "
                f"of {', '.join(devices)}: {_choose(joined.rows, devices[0])}"
            )
        for target in self.targets:
            if target not in joined.rows or joined.rows[target].notna().sum() < FEWEST:
                raise TooFewCases(f"{target} was measured in fewer than {FEWEST} of the rows to learn from")
        return joined

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        least = roofline_ms(profile, devices)
        values = self.values_of_question(profile, devices, workload)
        unknown = np.full(least.shape, np.nan)
        able = np.array([self.problem_of(device) is None for device in devices])  # not slices of a known device
        times = Times(
            latency_ms=np.where(able, values["latency_ms"], np.nan),
            device_ms=unknown, host_ms=unknown, roofline_ms=least,
            energy_j=values.get("energy_j", unknown), memory_mb=values.get("memory_mb"),
            memory_allocated_mb=values.get("memory_allocated_mb"),
        )  # fmt: skip
        return hold(times, profile, devices, workload)

    def predict_cases(self, cases: Cases, host_slowness: np.ndarray | None = None) -> pd.DataFrame:
        import pandas as pd

        able = self.answers_row(cases.rows) & np.array([self.problem_of(d) is None for d in cases.devices])
        out = pd.DataFrame(np.nan, index=range(len(cases)), columns=[f"predicted_{t}" for t in self.targets])
        if able.any():
            selected = cases.take(able)
            values = self.values_of_cases(selected)
            values["latency_ms"] = np.maximum(values["latency_ms"], selected.rows["roofline_ms"].to_numpy(dtype=float))
            for target in self.targets:
                out.loc[able, f"predicted_{target}"] = values[target]
        return out

    def problem_of(self, device: Device) -> str | None:
        """Why it cannot predict a device, as a sentence, or None."""
        known = [*self.devices_, *self.simulated_devices_]
        if device.id in known:
            return None
        others = sum(_kind(name) == device.kind for name in known)
        if not self.sees_devices:
            why = "it sees no datasheets"
        elif "/" in device.id:
            why = "what a slice changes was never measured"
        elif others < FEWEST_DEVICES:
            why = f"{FEWEST_DEVICES} of a kind are needed to say anything of others"
        else:
            return None
        return (
            f"the predictor {self.name} knows {', '.join(known)} and no other device: {why}; fit it to rows of "
            f"{device.id} (forerun train {self.name})"
        )

    def problem(self, workload: Workload, device: Device) -> str | None:
        return super().problem(workload, device) or self.problem_of(device)

    def parts_answered(self, cases: TrainingCases) -> list[str]:
        """Without datasheets it learns from GPUs alone."""
        return [part for part in super().parts_answered(cases) if part == GPU.part or self.sees_devices]

    def measured_devices(self) -> frozenset[str]:
        return frozenset(self.devices_)

    def basis_for(self, device: Device) -> str:
        """Simulated where other devices of its kind are known from simulated rows alone."""
        made = any(_kind(name) == device.kind for name in self.simulated_devices_)
        return "simulated" if made and device.id not in self.devices_ else self.basis

    def out_of_distribution(self, profile: Profile, device: Device, workload: Workload) -> list[OutOfDistribution]:
        found = []
        if device.id not in self.devices_:
            made = ", to simulated rows of it alone" if device.id in self.simulated_devices_ else ""
            found.append(OutOfDistribution("device", f"{self.name} was fitted to no measurement of {device.id}{made}"))
        unseen = sorted({op.kind for op in profile.graph.ops} - set(self.kinds_))
        if unseen:
            found.append(OutOfDistribution("ops", f"{self.name} was fitted to no network with {', '.join(unseen)}"))
        return found

    def memory_spread(self, target: str, group: str, mode: str) -> tuple[float, float] | None:
        if target not in self.targets or self.calibration_ is None:
            return None
        return self.calibration_.factors(f"{target}/gpu/{mode}", self.confidence)


def _simulated(rows: pd.DataFrame) -> np.ndarray:
    """Which rows another predictor made."""
    return (rows["simulated"].notna() if "simulated" in rows else rows["device"].isna()).to_numpy(dtype=bool)


def _choose(rows: pd.DataFrame, device: str) -> str:
    """How one of several devices is chosen."""
    return (
        f"give --simulated {device} alone"
        if _simulated(rows).any()
        else f"choose one with --where \"device = '{device}'\""
    )


def _kind(name: str) -> str | None:
    """gpu, cpu …; None for a device that the catalogue of this machine lacks."""
    try:
        return load_device(name).kind
    except ForerunError:
        return None


class ByNumbers(WholeModelPredictor):
    """Learns from one line of features per case, so it needs the columns of the table and no graph."""

    reads_graphs = False
    columns = (*numbers.GRAPH_NUMBERS, *numbers.WORK_NUMBERS, "op_kinds")

    @abc.abstractmethod
    def values(self, lines: Numbers) -> dict[str, np.ndarray]:
        """By target, its prediction for every line."""

    def values_of_cases(self, cases: Cases) -> dict[str, np.ndarray]:
        return self.values(numbers.of_rows(cases.rows, cases.devices))

    def values_of_question(
        self, profile: Profile, devices: Sequence[Device], workload: Workload
    ) -> dict[str, np.ndarray]:
        shape = (len(profile.batches), len(devices))
        found = self.values(numbers.of_question(profile, devices, workload))
        return {target: values.reshape(shape) for target, values in found.items()}
