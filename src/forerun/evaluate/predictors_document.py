"""docs/PREDICTORS.md: predictors compared, from stored predictions, figures and costs alone; nothing is captured, and
nothing is fitted but baselines that take moments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forerun.errors import ForerunError
from forerun.evaluate import report, studies
from forerun.evaluate.costs import stored_costs
from forerun.evaluate.published_figures import PUBLISHED, published_cell
from forerun.evaluate.same_rows import BASELINES, SPLITS, StoredPredictions, split_lines
from forerun.evaluate.scatter import draw
from forerun.evaluate.scoreboard import noise
from forerun.evaluate.stored import stored_device_lines
from forerun.evaluate.test_set import in_test_set
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
held-out predictions that were stored when each was fitted. Written by

    {command}

- **Single rows held out** is how most papers evaluate: near relatives of a row stay in training, so it is optimistic.
  **Families held out** is harder: no row of the network's family is in training (**networks held out**
  where all rows are of one family: no row of the network is in training).{devices}
- Predictors cover different rows, so each table has the rows of one predictor, with all others on **the same rows**.
  `coverage` is the share of all rows that it predicts, and of the others the share of its rows that they predict (rows
  measured after a predictor was fitted have no stored prediction; `n` counts the others).
  `default (families held out)` is shown where no predictions of the default predictor for single rows held out are
  stored: it is then evaluated by the harder split. `one-ratio` (the roofline times one constant) and `dummy` (the
  median) are fitted to these rows alone, without the part that is predicted. `one-ratio` multiplies the plain roofline
  (arithmetic and bytes at the device's peaks), while `roofline` has fitted constants for kernels and launches. No
  predicted latency is below the plain roofline, not even that of `dummy`. A baseline without a line does not predict
  that quantity.
- For the default predictor, the relatives of a family are held out too (`--split family`). The others were fitted
  before relatives were held out together, so relatives stay in training, which is optimistic.
- Repeats of a case are held out together with it, and only its first measurement is scored.
- `in 90 % interval` is the coverage of the interval, `mean width` its width over the prediction. `noise floor` is the
  mean difference of two measurements of the same case, over the repeated ones: the error against one of them can be a
  little less.
- Throughput is the batch over latency, so it has no table of its own.
- RMSE is in the unit of the table. The families and the GPU of the test set (evaluate/test_set.py) are excluded.
- `published` is what the authors report, on data of their own: it says how well the method did there, not here."""

_DEVICES = """ **One GPU held out**: published
  times on a GPU of which no row is in training; only figures are stored of these, since the licences of the rows may
  forbid passing them on."""


def write(path: Path, names: Sequence[str]) -> Path:
    """The document, and a PNG per target in the folder `figures` beside it."""
    stored = StoredPredictions()
    command = f"forerun evaluate {','.join(map(label, names))} --document docs/{path.name}"
    lines = pd.DataFrame(_lines(stored, names))
    if lines.empty:
        raise ForerunError(f"no predictions are stored of {', '.join(names)}: run forerun train NAME --out FOLDER")
    first = next(f for f in stored.frames.values() if f is not None)
    base = stored.frame("default", "family")
    parts = [
        "# Predictors compared",
        _INTRO.format(command=command, devices=_DEVICES if (lines["split"] == "device").any() else ""),
        _summary(lines),
        "## Noise floor: the same case measured twice\n\n" + _noise(first if base is None else base),
        *_published(names),
    ]
    figures = path.parent / "figures"
    for target, title in TARGETS.items():
        selected = lines[lines["target"] == target]
        if selected.empty:
            continue
        parts.append(f"## {title} (`{target}`)")
        image = draw(stored, names, target, figures)
        if image is not None:
            parts.append(f"![{title}: predicted against measured](figures/{image.name})")
        for name, group in selected.groupby("rows of", sort=False):
            shown = group.reindex(columns=list(_COLUMNS))
            shown = shown.loc[:, shown.notna().any() & (shown != "").any()].assign(split=shown["split"].map(WORDS))
            parts.append(f"### Rows of {label(str(name))}\n\n" + report.markdown(shown))
    parts += [_speed(names), *studies.sections(figures)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(part for part in parts if part) + "\n")
    return path


def label(name: str) -> str:
    """The name in tables of a predictor that is given by name or folder."""
    return predictor_class(name).name


def groups(names: Sequence[str]) -> list[str]:
    """The predictors whose rows have tables: all but the baselines, and the default, which predicts every row."""
    return [n for n in names if label(n) not in BASELINES] + [n for n in names if label(n) == "default"]


