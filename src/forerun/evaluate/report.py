"""The scoreboard as people read it: a table for the terminal, docs/SCOREBOARD.md with plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forerun._util.extras import needed
from forerun.evaluate import results
from forerun.evaluate.results import Section
from forerun.evaluate.scoreboard import Scoreboard, with_intervals
from forerun.evaluate.test_set import in_test_set
from forerun.predictors.base import Predictor

_SHARES = ("coverage", "mape", "median_ape", "acc5", "acc10", "interval_coverage", "interval_width", "noise_floor")
_HEADS = {"mape": "MAPE", "median_ape": "median APE", "rmse": "RMSE", "r2": "R²", "tau": "Kendall tau",
          "acc5": "within 5 %", "acc10": "within 10 %", "interval_coverage": "in 90 % interval",
          "interval_width": "mean width", "noise_floor": "noise floor"}  # fmt: skip


_TITLES = {"device_ms": "Device time", "latency_ms": "Latency"}


def cell(name: str, value: Any, shares: Sequence[str] = _SHARES) -> str:
    """One figure as text; those in `shares` are parts of one, and shown in percent."""
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return ""
    if name in shares:
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if name in ("n", "cases") or abs(value) >= 1000 else f"{value:.3g}"


def readable(frame: pd.DataFrame, shares: Sequence[str] = _SHARES) -> pd.DataFrame:
    """Scoreboard lines as text, under the names that people use."""
    texts = {c: [cell(str(c), value, shares) for value in frame[c]] for c in frame.columns}
    return pd.DataFrame({_HEADS.get(str(c), str(c)): column for c, column in texts.items()})


def markdown(frame: pd.DataFrame, shares: Sequence[str] = _SHARES) -> str:
    """A Markdown table of scoreboard lines."""
    shown = readable(frame, shares)
    rows = [list(shown.columns), ["---"] * shown.shape[1], *shown.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def families(held_out: pd.DataFrame, predictor: Predictor) -> pd.DataFrame:
    """Error by family, largest first, without the test set: of device time, or of latency where there is none; and the
    coverage of the predictor's intervals, where it has any of its own."""
    target = error_target(held_out)
    ratio = held_out[f"predicted_{target}"] / held_out[target]
    rows = held_out.assign(error=(ratio - 1).abs(), ratio=ratio)
    columns = {"n": ("error", "size"), "mape": ("error", "mean"), "ratio": ("ratio", "median")}
    if predictor.calibrates:
        low, high = with_intervals(held_out, target, predictor)
        inside = (rows[target] >= low) & (rows[target] <= high)
        rows["inside"] = inside.where(ratio.notna())  # not every predictor predicts every row
        columns["interval_coverage"] = ("inside", "mean")
    errors = rows[~in_test_set(rows)].groupby("family").agg(**columns)
    return errors.sort_values("mape", ascending=False).reset_index().rename(columns={"ratio": "predicted / measured"})


def error_target(held_out: pd.DataFrame) -> str:
    """The quantity whose error is shown by family."""
    return "device_ms" if "predicted_device_ms" in held_out else "latency_ms"


#: The order of the sections of a scoreboard, by name.
ORDER = (
    "noise", "families", "by_name", "worst", "exam", "kinds", "by_kind_default", "cpu", "onnxruntime", "fits",
    "largest_batch", "margin", "operators", "models", "parts",
)  # fmt: skip


def write(
    made: Scoreboard, held_out: pd.DataFrame, predictor: Predictor, folder: Path, extra: Sequence[Section], notes: str
) -> Path:
    """SCOREBOARD.md, its tables as data and its plots; `held_out` are the predictions of this predictor. Sections that
    this run did not make stay as they were."""
    folder.mkdir(parents=True, exist_ok=True)
    by_family = families(held_out, predictor)
    draw(held_out[~in_test_set(held_out)], by_family, folder)
    noise = made.noise.drop(columns=["p90"]).rename(columns={"mean": "mape", "median": "median_ape"})
    fresh = [
        Section("noise", "Noise floor: the same case measured twice", noise),
        Section("families", "Held-out families on the H200", made.lines.drop(columns=["split"])),
        Section("worst", f"{_TITLES[error_target(held_out)]} by family, worst first", by_family.head(25)),
        *extra,
    ]
    images = {
        "families": "![Predicted against measured](scoreboard_scatter.png)",
        "worst": "![Error by family](scoreboard_families.png)",
    }
    parts = ["# Scoreboard", notes]
    for one in results.write(folder, fresh, ORDER):
        parts += [f"## {one.title}", one.words, markdown(one.table), images.get(one.name, "")]
    path = folder / "SCOREBOARD.md"
    path.write_text("\n\n".join(filter(None, parts)) + "\n")
    return path


def draw(held_out: pd.DataFrame, by_family: pd.DataFrame, folder: Path) -> None:
    """Predicted against measured, and the error by family."""
    with needed("a figure"):
        import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    every = (
        ("device_ms", "predicted_device_ms", "device time, ms"),
        ("latency_ms", "predicted_latency_ms_probed", "latency, ms (host probed)"),
        ("energy_j", "predicted_energy_j", "energy, J"),
    )
    pairs = [pair for pair in every if pair[1] in held_out]
    if not pairs:
        pairs = [("latency_ms", "predicted_latency_ms", "latency, ms")]
    figure, grid = pyplot.subplots(1, len(pairs), figsize=(13, 4.4), layout="constrained", squeeze=False)
    panels = grid[0]
    for panel, (measured, predicted, title) in zip(panels, pairs, strict=True):
        for mode, part in held_out.groupby("mode"):
            panel.scatter(part[measured], part[predicted], s=5, alpha=0.6, label=str(mode))
        edge = [float(np.nanmin(held_out[measured])), float(np.nanmax(held_out[measured]))]
        panel.plot(edge, edge, color="black", linewidth=0.8)
        panel.set(xscale="log", yscale="log", xlabel="measured", ylabel="predicted", title=title)
        panel.grid(alpha=0.3)
    panels[0].legend(fontsize=7)
    figure.savefig(folder / "scoreboard_scatter.png", dpi=110)
    pyplot.close(figure)
    by = by_family.sort_values("mape")
    figure, panel = pyplot.subplots(figsize=(9, 0.16 * len(by) + 1), layout="constrained")
    panel.barh(by["family"], 100 * by["mape"])
    panel.set(xlabel=f"mean error of {_TITLES[error_target(held_out)].lower()}, %")
    panel.tick_params(axis="y", labelsize=6)
    figure.savefig(folder / "scoreboard_families.png", dpi=110)
    pyplot.close(figure)
