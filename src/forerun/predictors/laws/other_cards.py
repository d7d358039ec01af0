"""Training on cards whose training nobody measured: what their kernels cost beside those of the H200.

Two things do not follow from a spec sheet as the networks read it, which learned training steps from an H200 with 50 MB
of L2 cache. Norms, elementwise kernels and optimizers of a step find less of their data in a smaller cache: their time
is multiplied by `memory`, in full from SMALL_MB of cache down, not at all at the H200's, between them in proportion to
the logarithm. Convolutions in plain fp32 run by Winograd's algorithm on NVIDIA cards without TF32, which an H200 never
shows: their time in a step is multiplied by `winograd`.

Energy of steps is multiplied by `energy`: they draw less than the power limit. The intervals of device-bound calls are
the errors on cards that were held out. Nothing changes on cards with rows of models, ours or published.

As shipped, all factors are 1 and no interval is changed: the law was fitted to a part of the published models alone,
and the test set's GPU was worse by it. `benchmarks/fit_cards.py` fits all of it to published sets, `forerun evaluate
--cards` judges it with each card held out.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from forerun.device import Device, device_ids, load_device
from forerun.device.kinds import GPU
from forerun.graph.profile import CLASSES, UNITS
from forerun.predictors.laws.features import OpTable
from forerun.predictors.saved import SHIPPED

FILE = SHIPPED / "cards.json"
#: L2 caches in MB: from here up kernels run as on the H200, and to here down the factor grows.
LARGE_MB, SMALL_MB = 50.0, 5.0
#: Numbers of half the size find twice the room: in half precision and under autocast, the cache counts by this much.
HALF = 0.5
#: Kernels whose time is that of the memory.
MEMORY_CLASSES = (
    "norm", "norm_backward", "softmax", "elementwise", "copy", "fill", "reduce", "pool", "resize", "gather", "scatter",
    "embedding", "sort", "optimizer",
)  # fmt: skip
_MEMORY = np.array([name in MEMORY_CLASSES for name in CLASSES])
_DENSE = np.array([name in ("conv", "conv_grouped", "conv_backward") for name in CLASSES])
_PLAIN = UNITS.index("fp32")


@dataclass(frozen=True)
class OtherCards:
    """Factors on the time of ops and on energy, and intervals of device-bound calls by mode, at 90 %."""

    memory: float = 1.0
    winograd: float = 1.0
    energy: float = 1.0
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # (low, high) by mode, as factors
    #: Also on cards with published times of models, which training knows: to judge the law on them.
    judged: bool = False

    def factors(self, ops: OpTable, cache: np.ndarray, plain: np.ndarray) -> np.ndarray:
        """[n]: by what the time of an op of a training step is multiplied; `cache` and `plain` are those of the device
        of every op (`of_devices`)."""
        by_memory = np.exp(_MEMORY[ops.classes] * cache * math.log(self.memory))
        by_winograd = np.where(_DENSE[ops.classes] & (ops.units == _PLAIN) & plain, self.winograd, 1.0)
        return np.asarray(by_memory * by_winograd)

    def unmeasured(self, device: Device, domain: Mapping[str, Any]) -> bool:
        """Whether nobody measured whole models on a GPU, nor on the GPU that it is a slice of."""
        if device.adaptation is not None:
            return False
        known = {*domain.get("devices", ()), *(() if self.judged else domain.get("models_of", ()))}
        return device.kind == GPU.name and not {device.id, device.id.partition("/")[0]} & known

    def of_devices(self, devices: Sequence[Device], domain: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Of every device, the share of `memory` that its cache makes due, and whether it has plain fp32 alone; nothing
        of either where models were measured."""
        cache, plain = np.zeros(len(devices)), np.zeros(len(devices), dtype=bool)
        for at, device in enumerate(devices):
            if self.unmeasured(device, domain):
                cache[at] = cache_share(device)
                plain[at] = device.vendor == "NVIDIA" and device.supports("tf32") is False
        return cache, plain

    def less_energy(
        self, devices: Sequence[Device], domain: Mapping[str, Any], mode: str | Sequence[str]
    ) -> np.ndarray:
        """By what the energy of steps on each device is multiplied; 1 on generations whose energy was measured. The
        mode is that of all calls, or of each along the devices."""
        known = _generations(tuple(domain.get("devices", ())))
        due = [self.unmeasured(device, domain) and device.architecture not in known for device in devices]
        return np.where(np.array(due) & (np.asarray(mode) == "training"), self.energy, 1.0)

    def to_json(self) -> dict[str, Any]:
        numbers = {name: value for name, value in asdict(self).items() if name != "judged"}
        return numbers | {"intervals": {mode: list(ends) for mode, ends in self.intervals.items()}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> OtherCards:
        ends = {mode: (float(low), float(high)) for mode, (low, high) in content["intervals"].items()}
        return cls(float(content["memory"]), float(content["winograd"]), float(content["energy"]), ends)


def halved(dtype: str | None, amp: str | None) -> float:
    """By how much a small cache counts in a step of this dtype."""
    return HALF if dtype in ("fp16", "bf16") or isinstance(amp, str) else 1.0


def cache_share(device: Device) -> float:
    """How small the L2 cache of a device is, from 0 at that of the H200 to 1; where it is not known, that of the median
    GPU of its generation, and 0 where that is not known either."""
    size = device.l2_cache_mb or _usual_cache_mb(device.architecture)
    return min(1.0, max(0.0, math.log(LARGE_MB / size) / math.log(LARGE_MB / SMALL_MB)))


@functools.cache
def _usual_cache_mb(architecture: str | None) -> float:
    found = (load_device(name) for name in device_ids())
    sizes = [d.l2_cache_mb for d in found if d.kind == GPU.name and d.architecture == architecture and d.l2_cache_mb]
    return float(np.median(sizes)) if sizes else LARGE_MB


@functools.lru_cache(maxsize=8)
def _generations(names: tuple[str, ...]) -> frozenset[str | None]:
    return frozenset(load_device(name).architecture for name in set(names) & set(device_ids()))


#: The law that predictors use; `tried` replaces it for a while.
_trial: list[OtherCards] = []


def current() -> OtherCards:
    """The law that ships, or the one that is tried."""
    return _trial[-1] if _trial else shipped()


@contextlib.contextmanager
def tried(law: OtherCards) -> Iterator[OtherCards]:
    """Predictions on published cards by another law, as if nobody had measured them."""
    _trial.append(replace(law, judged=True))
    try:
        yield _trial[-1]
    finally:
        _trial.pop()


@functools.cache
def shipped() -> OtherCards:
    """The law that ships."""
    return OtherCards.from_json(json.loads(FILE.read_text(encoding="utf-8")))
