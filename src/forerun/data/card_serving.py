"""The serving runs on the data card: by model, how they repeat, and what did not run."""

from __future__ import annotations

import pandas as pd

from forerun.data import serving
from forerun.data.markdown import table
from forerun.data.store import Store

_NAMES = {"ttft_ms": "TTFT", "ttft_p90_ms": "TTFT p90", "itl_ms": "ITL", "itl_p90_ms": "ITL p90", "tpot_ms": "TPOT",
          "e2e_ms": "end to end", "output_tokens_per_s": "output tokens/s", "power_w": "power"}  # fmt: skip


def text(store: Store, dataset: str) -> str:
    """A section for each device with serving runs of these data sets; empty without any."""
    runs = serving.rows(store, dataset)
    every = store.read("serving")
    every = every[every["dataset"].fillna("").str.startswith(dataset)]
    return "\n\n".join(
        _device(runs[runs["device"] == d], every[every["device"] == d], d) for d in runs["device"].unique()
    )


def _device(runs: pd.DataFrame, every: pd.DataFrame, device: str) -> str:
    again = int((runs["repeat"] > 0).sum())
    settings = runs[["attention", "block_size", "num_blocks", "max_batch_tokens"]].drop_duplicates()
    engine = "; ".join(
        f"{attention}, {blocks:g} blocks of {size:g} tokens, at most {tokens:g} tokens in an iteration"
        for attention, size, blocks, tokens in settings.itertuples(index=False)
    )
    first = runs.iloc[-1]
    parts = [
        f"## Serving runs on {device}",
        f"**{len(runs):,} runs** ({again} of them repeats) of {runs['model'].nunique()} models of "
        f"{runs['family'].nunique()} architectures with transformers' continuous batching ({engine}). Software: "
        f"`{first['software']}`.",
        table(_by_model(runs), "Runs by model: the range of the means"),
        table(_noise(runs), "How far a repeated run is from the first, in % (same requests, model built again)"),
    ]
    failed = every[every["status"] != "ok"]
    if len(failed):
        why = failed.assign(reason=failed["reason"].fillna("").str.slice(0, 90)).groupby(["model", "reason"]).size()
        parts.append(table(why.rename("runs").reset_index(), "What did not run"))
    return "\n\n".join(parts)


def _by_model(runs: pd.DataFrame) -> pd.DataFrame:
    lines = []
    for model, part in runs.groupby("model"):
        lines.append({
            "model": model, "runs": len(part), "TTFT, ms": _range(part["ttft_ms"]), "ITL, ms": _range(part["itl_ms"]),
            "output tokens/s": _range(part["output_tokens_per_s"]), "power, W": _range(part["power_w"]),
        })  # fmt: skip
    return pd.DataFrame(lines)


def _range(values: pd.Series) -> str:
    known = values.dropna()
    return f"{known.min():,.3g} to {known.max():,.4g}" if len(known) else ""


def _noise(runs: pd.DataFrame) -> pd.DataFrame:
    floor = serving.noise(runs)
    floor["quantity"] = floor["quantity"].map(_NAMES)
    for name in ("mean", "median", "p90"):
        floor[name] = [f"{100 * value:.1f}" for value in floor[name]]
    return floor
