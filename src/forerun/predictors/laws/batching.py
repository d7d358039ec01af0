"""How long one iteration of transformers' continuous batching takes, where attention has no paged kernel.

An iteration runs eager PyTorch over the new tokens of all sequences. Its host schedules, builds a mask for every
sequence and an index of every cached token, and launches the model op by op. The device runs the linear layers, gathers
and repeats the caches of all sequences, and computes attention of all new tokens with all cached ones, of which the
mask leaves those of their own sequence:

    prepare + (host^p + device^p)^(1/p) + update

The host's parts are those of a usual host, times how slow it is by a probe of its launches, to a fitted power.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace

import numpy as np

#: How sharply the slower of host and device decides.
_SHARPNESS = 6.0
#: New tokens that one block of attention takes; fewer take as long.
_TILE = 64
BF16 = 2
#: Constants of the host.
_HOST = ("prepare_ms", "mask_ms", "index_ms", "prompt_ms", "launch", "layer_ms", "update_ms", "token_ms")


@dataclass(frozen=True)
class Served:
    """What the time of an iteration depends on in a model and a device, from our predictor and the model's config."""

    host_ms: float  # launching one eager decode step on the reference host
    tokens: Sequence[float]  # a grid of tokens of an iteration, and the device's time for all but attention over caches
    device_ms: Sequence[float]
    layers: int
    heads: int
    kv_heads: int
    width: int
    masks: int  # kinds of attention, each with masks of its own
    bandwidth_gbs: float
    tflops: float

    def dense_ms(self, tokens: np.ndarray) -> np.ndarray:
        """Device time of all but attention over the caches: between the points of the grid, in logarithms."""
        at = np.log(np.maximum(tokens, self.tokens[0]))
        return np.exp(np.interp(at, np.log(self.tokens), np.log(self.device_ms)))

    def gather_ms(self, keys: np.ndarray) -> np.ndarray:
        """Reading keys and values of all sequences out of the cache, and repeating them for every head."""
        per_key = 2 * BF16 * self.width * (3 * self.kv_heads + self.heads)
        return 1e3 * self.layers * keys * per_key / (self.bandwidth_gbs * 1e9)

    def attention_ms(self, tokens: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Every new token with every key, by the matmul rate."""
        tiles = _TILE * np.ceil(tokens / _TILE)
        return 1e3 * 4 * self.layers * self.heads * self.width * tiles * keys / (self.tflops * 1e12)

    def read_ms(self, keys: np.ndarray) -> np.ndarray:
        """One block of attention reads the keys of its head one after another, whatever the number of heads."""
        return self.layers * keys * 1e-3


@dataclass(frozen=True)
class BatchingLaw:
    """Constants fitted to measured iterations. Times in milliseconds."""

    prepare_ms: float = 1.0
    mask_ms: float = 0.1  # of a sequence, and kind of attention
    index_ms: float = 1e-4  # of a cached token
    prompt_ms: float = 1e-4  # of a prompt token
    launch: float = 1.0  # of the predicted launch time of the model
    layer_ms: float = 0.1  # launches of paged attention, of a layer
    dense: float = 1.0  # of the predicted device time
    gather: float = 1.0
    attention: float = 2.0
    read: float = 1e-3
    update_ms: float = 0.05
    token_ms: float = 1e-3  # bookkeeping of a new token
    clock: float = 0.5  # power of a host's launches beside the usual ones

    def slowed(self, launches: np.ndarray | float) -> BatchingLaw:
        """The law of hosts on which launches take so many times as long as usual."""
        slow = np.asarray(launches) ** self.clock
        return replace(self, **{name: getattr(self, name) * slow for name in _HOST})

    def prepare(self, served: Served, decode: np.ndarray, context: np.ndarray, prefill: np.ndarray, finished: np.ndarray
                ) -> np.ndarray:  # fmt: skip
        """The scheduler and the input tensors."""
        masks = self.mask_ms * served.masks * (decode + finished)
        return self.prepare_ms + masks + self.index_ms * context + self.prompt_ms * prefill

    def host(self, served: Served) -> float:
        return self.launch * served.host_ms + self.layer_ms * served.layers

    def device(self, served: Served, tokens: np.ndarray, keys: np.ndarray) -> np.ndarray:
        return (
            self.dense * served.dense_ms(tokens) + self.gather * served.gather_ms(keys)
            + self.attention * served.attention_ms(tokens, keys) + self.read * served.read_ms(keys)
        )  # fmt: skip

    def step(self, served: Served, tokens: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The forward pass, launched by the host while the device works."""
        host, device = self.host(served), self.device(served, tokens, keys)
        return (host**_SHARPNESS + device**_SHARPNESS) ** (1 / _SHARPNESS)

    def update(self, decode: np.ndarray, finished: np.ndarray) -> np.ndarray:
        return self.update_ms + self.token_ms * (decode + finished)

    def latency_ms(
        self, served: Served, decode: np.ndarray, context: np.ndarray, prefill: np.ndarray, finished: np.ndarray
    ) -> np.ndarray:
        """The whole iteration."""
        step = self.step(served, decode + prefill, context + prefill)
        prepared = self.prepare(served, decode, context, prefill, finished)
        return prepared + step + self.update(decode, finished)

    def values(self) -> np.ndarray:
        return np.array([float(value) for value in asdict(self).values()])

    def with_values(self, values: np.ndarray) -> BatchingLaw:
        return replace(self, **dict(zip((f.name for f in fields(self)), map(float, values), strict=True)))
