"""Writes the comparison by platform into docs/ADAPT.md, from the results of fit.py.

python benchmarks/gnn_llm/table.py DATA RESULTS... [--write]     RESULTS: results.npz files, later ones win
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "ADAPT.md"
BEGIN, END = "<!-- gnn-llm: begin -->", "<!-- gnn-llm: end -->"
WORDS = {
    "main": "gnn-llm, as it ships",
    "gnn": "GNN (NNLQP design)",
    "gnn-work": "GNN with FLOPs, MACs and parameters per node",
    "gnn-sentence0": "GNN beside the embedded device name",
    "gnn-sentence1": "GNN beside the embedded datasheet",
    "gnn-sentence2": "GNN beside both, embedded",
    "all-stages": "gnn-llm, all stages, fewer steps (as all below)",
    "small-lm": "small language model, trained here alone",
    "no-mae": "without the auto-encoder",
    "no-text": "without graph to text",
    "performance-only": "without both",
    "random-lm": "language model with random weights",
    "random-lm-no-mae": "random weights, and no auto-encoder",
    "text-only": "the graph as text, no graph network",
    "json-only": "the graph as JSON, no graph network",
    "one-projection": "one soft token",
}


def collected(paths: list[Path]) -> dict[str, dict[str, np.ndarray]]:
    """Arrays of every job."""
    jobs: dict[str, dict[str, np.ndarray]] = {}
    for path in paths:
        with np.load(path) as found:
            for name in found.files:
                job, _, key = name.partition("/")
                jobs.setdefault(job, {})[key] = found[name]
    return jobs


def medians(data: Path) -> tuple[list[str], np.ndarray]:
    """The columns, and the median of each over the cells that are learned from."""
    from corpus import SEED, TESTED, TRAINED

    with np.load(data / "cells.npz") as found:
        order = np.random.default_rng(SEED).permutation(len(found["codes"]))
        return found["columns"].tolist(), np.nanmedian(found["labels"][order[TESTED : TESTED + TRAINED]], axis=0)


def section(jobs: dict[str, dict[str, np.ndarray]], columns: list[str], middle: np.ndarray) -> list[str]:
    """The tables, with a sentence that says first whether the language model helps."""
    groups: dict[str, list[dict[str, np.ndarray]]] = {}
    for name, job in jobs.items():
        groups.setdefault(re.sub(r"-\d$", "", name) if name.startswith("gnn-") else name, []).append(job)
    truth = next(iter(jobs.values()))["truth"]
    mape = {name: np.array([_mape(job["cells"], truth) for job in many]) for name, many in groups.items()}
    lines = ["## Graph network and language model", "", _first_sentence(mape), ""]
    lines += [
        f"Networks of NAS-Bench-201 that no method has seen ({len(truth)} cells, {len(columns)} columns of device and",
        "batch). A mean error leaves out unanswered questions, whose share stands beside it; within 10 % counts them",
        "as missed. Seconds are of training where benchmarks/gnn_llm/fit.py ran. Deviations are over seeds.",
        "",
        "| method | mean error | within 10 % | unanswered | seeds | seconds |",
        "|---|---|---|---|---|---|",
    ]
    constant = np.broadcast_to(middle, truth.shape)
    lines.append(_line("median of each column", [{"cells": constant}], truth))
    lines += [_line(WORDS.get(name, name), groups[name], truth) for name in _order(groups)]
    lines += ["", "Mean error by platform, in percent:", "", f"| method | {' | '.join(columns)} |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for name in _order(groups):
        each = np.mean([_by_column(job["cells"], truth) for job in groups[name]], axis=0)
        lines.append(f"| {WORDS.get(name, name)} | {' | '.join(map(_figure, each))} |")
    return [*lines, *_rows(jobs)]


def _order(groups: dict[str, list[dict[str, np.ndarray]]]) -> Iterator[str]:
    yield from (name for name in WORDS if name in groups)
    yield from sorted(name for name in groups if name not in WORDS)


def _first_sentence(mape: dict[str, np.ndarray]) -> str:
    plain = {name: float(each.mean()) for name, each in mape.items() if name.startswith("gnn")}
    if "main" not in mape or not plain:
        return "The comparison is not complete: the language model or the plain graph networks are missing."
    best, ours = min(plain, key=plain.__getitem__), float(mape["main"].mean())
    if not np.isfinite(ours):
        return "The language model does not help here: it answers no question with a number."
    verb = "helps" if ours < plain[best] else "does not help"
    return (
        f"The language model {verb} here: its mean error is {ours:.1f} %, that of the best plain graph network "
        f"({WORDS[best]}) {plain[best]:.1f} %."
    )


def _line(words: str, many: list[dict[str, np.ndarray]], truth: np.ndarray) -> str:
    errors = [_mape(job["cells"], truth) for job in many]
    near = [np.mean(_off(job["cells"], truth) <= 0.1) for job in many]
    asked = np.isfinite(truth)
    silent = np.mean([np.isnan(job["cells"][asked]).mean() for job in many])
    spread = f" ± {np.std(errors, ddof=1):.1f}" if len(many) > 1 else ""
    seconds = f"{np.mean([job['seconds'] for job in many]):.0f}" if "seconds" in many[0] else ""
    middle = _figure(float(np.mean(errors)))
    return (
        f"| {words} | {middle}{spread} % | {100 * np.mean(near):.0f} % | {100 * silent:.1f} % | "
        f"{len(many)} | {seconds} |"
    )


def _off(predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Relative errors of all questions; infinite where one is unanswered."""
    asked = np.isfinite(truth)
    off = np.abs(predicted[asked] - truth[asked]) / truth[asked]
    return np.where(np.isfinite(off), off, np.inf)


