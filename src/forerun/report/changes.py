"""Changes of the report's case: what `forerun.optimise` claims, for throughput."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forerun.advice.gains import CLAIMED, Gain
from forerun.decisions.optimise.optimise import single_changes
from forerun.device import Device
from forerun.errors import ForerunError
from forerun.prediction import Estimate
from forerun.report.parts import plain
from forerun.report.study import Study


@dataclass(frozen=True)
class Change:
    """One change of settings with its gain in throughput."""

    device: str
    mode: str
    words: str
    kind: str
    gain: Gain
    latency_ms: Estimate | None
    throughput: Estimate | None

    def row(self) -> dict[str, Any]:
        return {
            "device": self.device, "mode": self.mode, "change": self.words, "gain": vars(self.gain),
            "latency_ms": plain(self.latency_ms), "throughput": plain(self.throughput),
        }  # fmt: skip


def changes(study: Study, device: Device, mode: str) -> list[Change]:
    """Changes that are claimed on a device, the largest gain first; none where the case itself cannot be predicted."""
    try:
        settings = study.workload(mode=mode).to_dict() | {"model": study.model}
        lines = single_changes(
            device=device, captures=study.captures, goal="throughput", predictor=study.predictor,
            confidence=study.confidence, host=study.host, region=study.region, **settings,
        )  # fmt: skip
    except ForerunError:
        return []
    return [
        Change(device.id, mode, line.name, line.kind, line.gain, line.after.latency_ms, line.after.throughput)
        for line in lines
        if line.verdict == CLAIMED and line.where == "settings" and line.case.device == device
    ]
