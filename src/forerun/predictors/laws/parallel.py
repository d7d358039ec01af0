"""A call on several devices: the time of its collectives, beside what a predictor says of one device's own work.

Devices of tensor parallelism work side by side; for one call, the stages of a pipeline work one after another. A
collective starts when its operands are there and everything after it waits for it: it adds to the device's time, and to
the latency as far as the device does not wait for the host anyway.

    device time = one device's operators of all stages + collectives
    latency     = latency without collectives + max(0, collectives - (host time - device time of the operators))
    energy      = tp x that of one device + waiting power of all devices while they exchange or wait for other stages
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.device import Device
from forerun.device.cloud import Instance
from forerun.graph.cost import Shapes
from forerun.graph.ir import Graph
from forerun.graph.kinds import COLLECTIVES
from forerun.graph.layout import Layout
from forerun.predictors.laws.bounds import Answers
from forerun.predictors.laws.collectives import NCCL, collective
from forerun.predictors.laws.energy import waiting_w


@dataclass(frozen=True)
class Communication:
    """The time of a call's collectives on one device, with its interval."""

    ms: float
    low_ms: float
    high_ms: float
    over: tuple[str, ...]  # the links they use
    extrapolated: bool

    def note(self, layout: Layout, device: Device) -> str:
        """What they cost and how sure that is, in a sentence."""
        over = " and ".join(self.over) or "no link"
        sure = "; extrapolated beyond what was measured, so half to twice that is assumed" if self.extrapolated else ""
        return f"{layout.devices} x {device.id} ({layout}): {self.ms:.3g} ms of collectives over {over}{sure}"


def communication(
    graph: Graph, device: Device, layout: Layout, kernel: str = NCCL, instance: Instance | None = None
) -> Communication:
    """The collectives of a graph of one device of `layout`; raises where the devices have no link that is known."""
    ms = low = high = 0.0
    over: dict[str, None] = {}
    extrapolated, shapes = False, Shapes(graph)
    prices: dict[tuple[str, float, int], tuple[float, float, float, str, bool]] = {}
    for op in graph.ops:
        if op.kind not in COLLECTIVES:
            continue
        size = max(sum(float(shapes.bytes(t)) for t in side) for side in (op.inputs, op.outputs))
        # Neighbouring stages are on the devices of the whole layout; all others exchange with their own group.
        count = layout.tp * layout.pp if op.kind == "send_recv" else int(op.attrs["devices"])
        key = (op.kind, size, count)
        if key not in prices:
            one = collective(op.kind, size, device, count, kernel, instance)
            prices[key] = (one.ms, one.low_ms, one.high_ms, one.over, one.extrapolated)
        value, least, most, link, beyond = prices[key]
        ms, low, high = ms + value * op.repeat, low + least * op.repeat, high + most * op.repeat
        over[link] = None
        extrapolated = extrapolated or beyond
    return Communication(ms, low, high, tuple(over), extrapolated)


@dataclass(frozen=True)
class ParallelAnswers(Answers):
    """Predictions for a call on several devices; `alone` are those for the operators of one of them."""

    alone: Answers
    exchange: tuple[Communication, ...]  # for each device
    layout: Layout

    def _spread(self, target: str) -> np.ndarray:
        factors = self.alone.spread(target)
        if target not in ("latency_ms", "device_ms"):
            return factors
        before, after = getattr(self.alone.times, target), getattr(self.times, target)
        added = after - before
        ends = [[(e.low_ms / e.ms, e.high_ms / e.ms) if e.ms else (1.0, 1.0) for e in self.exchange]]
        total = before[..., None] * factors + added[..., None] * np.array(ends)
        return np.asarray(total / after[..., None])

    def of_device(self, place: int) -> ParallelAnswers:
        return replace(
            self, devices=[self.devices[place]], times=self.times.of_device(place), alone=self.alone.of_device(place),
            exchange=(self.exchange[place],),
        )  # fmt: skip

    def notes(self) -> Iterator[str]:
        yield from self.alone.notes()
        yield self.exchange[0].note(self.layout, self.devices[0])


def in_parallel(alone: Answers, layout: Layout, exchange: Sequence[Communication]) -> ParallelAnswers:
    """The predictions for a call on all devices of a layout."""
    times = alone.times
    added = np.array([[e.ms for e in exchange]])
    waits = np.nan_to_num(np.maximum(times.host_ms - times.device_ms, 0.0))
    latency_ms = times.latency_ms + np.maximum(added - waits, 0.0)
    watts = np.array([np.nan if (w := waiting_w(d)) is None else w for d in alone.devices])
    waiting_ms = layout.tp * added + layout.tp * (layout.pp - 1) * latency_ms
    energy_j = layout.tp * times.energy_j + watts * waiting_ms / 1e3
    changed = replace(times, latency_ms=latency_ms, device_ms=times.device_ms + added, energy_j=energy_j)
    return ParallelAnswers(
        alone.predictor, alone.profile, alone.devices, alone.workload, changed, alone, tuple(exchange), layout
    )
