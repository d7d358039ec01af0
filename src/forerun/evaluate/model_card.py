"""The model card of fitted weights: what they learned from, how they were judged, where they fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from forerun.evaluate import full, report
from forerun.predictors.base import Predictor


def text(predictor: Predictor, parts: Mapping[str, pd.DataFrame]) -> str:
    """The card, from a fitted predictor and its predictions for left-out families, by part of the rows."""
    left_out = parts["gpu"]
    made = full.study_board({predictor.name: left_out}, "family", predictor.targets)
    origin = predictor.provenance
    sections = [
        f"# The weights of the predictor {predictor.name}",
        f"Fitted {origin.get('fitted', 'on an unknown day')} by `forerun train {predictor.name}` to rows measured "
        f"until {origin.get('measured_until', 'an unknown day')}, with forerun {origin.get('forerun', '(unknown)')} "
        f"(commit {origin.get('commit') or 'unknown'}). Apache-2.0, like the rows of ours; docs/DATASET.md has the "
        "licence of each published set.",
        "## Training data\n\n" + report.markdown(_sets(origin)),
        "## How it was judged\n\n" + full.NOTES + "\n\n" + report.markdown(made.lines.drop(columns=["split", "rmse"])),
        *(
            f"## {title}, left-out families\n\n" + report.markdown(full.cpu_lines(parts[part], predictor.name))
            for part, title in full.ON_CPUS.items()
            if part in parts
        ),
        "## Where it fails\n\nFamilies with the largest error when left out:\n\n"
        + report.markdown(report.families(left_out).head(12)),
        "- One GPU shows how whole models run under our protocol; of other GPUs there are published times of image\n"
        "  classifiers, and operators.\n"
        "- Host time comes from one host: probe yours (`forerun measure host`, then `--host this`).\n"
        "- CPUs come from two machines of two cores, one under PyTorch and one under onnxruntime.\n"
        "- TPUs and other accelerators get no learned efficiency: roofline, and a wide interval.",
    ]
    return "\n\n".join(sections) + "\n"


def _sets(origin: dict[str, Any]) -> pd.DataFrame:
    hashes = origin.get("sets", {})
    return pd.DataFrame([
        {"part": part, "data set": name, "rows": f"{n:,}", "hash of the set": hashes.get(name, "")[:12]}
        for part, sets in origin.get("rows", {}).items()
        for name, n in sets.items()
    ])  # fmt: skip
