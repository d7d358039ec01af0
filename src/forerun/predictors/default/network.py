"""Small networks over ops, evaluated with numpy: how much slower than its roofline an op runs, and its floor.

    roof = ((compute x power_slowdown x a)^p + (memory x b)^p + (memory x feed x c)^p)^(1/p)
    time = roof x exp(u) + launches x floor x exp(v)

a, b, c and floor are one number per kernel class; memory x feed is the time that multiprocessors need to take in the
data, however fast the memory is. u and v come from a network (convolutions, matmuls and all else have one each), are
bounded, and are near zero where nothing was learned. No op is faster than its roofline.
"""

from __future__ import annotations

import functools
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
CHUNK = 2048  # ops at once, so that activations stay in the processor's cache


@dataclass(frozen=True)
class OpKinds:
    """The combinations of class, unit and variant there are among ops, the one of every op (`place`), and the ops of
    each of GROUPS."""

    classes: np.ndarray
    units: np.ndarray
    variants: np.ndarray
    place: np.ndarray
    groups: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, ops: OpTable) -> OpKinds:
        code = (ops.classes * len(UNITS) + ops.units) * len(VARIANTS) + ops.variants
        found, place = np.unique(code, return_inverse=True)
        pairs, variants = np.divmod(found, len(VARIANTS))
        group = GROUP_OF[ops.classes]
        groups = tuple(np.flatnonzero(group == g) for g in range(len(GROUPS)))
        return cls(pairs // len(UNITS), pairs % len(UNITS), variants, place.ravel(), groups)


@dataclass(frozen=True)
class Network:
    """The weights of one fitted network."""

    arrays: Mapping[str, np.ndarray]

    def seconds(self, ops: OpTable, op_kinds: OpKinds | None = None) -> np.ndarray:
        """Device time of one call of every op."""
        a = self.arrays
        known = op_kinds or OpKinds.of(ops)
        place = known.place
        table = a["class"][known.classes] + a["unit"][ROW_OF_UNIT[known.units]] + a["variant"][known.variants]
        out = np.empty((len(place), 2))
        for g, places in enumerate(known.groups):
            for start in range(0, len(places), CHUNK):
                chunk = places[start : start + CHUNK]
                x = (ops.numbers[chunk] - a["mean"]) / a["scale"]
                np.clip(x, -4.0, 4.0, out=x)
                hidden = x @ a["in"][g]
                hidden += table[place[chunk]]
                np.maximum(hidden, 0.0, out=hidden)
                hidden = hidden @ a["middle"][g]
                hidden += a["middle_bias"][g]
                np.maximum(hidden, 0.0, out=hidden)
                out[chunk] = hidden @ a["out"][g] + a["out_bias"][g]
        u, v = bounded(out[:, 0]), FLOOR_RANGE * np.tanh(out[:, 1] / FLOOR_RANGE)
        compute = ops.compute_s * ops.power_slowdown * np.exp(a["log_compute"][ops.classes])
        memory = ops.memory_s * np.exp(a["log_memory"][ops.classes])
        intake = ops.memory_s * np.exp(a["log_intake"][ops.classes]) * relative_feed(ops.numbers[:, FEED])
        roof = (compute**SHARPNESS + memory**SHARPNESS + intake**SHARPNESS) ** (1 / SHARPNESS)
        floor = 1e-6 * np.exp(a["log_floor_us"][ops.classes] + v)
        least = np.maximum(ops.compute_s, ops.memory_s)
        return np.maximum(least, roof * np.exp(u)) + ops.launches * floor


@functools.cache
def _blas() -> ThreadpoolController | None:
    """Controls the threads of matmuls, where threadpoolctl is installed. Ours have CHUNK rows, too few to share: where
    other work keeps the cores busy, a second thread that waits for its turn takes five times the processor time."""
    if not installed("threadpoolctl"):
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
    return np.where(u > 0, SLOWER * np.tanh(u / SLOWER), FASTER * np.tanh(u / FASTER))


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
        op_kinds = OpKinds.of(ops)
        with _one_thread():
            logs = np.log(np.maximum([n.seconds(ops, op_kinds) for n in self.networks], 1e-15))
        spread = logs.std(axis=0, ddof=1) if len(logs) > 1 else np.zeros(logs.shape[1:])
        return np.exp(logs.mean(axis=0)), spread
