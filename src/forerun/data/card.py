"""The data card: measurements, repeat noise and gaps, as Markdown with plots."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forerun.data import card_serving, card_sets
from forerun.data.card_plots import draw
from forerun.data.markdown import table
from forerun.data.store import Store
from forerun.data.summary import noise_floor, regime, without_masked_replays
from forerun.errors import ForerunError
from forerun.runtimes.registry import names_of, of_row

_QUANTITIES = {"latency_ms": "latency", "device_ms": "device time", "graph_ms": "graph replay", "energy_j": "energy",
               "memory_mb": "memory", "memory_allocated_mb": "tensors"}  # fmt: skip


def write(store: Store, folder: Path, dataset: str = "forerun") -> Path:
    """DATASET.md and its plots in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    plots = draw(models(store, dataset), _curves(store, dataset), folder)
    path = folder / "DATASET.md"
    path.write_text(text(store, dataset, plots))
    return path


def text(store: Store, dataset: str = "forerun", plots: list[tuple[str, str]] | None = None) -> str:
    """The card of all data sets whose names begin with `dataset`, and the sources of published sets."""
    rows = models(store, dataset)
    if rows.empty:
        raise ForerunError(f"the store has no rows of a data set called {dataset}…; see: forerun data ls")
    parts = [_head(store, rows, dataset), *(_device(store, rows[rows["device"] == d], d) for d in _devices(rows))]
    parts += [f"![{title}]({name})" for title, name in plots or ()]
    parts += [card_serving.text(store, dataset), _gaps(rows), card_sets.text(store), _simulated(store)]
    return "\n\n".join(part for part in parts if part) + "\n"


def models(store: Store, dataset: str) -> pd.DataFrame:
    """Model rows of the data sets whose names begin with `dataset`, with their regime (host- or device-bound)."""
    frame = store.read("models")
    frame = frame[frame["dataset"].fillna("").str.startswith(dataset)].copy()
    frame["regime"] = regime(frame) if len(frame) else None
    return frame


def _simulated(store: Store) -> str:
    """The rows that a predictor made; nothing where there are none."""
    rows = store.read("models", columns=["device", "mode", "simulated"], simulated=True)
    rows = rows[rows["simulated"].notna()]
    if rows.empty:
        return ""
    counts = rows.groupby(["device", "mode", "simulated"]).size().rename("rows").reset_index()
    said = (
        "Rows that a predictor made for devices without measurements (`forerun train --simulated`): no measurements. "
        "They are learned from where that is asked for, and never judged as truth."
    )
    return f"## Simulated rows\n\n{said}\n\n" + table(counts.rename(columns={"simulated": "made by"}), "")


def _curves(store: Store, dataset: str) -> pd.DataFrame:
    curves = store.read("curves")
    return curves[curves["dataset"].fillna("").str.startswith(dataset) & curves["test_accuracy"].notna()]


def _devices(rows: pd.DataFrame) -> list[str]:
    return list(rows["device"].value_counts().index)


def _head(store: Store, rows: pd.DataFrame, dataset: str) -> str:
    operators = store.query(
        "select count(*) as n, min(measured_at) as first, max(measured_at) as last from operators "
        f"where dataset like '{dataset}%' and status = 'ok'"
    )
    runs = store.query(f"select count(distinct case_key) as n from curves where dataset like '{dataset}%'")
    ok = rows[rows["status"] == "ok"]
    again = (ok["repeat"] > 0).mean()
    days = pd.concat([rows["measured_at"], operators["first"], operators["last"]]).dropna().astype(str).str[:10]
    lines = [
        "# The data card",
        "Made by `forerun data card --out docs` from the rows that come with the package; how they were measured is in "
        "[MEASURE.md](MEASURE.md).",
        f"**{len(ok):,} model rows** ({again:.0%} of them repeats) of {ok['model'].nunique():,} models on "
        f"{ok['device'].nunique()} devices, **{operators['n'][0]:,} operator rows**, {runs['n'][0]} training runs with "
        f"accuracy per epoch. Measured {min(days)} to {max(days)}, protocol "
        f"{', '.join(sorted(rows['protocol'].unique()))}. Licence: Apache-2.0.",
    ]
    return "\n\n".join(lines)


