"""Writes docs/ADAPT.md: a new device with 0 to 100 rows, each judged device unseen by weights and prior.

python benchmarks/adaptation/table.py COLLECTED [--write]     COLLECTED: the folder of collect.py and held_out.py
"""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))
from collect import device, saved, specs

from forerun.predictors.laws import adaptation as law
from forerun.predictors.laws.adaptation import PARTS, Calls
from forerun.training.adapting import fitting

PAGE = Path(__file__).parents[2] / "docs" / "ADAPT.md"
ROWS, DRAWS = (5, 10, 32, 100), 10
METHODS = ("spec sheet", "one ratio", "linear", "adapt")
NOTHING = np.zeros(len(PARTS))
TARGETS = {"GPU": 70, "server CPU": 70, "phone or board": 60}


@dataclass(frozen=True)
class Given:
    """The rows that a method has."""

    device: str
    models: np.ndarray
    measured: np.ndarray
    calls: Calls


def spec_sheet(given: Given, others: Calls) -> tuple[np.ndarray, None]:
    return others.latency_ms(NOTHING), None


def one_ratio(given: Given, others: Calls) -> tuple[np.ndarray, np.ndarray]:
    off = np.log(given.measured / given.calls.latency_ms(NOTHING))
    return others.latency_ms(NOTHING) * np.exp(off.mean()), np.full(len(others), off.std(ddof=1))


def linear(given: Given, others: Calls) -> tuple[np.ndarray, np.ndarray]:
    """Ridge regression of log time on the logs of what the call computes, moves and launches."""
    first, second = _numbers(given.calls), _numbers(others)
    mean, scale = first.mean(axis=0), first.std(axis=0) + 1e-6
    x, z = ((each - mean) / scale for each in (first, second))
    logs = np.log(given.measured)
    weights = np.linalg.solve(x.T @ x + 0.1 * np.eye(x.shape[1]), x.T @ (logs - logs.mean()))
    left = np.sqrt(((logs - logs.mean() - x @ weights) ** 2).sum() / max(len(logs) - x.shape[1] - 1, 1))
    return np.exp(logs.mean() + z @ weights), np.full(len(others), left)


def _numbers(calls: Calls) -> np.ndarray:
    by_resource = calls.parts_ms.reshape(len(calls), -1, len(law.RESOURCES)).sum(axis=1)
    return np.log(np.column_stack([by_resource, calls.host_ms.sum(axis=1)]) + 1e-4)


def adapt(given: Given, others: Calls) -> tuple[np.ndarray, np.ndarray]:
    posterior, _ = fitting.fitted(given.calls, given.measured, fitting.prior_for(device(given.device)), given.models)
    predicted = others.latency_ms(posterior.corrections) * np.exp(posterior.particular(others))
    return predicted, posterior.deviation(others)


def judged(name: str, rows: pd.DataFrame, calls: Calls, counts: tuple[int, ...] = ROWS) -> pd.DataFrame:
    """Errors of every method by number of rows and draw; models of the rows are not judged."""
    measured, models = rows["measured"].to_numpy(dtype=float), rows["models"].to_numpy()
    rounding = fitting.rounding_of(measured)
    lines = []
    for count in counts:
        if count > 0.75 * len(rows):
            continue
        for draw in range(DRAWS):
            chosen, rest = drawn(models, count, np.random.default_rng((draw, count)))
            given = Given(name, models[chosen], measured[chosen], calls.take(chosen))
            others = calls.take(rest)
            for method in (spec_sheet, one_ratio, linear, adapt):
                start = time.perf_counter()
                predicted, sigma = method(given, others)
                seconds = time.perf_counter() - start
                sigma = None if sigma is None else np.hypot(sigma, rounding[rest])
                score = fitting.score(measured[rest], predicted, sigma)
                lines.append({"device": name, "rows": count, "draw": draw, "method": method.__name__.replace("_", " "),
                              **vars(score), "seconds": seconds})  # fmt: skip
    return pd.DataFrame(lines)


