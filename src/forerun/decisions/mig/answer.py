"""The answer of `pack_mig`: every workload on its slice, what the packing costs, and what the plain rule would do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from forerun.prediction import Estimate


@dataclass(frozen=True)
class OnSlice:
    """One workload on one kind of slice, predicted."""

    profile: str
    usable_mb: float
    memory_mb: Estimate
    latency_ms: Estimate
    throughput: Estimate
    energy_j: Estimate | None  # per call; None: the power of the device is not known
    fits: bool
    surely_fits: bool  # the upper end of what is allocated fits too


@dataclass(frozen=True)
class PlacedWorkload:
    """A workload on the slice that it was given."""

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
    problems: tuple[str, ...]  # what is not met

    @property
    def slowdown(self) -> float:
        """Latency on the slice over latency on the whole GPU."""
        return self.on_slice.latency_ms.value / self.whole_gpu_ms.value


@dataclass(frozen=True)
class Totals:
    """What a packing takes in all."""

    gpus: int
    mean_slowdown: float
    worst_slowdown: float
    energy_j: Estimate | None  # of one call of each workload; None: unknown for one of them
    power_w: Estimate | None  # at the rates asked, with what GPUs draw while they wait; None: no rates, or unknown


@dataclass(frozen=True)
class RuleOutcome:
    """What the memory-threshold rule would do: the slice by nominal memory alone, placed in the order given."""

    totals: Totals
    placed: tuple[PlacedWorkload, ...]

    @property
    def problems(self) -> list[str]:
        """A sentence for everything that is not met by the estimates."""
        return [f"{p.workload} on {p.on_slice.profile}: {text}" for p in self.placed for text in p.problems]


@dataclass(frozen=True)
class MigPacking:
    """Workloads on slices of MIG GPUs: valid placements, what each workload gets, and the commands that create them."""

    device: str
    goal: str
    confidence: float
    totals: Totals
    placed: tuple[PlacedWorkload, ...]
    free: tuple[tuple[int, str, int], ...]  # GPU, profile and start of slices that could still be created
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

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from forerun.views.mig import packing_view

        yield from packing_view(self, options.max_width)

    def _repr_html_(self) -> str:
        from forerun.pages import notebook, packing_html

        return notebook(packing_html(self))


def _plain(placed: PlacedWorkload) -> dict[str, Any]:
    out = asdict(placed)
    return {**out.pop("on_slice"), **out, "slowdown": placed.slowdown,
            "remarks": list(placed.remarks), "problems": list(placed.problems)}  # fmt: skip
