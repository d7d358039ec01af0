"""An engine's iteration as a formula: weights and caches read, products computed, an overhead."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forerun.serving.iteration import Load


@dataclass(frozen=True)
class AnalyticEngine:
    """An 8 B model on one GPU of 3 TB/s and 800 TFLOP/s, in 16 bits, unless told otherwise."""

    name: str = "analytic"
    devices: int = 1
    kv_tokens: int = 400_000
    block: int = 16
    max_tokens: int = 2048
    max_sequences: int = 256
    request_ms: float = 0.0
    overhead_ms: float = 1.0
    weights_ms: float = 5.0  # time to read the weights
    token_ms: float = 0.02  # time to compute one token's products
    cache_ms: float = 4e-5  # time to read one cached token
    pair_ms: float = 1e-7
    power_w: float = 500.0
    sigma: float = 0.1  # of what is uncertain
    factor: float = 1.0

    def latency_ms(self, load: Load) -> Any:
        decode, context, prefill, pairs = (np.asarray(x, dtype=float) for x in (
            load.decode, load.context, load.prefill, load.pairs))  # fmt: skip
        # Memory and compute overlap smoothly, as a learned model would have it.
        products = np.hypot(self.weights_ms, self.token_ms * (decode + prefill))
        return self.factor * (self.overhead_ms + products + self.cache_ms * context + self.pair_ms * pairs)

    def energy_j(self, load: Load) -> Any:
        return self.devices * self.power_w * self.latency_ms(load) / 1e3

    def drawn(self, rng: np.random.Generator) -> AnalyticEngine:
        return replace(self, factor=self.factor * float(np.exp(self.sigma * rng.standard_normal())))
