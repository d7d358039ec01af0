"""What one iteration of a serving engine computes, and the contract of what says how long it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Load:
    """What one engine iteration computes; every field a number or an array of equal shape (many iterations at once)."""

    decode: float  # sequences that get one new token
    context: float  # tokens in the KV caches of those sequences, summed
    prefill: float = 0  # prompt tokens computed in this iteration
    #: Query-key pairs of those prompt tokens under the causal mask, summed (a prompt of n new tokens after p cached
    #: ones: n * p + n * (n + 1) / 2).
    pairs: float = 0
    finished: float = 0  # prompts whose last token is in this iteration (they get their first new token)


class IterationModel(Protocol):
    """How long one iteration of a serving engine takes on one replica (all its devices), and what it may hold."""

    @property
    def name(self) -> str:
        """Of the model."""

    @property
    def devices(self) -> int:
        """Of one replica."""

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV cache of the replica holds."""

    @property
    def block(self) -> int:
        """Tokens of a KV block."""

    @property
    def max_tokens(self) -> int:
        """Token budget of an iteration (chunked prefill)."""

    @property
    def max_sequences(self) -> int:
        """Sequence budget of an iteration."""

    @property
    def request_ms(self) -> float:
        """Host time of a request outside iterations (tokenise, detokenise, HTTP) that its client sees."""

    def latency_ms(self, load: Load) -> np.ndarray:
        """Wall time of the iteration, scheduler included."""

    def energy_j(self, load: Load) -> np.ndarray:
        """Energy of all devices of the replica."""

    def drawn(self, rng: np.random.Generator) -> IterationModel:
        """One draw of what is uncertain (for intervals)."""
