"""A prediction beside the measurement of the same case, with the error of each quantity."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from forerun.prediction import OF_FEW, Estimate, Prediction


@dataclass(frozen=True)
class Check:
    """One quantity: the predicted estimate and the measured value, or the reason why it was not measured."""

    name: str
    predicted: Estimate | None
    measured: float | None
    reason: str = ""

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted.value / self.measured - 1

    @property
    def inside(self) -> bool | None:
        """Whether the measurement lies in the predicted interval."""
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted.low <= self.measured <= self.predicted.high


@dataclass(frozen=True)
class Verification:
    """A prediction and the row that checks it."""

    prediction: Prediction
    row: dict[str, Any]
    checks: tuple[Check, ...]

    def to_dict(self) -> dict[str, Any]:
        checks = [asdict(c) | {"error": c.error, "inside": c.inside} for c in self.checks]
        return {"prediction": self.prediction.to_dict(), "measurement": self.row, "checks": checks}


def verify(prediction: Prediction, row: dict[str, Any]) -> Verification:
    """Compares a prediction with the row that measured the same case."""
    memory = row.get("memory") or {}
    no_device_time = (
        row.get("kernel_ms_reason") or "measured only by forerun sweep, which profiles in a separate process"
    )
    measured = {
        "latency_ms": (row.get("latency_ms"), ""),
        "first_token_ms": (row.get("first_token_ms"), ""),
        "token_ms": (row.get("token_ms"), ""),
        "device_ms": (row.get("kernel_ms"), no_device_time),
        "memory_mb": (memory.get("used_mb"), "this machine does not report it"),
        "memory_allocated_mb": (memory.get("allocated_mb"), "only a GPU's allocator reports it"),
        "energy_j": (row.get("energy_j"), str(row.get("energy_reason", ""))),
    }
    checks = [
        Check(name, getattr(prediction, name), value, "" if value is not None else reason)
        for name, (value, reason) in measured.items()
        if name not in OF_FEW or getattr(prediction, name) is not None
    ]
    return Verification(prediction, row, tuple(checks))
