"""Predicted against measured, a panel for every predictor: a PNG for documents, and an interactive page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from forerun._util.extras import needed
from forerun.evaluate.same_rows import StoredPredictions, scored
from forerun.predictors.registry import predictor_class

UNITS = {"latency_ms": "latency, ms", "memory_mb": "memory, MB", "energy_j": "energy, J"}
_HELD_OUT = {"family": "families", "model": "networks", "random": "single rows"}
_COLUMNS = 3
#: Points of a panel, drawn at random where there are more, and of an interactive one.
_POINTS, _INTERACTIVE = 2500, 4000


def _panels(
    stored: StoredPredictions, names: Sequence[str], target: str, most: int
) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """(predictor, split, rows with `measured` and `predicted`), with families held out where that is stored."""
    for name in names:
        for split in ("family", "model", "random"):
            frame = stored.frame(name, split)
            if frame is None or f"predicted_{target}" not in frame:
                continue
            rows = frame[scored(frame, target)[1]]
            if rows.empty:
                continue
            rows = rows.assign(measured=rows[target], predicted=rows[f"predicted_{target}"])
            yield predictor_class(name).name, split, rows.sample(min(len(rows), most), random_state=0)
            break


def draw(stored: StoredPredictions, names: Sequence[str], target: str, folder: Path) -> Path | None:
    """`predictors_scatter_<target>.png`; None where nobody predicts the target."""
    panels = list(_panels(stored, names, target, _POINTS))
    if not panels:
        return None
    with needed("a figure"):
        import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(_COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    figure, grid = pyplot.subplots(
        lines, columns, figsize=(4.2 * columns, 4.0 * lines), layout="constrained", squeeze=False, sharex=True,
        sharey=True,
    )  # fmt: skip
    every = pd.concat([rows[["measured", "predicted"]] for *_, rows in panels])
    edge = [float(np.nanmin(every["measured"])), float(np.nanmax(every["measured"]))]
    colours = dict(zip(("inference", "training", "prefill", "decode"), ("C0", "C1", "C2", "C3"), strict=True))
    for panel in grid.flat[len(panels) :]:
        panel.set_visible(False)
    for panel, (name, split, rows) in zip(grid.flat, panels, strict=False):
        for mode, part in rows.groupby("mode"):
            panel.scatter(
                part["measured"], part["predicted"], s=4, alpha=0.4, linewidths=0, color=colours[str(mode)],
                label=str(mode),
            )  # fmt: skip
        panel.plot(edge, edge, color="black", linewidth=0.8)
        title = f"{name} ({_HELD_OUT[split]} held out)"
        title = title if predictor_class(name).needs_fit else name
        panel.set(xscale="log", yscale="log", title=title)
        panel.set_ylim(edge[0] / 5, edge[1] * 5)
        panel.grid(alpha=0.3)
    for panel in grid[:, 0]:
        panel.set_ylabel(f"predicted {UNITS[target]}")
    for place in range(columns):
        lowest = grid[(len(panels) - 1 - place) // columns, place]
        lowest.set_xlabel(f"measured {UNITS[target]}")
        lowest.tick_params(labelbottom=True)
    handles = [pyplot.Line2D([], [], marker="o", linestyle="", color=c, label=m) for m, c in colours.items()
               if any((rows["mode"] == m).any() for *_, rows in panels)]  # fmt: skip
    grid[0, 0].legend(handles=handles, fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"predictors_scatter_{target}.png"
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
    return path


def interactive(stored: StoredPredictions, names: Sequence[str], target: str, folder: Path) -> Path | None:
    """`predictors_scatter_<target>.html`, a self-contained page in which points show their model; None as in `draw`."""
    with needed("an interactive figure"):
        import plotly.graph_objects as go
    made = go.Figure()
    for name, _, rows in _panels(stored, names, target, _INTERACTIVE):
        pairs = zip(rows["model"], rows["mode"], rows["batch"], rows["dtype"], strict=True)
        made.add_scattergl(
            x=rows["measured"].round(5).tolist(), y=rows["predicted"].round(5).tolist(), mode="markers", name=name,
            marker={"size": 4, "opacity": 0.5}, text=[f"{m}, {mode}, batch {b:.0f}, {d}" for m, mode, b, d in pairs],
            hovertemplate="%{text}<br>measured %{x:.4g}, predicted %{y:.4g}",
        )  # fmt: skip
    if not made.data:
        return None
    ends = [min(min(one.x) for one in made.data), max(max(one.x) for one in made.data)]
    made.add_scatter(x=ends, y=ends, mode="lines", line={"color": "black", "width": 1}, name="equal")
    made.update_layout(
        xaxis={"type": "log", "title": f"measured {UNITS[target]}"}, template="plotly_white",
        yaxis={"type": "log", "title": f"predicted {UNITS[target]}"},
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"predictors_scatter_{target}.html"
    path.write_text(made.to_html(include_plotlyjs=True), encoding="utf-8")
    return path
