"""Where the time goes: the predicted time of every op, its share, and what limits it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from forerun._util.rendered import Rendered
from forerun.device import Device
from forerun.device.matrix_units import runs_on_matrix_units
from forerun.graph.ir import Graph
from forerun.graph.profile import CLASSES, UNITS, Profile
from forerun.predictors.base import Predictor
from forerun.predictors.baselines.roofline import with_losses
from forerun.predictors.laws.bounds import ask
from forerun.predictors.laws.kernels import FLOOR_US, HOST_US, launch_costs
from forerun.predictors.laws.locality import moved
from forerun.predictors.laws.specs import op_roofline_s, power_slowdown
from forerun.predictors.laws.usual_python import beyond_usual_ms
from forerun.runtimes.registry import USUAL
from forerun.workload import Workload

#: Kinds of op whose uses differ by their second input, the weight.
_BY_WEIGHT = frozenset({"matmul", "moe_matmul", "conv"})


@dataclass(frozen=True)
class OpTime:
    """One op, or several of the same kind and shape."""

    op: str
    scope: str
    kernel: str
    shape: str
    calls: int
    time_ms: float  # of all calls
    share: float  # of the device time
    bound: str  # compute | memory | launch
    gflops: float
    mb: float
    phase: str = "forward"  # forward | backward | optimizer
    unit: str = "vector"  # which units do the arithmetic (graph.profile.UNITS)
    tensor_cores: bool = False  # whether those are tensor cores, or matrix units of another name, on this device
    #: MB that the device's memory, its L2 cache and its L1 caches deliver (predictors/laws/locality.py); None: unknown.
    memory_level_mb: float | None = None
    l2_level_mb: float | None = None
    l1_level_mb: float | None = None


@dataclass(frozen=True)
class Explanation(Rendered):
    """A predicted call, op by op, with the times of the whole."""

    model: str
    device: str
    device_ms: float
    host_ms: float
    latency_ms: float
    ops: tuple[OpTime, ...]
    host: str | None = None  # the host that was assumed, in words
    #: Calls of Python functions and of C functions that the model itself makes beside PyTorch's; None: not counted.
    python_calls: tuple[int, int] | None = None
    #: Milliseconds of the host for those beyond what usual models call, which `host_ms` does not have.
    python_ms: float = 0.0

    def by_kernel(self) -> list[tuple[str, int, float, float]]:
        """(kernel class, calls, ms, share), largest first."""
        groups: dict[str, list[OpTime]] = defaultdict(list)
        for op in self.ops:
            groups[op.kernel].append(op)
        rows = [
            (k, sum(o.calls for o in v), sum(o.time_ms for o in v), sum(o.share for o in v)) for k, v in groups.items()
        ]
        return sorted(rows, key=lambda r: -r[2])

    def to_dict(self) -> dict[str, Any]:
        calls = self.python_calls
        return {
            "model": self.model, "device": self.device, "device_ms": self.device_ms, "host_ms": self.host_ms,
            "latency_ms": self.latency_ms, "host": self.host, "ops": [vars(o) for o in self.ops],
            "python_calls": calls and {"functions": calls[0], "c_functions": calls[1]},
            "python_ms": self.python_ms,
        }  # fmt: skip


def explain_ops(
    graph: Graph, columns: Profile, device: Device, predictor: Predictor, workload: Workload
) -> Explanation:
    """Times of every op, longest first; ops of one kind and shape are added up."""
    per_call = predictor.op_times_ms(columns, device, workload)
    times = ask(predictor, columns, [device], workload).times
    by_compute, by_memory, _ = op_roofline_s(columns, [device])
    seconds = with_losses(columns, [device], by_compute, by_memory)
    compute_ms, memory_ms = (1e3 * s[0, :, 0] for s in seconds)
    compute_ms = compute_ms * power_slowdown([device])[columns.units, 0]
    costs = launch_costs(device, workload.runtime)
    launch_ms = HOST_US[columns.classes] * costs.host_share / 1e3
    floor_ms = FLOOR_US[columns.classes] * costs.floor_share / 1e3
    total = float((per_call * columns.repeat).sum())
    levels = moved(columns, device)
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, op in enumerate(graph.ops):
        shapes = [graph.tensors[t].shape for t in op.inputs[: 2 if op.kind in _BY_WEIGHT else 1]]
        shape = " x ".join(str(s) for s in shapes)
        groups[op.name, CLASSES[columns.classes[i]], UNITS[columns.units[i]], shape, op.phase].append(i)
    rows = []
    for (name, kernel, unit, shape_text, phase), members in groups.items():
        first = members[0]
        # Launching takes longer than the kernel, or most of the kernel is what even an empty one takes.
        if launch_ms[first] > per_call[first] or 2 * floor_ms[first] > per_call[first]:
            bound = "launch"
        else:
            bound = "compute" if compute_ms[first] >= memory_ms[first] else "memory"
        times_run = columns.repeat[members]

        def mb(each: Any, members: list[int] = members, times_run: Any = times_run) -> float:
            return float((each[members] * times_run).sum()) / 2**20

        ms = float((per_call[members] * times_run).sum())
        rows.append(
            OpTime(
                op=name.rpartition("::")[2], scope=graph.ops[first].scope, kernel=kernel, shape=shape_text,
                calls=int(times_run.sum()), time_ms=ms, share=ms / total if total else 0.0, bound=bound,
                gflops=float((columns.flops[members, 0] * times_run).sum()) / 1e9,
                mb=mb(columns.bytes[:, 0]), phase=phase, unit=unit,
                tensor_cores=runs_on_matrix_units(device, kernel, unit),
                memory_level_mb=None if levels is None else mb(levels.memory),
                l2_level_mb=None if levels is None else mb(levels.l2),
                l1_level_mb=None if levels is None else mb(levels.l1),
            )
        )  # fmt: skip
    rows.sort(key=lambda r: -r.time_ms)
    return Explanation(
        graph.name, device.id, float(times.device_ms[0, 0]), float(times.host_ms[0, 0]), float(times.latency_ms[0, 0]),
        tuple(rows), python_calls=graph.python_calls(),
        python_ms=beyond_usual_ms(graph) * predictor.assumed_slowness if workload.runtime == USUAL else 0.0,
    )  # fmt: skip
