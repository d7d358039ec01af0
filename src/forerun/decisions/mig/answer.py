"""The answer of `pack_mig`: every workload on its slice, the costs of the packing, and the result of the
memory-threshold rule."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from forerun._util.rendered import Rendered
from forerun.prediction import Estimate


@dataclass(frozen=True)
class OnSlice:
    """One workload on one kind of slice, predicted."""

    profile: str
    usable_mb: float
    memory_mb: Estimate
    latency_ms: Estimate
    throughput: Estimate
    energy_j: Estimate | None  # per call; None: the power of the device is unknown
    fits: bool
    surely_fits: bool  # the upper end of allocated memory fits too


@dataclass(frozen=True)
class PlacedWorkload:
    """A workload on its slice."""

    gpu: int
    start: int  # the first memory slice
    size: int  # how many memory slices
    workload: str
    settings: dict[str, Any]
    on_slice: OnSlice
    whole_gpu_ms: Estimate  # latency on the same GPU without MIG
    max_latency_ms: float | None
    rate: float | None  # calls per second
    remarks: tuple[str, ...]  # where only the upper end of an interval is too high
    problems: tuple[str, ...]  # unmet constraints

    @property
    def slowdown(self) -> float:
        """Latency on the slice over latency on the whole GPU."""
        return self.on_slice.latency_ms.value / self.whole_gpu_ms.value


@dataclass(frozen=True)
class Totals:
    """Totals of a packing."""

    gpus: int
    mean_slowdown: float
    worst_slowdown: float
    energy_j: Estimate | None  # of one call of each workload; None: unknown for one of them
    power_w: Estimate | None  # at the requested rates, with idle power; None: no rates, or unknown


@dataclass(frozen=True)
class RuleOutcome:
    """The packing by the memory-threshold rule: slices by nominal memory alone, placed in the order given."""

    totals: Totals
    placed: tuple[PlacedWorkload, ...]

    @property
    def problems(self) -> list[str]:
        """A sentence for every constraint that the estimates do not meet."""
        return [f"{p.workload} on {p.on_slice.profile}: {text}" for p in self.placed for text in p.problems]


@dataclass(frozen=True)
class MigPacking(Rendered):
    """Workloads on slices of MIG GPUs: valid placements, what each workload gets, and the commands that create them."""

    device: str
    goal: str
    confidence: float
    totals: Totals
    placed: tuple[PlacedWorkload, ...]
    free: tuple[tuple[int, str, int], ...]  # GPU, profile and start of slices that fit in the free space
    commands: tuple[str, ...]
    rule: RuleOutcome
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values for JSON."""
        return {
            "device": self.device, "goal": self.goal, "confidence": self.confidence, "totals": asdict(self.totals),
            "placed": [_plain(p) for p in self.placed],
            "free": [{"gpu": gpu, "profile": profile, "start": start} for gpu, profile, start in self.free],
            "commands": list(self.commands), "notes": list(self.notes),
            "rule": {
                "totals": asdict(self.rule.totals), "problems": self.rule.problems,
                "placed": [_plain(p) for p in self.rule.placed],
            },
        }  # fmt: skip


def _plain(placed: PlacedWorkload) -> dict[str, Any]:
    out = asdict(placed)
    return {**out.pop("on_slice"), **out, "slowdown": placed.slowdown,
            "remarks": list(placed.remarks), "problems": list(placed.problems)}  # fmt: skip
