"""The scoreboard as people read it: a table for the terminal, docs/SCOREBOARD.md with plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forerun.evaluate.exam import exam_rows
from forerun.evaluate.scoreboard import Scoreboard, with_intervals
from forerun.predictors.base import Predictor

_SHARES = ("coverage", "mape", "median_ape", "acc5", "acc10", "interval_coverage", "interval_width", "noise_floor")
_HEADS = {"mape": "MAPE", "median_ape": "median APE", "rmse": "RMSE", "r2": "R²", "tau": "Kendall tau",
          "acc5": "within 5 %", "acc10": "within 10 %", "interval_coverage": "in 90 % interval",
          "interval_width": "mean width", "noise_floor": "noise floor"}  # fmt: skip


_TITLES = {"device_ms": "Device time", "latency_ms": "Latency"}


def cell(name: str, value: Any) -> str:
    """One figure as text."""
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return ""
    if name in _SHARES:
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if name in ("n", "cases") or abs(value) >= 1000 else f"{value:.3g}"


def readable(frame: pd.DataFrame) -> pd.DataFrame:
    """Scoreboard lines as text, under the names that people use."""
    texts = {c: [cell(str(c), value) for value in frame[c]] for c in frame.columns}
    return pd.DataFrame({_HEADS.get(str(c), str(c)): column for c, column in texts.items()})


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table of scoreboard lines."""
    shown = readable(frame)
    rows = [list(shown.columns), ["---"] * shown.shape[1], *shown.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def families(left_out: pd.DataFrame, predictor: Predictor) -> pd.DataFrame:
    """Error by family, largest first, without the exam's: of device time, or of latency where there is none; and the
    share of rows in the predictor's intervals, where it has any of its own."""
    target = error_target(left_out)
    ratio = left_out[f"predicted_{target}"] / left_out[target]
    rows = left_out.assign(error=(ratio - 1).abs(), ratio=ratio)
    columns = {"n": ("error", "size"), "mape": ("error", "mean"), "ratio": ("ratio", "median")}
    if predictor.calibrates:
        low, high = with_intervals(left_out, target, predictor)
        inside = (rows[target] >= low) & (rows[target] <= high)
        rows["inside"] = inside.where(ratio.notna())  # not every predictor answers every row
        columns["interval_coverage"] = ("inside", "mean")
    found = rows[~exam_rows(rows)].groupby("family").agg(**columns)
    return found.sort_values("mape", ascending=False).reset_index().rename(columns={"ratio": "predicted / measured"})


def error_target(left_out: pd.DataFrame) -> str:
    """The quantity whose error is shown by family."""
    return "device_ms" if "predicted_device_ms" in left_out else "latency_ms"


def write(
    made: Scoreboard, left_out: pd.DataFrame, predictor: Predictor, folder: Path, extra: dict[str, pd.DataFrame],
    notes: str,
) -> Path:  # fmt: skip
    """SCOREBOARD.md and its plots; `left_out` are the answers of this predictor."""
    folder.mkdir(parents=True, exist_ok=True)
    by_family = families(left_out, predictor)
    draw(left_out[~exam_rows(left_out)], by_family, folder)
    noise = made.noise.assign(mean=made.noise["mean"], median=made.noise["median"]).drop(columns=["p90"])
    noise = noise.rename(columns={"mean": "mape", "median": "median_ape"})
    parts = [
        "# Scoreboard",
        notes,
        "## Noise floor: the same case measured twice\n\n" + markdown(noise),
        "## Left-out families on the H200\n\n" + markdown(made.lines.drop(columns=["split"])),
        "![Predicted against measured](scoreboard_scatter.png)",
        f"## {_TITLES[error_target(left_out)]} by family, worst first\n\n" + markdown(by_family.head(25)),
        "![Error by family](scoreboard_families.png)",
    ]
    parts += [f"## {title}\n\n{markdown(frame)}" for title, frame in extra.items()]
    path = folder / "SCOREBOARD.md"
    path.write_text("\n\n".join(parts) + "\n")
    return path


def draw(left_out: pd.DataFrame, by_family: pd.DataFrame, folder: Path) -> None:
    """Predicted against measured, and the error by family."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    every = (
        ("device_ms", "predicted_device_ms", "device time, ms"),
        ("latency_ms", "predicted_latency_ms_probed", "latency, ms (host probed)"),
        ("energy_j", "predicted_energy_j", "energy, J"),
    )
    pairs = [pair for pair in every if pair[1] in left_out]
    if not pairs:
        pairs = [("latency_ms", "predicted_latency_ms", "latency, ms")]
    figure, grid = pyplot.subplots(1, len(pairs), figsize=(13, 4.4), layout="constrained", squeeze=False)
    panels = grid[0]
    for panel, (measured, predicted, title) in zip(panels, pairs, strict=True):
        for mode, part in left_out.groupby("mode"):
            panel.scatter(part[measured], part[predicted], s=5, alpha=0.6, label=str(mode))
        edge = [float(np.nanmin(left_out[measured])), float(np.nanmax(left_out[measured]))]
        panel.plot(edge, edge, color="black", linewidth=0.8)
        panel.set(xscale="log", yscale="log", xlabel="measured", ylabel="predicted", title=title)
        panel.grid(alpha=0.3)
    panels[0].legend(fontsize=7)
    figure.savefig(folder / "scoreboard_scatter.png", dpi=110)
    pyplot.close(figure)
    by = by_family.sort_values("mape")
    figure, panel = pyplot.subplots(figsize=(9, 0.16 * len(by) + 1), layout="constrained")
    panel.barh(by["family"], 100 * by["mape"])
    panel.set(xlabel=f"mean error of {_TITLES[error_target(left_out)].lower()}, %")
    panel.tick_params(axis="y", labelsize=6)
    figure.savefig(folder / "scoreboard_families.png", dpi=110)
    pyplot.close(figure)
