"""How depth, filters, batch and precision change what an epoch of a small CNN takes, and what accuracy it reaches:
`python benchmarks/cnn_study.py` writes the figures of docs/CNN.md between their markers and draws its plots from the
shipped rows; `--check` compares. No prediction is in it: every figure is of measured rows.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).parent.parent
SHIPPED = ROOT / "src" / "forerun" / "data" / "shipped"
PAGE = "docs/CNN.md"
IMAGES = 50_000  # training images of CIFAR-10
SIZES = ("depth", "filters", "batch")
FOLDS = 5


def rows() -> pd.DataFrame:
    """Every measured call of the family on the H200, a line for each case (the median of its repeats)."""
    kept = pd.read_parquet(SHIPPED / "models" / "forerun-h200.parquet")
    kept = kept[(kept["source"] == "cnn") & (kept["status"] == "ok")]
    kept = kept.assign(amp=kept["amp"].fillna("none"), optimizer=kept["optimizer"].fillna("none"))
    case = ["model", "mode", "dtype", "amp", "optimizer", "batch", "parameters"]
    cases = kept.groupby(case)[["latency_ms", "device_ms", "energy_j", "memory_mb"]].median().reset_index()
    cases["rows"] = kept.groupby(case).size().to_numpy()
    sizes = cases["model"].str.extract(r"depth=(?P<depth>\d+),filters=(?P<filters>\d+)").astype(int)
    cases = pd.concat([cases, sizes], axis=1)
    cases["as_cifar"] = cases["model"].str.fullmatch(r"cnn:depth=\d+,filters=\d+,classes=10")
    steps = np.ceil(IMAGES / cases["batch"])
    cases["epoch_s"] = steps * cases["latency_ms"] / 1e3
    cases["device_epoch_s"] = steps * cases["device_ms"] / 1e3
    cases["images_per_s"] = IMAGES / cases["epoch_s"]
    return cases


def curves() -> pd.DataFrame:
    """Accuracy after every epoch of the networks that were trained."""
    kept = pd.read_parquet(SHIPPED / "curves" / "forerun-h200.parquet")
    kept = kept[kept["model"].str.startswith("cnn:") & (kept["status"] == "ok")].reset_index(drop=True)
    sizes = kept["model"].str.extract(r"depth=(?P<depth>\d+),filters=(?P<filters>\d+)").astype(int)
    return pd.concat([kept, sizes], axis=1)


class Study:
    def __init__(self) -> None:
        self.all, self.curves = rows(), curves()
        # Larger images, other channels or more classes are other work per image.
        self.training = self.all[(self.all["mode"] == "training") & self.all["as_cifar"]]
        self.single = self.training[self.training["amp"] == "none"]


def table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def data(s: Study) -> str:
    """What there is."""
    t, c = s.training, s.curves
    every, steps = s.all["model"].nunique(), s.all[s.all["mode"] == "training"]
    return wrapped(
        f"The shipped rows have {every} networks of the family, {steps['model'].nunique()} of them with training steps "
        f"({int(steps['rows'].sum())} rows). {t['model'].nunique()} of these have ten classes and images of "
        f"3 x 32 x 32 as CIFAR-10 has, and are studied here: {len(t)} cases of depth {t['depth'].min()} to "
        f"{t['depth'].max()}, {t['filters'].min()} to {t['filters'].max()} filters and batch {t['batch'].min()} to "
        f"{t['batch'].max()}, in "
        "single precision (TF32 in convolutions, PyTorch's default) and with autocast to FP16 or BF16, on one H200. "
        f"Accuracy was measured of {c['model'].nunique()} networks: depths {_listed(c['depth'])} with "
        f"{_listed(c['filters'])} filters, at batch {_listed(c['batch'])}, in single precision, with AdamW, for "
        f"{c['epoch'].max()} epochs on 4,000 images of CIFAR-10, tested on 1,000. There is no accuracy of the other "
        f"{every - c['model'].nunique()} networks, of other batches, or of half precision."
    )


def wrapped(text: str) -> str:
    joined = text.replace(" %", "\0%")
    return textwrap.fill(joined, 120, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def _listed(values: pd.Series) -> str:
    *others, last = (str(v) for v in sorted(values.unique()))
    return f"{', '.join(others)} and {last}" if others else last


def epochs(s: Study) -> str:
    """Seconds of an epoch by depth and filters at one batch, where both were measured."""
    most = int(s.single["batch"].value_counts().index[0])
    at = s.single[s.single["batch"] == most]
    depths = [(1, 3), (4, 6), (7, 10)]
    lines = []
    for filters in sorted(at["filters"].unique()):
        cells = []
        for low, high in depths:
            part = at[(at["filters"] == filters) & at["depth"].between(low, high)]
            cells.append(
                f"{number(part['epoch_s'].median())} ({number(part['device_epoch_s'].median())}), {len(part)}"
                if len(part)
                else ""
            )
        lines.append([str(filters), *cells])
    return (
        wrapped(
            f"Batch {most}, single precision: median seconds of an epoch of {IMAGES:,} images, in brackets those that "
            "the device is busy, and the cases that they are of."
        )
        + "\n\n"
        + table(["filters", *(f"depth {low} to {high}" for low, high in depths)], lines)
    )


def _exponents(part: pd.DataFrame, target: str) -> tuple[np.ndarray, float]:
    """Exponents of a power law of depth, filters, batch; R² of the logarithm with networks held out."""
    x = np.column_stack([np.ones(len(part)), *(np.log(part[name]) for name in SIZES)])
    y = np.log(part[target].to_numpy())
    names = np.array(sorted(part["model"].unique()))
    fold = {name: at % FOLDS for at, name in enumerate(np.random.default_rng(0).permutation(names))}
    held = part["model"].map(fold).to_numpy()
    found = np.empty(len(y))
    for at in range(FOLDS):
        solved = np.linalg.lstsq(x[held != at], y[held != at], rcond=None)[0]
        found[held == at] = x[held == at] @ solved
    return np.linalg.lstsq(x, y, rcond=None)[0][1:], 1 - ((y - found) ** 2).sum() / ((y - y.mean()) ** 2).sum()


def law(s: Study) -> str:
    """A power law of an epoch's time, by what limits it."""
    lines = []
    bound = s.single["device_ms"] > 0.8 * s.single["latency_ms"]
    for words, part, target in (
        ("device time, all cases", s.single, "device_epoch_s"),
        ("time, device-bound cases", s.single[bound], "epoch_s"),
        ("time, host-bound cases", s.single[~bound], "epoch_s"),
    ):  # fmt: skip
        exponents, held = _exponents(part, target)
        lines.append([words, str(len(part)), *(f"{2**e:.2f}" for e in exponents), f"{held:.2f}"])
    return (
        wrapped(
            "How many times longer an epoch takes with twice the depth, the filters or the batch: a power law fitted "
            f"to single precision, and R² of its logarithm with networks held out ({FOLDS} folds). A case is "
            "device-bound where the device is busy for more than four fifths of the latency."
        )
        + "\n\n"
        + table(["epoch", "cases", "twice the depth", "twice the filters", "twice the batch", "R²"], lines)
    )


