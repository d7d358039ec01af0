"""docs/PREDICTORS.md: predictors compared, from kept answers, figures and costs alone; nothing is captured or fitted
but baselines that take moments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forerun.errors import ForerunError
from forerun.evaluate import report, studies
from forerun.evaluate.costs import kept_costs
from forerun.evaluate.exam import exam_rows
from forerun.evaluate.kept import kept_device_lines
from forerun.evaluate.published_figures import PUBLISHED, published_cell
from forerun.evaluate.same_rows import BASELINES, SPLITS, Kept, split_lines
from forerun.evaluate.scatter import draw
from forerun.evaluate.scoreboard import noise
from forerun.predictors.registry import predictor_class, saved_folder
from forerun.predictors.saved import SHIPPED

TARGETS = {"latency_ms": "Latency", "memory_mb": "Memory", "energy_j": "Energy"}
WORDS = {
    "random": "single rows held out", "model": "networks held out", "family": "families held out",
    "device": "one GPU held out",
}  # fmt: skip
_COLUMNS = (
    "predictor", "split", "n", "coverage", "mape", "median_ape", "rmse", "r2", "tau", "acc5", "acc10",
    "interval_coverage", "interval_width", "noise_floor", "published",
)  # fmt: skip
_INTRO = """Predictors from the literature, rebuilt on our rows, beside those of this package. All figures come from
held-out predictions that were kept when each was fitted. Written by

    {command}

- **Single rows held out** is how most papers evaluate: near relatives of a row stay in training, so it is optimistic.
  **Families held out** is harder: no row of the network's family is in training (**networks held out**
  where all rows are of one family: no row of the network is in training).{devices}
