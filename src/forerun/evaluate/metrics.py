"""The figures of a scoreboard, each from predictions and measurements alone."""

from __future__ import annotations

import numpy as np

from forerun._util.extras import needed

#: Figures that are left out where a table has columns of its own beside them.
DETAILS = ["rmse", "r2", "acc5"]


def figures(
    predicted: np.ndarray, measured: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None
) -> dict[str, float]:
    """n, coverage (answered of asked), errors as shares of the measurement, rank agreement, and what intervals hold."""
    predicted, measured = np.asarray(predicted, dtype=float), np.asarray(measured, dtype=float)
    asked = np.isfinite(measured) & (measured > 0)
    answered = asked & np.isfinite(predicted)
    out = {"n": float(asked.sum()), "coverage": float(answered.sum() / max(asked.sum(), 1))}
    if not answered.any():
        return out
    error = np.abs(predicted[answered] / measured[answered] - 1)
    out |= {
        "mape": float(error.mean()),
        "median_ape": float(np.median(error)),
        "rmse": float(np.sqrt(np.mean((predicted[answered] - measured[answered]) ** 2))),
        "r2": r_squared(predicted[answered], measured[answered]),
        "tau": kendall_tau(predicted[answered], measured[answered]),
        "acc5": float((error <= 0.05).mean()),
        "acc10": float((error <= 0.1).mean()),
    }
    if low is not None and high is not None:
        inside = (low[answered] <= measured[answered]) & (measured[answered] <= high[answered])
        out |= {
            "interval_coverage": float(inside.mean()),
            "interval_width": float(np.mean((high[answered] - low[answered]) / predicted[answered])),
        }
    return out


def r_squared(predicted: np.ndarray, measured: np.ndarray) -> float:
    """The share of the variance of what was measured that predictions explain; below 0: the mean would be nearer."""
    total = float(((measured - measured.mean()) ** 2).sum())
    return 1 - float(((predicted - measured) ** 2).sum()) / total if total > 0 else float("nan")


def kendall_tau(a: np.ndarray, b: np.ndarray) -> float:
    """Agreement of two orders: 1 the same, 0 none, -1 reversed."""
    with needed("this table", "evaluate"):
        from scipy.stats import kendalltau

    return float(kendalltau(a, b).statistic) if len(a) > 1 else float("nan")