def drawn(models: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are given and which are judged: of other models, half of them, or fewer where rows are few."""
    names = rng.permutation(np.unique(models))
    for share in (0.5, 0.8):
        given = np.flatnonzero(np.isin(models, names[: int(share * len(names))]))
        if len(given) >= count:
            break
    return rng.permutation(given)[:count], ~np.isin(models, models[given])


def ceiling(measured: np.ndarray) -> float | None:
    """The share of rows within 10 % that a perfect predictor reaches of times rounded to milliseconds."""
    return 100 * float(np.minimum(1, 0.2 * measured).mean()) if fitting.rounding_of(measured).any() else None


def main(folder: Path, write: bool) -> None:
    chosen = {name: fields["part"] for name, fields in specs().items() if fields.get("held_out")}
    tables, about = [], []
    for name, (rows, calls) in saved(folder).items():
        device_id = name.rpartition(".")[0]
        if device_id in chosen:
            tables.append(judged(device_id, rows, calls))
            about.append((device_id, chosen[device_id], rows))
    every = pd.concat(tables, ignore_index=True)
    from unseen import pages

    text = "\n".join([page(every, about), *pages(folder)])
    print(text)
    if write:  # what benchmarks/gnn_llm/table.py wrote stays
        kept = re.search(r"<!-- gnn-llm: begin -->.*<!-- gnn-llm: end -->\n", PAGE.read_text(), re.S)
        PAGE.write_text(text + (f"\n{kept[0]}" if kept else ""))


def page(every: pd.DataFrame, about: list[tuple[str, str, pd.DataFrame]]) -> str:
    means = every.groupby(["device", "rows", "method"])[["mape", "within_10", "tau", "coverage", "seconds"]].mean()
    lines = [
        "# Adapting to a new device",
        "",
        "How far `forerun adapt` gets with a few rows of a device that neither the weights nor the prior have seen.",
        f"Means over {DRAWS} random draws: rows come from one half of the models, the other half is judged (a fifth",
        "for 100 rows). Rows are published ones: cells of NAS-Bench-201 (help_nas_latency), torchvision models in",
        "inference (pytorch_gpu_benchmark). Cells on the Raspberry Pi are as its runtime folds them, without edges",
        "that are zero or reach no output. Written by `python benchmarks/adaptation/table.py`.",
        "",
        "| with 32 rows | kind | within 10 % without rows | with | target | worse than without rows, of draws |",
        "|---|---|---|---|---|---|",
    ]
    for name, part, rows in about:
        before, after = (means.loc[(name, 32, method), "within_10"] for method in ("spec sheet", "adapt"))
        most = ceiling(rows["measured"].to_numpy(dtype=float))
        limit = "" if most is None else f" (at most {most:.0f} % of whole milliseconds)"
        lines.append(
            f"| {name} | {part} | {before:.0f} % | {after:.0f} %{limit} | {TARGETS[part]} % | {_worse(every, name)} |"
        )
    about_baselines = "One ratio multiplies the spec sheet's predictions; linear is a ridge regression of log time on"
    lines += [
        "",
        about_baselines,
        "the logs of what a call computes, moves and launches. Seconds are of one core of a busy machine.",
        "",
    ]
    for name, part, rows in about:
        settings = ", ".join(sorted(rows["settings"].unique())[:6])
        models = rows["models"].nunique()
        lines += [f"## {name}", "", f"A {part}: {len(rows)} rows of {models} models ({settings}).", "",
                  "| rows | method | mean error | within 10 % | Kendall's tau | 90 % intervals cover | seconds |",
                  "|---|---|---|---|---|---|---|"]  # fmt: skip
        for count in (0, *ROWS):
            for method in METHODS:
                key = (name, count or min(ROWS), method)
                if (count == 0) != (method == "spec sheet") or key not in means.index:
                    continue
                one = means.loc[key]
                inside = f"{one['coverage']:.0f} %" if one["coverage"] == one["coverage"] else ""
                seconds = f"{one['seconds']:.2f}" if count else ""
                figures = f"{one['mape']:.1f} % | {one['within_10']:.0f} % | {one['tau']:.2f}"
                lines.append(f"| {count} | {method} | {figures} | {inside} | {seconds} |")
        lines.append("")
    return "\n".join(lines)


def _worse(every: pd.DataFrame, name: str) -> str:
    mine = every[every["device"] == name].pivot_table(index=["rows", "draw"], columns="method", values="mape")
    worse = (mine["adapt"] > mine["spec sheet"]).sum()
    return f"{worse} of {len(mine)}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--write" in sys.argv)