def _device(store: Store, rows: pd.DataFrame, device: str) -> str:
    ok = rows[rows["status"] == "ok"]
    if ok.empty:
        return f"## {device}\n\n{len(rows)} cases, none of which ran."
    first = ok.iloc[-1]
    operators = store.query(
        f"select op, count(*) as rows, count(distinct dtype) as dtypes, "
        f"sum((direction = 'backward')::int)::int as backward "
        f"from operators where device = '{device}' and status = 'ok' and protocol like 'forerun/%' "
        "group by op order by rows desc, op"
    )
    sizes = ok.assign(mode=ok["mode"].where(ok["source"] != "tabular", "tabular"))
    parts = [
        f"## {device}",
        f"{first['device_reported']}, host {first['host']}. Software of the newest rows: `{first['software']}`.",
        f"**{len(ok):,} model rows.** {_stock(ok)}",
        table(_counts(sizes, "mode", "dtype"), "Rows by mode and dtype (training: dtype of the weights)"),
        table(_counts(sizes, "runtime", "mode"), "Rows by runtime and mode"),
        table(_families(ok), "Rows by family"),
        table(
            _noise(ok),
            "Noise floor: how far a repeat is from the first measurement, mean (median), in %",
        ),
    ]
    if len(operators):
        parts.append(table(operators, f"Operators: {int(operators['rows'].sum()):,} rows"))
    failed = rows[rows["status"] != "ok"]
    if len(failed):
        why = failed.assign(reason=failed["reason"].fillna("").str.slice(0, 70)).groupby(["status", "reason"]).size()
        parts.append(table(why.rename("rows").reset_index(), "What did not run"))
    return "\n\n".join(part for part in parts if part)


def _stock(ok: pd.DataFrame) -> str:
    """The number of unmodified networks of timm and torchvision, as opposed to random variants."""
    plain = ok[ok["source"].isin(("timm", "torchvision")) & ~ok["model"].str.contains("?", regex=False)]
    counts = plain.groupby("mode")[["model", "family"]].nunique()
    by_mode = [f"{mode} {networks} of {families} families" for mode, networks, families in counts.itertuples()]
    return f"Unmodified networks of timm and torchvision: {', '.join(by_mode)}." if by_mode else ""


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
    known = without_masked_replays(ok).assign(regime=ok["regime"].fillna("all"))
    lines = []
    for by in (["mode", "regime"], ["regime"]):
        floor = noise_floor(known, by)
        for group, part in floor.groupby(by):
            names = group if isinstance(group, tuple) else (group,)
            groups = dict(zip(by, names, strict=True))
            cells = {
                _QUANTITIES[q]: f"{100 * m:.1f} ({100 * d:.1f})"
                for q, m, d in zip(part["quantity"], part["mean"], part["median"], strict=True)
            }
            head = {"mode": groups.get("mode", "all"), "regime": groups["regime"], "cases": int(part["cases"].max())}
            lines.append({**head, **cells})
    return pd.DataFrame(lines).fillna("")


def _runtimes(ok: pd.DataFrame) -> str:
    """The runtimes of the rows, and modes that were never measured compiled."""
    compiled = ok[names_of(ok).map(lambda name: of_row(name).dequantises_in_kernels)]
    if compiled.empty:
        return "Eager PyTorch only; no compiled runs"
    modes = sorted(set(ok["mode"].dropna()) - set(compiled["mode"].dropna()))
    never = f", none of them of mode {' or '.join(modes)}" if modes else ""
    models, shared = compiled["model"].nunique(), len(compiled) / len(ok)
    return f"Mostly eager PyTorch: {len(compiled):,} rows of {models:,} models ran compiled ({shared:.0%}){never}"


def _gaps(rows: pd.DataFrame) -> str:
    ok = rows[(rows["status"] == "ok") & (rows["source"] != "tabular")]
    gpu = ok[ok["device_reported"].str.contains("NVIDIA", na=False)]
    lines = [
        "## Known gaps",
        "- One GPU, one host: what other hosts cost per launch must be probed there.",
        f"- {_runtimes(ok)}; one device at a time. Serving runs are of one engine without paged kernels.",
        "- Calls over 1 s are skipped, so the largest batches of the largest models are missing.",
        "- Pools and norms of images as single operators only in the plain layout; channels last only in models.",
        "- Weights are random; expert models route evenly, which real ones do not.",
        "- Host-bound latency moves with the host's own speed (the noise floor above); the newer rows record how fast "
        "the host was (`extra.host_probe_before`, in older rows `extra.pulse_before`).",
    ]
    if len(gpu):
        without = int(gpu["device_ms"].isna().sum())
        replay = int(gpu["graph_ms"].isna().sum())
        lines.append(
            f"- {without:,} of {len(gpu):,} GPU rows have no kernel time; {replay:,} have no graph replay (training "
            "steps, long calls, calls that cannot be captured)."
        )
    return "\n".join([lines[0], "", *lines[1:]])