def batches(s: Study) -> str:
    """The same network and optimizer at another batch."""
    lines = []
    sizes = sorted(s.single["batch"].unique())
    for small, large in itertools.pairwise(sizes):
        both = _pairs(
            s.single[s.single["batch"] == small], s.single[s.single["batch"] == large], ["model", "optimizer"]
        )
        if len(both) >= 3:
            lines.append(
                [f"{small} → {large}", str(len(both)), *_ratios(both, ("epoch_s", "device_epoch_s", "memory_mb"))]
            )
    head = ["batch", "pairs", "time of an epoch", "device time of an epoch", "memory"]
    return "The same network and optimizer at two batches: median of the ratio, and its quartiles.\n\n" + table(
        head, lines
    )


def precision(s: Study) -> str:
    """The same network, batch and optimizer with autocast and without."""
    lines = []
    for amp in ("fp16", "bf16"):
        half = s.training[s.training["amp"] == amp]
        for low, high in ((0, 31), (32, 63), (64, 10**4)):
            part = half[half["filters"].between(low, high)]
            both = _pairs(s.single, part, ["model", "optimizer", "batch"])
            if len(both) >= 3:
                words = f"{low} and more" if high > 1000 else f"up to {high}" if not low else f"{low} to {high}"
                values = _ratios(both, ("epoch_s", "device_epoch_s", "energy_j", "memory_mb"))
                lines.append([f"autocast {amp}", words, str(len(both)), *values])
    head = ["precision", "filters", "pairs", "time of an epoch", "device time of an epoch", "energy", "memory"]
    words = (
        "The same network, batch and optimizer, autocast over single precision: median of the ratio, and its quartiles."
    )
    return f"{words}\n\n{table(head, lines)}"


