"""Graphs of nine language models, and how fast trees and the graph network answer for them: tables and a chart in
docs/TRAIN.md.

    python benchmarks/language_graphs.py           prints both tables
    python benchmarks/language_graphs.py --write   writes them between their markers, and the chart docs/figures has

Speed is that of the shipped `trees` and `dippm` on this machine, the best of repeated calls, as the machine may be busy
with other things: for a model that is captured in the call, for each of the models with captured graphs, and for all of
them in a batch, with and without what predictors keep of a graph.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from forerun.predictors.base import Predictor
    from forerun.predictors.cases import Cases
    from forerun.workload import Workload

DOCS = Path(__file__).parent.parent / "docs"
PAGE, FIGURE = DOCS / "TRAIN.md", DOCS / "figures" / "language_graphs.png"
MODELS = (
    "distilbert-base-uncased", "bert-base-uncased", "roberta-base", "albert-base-v2", "gpt2", "facebook/opt-125m",
    "EleutherAI/pythia-160m", "Qwen/Qwen2.5-0.5B", "meta-llama/Llama-3.2-1B",
)  # fmt: skip
DEVICE, TOKENS, BATCHES = "h200", 128, (1, 2, 4, 8)
PREDICTORS = {"trees": "trees", "graph network": "dippm"}
PUBLISHED = 268
#: Classes of operators that the table and the chart part, by what the graph calls them.
KINDS = {
    "matmul": ("matmul", "moe_matmul"), "attention": ("attention",), "norm": ("norm",),
    "elementwise": ("elementwise",), "embedding": ("embedding", "gather"), "copy": ("copy", "fill"),
}  # fmt: skip
REPEATED, CAPTURED = 15, 3


def workload(model: str, batch: int = 1) -> Workload:
    from forerun.workload import Workload

    return Workload(model, batch=batch, seq_len=TOKENS)


def sizes() -> pd.DataFrame:
    """By model: nodes and edges of the graph of a call, and its operators by kind."""
    from forerun.frontends import load_graph
    from forerun.graph.profile import profile
    from forerun.predictors.laws.graph_numbers import of_graph

    lines = []
    for model in MODELS:
        columns = profile(load_graph(workload(model)), "fp32")
        known = of_graph(columns)
        kinds = pd.Series(columns.repeat, index=[op.kind for op in columns.graph.ops]).groupby(level=0).sum()
        parted = {name: int(kinds.reindex(list(each)).sum()) for name, each in KINDS.items()}
        lines.append({
            "model": model, "nodes": int(known["nodes"]), "edges": int(known["edges"]), "kinds": len(kinds), **parted,
            "other": int(kinds.sum()) - sum(parted.values()),
        })  # fmt: skip
    return pd.DataFrame(lines)


def speed() -> pd.DataFrame:
    """By way of asking: milliseconds for each model by each predictor, and how many times longer the second takes."""
    from forerun.predictors.registry import load_predictor

    made = {words: load_predictor(name) for words, name in PREDICTORS.items()}
    every = cases()
    ways: dict[str, Callable[[Predictor], float]] = {
        "one by one, captured in the call": captured,
        "one by one, graph at hand": alone,
        "in a batch, graphs at hand": lambda predictor: together(predictor, every, kept=False),
        "in a batch, kept": lambda predictor: together(predictor, every, kept=True),
    }
    lines = []
    for way, measure in ways.items():
        taken = {words: measure(predictor) for words, predictor in made.items()}
        first, second = taken.values()
        lines.append({"asked": way, **taken, "ratio": second / first})
    return pd.DataFrame(lines)


def cases() -> Cases:
    """Every model at every batch size as a table of cases."""
    from forerun.training.cases import workload_cases

    workloads = [workload(model, batch) for model in MODELS for batch in BATCHES]
    rows = pd.DataFrame({
        "case_key": [f"{w.model}/{w.batch}" for w in workloads], "device": DEVICE,
        "model": [w.model for w in workloads],
        "mode": "inference", "batch": [w.batch for w in workloads], "seq_len": TOKENS, "dtype": "fp32",
        "optimizer": None, "amp": None, "runtime": "eager", "software": None,
    })  # fmt: skip
    return workload_cases(rows, workloads)


def captured(predictor: Predictor) -> float:
    """Nothing of one model is known, neither on disk nor in memory; others were captured before."""
    import forerun
    from forerun.api.questions import _remembered

    taken = []
    before = os.environ.get("FORERUN_CACHE")
    for _ in range(CAPTURED):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["FORERUN_CACHE"] = folder
            _remembered.cache_clear()
            began = time.perf_counter()
            forerun.predict(MODELS[1], DEVICE, seq_len=TOKENS, predictor=predictor, measured=False)
            taken.append(time.perf_counter() - began)
    if before is None:
        del os.environ["FORERUN_CACHE"]
    else:
        os.environ["FORERUN_CACHE"] = before
    return 1e3 * min(taken)


def alone(predictor: Predictor) -> float:
    """The graph is in memory: one `times` of it, as `forerun.evaluate.costs` measures it."""
    from forerun.device import load_device
    from forerun.frontends import load_graph
    from forerun.graph.profile import profile

    device, each = load_device(DEVICE), []
    for model in MODELS:
        asked = workload(model)
        graph = load_graph(asked)

        def once(graph: Any = graph, asked: Workload = asked) -> None:
            predictor.times(profile(graph, asked.dtype), [device], asked)

        each.append(_best_s(once))
    return 1e3 * statistics.mean(each)


def together(predictor: Predictor, every: Cases, *, kept: bool) -> float:
    """All cases in one call, for each: with what the predictor keeps of graphs, or with the graphs alone."""
    if kept:
        predictor.predict_cases(every)
    taken = _best_s(
        lambda: predictor.predict_cases(every if kept else replace(every, made={})), REPEATED if kept else CAPTURED
    )
    return 1e3 * taken / len(every)


def _best_s(call: Callable[[], object], times: int = REPEATED) -> float:
    call()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return min(taken)


def draw(table: pd.DataFrame) -> None:
    """The operators of a call by kind, a bar for each model."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    left = np.zeros(len(table))
    for name in (*KINDS, "other"):
        axes.barh(table["model"], table[name], left=left, label=name)
        left += table[name].to_numpy()
    axes.invert_yaxis()
    axes.set_xlabel(f"operators of a call of {TOKENS} tokens")
    axes.legend(fontsize=7, ncols=2)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(FIGURE, dpi=110)


