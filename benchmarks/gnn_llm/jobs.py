"""What is compared: the predictor itself, what it is without each of its parts, and the published baselines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from corpus import Data

from forerun.predictors.published.gnn.batches import Examples
from forerun.predictors.published.gnn.networks import GraphRegressor
from forerun.predictors.published.gnn.training import Schedule, answers, train
from forerun.predictors.published.gnn_llm.nodes import FEATURES

#: Steps of each stage for what ships, and for what is only compared.
FULL = {"mae_steps": 4000, "text_steps": 3000, "performance_steps": 8000, "batch_size": 128}
SHORT = {"mae_steps": 2000, "text_steps": 800, "performance_steps": 2500, "batch_size": 128}
RANKS = (8, 32, 64, 128)


@dataclass(frozen=True)
class LlmJob:
    """A graph network with a language model."""

    stages: tuple[str, ...] = ("mae", "text", "performance")
    settings: dict[str, Any] = field(default_factory=lambda: dict(SHORT))
    words: str = ""  # what stands in the place of the graph: text or json
    forget: bool = False  # whether the language model begins with random weights
    ships: bool = False


@dataclass(frozen=True)
class GnnJob:
    """A graph network with an output for each platform (NNLQP), or one beside a description of the hardware."""

    work: bool = False  # FLOPs, MACs and parameters of every node are features, too
    sentence: int | None = None  # which embedding of the hardware's description joins the readout
    seed: int = 0
    epochs: int = 60


def jobs() -> dict[str, LlmJob | GnnJob]:
    """Every job by name, what matters most first."""
    found: dict[str, LlmJob | GnnJob] = {"main": LlmJob(settings=dict(FULL), ships=True)}
    for seed in range(3):
        found[f"gnn-{seed}"] = GnnJob(seed=seed)
        found[f"gnn-work-{seed}"] = GnnJob(work=True, seed=seed)
        for variant in range(3):
            found[f"gnn-sentence{variant}-{seed}"] = GnnJob(sentence=variant, seed=seed, epochs=10)
    found["all-stages"] = LlmJob()
    found["small-lm"] = LlmJob(settings={**SHORT, "lm": "small"})
    found["no-mae"] = LlmJob(("text", "performance"))
    found["no-text"] = LlmJob(("mae", "performance"))
    found["performance-only"] = LlmJob(("performance",))
    found["random-lm"] = LlmJob(settings={**SHORT, "rank": 0}, forget=True)
    found["random-lm-no-mae"] = LlmJob(("text", "performance"), {**SHORT, "rank": 0}, forget=True)
    found["text-only"] = LlmJob(("performance",), words="text")
    found["json-only"] = LlmJob(("performance",), {**SHORT, "batch_size": 64}, words="json")
    found["one-projection"] = LlmJob(settings={**SHORT, "soft_tokens": 1})
    for rank in RANKS:
        found[f"rank-{rank}"] = LlmJob(settings={**SHORT, "rank": rank})
    for rate in (0.25, 0.75):
        found[f"mask-{rate}"] = LlmJob(settings={**SHORT, "mask_rate": rate})
    return found


def run_gnn(job: GnnJob, data: Data, epochs: int | None = None) -> tuple[np.ndarray, list[float]]:
    """Predictions for the tests, [cells, columns], and the loss of every epoch."""
    torch.manual_seed(job.seed)
    mean, scale = data.scale
    seen, tested = (_of_cells(job, data, cells) for cells in (data.train_cells, data.test_cells))
    given = 0 if job.sentence is None else data.sentences.shape[2]
    outputs = len(data.columns) if job.sentence is None else 1
    features = FEATURES + (3 if job.work else 0)
    network = GraphRegressor(
        "sage", features, 4, outputs, width=256, layers=3, dense=3, dropout=0.05, pooled="sum", given=given
    )
    found = train(network, seen[0], Schedule(epochs or job.epochs, 1e-3, 64, seed=job.seed))
    values = answers(network, tested[0])
    out = np.full((len(data.test_cells), len(data.columns)), np.nan)
    for line, (cell, columns) in enumerate(tested[1]):
        out[cell, columns] = values[line, columns] if job.sentence is None else values[line, 0]
    return np.exp(out * scale + mean), found


def _of_cells(job: GnnJob, data: Data, cells: Sequence[int]) -> tuple[Examples, list[tuple[int, Any]]]:
    """Examples, and which cell and columns each is about: of all columns of a batch, or of one column."""
    lines: list[tuple[int, Any]] = []
    for at in range(len(cells)):
        for batch in data.batches:
            own = np.flatnonzero(data.column_batches == batch)
            lines += [(at, own)] if job.sentence is None else [(at, column) for column in own.tolist()]
    logs = data.standardised(cells)
    graphs, features, statics, targets, given = [], [], [], [], []
    for at, columns in lines:
        batch = int(data.column_batches[np.atleast_1d(columns)[0]])
        graph, described = data.cell(int(cells[at]), batch)
        graphs.append(graph)
        more = [data.work(int(cells[at]), batch)] if job.work else []
        features.append(np.hstack([graph.features, *more]).astype(np.float32))
        whole = described.whole
        statics.append(np.log1p([whole["batch"], whole["FLOPs"], whole["MACs"], whole["parameters"]]))
        if job.sentence is None:
            target = np.full(len(data.columns), np.nan)
            target[columns] = logs[at, columns]
            targets.append(target)
        else:
            targets.append(logs[at, [columns]])
            given.append(data.sentences[job.sentence, columns])
    examples = Examples.of(graphs, features, np.array(statics, dtype=np.float32), both_ways=True)  # type: ignore[arg-type]
    examples = examples.with_targets(np.array(targets))
    return (examples.with_given(torch.from_numpy(np.array(given))) if given else examples), lines


Progress = Callable[[str, int, float], None]
