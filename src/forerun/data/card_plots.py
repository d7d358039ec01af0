"""The data card's plots: latency against batch, and accuracy against seconds of training."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from forerun._util.extras import needed


def draw(rows: pd.DataFrame, curves: pd.DataFrame, folder: Path) -> list[tuple[str, str]]:
    """The plots of model rows and training curves, as (title, file name)."""
    with needed("the data card"):
        import matplotlib
    matplotlib.use("Agg")
    made = [_draw_latency(rows, folder), _draw_curves(curves, folder)]
    return [plot for plot in made if plot]


def _draw_latency(rows: pd.DataFrame, folder: Path) -> tuple[str, str] | None:
    from matplotlib import pyplot
    from matplotlib.ticker import ScalarFormatter

    ok = rows[(rows["status"] == "ok") & (rows["repeat"] == 0) & (rows["source"] != "tabular")]
    # A line varies only the batch; the models with the longest lines are drawn, one per family.
    line_of = ["device", "mode", "dtype", "amp", "optimizer", "seq_len"]
    lengths = ok.groupby(["family", "model", *line_of], dropna=False)["batch"].nunique().reset_index()
    longest = lengths.sort_values("batch", ascending=False).drop_duplicates(["device", "family"])
    # The longest lines of every device first, so that all devices have panels.
    best = longest.assign(turn=longest.groupby("device").cumcount()).sort_values("turn", kind="stable")
    best = best.drop_duplicates("family").head(6)
    if best.empty:
        return None
    figure, panels = pyplot.subplots(2, 3, figsize=(12, 7), layout="constrained")
    for panel, (_, chosen) in zip(panels.flat, best.iterrows(), strict=False):
        part = ok[(ok["model"] == chosen["model"]) & (ok["mode"] == chosen["mode"])]
        for settings, line in part.groupby(line_of, dropna=False):
            means = line.groupby("batch")[["latency_ms", "device_ms"]].median().reset_index()
            if len(means) < 2:
                continue
            name = " ".join(str(v) for v in settings if v is not None and v == v)
            (drawn,) = panel.plot(means["batch"], means["latency_ms"], "o-", label=name, markersize=4)
            panel.plot(means["batch"], means["device_ms"], ":", color=drawn.get_color())
        panel.set(xscale="log", yscale="log", title=chosen["model"], xlabel="batch", ylabel="ms")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter(ScalarFormatter())
            axis.set_minor_formatter("")
        panel.set_xticks(sorted(part["batch"].unique()))
        panel.title.set_fontsize(8)
        panel.legend(fontsize=6)
        panel.grid(alpha=0.3)
    for panel in list(panels.flat)[len(best) :]:
        panel.set_axis_off()
    figure.savefig(folder / "latency_by_batch.png", dpi=110)
    pyplot.close(figure)
    return "Latency (solid) and device time (dotted) against batch", "latency_by_batch.png"


def _draw_curves(curves: pd.DataFrame, folder: Path) -> tuple[str, str] | None:
    from matplotlib import pyplot

    if curves.empty:
        return None
    figure, panel = pyplot.subplots(figsize=(9, 5), layout="constrained")
    names = sorted(curves["model"].unique(), key=lambda name: [int(n) for n in re.findall(r"\d+", name)])
    for number, name in enumerate(names):
        line = curves[curves["model"] == name].sort_values("epoch")
        panel.plot(line["seconds"], line["test_accuracy"], color=pyplot.cm.viridis(number / len(names)), label=name)
    panel.set(xscale="log", xlabel="seconds of training", ylabel="accuracy on held-out images")
    panel.legend(fontsize=6, ncols=2)
    panel.grid(alpha=0.3)
    figure.savefig(folder / "accuracy_by_time.png", dpi=110)
    pyplot.close(figure)
    return "Small CNNs on a CIFAR-10 subset: accuracy against training time (never to be quoted as CIFAR-10's)", (
        "accuracy_by_time.png"
    )
