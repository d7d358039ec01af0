"""The data card: what was measured, how far it repeats, what is missing, as Markdown with plots beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd

from forerun.data import importers
from forerun.data.store import Store
from forerun.data.summary import noise_floor, regime
from forerun.errors import ForerunError

_QUANTITIES = {"latency_ms": "latency", "device_ms": "device time", "graph_ms": "graph replay", "energy_j": "energy",
               "memory_mb": "memory", "memory_allocated_mb": "tensors"}  # fmt: skip


def write(store: Store, folder: Path, dataset: str = "forerun") -> Path:
    """DATASET.md and its plots in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    plots = draw(store, folder, dataset)
    path = folder / "DATASET.md"
    path.write_text(text(store, dataset, plots))
    return path


def text(store: Store, dataset: str = "forerun", plots: list[tuple[str, str]] | None = None) -> str:
    """The card of all data sets whose name begins with `dataset`, and a table of the others."""
    rows = _models(store, dataset)
    if rows.empty:
        raise ForerunError(f"the store has no rows of a data set called {dataset}…; see: forerun data ls")
    parts = [_head(store, rows, dataset), *(_device(store, rows[rows["device"] == d], d) for d in _devices(rows))]
    parts += [f"![{title}]({name})" for title, name in plots or ()]
    parts += [_gaps(rows), _published(store)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _models(store: Store, dataset: str) -> pd.DataFrame:
    frame = store.read("models")
    frame = frame[frame["dataset"].fillna("").str.startswith(dataset)].copy()
    frame["regime"] = regime(frame) if len(frame) else None
    return frame


def _devices(rows: pd.DataFrame) -> list[str]:
    return list(rows["device"].value_counts().index)


def _head(store: Store, rows: pd.DataFrame, dataset: str) -> str:
    operators = store.query(f"select count(*) as n from operators where dataset like '{dataset}%' and status = 'ok'")
    runs = store.query(f"select count(distinct case_key) as n from curves where dataset like '{dataset}%'")
    ok = rows[rows["status"] == "ok"]
    again = (ok["repeat"] > 0).mean()
    lines = [
        "# The data card",
        "Made by `forerun data card --out docs` from the rows that come with the package; how they were measured is in "
        "[MEASURING.md](MEASURING.md).",
        f"**{len(ok):,} model rows** ({again:.0%} of them repeats) of {ok['model'].nunique():,} models on "
        f"{ok['device'].nunique()} devices, **{operators['n'][0]:,} operator rows**, {runs['n'][0]} training runs with "
        f"accuracy per epoch. Measured {_day(rows, min)} to {_day(rows, max)}, protocol "
        f"{', '.join(sorted(rows['protocol'].unique()))}. Licence: Apache-2.0.",
    ]
    return "\n\n".join(lines)


def _day(rows: pd.DataFrame, choose: Any) -> str:
    return str(choose(rows["measured_at"].dropna()))[:10]


def _device(store: Store, rows: pd.DataFrame, device: str) -> str:
    ok = rows[rows["status"] == "ok"]
    if ok.empty:
        return f"## {device}\n\n{len(rows)} cases, none of which ran."
    first = ok.iloc[-1]
    operators = store.query(
        f"select op, count(*) as rows, count(distinct dtype) as dtypes, "
        f"sum((direction = 'backward')::int)::int as backward "
        f"from operators where device = '{device}' and status = 'ok' and protocol like 'forerun/%' "
        "group by op order by rows desc"
    )
    sizes = ok.assign(mode=ok["mode"].where(ok["source"] != "tabular", "tabular"))
    parts = [
        f"## {device}",
        f"{first['device_said']}, host {first['host']}. Software of the newest rows: `{first['software']}`.",
        f"**{len(ok):,} model rows.** {_stock(ok)}",
        _table(_counts(sizes, "mode", "dtype"), "Rows by mode and dtype (training: dtype of the weights)"),
        _table(_families(ok), "Rows by family"),
        _table(_noise(ok), "Noise floor: how far a repeat lies from the first measurement, mean (median), in %"),
    ]
    if len(operators):
        parts.append(_table(operators, f"Operators: {int(operators['rows'].sum()):,} rows"))
    failed = rows[rows["status"] != "ok"]
    if len(failed):
        why = failed.assign(reason=failed["reason"].fillna("").str.slice(0, 70)).groupby(["status", "reason"]).size()
        parts.append(_table(why.rename("rows").reset_index(), "What did not run"))
    return "\n\n".join(part for part in parts if part)


def _stock(ok: pd.DataFrame) -> str:
    """How many networks of timm and torchvision as they come, beside variants drawn between them."""
    plain = ok[ok["source"].isin(("timm", "torchvision")) & ~ok["model"].str.contains("?", regex=False)]
    counts = plain.groupby("mode")[["model", "family"]].nunique()
    said = [f"{mode} {models} of {families} families" for mode, models, families in counts.itertuples()]
    return f"Networks of timm and torchvision as they come: {', '.join(said)}." if said else ""


def _counts(ok: pd.DataFrame, rows: str, columns: str) -> pd.DataFrame:
    table = pd.crosstab(ok[rows], ok[columns])
    table["models"] = ok.groupby(rows)["model"].nunique()
    return table.reset_index()


def _families(ok: pd.DataFrame) -> pd.DataFrame:
    grouped = ok.groupby(["source", "family"])
    table = grouped.agg(rows=("model", "size"), models=("model", "nunique"), batch=("batch", "max"))
    table["batch"] = table["batch"].astype(int)
    modes = grouped["mode"].agg(lambda m: ", ".join(sorted(set(m))))
    return table.rename(columns={"batch": "largest batch"}).join(modes.rename("modes")).reset_index()


def _noise(ok: pd.DataFrame) -> pd.DataFrame:
    known = ok.assign(regime=ok["regime"].fillna("all"))
    lines = []
    for by in (["mode", "regime"], ["regime"]):
        found = noise_floor(known, by)
        for group, part in found.groupby(by):
            names = group if isinstance(group, tuple) else (group,)
            said = dict(zip(by, names, strict=True))
            cells = {
                _QUANTITIES[q]: f"{100 * m:.1f} ({100 * d:.1f})"
                for q, m, d in zip(part["quantity"], part["mean"], part["median"], strict=True)
            }
            head = {"mode": said.get("mode", "all"), "regime": said["regime"], "cases": int(part["cases"].max())}
            lines.append({**head, **cells})
    return pd.DataFrame(lines).fillna("")


def _gaps(rows: pd.DataFrame) -> str:
    ok = rows[(rows["status"] == "ok") & (rows["source"] != "tabular")]
    gpu = ok[ok["device_said"].str.contains("NVIDIA", na=False)]
    lines = [
        "## Known gaps",
        "- One GPU, one host: what other hosts cost per launch must be probed there.",
        "- Eager PyTorch only; no compiled runs, no serving engine, one device at a time.",
        "- Calls over 1 s are passed over, so the largest batches of the largest models are missing.",
        "- Pools and norms of images as single operators only in the plain layout; channels last only in models.",
        "- Weights are random; expert models route evenly, which real ones do not.",
        "- Host-bound latency moves with the host's own speed (the noise floor above); the newer rows say how fast the "
        "host was (`extra.pulse_before`).",
    ]
    if len(gpu):
        without = int(gpu["device_ms"].isna().sum())
        replay = int(gpu["graph_ms"].isna().sum())
        lines.append(
            f"- {without:,} of {len(gpu):,} GPU rows have no kernel time; {replay:,} have no graph replay (training "
            "steps, long calls, calls that cannot be captured)."
        )
    return "\n".join([lines[0], "", *lines[1:]])


def _published(store: Store) -> str:
    """The imported public sets; empty when none was imported."""
    lines = []
    for name in importers.names():
        module = importers.importer(name)
        counts = {
            table: int(store.query(f"select count(*) as n from {table} where dataset = '{name}'")["n"][0])
            for table in ("models", "operators", "curves")
        }
        if sum(counts.values()):
            devices = store.query(
                f"select count(distinct device) as n from (select device from models where dataset = '{name}' "
                f"union all select device from operators where dataset = '{name}')"
            )["n"][0]
            lines.append({"data set": name, "model rows": counts["models"], "operator rows": counts["operators"],
                          "devices": int(devices), "licence": module.LICENCE, "what": module.ABOUT})  # fmt: skip
    if not lines:
        return ""
    intro = "## Published sets, after cleaning\n\nImported with `forerun data import NAME FOLDER`; not in the package."
    return f"{intro}\n\n{_table(pd.DataFrame(lines), '')}"


def _table(frame: pd.DataFrame, title: str) -> str:
    """A Markdown table under its title."""
    if frame.empty:
        return ""
    head = [str(c) for c in frame.columns]
    right = [pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join("---:" if r else "---" for r in right) + "|"]
    for row in frame.itertuples(index=False):
        lines.append("| " + " | ".join(f"{v:,}" if isinstance(v, int) else str(v) for v in row) + " |")
    return (f"**{title}**\n\n" if title else "") + "\n".join(lines)


def draw(store: Store, folder: Path, dataset: str = "forerun") -> list[tuple[str, str]]:
    """Plots as (title, file name): latency against batch, and accuracy against seconds of training."""
    try:
        import matplotlib
    except ImportError as error:
        raise ForerunError("the card's plots need matplotlib: pip install matplotlib") from error
    matplotlib.use("Agg")
    made = [_draw_latency(_models(store, dataset), folder), _draw_curves(store, folder, dataset)]
    return [plot for plot in made if plot]


def _draw_latency(rows: pd.DataFrame, folder: Path) -> tuple[str, str] | None:
    from matplotlib import pyplot
    from matplotlib.ticker import ScalarFormatter

    ok = rows[(rows["status"] == "ok") & (rows["repeat"] == 0) & (rows["source"] != "tabular")]
    # A line holds everything but the batch; the models with the longest lines are drawn, one of a family.
    line_of = ["device", "mode", "dtype", "amp", "optimizer", "seq_len"]
    lengths = ok.groupby(["family", "model", *line_of], dropna=False)["batch"].nunique().reset_index()
    longest = lengths.sort_values("batch", ascending=False).drop_duplicates(["device", "family"])
    # Of every device its longest lines first, so that none has all the panels.
    best = longest.assign(turn=longest.groupby("device").cumcount()).sort_values("turn", kind="stable")
    best = best.drop_duplicates("family").head(6)
    if best.empty:
        return None
    figure, panels = pyplot.subplots(2, 3, figsize=(12, 7), layout="constrained")
    for panel, (_, chosen) in zip(panels.flat, best.iterrows(), strict=False):
        part = ok[(ok["model"] == chosen["model"]) & (ok["mode"] == chosen["mode"])]
        for said, line in part.groupby(line_of, dropna=False):
            means = line.groupby("batch")[["latency_ms", "device_ms"]].median().reset_index()
            if len(means) < 2:
                continue
            name = " ".join(str(v) for v in said if v is not None and v == v)
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


def _draw_curves(store: Store, folder: Path, dataset: str) -> tuple[str, str] | None:
    from matplotlib import pyplot

    curves = store.read("curves")
    curves = curves[curves["dataset"].fillna("").str.startswith(dataset) & curves["test_accuracy"].notna()]
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
