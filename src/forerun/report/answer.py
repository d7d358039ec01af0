"""One row of `forerun.predict_many` as estimates with their intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forerun.prediction import Estimate


@dataclass(frozen=True)
class Answer:
    """The numbers of a case on a device; None is unknown."""

    latency_ms: Estimate
    throughput: Estimate
    memory_mb: Estimate
    energy_j: Estimate | None
    power_w: Estimate | None
    device_ms: float | None
    host_ms: float | None
    fits: bool  # True also where the device's memory is not known
    bound: str | None  # device | host: which one sets the latency
    basis: str

    @property
    def busy(self) -> float | None:
        """The share of a call that the device works."""
        return None if self.device_ms is None else min(1.0, self.device_ms / self.latency_ms.value)


def answer_of(row: dict[str, Any]) -> Answer | str:
    """A row of the table, or the sentence that says why it has no numbers."""
    if isinstance(row.get("error"), str):
        return str(row["error"])
    latency = _estimate(row, "latency", "ms")
    if latency is None:
        return f"the latency on {row['device']} is not predicted"
    rate, unit = float(row["throughput"]), str(row["throughput_unit"])
    ends = (rate * latency.value / latency.high, rate * latency.value / latency.low)
    memory = _estimate(row, "memory", "MB")
    assert memory is not None  # it is simulated for every device
    return Answer(
        latency, Estimate(rate, *ends, unit), memory, _estimate(row, "energy", "J"), _estimate(row, "power", "W"),
        _number(row["device_ms"]), _number(row["host_ms"]), row["fits"] is None or bool(row["fits"]), row["bound"],
        str(row["basis"]),
    )  # fmt: skip


def _number(value: Any) -> float | None:
    return None if value is None or value != value else float(value)


def _estimate(row: dict[str, Any], name: str, unit: str) -> Estimate | None:
    last = unit.lower()
    value, low, high = (_number(row[f"{name}_{part}{last}"]) for part in ("", "low_", "high_"))
    return None if value is None or low is None or high is None else Estimate(value, low, high, unit)
