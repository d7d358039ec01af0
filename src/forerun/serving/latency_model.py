"""forerun's iteration times as the latency model of another program's simulator, such as SGLang's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from forerun.serving.iteration import IterationModel, Load

#: Names under which simulators keep a sequence's tokens to compute, and those it has in the cache already.
NEW = ("new", "extend_length", "num_new_tokens")
CACHED = ("cached", "past_kv_length", "num_computed_tokens")


class LatencyModel:
    """Says how long a batch takes, in seconds, to whatever simulates a scheduler and asks `predict`.

    A batch is a list of sequences, or an object that has them as `reqs`; each has the tokens that it computes in this
    iteration and those it has in the cache: a pair, a mapping or an object with such fields. One new token after cached
    ones is decoding; all else is a prompt, or a part of one, that ends in this batch.
    """

    def __init__(self, model: IterationModel) -> None:
        self.model = model

    def predict(self, batch: Any) -> float:
        """Seconds of the iteration that computes this batch."""
        return float(np.asarray(self.model.latency_ms(load_of_batch(batch)), dtype=float)) / 1e3

    #: The name by which SGLang's simulator calls it.
    predict_infer_time = predict


def load_of_batch(batch: Any) -> Load:
    """The load of sequences, each with new and cached tokens."""
    sequences: Iterable[Any] = getattr(batch, "reqs", batch)
    decode = context = prefill = pairs = finished = 0.0
    for sequence in sequences:
        new, cached = _tokens(sequence)
        if new < 1 or cached < 0:
            raise ValueError(f"a sequence has 1 or more new tokens and 0 or more cached ones, got {new} and {cached}")
        if new == 1 and cached > 0:
            decode, context = decode + 1, context + cached
        else:
            prefill, pairs = prefill + new, pairs + new * cached + new * (new + 1) / 2
            finished += 1
    return Load(decode, context, prefill, pairs, finished)


def _tokens(sequence: Any) -> tuple[int, int]:
    if isinstance(sequence, (tuple, list)):
        return int(sequence[0]), int(sequence[1])
    fields = sequence if isinstance(sequence, Mapping) else vars(sequence)
    new, cached = (next((fields[name] for name in names if name in fields), None) for names in (NEW, CACHED))
    if new is None or cached is None:
        raise ValueError(f"a sequence states its new tokens ({', '.join(NEW)}) and cached ones ({', '.join(CACHED)})")
    return int(new), int(cached)
