"""A replica in pipeline stages, from the iteration model of the same replica in one stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forerun.serving.iteration import IterationModel, Load


@dataclass(frozen=True)
class Pipelined:
    """As many batches as stages are in flight, so that between two tokens of a sequence every layer computes only its
    own batch: the iteration of one stage with that share of the load, and a transfer from each stage to the next."""

    inner: IterationModel
    stages: int
    transfer_ms: float  # from a stage to the next
    kv_tokens: int
    max_tokens: int
    max_sequences: int
    name: str
    devices: int
    block: int
    request_ms: float

    @classmethod
    def of(cls, inner: IterationModel, stages: int, kv_tokens: int, transfer_ms: float) -> Pipelined:
        return cls(
            inner, stages, transfer_ms, kv_tokens, inner.max_tokens, inner.max_sequences, inner.name,
            inner.devices * stages, inner.block, inner.request_ms,
        )  # fmt: skip

    def latency_ms(self, load: Load) -> np.ndarray:
        return np.asarray(self.inner.latency_ms(self._share(load))) + self.stages * self.transfer_ms

    def energy_j(self, load: Load) -> np.ndarray:
        return np.asarray(self.inner.energy_j(self._share(load))) * self.stages

    def drawn(self, rng: np.random.Generator) -> Pipelined:
        return replace(self, inner=self.inner.drawn(rng))

    def _share(self, load: Load) -> Load:
        """What one of the batches in flight has: at least one sequence."""
        decode = np.asarray(load.decode, dtype=float)
        share: Any = np.minimum(1.0, np.maximum(1 / self.stages, 1 / np.maximum(decode, 1.0)))
        # A prompt is in one batch; several are in several.
        prompts = np.minimum(
            1.0, np.maximum(1 / self.stages, 1 / np.maximum(np.asarray(load.finished, dtype=float), 1.0))
        )
        return Load(decode * share, load.context * share, load.prefill * prompts, load.pairs * prompts,
                    load.finished * prompts)  # fmt: skip
