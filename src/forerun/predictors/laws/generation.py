"""What transformers' `generate` adds to the calls of the model that it makes.

Between two tokens its Python prepares the inputs of the next step, chooses a token from the logits and waits for the
device to say whether all sequences are done; a beam search also reorders the KV cache. So a generation takes

    prefill + steps + (costs x counts) x slowness of the host + bytes of logits and caches / bandwidth

where prefill and steps are single calls of the model. The costs, in microseconds of the reference host, are fitted to
whole generations (`evaluate/generations.py`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from forerun.device.device import Device
from forerun.device.kinds import GPU

#: What costs the host time: a generation, and each of its tokens; more for each layer whose cache is updated, by
#: decoding, prompt and cache; and every microsecond that a step costs the host outside the loop.
HOST = (
    "call", "token", "layer", "sample", "beam", "beam layer", "padded", "padded layer", "static", "static layer",
    "encodes", "step",
)  # fmt: skip
#: What costs the device time: bytes that are moved to choose a token, by decoding, and those of a reordered cache.
BYTES = ("greedy", "sample", "beam", "cache")
#: Bytes that one logit has in memory while a token is chosen.
FILE = Path(__file__).parents[1] / "shipped" / "generation.json"
MB = 2**20


@dataclass(frozen=True)
class Loop:
    """What of a generation the law counts."""

    tokens: int
    layers: int  # that keep keys and values
    sequences: int  # the batch times the beams
    vocabulary: int
    cache_bytes: float  # of all sequences when the last token has been chosen
    decoding: str = "greedy"
    padded: bool = False
    static: bool = False
    encodes: bool = False  # an encoder reads the prompt

    def counts(self, step_us: float = 0.0) -> np.ndarray:
        """How often each of HOST happens; `step_us` is what the host spends on all steps outside the loop."""
        n, each = self.tokens, self.tokens * self.layers
        sample, beam = self.decoding == "sample", self.decoding == "beam"
        return np.array([
            1, n, each, n * sample, n * beam, each * beam, n * self.padded, each * self.padded, n * self.static,
            each * self.static, n * self.encodes, step_us,
        ], dtype=float)  # fmt: skip

    def moved(self) -> np.ndarray:
        """Logits of all tokens by decoding, and the bytes of caches that are reordered: read and written."""
        logits = float(self.tokens * self.sequences * self.vocabulary)
        chosen = [logits * (self.decoding == name) for name in BYTES[:-1]]
        return np.array([*chosen, 2.0 * self.cache_bytes * (self.tokens - 1) * (self.decoding == "beam")])


@dataclass(frozen=True)
class GenerationLaw:
    """The fitted costs. Of a CPU, which is its own host, by a set of costs of its own."""

    host_us: Mapping[str, Mapping[str, float]]  # part of the devices (GPU, CPU) -> each of HOST
    moves: Mapping[str, float]  # bytes per logit, and per byte of a reordered cache: each of BYTES
    held: Mapping[str, float] = field(default_factory=dict)  # bytes of a logit in memory while a token is chosen
    reserved: float = 0.0  # of what the cache grew by, how much more the allocator keeps
    energy: float = 1.0  # the power of a device that waits for the loop, as a share of its waiting power
    spread: Mapping[str, float] = field(default_factory=dict)  # powers of the intervals of single calls, by quantity
    rows: Mapping[str, Any] = field(default_factory=dict)  # what it was fitted to

    def extra_ms(self, loop: Loop, devices: Sequence[Device], steps_ms: np.ndarray, slowness: float) -> np.ndarray:
        """Milliseconds of the host that the loop adds on each device; `steps_ms` is the host time of all steps."""
        out = np.empty(len(devices))
        for at, device in enumerate(devices):
            costs = self._costs(device)
            slow = 1.0 if device.traits.is_host else slowness
            out[at] = slow * float(loop.counts(1e3 * float(steps_ms[at]) / slow) @ costs) / 1e3
        return out

    def device_ms(self, loop: Loop, devices: Sequence[Device]) -> np.ndarray:
        """Milliseconds in which each device moves logits and caches for the loop."""
        moved = float(loop.moved() @ np.array([self.moves.get(name, 0.0) for name in BYTES]))
        return np.array([moved / (device.bandwidth_gbs or np.inf) / 1e6 for device in devices])

    def held_mb(self, loop: Loop) -> float:
        """Megabytes that logits take while a token is chosen."""
        return self.held.get(loop.decoding, 0.0) * loop.sequences * loop.vocabulary / MB

    def _costs(self, device: Device) -> np.ndarray:
        known = self.host_us.get(device.traits.part or GPU.part) or next(iter(self.host_us.values()))
        return np.array([known.get(name, 0.0) for name in HOST])

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@functools.cache
def shipped() -> GenerationLaw:
    return GenerationLaw(**json.loads(FILE.read_text(encoding="utf-8")))
