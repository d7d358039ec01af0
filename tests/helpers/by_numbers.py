"""A small predictor by numbers: quantities as powers of the work of a call, for tests of how predictors are judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from forerun.predictors.cases import Cases
from forerun.predictors.published.whole_model.base import ByNumbers
from forerun.predictors.published.whole_model.numbers import Numbers, matrix, of_rows

SEEN = ("batch", "nodes", "parameters", "macs", "bytes")


class PowerLaw(ByNumbers):
    """Ridge regression of logarithms on logarithms; answers inference and training."""

    name = "power-law"
    modes = ("inference", "training")
    hold_out = replace(ByNumbers.hold_out, folds=3, cheap_to_fit=True)

    def __init__(self, ridge: float = 1e-3, seen: Sequence[str] = SEEN) -> None:
        self.ridge, self.seen = ridge, tuple(seen)

    def learn(self, cases: Cases) -> None:
        lines = self._lines(of_rows(cases.rows, cases.devices))
        weights = []
        for target in self.targets:
            known = (cases.rows[target] > 0).to_numpy()
            x, y = lines[known], np.log(cases.rows[target].to_numpy(dtype=float)[known])
            weights.append(np.linalg.solve(x.T @ x + self.ridge * np.eye(x.shape[1]), x.T @ y))
        self.weights_ = np.stack(weights)

    def values(self, lines: Numbers) -> dict[str, np.ndarray]:
        return dict(zip(self.targets, np.exp(self.weights_ @ self._lines(lines).T), strict=True))

    def _lines(self, lines: Numbers) -> np.ndarray:
        sizes = matrix(lines, self.seen, logarithms=True)
        return np.column_stack([np.ones(len(sizes)), sizes])
