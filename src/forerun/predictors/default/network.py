"""Small networks over ops, evaluated with numpy: how much slower than its roofline an op runs, and its floor.

    roof = ((compute x power_slowdown x a)^p + (memory x b)^p + (memory x feed x c)^p)^(1/p)
    time = roof x exp(u) + launches x floor x exp(v)

a, b, c and floor are one number per kernel class; memory x feed is the time that multiprocessors need to take in the
data, however fast the memory is. u and v come from a network (convolutions, matmuls and all else have one each), are
bounded, and are near zero where nothing was learned. No op is faster than its roofline.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun._util.extras import installed
from forerun.graph.profile import CLASSES, UNITS
from forerun.graph.variants import VARIANTS
from forerun.predictors.laws.features import NUMBERS, OpTable
from forerun.predictors.laws.kernels import H200_BYTES_PER_CYCLE, MOST_FEED

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

SHARPNESS = 3.0  # of the smooth maximum of compute, memory and intake
#: Bounds of u, natural logarithm. Patches of three channels take 100 times what tensor cores would, some more.
SLOWER, FASTER = 5.0, 1.5
FLOOR_RANGE = 4.0  # bounds of v: a window of 32 x 32 takes a third of a millisecond however few images there are
#: The network of each class: convolutions, matmuls with attention, all else.
GROUPS = (("conv",), ("matmul", "attention", "rnn"), ("",))
GROUP_OF = np.array([next(g for g, words in enumerate(GROUPS) if any(word in c for word in words)) for c in CLASSES])
#: Units with a row of their own in the network. On GPUs no 8-bit matmul was measured; these run on the same matrix
#: units as FP16 matmuls, so they take the row of FP16.
LEARNED_UNITS = tuple(unit for unit in UNITS if unit != "int8")
ROW_OF_UNIT = np.array([LEARNED_UNITS.index("fp16" if unit == "int8" else unit) for unit in UNITS])
FEED = NUMBERS.index("feed")
CHUNK = 512  # ops at once, so that activations stay in the processor's cache


@dataclass(frozen=True)
class Inputs:
    """What the networks of an ensemble read alike: the combinations of class, unit and variant there are among ops, and
    for each of GROUPS the places of its ops, the combination of each and its numbers, scaled. Of every op, the seconds
    of arithmetic at the power limit, the roofline in seconds, and the relative feed."""

    classes: np.ndarray
    units: np.ndarray
    variants: np.ndarray
    groups: tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]
    slowed_s: np.ndarray
    least_s: np.ndarray
    feed: np.ndarray

    @classmethod
    def of(cls, ops: OpTable, mean: np.ndarray, scale: np.ndarray) -> Inputs:
        code = (ops.classes * len(UNITS) + ops.units) * len(VARIANTS) + ops.variants
        there = np.zeros(len(CLASSES) * len(UNITS) * len(VARIANTS), dtype=bool)
        there[code] = True
        combinations, which = np.flatnonzero(there), (np.cumsum(there) - 1)[code]
        pairs, variants = np.divmod(combinations, len(VARIANTS))
        scaled = (ops.numbers - mean) / scale
        np.clip(scaled, -4.0, 4.0, out=scaled)
        group = GROUP_OF[ops.classes]
        places = (np.flatnonzero(group == g) for g in range(len(GROUPS)))
        groups = tuple((own, which[own], scaled[own]) for own in places)
        return cls(
            pairs // len(UNITS), pairs % len(UNITS), variants, groups, ops.compute_s * ops.power_slowdown,
            np.maximum(ops.compute_s, ops.memory_s), relative_feed(ops.numbers[:, FEED]),
        )  # fmt: skip


@dataclass(frozen=True)
class Network:
    """The weights of one fitted network."""

    arrays: Mapping[str, np.ndarray]

    def inputs(self, ops: OpTable) -> Inputs:
        return Inputs.of(ops, self.arrays["mean"], self.arrays["scale"])

    def shares_inputs(self, other: Network) -> bool:
        return all(np.array_equal(self.arrays[name], other.arrays[name]) for name in ("mean", "scale"))

    def seconds(self, ops: OpTable, inputs: Inputs | None = None) -> np.ndarray:
        """Device time of one call of every op."""
        work, launching, _ = self.parts(ops, inputs)
        return work + launching

    def parts(self, ops: OpTable, inputs: Inputs | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of one call of every op: seconds of work, seconds of launches, and arithmetic over the roof of the work."""
        a = self.arrays
        known = inputs or self.inputs(ops)
        table = a["class"][known.classes] + a["unit"][ROW_OF_UNIT[known.units]] + a["variant"][known.variants]
        raw_u, raw_v = np.empty((2, len(ops.classes)))
        # Operands of one shape and memory that is used again: several times faster than broadcasting into new arrays.
        first, second, zero, bias = np.zeros((4, CHUNK, table.shape[1]), table.dtype)
        for g, (places, which, numbers) in enumerate(known.groups):
            bias[:] = a["middle_bias"][g]
            ends = np.empty((len(places), 2), table.dtype)
            for start in range(0, len(places), CHUNK):
                chunk = slice(start, start + CHUNK)
                x = numbers[chunk]
                hidden, next_ = first[: len(x)], second[: len(x)]
                np.matmul(x, a["in"][g], out=hidden)
                np.take(table, which[chunk], axis=0, out=next_, mode="clip")  # the mode that copies nothing first
                hidden += next_
                np.maximum(hidden, zero[: len(x)], out=hidden)
                np.matmul(hidden, a["middle"][g], out=next_)
                next_ += bias[: len(x)]
                np.maximum(next_, zero[: len(x)], out=next_)
                np.matmul(next_, a["out"][g], out=ends[chunk])
            raw_u[places], raw_v[places] = (ends[:, at] + a["out_bias"][g][at] for at in (0, 1))
        u, v = bounded(raw_u), FLOOR_RANGE * np.tanh(raw_v / FLOOR_RANGE)
        by_class = (np.exp(a[name])[ops.classes] for name in ("log_compute", "log_memory", "log_intake"))
        compute, memory, intake = map(np.multiply, (known.slowed_s, ops.memory_s, ops.memory_s), by_class)
        intake *= known.feed
        roof = (compute**SHARPNESS + memory**SHARPNESS + intake**SHARPNESS) ** (1 / SHARPNESS)
        floor = 1e-6 * np.exp(a["log_floor_us"][ops.classes] + v)
        return np.maximum(known.least_s, roof * np.exp(u)), ops.launches * floor, compute / np.maximum(roof, 1e-30)