def _lines(stored: StoredPredictions, names: Sequence[str]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for name in groups(names):
        selected = [line for split in SPLITS for line in split_lines(stored, name, split, list(TARGETS))]
        for line in selected + _device_lines(name):
            called = label(name) if line["predictor"] == name else line["predictor"]
            published_text = published_cell(called, line["target"], line["split"]) if called == label(name) else ""
            out.append({**line, "predictor": called, "published": published_text})
    return out


def _device_lines(name: str) -> list[dict[str, Any]]:
    """Figures of held-out GPUs, all of them together; those of the default predictor beside, with its own n."""
    lines = _devices(name)
    modes = {line["mode"] for line in lines if line["n"]} - {"all"}
    if label(name) != "default":
        mode = modes.pop() if len(modes) == 1 else "all"
        lines += [{**line, "mode": "all"} for line in _devices("default")
                  if line["predictor"] == "default" and line["mode"] == mode]  # fmt: skip
    chosen = [line for line in lines if (line["device"], line["mode"]) == ("all", "all") and line["target"] in TARGETS]
    return [{**line, "rows of": name, "split": "device"} for line in chosen]


def _summary(lines: pd.DataFrame) -> str:
    """Mean errors of every predictor with single rows and with families (or networks) held out, the default beside."""
    out = []
    for (name, target), group in lines.groupby(["rows of", "target"], sort=False):
        own_lines = group[group["predictor"] == label(str(name))].set_index("split")
        by_family = next((s for s in ("family", "model") if s in own_lines.index), None)
        if label(str(name)) == "default" or by_family is None:
            continue
        beside = group[(group["split"] == by_family) & group["predictor"].str.startswith("default")]
        published_text = own_lines["published"].get("random", "")
        out.append({
            "predictor": label(str(name)), "target": target, WORDS["random"]: own_lines["mape"].get("random", np.nan),
            WORDS["family"]: own_lines["mape"][by_family], "default, families held out": beside["mape"].mean(),
            "published": published_text,
        })  # fmt: skip
    if not out:
        return ""
    table = pd.DataFrame(out)
    shares = [c for c in table.columns if table[c].dtype == float]
    for name in shares:
        table[name] = [f"{100 * value:.1f} %" if np.isfinite(value) else "" for value in table[name]]
    words = "Mean errors; all other figures are below. For mlp, whose rows are of one family, networks are held out."
    return f"## In short\n\n{words}\n\n" + report.markdown(table)


def _devices(name: str) -> list[dict[str, Any]]:
    return stored_device_lines(saved_folder(name) or SHIPPED / name)


def _noise(rows: pd.DataFrame) -> str:
    floors = noise(rows[~in_test_set(rows)].reset_index(drop=True))
    floors = floors[floors["quantity"].isin(TARGETS)].drop(columns=["p90"])
    return report.markdown(floors.rename(columns={"mean": "mape", "median": "median_ape"}))


def _published(names: Sequence[str]) -> list[str]:
    """A sentence for each published predictor: what its authors report, and on which data."""
    lines = []
    for name in map(label, names):
        paper = PUBLISHED.get(name)
        if paper:
            more = "; ".join(f"{of}: {figure}" for of, figure in paper.more.items())
            lines.append(f"- `{name}`: {paper.differs}" + (f" Also published: {more}." if more else ""))
    return ["## What was published\n\n" + "\n".join(lines)] if lines else []


def _speed(names: Sequence[str]) -> str:
    lines = []
    for name in names:
        costs = stored_costs(saved_folder(name) or SHIPPED / name)
        if costs is None:
            continue
        single, batch = costs["single_s"], costs["batch_us"]
        lines.append({
            "predictor": label(name), "single prediction, ms": _number(single and 1e3 * single),
            "in a batch, µs per case": _number(batch), "training, s": _number(costs["training_s"]),
            "on disk": _size(costs["bytes"]), "parameters": _number(costs["parameters"], whole=True),
            "single prediction of": costs["single_of"] or "", "machine": costs["machine"],
        })  # fmt: skip
    if not lines:
        return ""
    words = "One prediction for a cached graph, one case in a batch, and the fit to all rows; capturing is not counted."
    return f"## Speed and size\n\n{words}\n\n" + report.markdown(pd.DataFrame(lines))


def _size(count: int) -> str:
    return f"{count / 1e6:.3g} MB" if count >= 1e6 else f"{count / 1e3:.3g} kB"


def _number(value: float | None, *, whole: bool = False) -> str:
    if value is None or not np.isfinite(value):
        return ""
    return f"{int(value):,}" if whole or value >= 1000 else f"{value:.3g}"
