"""The subject of a report: the model, the devices, the job; and the predictions that its levels need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forerun.api.explanation import Explanation
from forerun.api.predict import explain, predict_many, predict_workload
from forerun.api.questions import Captures, given_model, profiled
from forerun.api.tables import TableRow, read_row
from forerun.device import Device
from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.prediction import Prediction
from forerun.runtimes.registry import filed_under
from forerun.workload import PUBLISHED, Workload

if TYPE_CHECKING:
    from forerun.data.measured import Measured

INFERENCE_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TRAINING_BATCHES = (8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Precision:
    """The dtype of the weights (`published`: quantised as the checkpoint has them), and that of autocast over them."""

    dtype: str
    amp: str | None = None

    @property
    def label(self) -> str:
        if self.dtype == PUBLISHED:
            return "as published"
        return f"{self.dtype} + amp {self.amp}" if self.amp and self.dtype != "fp32" else (
            f"amp {self.amp}" if self.amp else self.dtype
        )  # fmt: skip


INFERENCE = (Precision("fp32"), Precision("fp16"), Precision("bf16"))
TRAINING = (Precision("fp32"), Precision("tf32"), Precision("fp32", "fp16"), Precision("fp32", "bf16"))


@dataclass(frozen=True)
class Job:
    """The training job: samples and epochs."""

    dataset_size: int
    epochs: int


@dataclass
class Study:
    """The request of a report; every number is predicted here, as `forerun.predict` gives it with `measured=False`."""

    model: Any
    devices: Sequence[Device]
    batch: int
    precision: Precision  # of the case of the operators and the summary
    mode: str  # of the non-training call: inference, prefill or decode
    optimizer: str
    job: Job
    settings: dict[str, Any] = field(default_factory=dict)  # the other settings of the workload
    predictor: Any = "default"
    confidence: float = 0.9
    host: str | float = "reference"
    region: str | None = None
    loading_samples_per_s: float | None = None  # what data loading delivers; None: it keeps up
    here: Device | None = None  # the device that this machine has and that is measured; None: nothing is
    captures: Captures = field(default_factory=Captures)
    _predictions: dict[str, Prediction | str] = field(default_factory=dict)
    _answers: dict[Any, dict[str, TableRow | str]] = field(default_factory=dict)
    _traffic: dict[Any, float] = field(default_factory=dict)

    @property
    def inference_precisions(self) -> list[Precision]:
        return list(dict.fromkeys([self.precision, *INFERENCE]))

    @property
    def training_precisions(self) -> list[Precision]:
        precisions = [] if self.precision.dtype in ("int8", "int4", "fp8", PUBLISHED) else [self.precision]
        return list(dict.fromkeys([*precisions, *TRAINING]))

    @property
    def inference_batches(self) -> list[int]:
        return sorted({*INFERENCE_BATCHES, self.batch})

    @property
    def training_batches(self) -> list[int]:
        return sorted({*TRAINING_BATCHES, self.batch})

    def workload(
        self, *, batch: int | None = None, precision: Precision | None = None, mode: str | None = None, **changes: Any
    ) -> Workload:
        """The case of the report, with changes."""
        chosen, kind = precision or self.precision, mode or self.mode
        given = given_model(
            self.model,
            {
                **self.settings, "batch": batch or self.batch, "dtype": chosen.dtype, "amp": chosen.amp, "mode": kind,
                "optimizer": self.optimizer if kind == "training" else None, **changes,
            },
        )  # fmt: skip
        return self.captures.workload(given)

    def predict(self, device: Device) -> Prediction | str:
        """The whole prediction of the report's own case, or the reason for none."""
        if device.id not in self._predictions:
            try:
                self._predictions[device.id] = predict_workload(
                    self.workload(), device, predictor=self.predictor, confidence=self.confidence, host=self.host,
                    region=self.region, measured=False,
                )  # fmt: skip
            except ForerunError as e:
                self._predictions[device.id] = str(e)
        return self._predictions[device.id]

    def answers(self, devices: Sequence[Device] | None = None, **case: Any) -> dict[str, TableRow | str]:
        """A case on every device by its id: the prediction, or the reason for none."""
        chosen = self.devices if devices is None else devices
        key = (tuple(d.id for d in chosen), repr(sorted(case.items())))
        if key not in self._answers:
            try:
                frame = predict_many(
                    [self.workload(**case)], chosen, predictor=self.predictor, confidence=self.confidence,
                    host=self.host, region=self.region,
                )  # fmt: skip
                self._answers[key] = {row["device"]: read_row(row) for row in frame.to_dict("records")}
            except ForerunError as e:
                self._answers[key] = {d.id: str(e) for d in chosen}
        return self._answers[key]

    def answer(self, device: Device, **case: Any) -> TableRow | str:
        """A case on one of the report's devices."""
        return self.answers(**case)[device.id]

    def explain(self, device: Device, **case: Any) -> Explanation:
        workload = self.workload(**case)
        values = {n: getattr(workload, n) for n in workload.__dataclass_fields__ if n != "model"}
        return explain(workload.model, device, predictor=self.predictor, host=self.host, **values)

    def step_mb(self, precision: Precision, batch: int) -> float:
        """MB of memory traffic of a training step."""
        key = ("step_mb", precision, batch)
        if key not in self._traffic:
            moved = profiled(self.workload(precision=precision, batch=batch, mode="training")).work[2]
            self._traffic[key] = moved / 2**20
        return self._traffic[key]

    def graph(self, **case: Any) -> Graph:
        return profiled(self.workload(**case)).graph

    def measured(self, device: Device, **case: Any) -> Measured | None:
        """The stored measurement of a case."""
        from forerun.data.measured import find
        from forerun.data.places import readable

        if not readable(device.id):
            return None
        workload = self.workload(**case)
        return find(filed_under(profiled(workload).graph, workload), workload, device.id)

    def fastest(
        self, precisions: Sequence[Precision], mode: str, devices: Sequence[Device] | None = None
    ) -> dict[str, tuple[Precision, TableRow]]:
        """For each device the precision with the shortest call at the report's batch, among those that fit."""
        best: dict[str, tuple[Precision, TableRow]] = {}
        for precision in precisions:
            for device, answer in self.answers(devices, precision=precision, mode=mode).items():
                if isinstance(answer, str) or answer.fits is False:
                    continue
                if device not in best or answer.latency_ms.value < best[device][1].latency_ms.value:
                    best[device] = (precision, answer)
        return best