@functools.cache
def _blas() -> ThreadpoolController | None:
    """Controls the threads of matmuls, where threadpoolctl is installed. Ours have CHUNK rows, too few to share: where
    other work keeps the cores busy, a second thread that waits for its turn takes five times the processor time."""
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1" or not installed("threadpoolctl"):
        return None
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _one_thread() -> AbstractContextManager[Any]:
    """A context in which matmuls run in one thread."""
    return controller.limit(limits=1, user_api="blas") if (controller := _blas()) else nullcontext()


def relative_feed(feed: np.ndarray) -> np.ndarray:
    """Bytes that the memory offers a multiprocessor each cycle (features.NUMBERS has the logarithm), over an H200's."""
    return np.minimum(np.exp2(feed) / H200_BYTES_PER_CYCLE, MOST_FEED)


def bounded(u: np.ndarray) -> np.ndarray:
    """u, softly held between -FASTER and SLOWER."""
    bound = np.where(u > 0, SLOWER, FASTER)
    return bound * np.tanh(u / bound)


@dataclass(frozen=True)
class Ensemble:
    """Several networks that differ by their seed; their predictions are averaged in logarithms."""

    networks: tuple[Network, ...]

    def floor_us(self, timing_group: np.ndarray) -> np.ndarray:
        """The overhead of the timing of a published set (by the number `fit_device.fit` gave it); 0 for our own."""
        floors = np.mean([np.exp(n.arrays["context_floor"]) for n in self.networks], axis=0)
        return np.where(timing_group > 0, floors[timing_group], 0.0)

    def seconds(self, ops: OpTable) -> np.ndarray:
        return self.seconds_and_spread(ops)[0]

    def seconds_and_spread(self, ops: OpTable) -> tuple[np.ndarray, np.ndarray]:
        """Device time of one call of every op, and the disagreement of the networks on it, in logarithms (a standard
        deviation): small where training rows determine the answer."""
        first, *others = self.networks
        inputs = first.inputs(ops)
        with _one_thread():
            each = [first.seconds(ops, inputs)]
            each += [n.seconds(ops, inputs if n.shares_inputs(first) else None) for n in others]
        logs = np.log(np.maximum(each, 1e-15))
        spread = logs.std(axis=0, ddof=1) if len(logs) > 1 else np.zeros(logs.shape[1:])
        return np.exp(logs.mean(axis=0)), spread

    def on_cores(
        self, ops: OpTable, share: np.ndarray, slower: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Device time and disagreement of every op whose work takes `share` as long and whose launches take `slower`
        times as long (laws/many_cores.py), and what of the time is launching."""
        with _one_thread():
            found = [network.parts(ops)[:2] for network in self.networks]
        each = np.array([work * share + launching * slower for work, launching in found])
        launching = np.mean([launching * slower for _, launching in found], axis=0)
        logs = np.log(np.maximum(each, 1e-15))
        spread = logs.std(axis=0, ddof=1) if len(logs) > 1 else np.zeros(logs.shape[1:])
        seconds = np.exp(logs.mean(axis=0))
        return seconds, spread, np.minimum(launching, seconds)

    def parts(self, ops: OpTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Seconds of arithmetic, of memory and of launches of one call of every op; their sum is `seconds`."""
        found = [network.parts(ops) for network in self.networks]
        work, launching, arithmetic = (np.mean(each, axis=0) for each in zip(*found, strict=True))
        share = np.minimum(arithmetic, 1.0) ** SHARPNESS
        scale = self.seconds(ops) / np.maximum(work + launching, 1e-30)
        return work * share * scale, work * (1 - share) * scale, launching * scale