def _pairs(first: pd.DataFrame, second: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    return first.merge(second, on=by, suffixes=("_a", "_b"))


def _ratios(both: pd.DataFrame, names: tuple[str, ...]) -> list[str]:
    out = []
    for name in names:
        ratio = (both[f"{name}_b"] / both[f"{name}_a"]).dropna()
        out.append(
            f"{ratio.median():.2f} ({ratio.quantile(0.25):.2f} … {ratio.quantile(0.75):.2f})" if len(ratio) else ""
        )
    return out


def accuracy(s: Study) -> str:
    """Test accuracy after the last epoch by depth and filters."""
    last = s.curves[s.curves["epoch"] == s.curves["epoch"].max()]
    grid = last.pivot(index="filters", columns="depth", values="test_accuracy")
    seconds = last.pivot(index="filters", columns="depth", values="seconds") / s.curves["epoch"].max()
    lines = [
        [str(f), *(f"{100 * grid.loc[f, d]:.1f} % ({1e3 * seconds.loc[f, d]:.0f} ms)" for d in grid.columns)]
        for f in grid.index
    ]
    best = last.loc[last["test_accuracy"].idxmax()]
    noise = 1.645 * np.sqrt(2 * 0.25 / 1000)
    over = last[last["train_accuracy"] - last["test_accuracy"] > 0.25]
    return (
        f"Test accuracy after {s.curves['epoch'].max()} epochs, and the time of an epoch of 4,000 images:\n\n"
        + table(["filters", *(f"depth {d}" for d in grid.columns)], lines)
        + "\n\n"
        + wrapped(
            f"The best is depth {best['depth']} with {best['filters']} filters: {100 * best['test_accuracy']:.1f} %. "
            f"Each network was trained once, and differences below about {100 * noise:.0f} points are within the noise "
            f"of 1,000 test images. {len(over)} networks are more than 25 points better on training than on test "
            f"images ({', '.join(f'depth {r.depth} with {r.filters}' for r in over.itertuples())}): so few images are "
            "learned by heart, and these figures are never to be quoted as CIFAR-10's."
        )
    )


FIGURES: dict[str, Callable[[Study], str]] = {
    "cnn_data": data, "cnn_epochs": epochs, "cnn_law": law, "cnn_batches": batches, "cnn_precision": precision,
    "cnn_accuracy": accuracy,
}  # fmt: skip


def draw(s: Study, folder: Path) -> None:
    """Time of an epoch by size, and accuracy by time of an epoch."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    plain = FuncFormatter(lambda v, _: f"{v:g}")
    figure, panels = pyplot.subplots(1, 3, figsize=(12, 4), layout="constrained", sharey=True)
    for panel, name in zip(panels, SIZES, strict=True):
        for words, part, mark in (
            ("single precision", s.single, "o"), ("autocast", s.training[s.training["amp"] != "none"], "^")
        ):  # fmt: skip
            panel.scatter(part[name], part["epoch_s"], s=14, marker=mark, alpha=0.55, label=words)
        panel.set(xscale="log", yscale="log", xlabel=name)
        panel.set_xticks([8, 16, 32, 64, 128] if name == "filters" else sorted(s.training[name].unique()))
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter(plain)
            axis.set_minor_formatter("")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel(f"seconds of an epoch of {IMAGES:,} images")
    panels[0].legend(fontsize=8)
    figure.savefig(folder / "cnn_time.png", dpi=100)
    pyplot.close(figure)
    figure, panels = pyplot.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    for at, (depth, part) in enumerate(s.curves.groupby("depth")):
        colour = pyplot.cm.viridis(at / 4)
        for name, line in part.groupby("filters"):
            panels[0].plot(line["epoch"], line["test_accuracy"], color=colour, linewidth=0.6 + 0.5 * np.log2(name / 8),
                           label=f"depth {depth}" if name == 32 else None)  # fmt: skip
            panels[1].plot(line["epoch"], line["loss"], color=colour, linewidth=0.6 + 0.5 * np.log2(name / 8))
    panels[0].set(xlabel="epoch", ylabel="test accuracy (thicker: more filters, 8 to 128)")
    panels[1].set(xlabel="epoch", ylabel="training loss")
    panels[0].legend(fontsize=8)
    for panel in panels:
        panel.grid(alpha=0.3)
    figure.savefig(folder / "cnn_accuracy.png", dpi=100)
    pyplot.close(figure)


def filled(text: str, s: Study) -> str:
    """A page with its figures anew."""
    for name, make in FIGURES.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.S)
        if len(pattern.findall(text)) != 1:
            sys.exit(f"{PAGE} has not one place for the figures {name}")
        body = make(s)
        text = pattern.sub(lambda m, body=body: f"{m[1]}{body}\n{m[2]}", text)  # type: ignore[misc]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args()
    page, s = options.root / PAGE, Study()
    text = page.read_text()
    new = filled(text, s)
    if options.check:
        sys.exit(None if new == text else f"{PAGE} is not what its rows say: run python benchmarks/cnn_study.py")
    page.write_text(new)
    draw(s, options.root / "docs" / "figures")


if __name__ == "__main__":
    main()