def _mape(predicted: np.ndarray, truth: np.ndarray) -> float:
    return _mean(100 * np.abs(predicted - truth) / truth)


def _by_column(predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return np.array([_mape(predicted[:, place], truth[:, place]) for place in range(truth.shape[1])])


def _mean(values: np.ndarray) -> float:
    """Of the values that there are; NaN where there are none."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _figure(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "no"


def _rows(jobs: dict[str, dict[str, np.ndarray]]) -> list[str]:
    """How the one that ships does on measured models of families that it has not seen."""
    main = jobs.get("main")
    if main is None or not len(main["rows"]):
        return []
    lines = ["", "Measured models of families that gnn-llm has not seen:", "",
             "| quantity | questions | median error | within 10 % | unanswered |", "|---|---|---|---|---|"]  # fmt: skip
    for place, name in enumerate(("latency_ms", "memory_mb", "energy_j")):
        own = main["rows_target"] == place
        if own.any():
            off = _off(main["rows"][own], main["rows_truth"][own])
            middle = f"{100 * np.median(off):.1f} %" if np.isfinite(np.median(off)) else "unanswered"
            near, silent = 100 * np.mean(off <= 0.1), 100 * np.isinf(off).mean()
            lines.append(f"| {name} | {own.sum()} | {middle} | {near:.0f} % | {silent:.1f} % |")
    losses = {stage: f"{each[0]:.2f} to {each[-1]:.2f}" for stage, each in json.loads(str(main["losses"])).items()}
    return [*lines, "", f"Losses of its stages: {', '.join(f'{stage} {text}' for stage, text in losses.items())}."]


def main(data: Path, results: list[Path], write: bool) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    lines = section(collected(results), *medians(data))
    text = "\n".join([BEGIN, *lines, END])
    print(text)
    if write:
        page = PAGE.read_text()
        kept = re.sub(rf"\n*{re.escape(BEGIN)}.*{re.escape(END)}\n?", "", page, flags=re.S)
        PAGE.write_text(f"{kept.rstrip()}\n\n{text}\n")


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:] if argument != "--write"]
    main(given[0], given[1:], "--write" in sys.argv)
