"""The rule of thumb for memory, a baseline that any simulation must beat.

It is the sum of the weights (in training with their gradients and the optimizer's state), a constant for the runtime,
and a share of the bytes that a call moves; constant and share are fitted to the other families.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from forerun._util.extras import needed
from forerun.data.splits import hold_out
from forerun.evaluate.held_out import whole_groups
from forerun.graph.ir import DTYPE_BYTES

NAME = "rule of thumb"
#: Columns of the rows that the rule reads.
COLUMNS = ("parameters", "bytes", "dtype", "mode", "optimizer")
#: Copies of the weights that a training step holds: themselves, their gradients, and the optimizer's state.
_COPIES = {"sgd": 2, "momentum": 3, "adam": 4, "adamw": 4}
_MB = 2**20


def states_mb(rows: pd.DataFrame) -> np.ndarray:
    """Megabytes of weights, in training with gradients and optimizer state."""
    each = rows["dtype"].map(lambda name: DTYPE_BYTES.get(str(name), 4.0)).to_numpy(dtype=float)  # tf32 is stored in 4
    copies = np.where(rows["mode"] == "training", rows["optimizer"].map(_COPIES).fillna(3), 1).astype(float)
    return rows["parameters"].to_numpy(dtype=float) * each * copies / _MB


def answers(rows: pd.DataFrame, target: str, folds: int = 16) -> np.ndarray | None:
    """The rule's megabytes for every row, each fitted without the row's family; None where the rows lack a column."""
    if not set(COLUMNS) <= set(rows) or rows[list(COLUMNS[:2])].isna().any(axis=None):
        return None
    states, moved = states_mb(rows), rows["bytes"].to_numpy(dtype=float) / _MB
    measured = rows[target].to_numpy(dtype=float)
    out = np.full(len(rows), np.nan)
    for train, test in hold_out(whole_groups(rows, "family"), folds):
        known = train & (measured > 0)
        if known.any():
            held, share = _fitted(measured[known], states[known], moved[known])
            out[test] = states[test] + held + share * moved[test]
    return out


def _fitted(measured: np.ndarray, states: np.ndarray, moved: np.ndarray) -> tuple[float, float]:
    """The constant and the share, both non-negative, with the least mean relative error."""
    with needed("this table", "evaluate"):
        from scipy.optimize import nnls

    sides, beside = np.column_stack([np.ones(len(moved)), moved]), np.maximum(measured - states, 0.0)
    weight = 1 / measured
    coefficients = np.zeros(2)
    for _ in range(10):  # absolute errors by their squares, weighted anew
        coefficients, _ = nnls(sides * weight[:, None], beside * weight)
        off = np.abs(sides @ coefficients - beside) / measured
        weight = 1 / measured / np.sqrt(np.maximum(off, 0.02))
    return float(coefficients[0]), float(coefficients[1])