def markdown(table: pd.DataFrame) -> str:
    heads = list(table.columns)
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    for row in table.itertuples(index=False):
        lines.append(f"| {' | '.join(_cell(value) for value in row)} |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return (
        f"{value:,.3g}"
        if isinstance(value, float) and value < 1000
        else str(value)
        if isinstance(value, str)
        else f"{value:,.0f}"
    )


def write(name: str, text: str) -> None:
    """Puts a text between the markers of a name."""
    page, begin, end = PAGE.read_text(), f"<!-- {name} -->", "<!-- end -->"
    before, _, rest = page.partition(begin)
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/TRAIN.md and the chart")
    parser.add_argument("--only", choices=("sizes", "speed"), help="one of the two tables")
    given = parser.parse_args(arguments)
    if given.only != "speed":
        table = sizes()
        print(markdown(table))
        if given.write:
            draw(table)
            write("languagegraphs", markdown(table))
    if given.only != "sizes":
        from forerun.evaluate.costs import machine

        found = speed().rename(columns={words: f"{words}, ms" for words in PREDICTORS})
        how = f"Measured on {machine()}, at a load of {os.getloadavg()[0]:.1f}; published: {PUBLISHED} times."
        text = f"{markdown(found)}\n\n{how}"
        print(text)
        if given.write:
            write("languagespeed", text)


if __name__ == "__main__":
    main()