- Predictors cover different rows, so each table has the rows of one predictor, with all others on **the same rows**.
  `coverage` is the share of all rows that it predicts, and of the others the share of its rows that they predict (rows
  measured after a predictor was fitted have no kept prediction; `n` counts the others).
  `default (families held out)` is shown where the default predictor kept no predictions for single rows held out: it is
  then evaluated by the harder split. `one-ratio` (the roofline times one constant) and `dummy` (the median) are fitted
  to these rows alone, without the part that is predicted. `one-ratio` multiplies the plain roofline (arithmetic and
  bytes at the device's peaks), while `roofline` has fitted constants of kernels and launches. No predicted latency is
  below the plain roofline, that of `dummy` neither. A baseline without a line does not predict that quantity.
- For the default predictor, the relatives of a family are held out, too (`--split family`); the others were fitted
  before relatives were held out: theirs stay in training, which is optimistic.
- Repeats of a case are held out together with it, and only its first measurement is scored.
- `in 90 % interval` is the coverage of the interval, `mean width` its width over the prediction, `noise
  floor` by how much two measurements of the same case differ, on average over the repeated ones: the error against
  one of them can be a little less.
- Throughput is the batch over latency, so it has no table of its own.
- RMSE is in the unit of the table. The families and the GPU of the test set (evaluate/exam.py) are excluded.
- `published` is what the authors report, on data of their own: it says how well the method did there, not here."""

_DEVICES = """ **One GPU held out**: published
  times on a GPU of which no row is in training; only figures are kept of these, since the rows are not ours to
  pass on."""


def write(path: Path, names: Sequence[str]) -> Path:
    """The document, and a PNG per target in the folder `figures` beside it."""
    kept = Kept()
    command = f"forerun evaluate {','.join(map(label, names))} --document docs/{path.name}"
    lines = pd.DataFrame(_lines(kept, names))
    if lines.empty:
        raise ForerunError(f"no predictions were kept of {', '.join(names)}: run forerun train NAME --out FOLDER")
    first = next(f for f in kept.frames.values() if f is not None)
    base = kept.frame("default", "family")
    parts = [
        "# Predictors compared",
        _INTRO.format(command=command, devices=_DEVICES if (lines["split"] == "device").any() else ""),
        _summary(lines),
        "## Noise floor: the same case measured twice\n\n" + _noise(first if base is None else base),
        *_published(names),
    ]
    figures = path.parent / "figures"
    for target, title in TARGETS.items():
        mine = lines[lines["target"] == target]
        if mine.empty:
            continue
        parts.append(f"## {title} (`{target}`)")
        image = draw(kept, names, target, figures)
        if image is not None:
            parts.append(f"![{title}: predicted against measured](figures/{image.name})")
        for name, group in mine.groupby("rows of", sort=False):
            shown = group.reindex(columns=list(_COLUMNS))
            shown = shown.loc[:, shown.notna().any() & (shown != "").any()].assign(split=shown["split"].map(WORDS))
            parts.append(f"### Rows of {label(str(name))}\n\n" + report.markdown(shown))
    parts += [_speed(names), *studies.sections(figures)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(part for part in parts if part) + "\n")
    return path


def label(name: str) -> str:
    """How tables call a predictor that was named, or given as a folder."""
    return predictor_class(name).name


def groups(names: Sequence[str]) -> list[str]:
    """The predictors whose rows have tables: those beside the baselines, and the default, which answers every row."""
    return [n for n in names if label(n) not in BASELINES] + [n for n in names if label(n) == "default"]


def _lines(kept: Kept, names: Sequence[str]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for name in groups(names):
        mine = [line for split in SPLITS for line in split_lines(kept, name, split, list(TARGETS))]
        for line in mine + _device_lines(name):
            called = label(name) if line["predictor"] == name else line["predictor"]
            theirs = published_cell(called, line["target"], line["split"]) if called == label(name) else ""
            out.append({**line, "predictor": called, "published": theirs})
    return out


def _device_lines(name: str) -> list[dict[str, Any]]:
    """Figures of GPUs that were left out, all of them together; those of the default beside, with its own n."""
    found = _devices(name)
    modes = {line["mode"] for line in found if line["n"]} - {"all"}
    if label(name) != "default":
        mode = modes.pop() if len(modes) == 1 else "all"
        found += [{**line, "mode": "all"} for line in _devices("default")
                  if line["predictor"] == "default" and line["mode"] == mode]  # fmt: skip
    chosen = [line for line in found if (line["device"], line["mode"]) == ("all", "all") and line["target"] in TARGETS]
    return [{**line, "rows of": name, "split": "device"} for line in chosen]


def _summary(lines: pd.DataFrame) -> str:
    """Mean errors of every predictor with single rows and with families (or networks) left out, the default beside."""
    out = []
    for (name, target), group in lines.groupby(["rows of", "target"], sort=False):
        own = group[group["predictor"] == label(str(name))].set_index("split")
        by_family = next((s for s in ("family", "model") if s in own.index), None)
        if label(str(name)) == "default" or by_family is None:
            continue
        beside = group[(group["split"] == by_family) & group["predictor"].str.startswith("default")]
        theirs = own["published"].get("random", "")
        out.append({
            "predictor": label(str(name)), "target": target, WORDS["random"]: own["mape"].get("random", np.nan),
            WORDS["family"]: own["mape"][by_family], "default, families held out": beside["mape"].mean(),
            "published": theirs,
        })  # fmt: skip
    if not out:
        return ""
    found = pd.DataFrame(out)
    shares = [c for c in found.columns if found[c].dtype == float]
    for name in shares:
        found[name] = [f"{100 * value:.1f} %" if np.isfinite(value) else "" for value in found[name]]
    words = "Mean errors; all other figures are below. For mlp, whose rows are of one family, networks are held out."
    return f"## In short\n\n{words}\n\n" + report.markdown(found)


def _devices(name: str) -> list[dict[str, Any]]:
    return kept_device_lines(saved_folder(name) or SHIPPED / name)


def _noise(rows: pd.DataFrame) -> str:
    found = noise(rows[~exam_rows(rows)].reset_index(drop=True))
    found = found[found["quantity"].isin(TARGETS)].drop(columns=["p90"])
    return report.markdown(found.rename(columns={"mean": "mape", "median": "median_ape"}))


def _published(names: Sequence[str]) -> list[str]:
    """A sentence for each published predictor: what its authors report, and on what."""
    lines = []
    for name in map(label, names):
        found = PUBLISHED.get(name)
        if found:
            more = "; ".join(f"{of}: {figure}" for of, figure in found.more.items())
            lines.append(f"- `{name}`: {found.differs}" + (f" Also published: {more}." if more else ""))
    return ["## What was published\n\n" + "\n".join(lines)] if lines else []


def _speed(names: Sequence[str]) -> str:
    lines = []
    for name in names:
        found = kept_costs(saved_folder(name) or SHIPPED / name)
        if found is None:
            continue
        single, batch = found["single_s"], found["batch_us"]
        lines.append({
            "predictor": label(name), "single prediction, ms": _number(single and 1e3 * single),
            "in a batch, µs per case": _number(batch), "training, s": _number(found["training_s"]),
            "on disk": _size(found["bytes"]), "parameters": _number(found["parameters"], whole=True),
            "single prediction of": found["single_of"] or "", "machine": found["machine"],
        })  # fmt: skip
    if not lines:
        return ""
    words = "One prediction for a cached graph, one case in a batch, and the fit to all rows; capturing is not counted."
    return f"## Speed and size\n\n{words}\n\n" + report.markdown(pd.DataFrame(lines))


def _size(many: int) -> str:
    return f"{many / 1e6:.3g} MB" if many >= 1e6 else f"{many / 1e3:.3g} kB"


def _number(value: float | None, *, whole: bool = False) -> str:
    if value is None or not np.isfinite(value):
        return ""
    return f"{int(value):,}" if whole or value >= 1000 else f"{value:.3g}"
