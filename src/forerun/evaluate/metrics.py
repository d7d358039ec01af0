"""The figures of a scoreboard, each from predictions and measurements alone."""

from __future__ import annotations

import numpy as np

from forerun._util.extras import needed

#: Figures that tables with further columns do not show.
DETAILS = ["rmse", "r2", "acc5"]


def figures(
    predicted: np.ndarray, measured: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None
) -> dict[str, float]:
    """n, coverage (the share that was predicted), relative errors, rank correlation, and the coverage and width of
    intervals."""
    predicted, measured = np.asarray(predicted, dtype=float), np.asarray(measured, dtype=float)
    scored = np.isfinite(measured) & (measured > 0)
    predicted_too = scored & np.isfinite(predicted)
    out = {"n": float(scored.sum()), "coverage": float(predicted_too.sum() / max(scored.sum(), 1))}
    if not predicted_too.any():
        return out
    error = np.abs(predicted[predicted_too] / measured[predicted_too] - 1)
    out |= {
        "mape": float(error.mean()),
        "median_ape": float(np.median(error)),
        "rmse": float(np.sqrt(np.mean((predicted[predicted_too] - measured[predicted_too]) ** 2))),
        "r2": r_squared(predicted[predicted_too], measured[predicted_too]),
        "tau": kendall_tau(predicted[predicted_too], measured[predicted_too]),
        "acc5": float((error <= 0.05).mean()),
        "acc10": float((error <= 0.1).mean()),
    }
    if low is not None and high is not None:
        inside = (low[predicted_too] <= measured[predicted_too]) & (measured[predicted_too] <= high[predicted_too])
        out |= {
            "interval_coverage": float(inside.mean()),
            "interval_width": float(np.mean((high[predicted_too] - low[predicted_too]) / predicted[predicted_too])),
        }
    return out


def r_squared(predicted: np.ndarray, measured: np.ndarray) -> float:
    """The share of the variance of the measurements that predictions explain; below 0: the mean would be nearer."""
    total = float(((measured - measured.mean()) ** 2).sum())
    return 1 - float(((predicted - measured) ** 2).sum()) / total if total > 0 else float("nan")


def kendall_tau(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation of two orders: 1 the same, 0 none, -1 reversed."""
    with needed("this table", "evaluate"):
        from scipy.stats import kendalltau

    return float(kendalltau(a, b).statistic) if len(a) > 1 else float("nan")
