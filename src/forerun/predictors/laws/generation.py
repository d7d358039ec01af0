"""What transformers' `generate` adds to the calls of the model that it makes.

Between two tokens its Python prepares the inputs of the next step, chooses a token from the logits and waits for the
device to say whether all sequences are done; a beam search also reorders the KV cache. So a generation takes

    prefill + steps + (costs of the host x counts) x slowness of the host + bytes of logits and caches / bandwidth

where prefill and steps are single calls of the model. The costs are in microseconds of the reference host. They are
fitted to whole generations (`evaluate/generations.py`), and so is what the loop's small kernels take on the device.
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

#: What is counted: the generation, its layers that keep keys and values, an encoder that reads the prompt; the tokens,
#: and those of each layer; tokens that are sampled or chosen among beams, tokens after padded prompts, with a static
#: cache, beside an encoder.
COUNTED = (
    "call", "call layer", "call encodes", "token", "layer", "sample", "beam", "beam layer", "padded", "padded layer",
    "static layer", "encodes",
)  # fmt: skip
#: Bytes that are moved for each logit until its token is chosen: a copy in fp32 and a search for the greatest; besides,
#: to sample, a top-k, a sort, a softmax and masks; among beams, a softmax, sums and a top-k.
LOGIT_BYTES = {"greedy": 12.0, "sample": 150.0, "beam": 60.0}
#: A beam search reads and writes the whole cache at every token.
REORDERED = 2.0
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

    def counts(self) -> np.ndarray:
        """How often each of COUNTED happens."""
        n, each = self.tokens, self.tokens * self.layers
        sample, beam = self.decoding == "sample", self.decoding == "beam"
        return np.array([
            1, self.layers, self.encodes, n, each, n * sample, n * beam, each * beam, n * self.padded,
            each * self.padded, each * self.static, n * self.encodes,
        ], dtype=float)  # fmt: skip

    def moved_bytes(self) -> float:
        """Bytes of logits and of reordered caches that the device moves for the loop."""
        logits = LOGIT_BYTES[self.decoding] * self.tokens * self.sequences * self.vocabulary
        return logits + REORDERED * self.cache_bytes * (self.tokens - 1) * (self.decoding == "beam")


@dataclass(frozen=True)
class GenerationLaw:
    """The fitted costs. A CPU, which is its own host, has costs of its own."""

    host_us: Mapping[str, Mapping[str, float]]  # part of the devices (gpu, cpu) -> each of COUNTED
    device_us: Mapping[str, float] = field(default_factory=dict)  # each of COUNTED, of small kernels on a GPU
    held: Mapping[str, float] = field(default_factory=dict)  # bytes of a logit in memory while a token is chosen
    reserved: float = 0.0  # of the longest cache, how much more the allocator keeps
    waiting: float = 1.0  # the power of a device while the host does the loop's work, as a share of its waiting power
    process_mb: Mapping[str, float] = field(default_factory=dict)  # what the loop's own code takes a process, by part
    spread: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # powers of calls' intervals, by part

    def host_ms(self, loop: Loop, devices: Sequence[Device], slowness: float) -> np.ndarray:
        """Milliseconds that the loop takes the host of each device."""
        costs = [_of(self.host_us, d) for d in devices]
        slow = np.array([1.0 if d.traits.is_host else slowness for d in devices])
        return slow * np.array([_total(loop, each) for each in costs])

    def moving_ms(self, loop: Loop, devices: Sequence[Device]) -> np.ndarray:
        """Milliseconds in which each device moves logits and caches for the loop."""
        return np.array([loop.moved_bytes() / (d.bandwidth_gbs or np.inf) / 1e6 for d in devices])

    def device_ms(self, loop: Loop, devices: Sequence[Device]) -> np.ndarray:
        """The same with the small kernels of the loop, which run while the host prepares more."""
        kernels = np.array([0.0 if d.traits.is_host else _total(loop, self.device_us) for d in devices])
        return self.moving_ms(loop, devices) + kernels

    def allocated_mb(self, loop: Loop, calls_mb: float, throughout_mb: float) -> float:
        """Memory of tensors: that of the largest call, or what lives throughout and the logits of a token's choice."""
        logits = self.held.get(loop.decoding, 0.0) * loop.sequences * loop.vocabulary / MB
        return max(calls_mb, throughout_mb + logits)

    def reserved_mb(self, loop: Loop, calls_mb: float, allocated_mb: float) -> float:
        """What the allocator reserves; it keeps pieces of caches that have outgrown them."""
        return max(calls_mb, allocated_mb) + self.reserved * loop.cache_bytes / MB

    def powers(self, target: str, devices: Sequence[Device]) -> np.ndarray:
        """The power of each device's interval of a quantity."""
        return np.array([_of(self.spread, d).get(target, 1.0) for d in devices])

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def _of(parts: Mapping[str, Mapping[str, float]], device: Device) -> Mapping[str, float]:
    """What was fitted for the device's part, else for the first one."""
    return parts.get(device.traits.part or GPU.part) or next(iter(parts.values()), {})


def _total(loop: Loop, costs_us: Mapping[str, float]) -> float:
    """Milliseconds of all that is counted."""
    return float(loop.counts() @ np.array([costs_us.get(name, 0.0) for name in COUNTED])) / 1e3


@functools.cache
def shipped() -> GenerationLaw:
    return GenerationLaw(**json.loads(FILE.read_text(encoding="utf-8")))
