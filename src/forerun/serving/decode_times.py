"""Times of iterations that only decode, asked of the model once for each number of sequences and then read off."""

from __future__ import annotations

import numpy as np

from forerun.serving.iteration import IterationModel, Load

#: Tokens in the cache of a sequence, close enough together that lines between them are the model.
_CACHED = np.concatenate([[0.0], np.geomspace(1, 2**24, 97)])


class DecodeTimes:
    """Milliseconds by the number of sequences and the tokens in their caches: most iterations of a simulation only
    decode, and a model takes a hundred times as long to answer as a table does."""

    def __init__(self, model: IterationModel) -> None:
        self.model = model
        self._rows: dict[int, np.ndarray] = {}

    def ms(self, decode: int, context: np.ndarray) -> np.ndarray:
        """Of iterations with so many sequences, and these tokens in their caches together."""
        row = self._rows.get(decode)
        if row is None:
            load = Load(np.full(len(_CACHED), float(decode)), decode * _CACHED, *np.zeros((3, len(_CACHED))))  # type: ignore[arg-type]
            row = self._rows[decode] = np.zeros(len(_CACHED))
            row[:] = self.model.latency_ms(load)
        return np.interp(context / decode, _CACHED, row)
