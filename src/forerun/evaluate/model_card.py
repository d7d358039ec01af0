"""The model card of fitted weights: training data, evaluation, limitations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from forerun.device.kinds import GPU
from forerun.evaluate import full, report
from forerun.evaluate.held_out import whole_parts
from forerun.evaluate.stored import STORED_SPLITS
from forerun.predictors.base import Predictor

_UNJUDGED = (
    "## How it was evaluated\n\nNot by rows of ours: it learned from simulated rows alone, which are no measurements. "
    "Its intervals hold its distance to the predictor that made them, and the error of a device that nobody measured."
)


def text(predictor: Predictor, parts: Mapping[str, pd.DataFrame], simulated: str = "") -> str:
    """The card, from a fitted predictor and its held-out predictions, by part of the rows (`stored.file_of`), with what
    is to be said of simulated rows (`simulated`)."""
    head = [*_head(predictor), *([f"## Simulated rows\n\n{simulated}"] if simulated else [])]
    return "\n\n".join([*head, *(_judged(predictor, parts) if parts else [_UNJUDGED])]) + "\n"


def _head(predictor: Predictor) -> list[str]:
    origin = predictor.provenance
    return [
        f"# The weights of the predictor {predictor.name}",
        f"Fitted {origin.get('fitted', 'on an unknown day')} by `forerun train {predictor.name}` to rows measured "
        f"until {origin.get('measured_until', 'an unknown day')}, with forerun {origin.get('forerun', '(unknown)')} "
        f"(commit {origin.get('commit') or 'unknown'}). Apache-2.0, like the rows of ours; docs/DATASET.md has the "
        "licence of each published set.",
        "## Training data\n\n" + report.markdown(_sets(origin)),
    ]


def _judged(predictor: Predictor, parts: Mapping[str, pd.DataFrame]) -> list[str]:
    boards = {
        split: full.study_board({predictor.name: parts[part]}, split, predictor.targets).lines
        for split, part in STORED_SPLITS.items()
        if part in parts and (part != GPU.part or split == whole_parts(parts[part]))
    }
    first = next(iter(boards))
    held_out = parts[STORED_SPLITS[first]]
    return [
        "## How it was evaluated\n\n" + full.notes(held_out) + "\n\n" + _table(boards[first]),
        *(
            [
                "## Single rows held out\n\nOptimistic, since near relatives stay in training.\n\n"
                + _table(boards["random"])
            ]
            if "random" in boards and first != "random"
            else []
        ),
        *(
            f"## {full.where_run(part)}, held-out families\n\n" + report.markdown(full.cpu_lines(frame, predictor.name))
            for part, frame in parts.items()
            if part not in STORED_SPLITS.values()
        ),
        "## Where it fails\n\nFamilies with the largest error when held out:\n\n"
        + report.markdown(report.families(held_out, predictor).head(12)),
        "- One GPU shows how whole models run under our protocol; of other GPUs there are published times of image\n"
        "  classifiers, and operators.\n"
        "- Host time comes from one host: probe yours (`forerun measure host`, then `--host this`).\n"
        "- CPUs come from two machines of two cores, one under PyTorch and one under onnxruntime.\n"
        "- TPUs and other accelerators get no learned efficiency: roofline, and a wide interval.",
    ]


def _table(lines: pd.DataFrame) -> str:
    return report.markdown(lines.drop(columns=["split", "rmse"]))


def _sets(origin: dict[str, Any]) -> pd.DataFrame:
    hashes = origin.get("sets", {})
    return pd.DataFrame([
        {"part": part, "data set": name, "rows": f"{n:,}", "hash of the set": hashes.get(name, "")[:12]}
        for part, sets in origin.get("rows", {}).items()
        for name, n in sets.items()
    ])  # fmt: skip
