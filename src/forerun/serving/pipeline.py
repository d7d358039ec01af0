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
    waiting_w: float = 0.0  # of the devices of one stage while they wait

    @classmethod
    def of(
        cls, inner: IterationModel, stages: int, kv_tokens: int, transfer_ms: float, waiting_w: float = 0.0
    ) -> Pipelined:
        return cls(
            inner, stages, transfer_ms, kv_tokens, inner.max_tokens, inner.max_sequences, inner.name,
            inner.devices * stages, inner.block, inner.request_ms, waiting_w,
        )  # fmt: skip

    def latency_ms(self, load: Load) -> np.ndarray:
        return np.asarray(self.inner.latency_ms(self._share(load))) + self.stages * self.transfer_ms

    def energy_j(self, load: Load) -> np.ndarray:
        """That of every batch in flight; stages that have none, and all of them while they wait for others, wait."""
        share = self._share(load)
        decode, finished = (np.asarray(size, dtype=float) for size in (load.decode, load.finished))
        prompts = np.where(np.asarray(load.prefill) > 0, np.clip(finished, 1, self.stages), 0.0)
        plain = np.maximum(np.clip(decode, 0, self.stages) - prompts, 0.0)  # batches without a prompt
        none = np.zeros_like(decode)
        without = Load(share.decode, share.context, none, none, none)  # type: ignore[arg-type]
        with_j, plain_j = (np.asarray(self.inner.energy_j(one)) for one in (share, without))
        with_ms, plain_ms = (np.asarray(self.inner.latency_ms(one)) for one in (share, without))
        waiting_ms = self.stages * self.latency_ms(load) - prompts * with_ms - plain * plain_ms
        waiting_j = self.waiting_w * np.maximum(waiting_ms, 0.0) / 1e3
        return np.asarray(prompts * with_j + plain * plain_j + waiting_j)

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
