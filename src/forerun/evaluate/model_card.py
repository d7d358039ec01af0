"""The model card of the default predictor's weights: what they learned from, how they were judged, where they fail."""

from __future__ import annotations

import pandas as pd

from forerun.evaluate import full, report
from forerun.predictors.weights import Weights


def text(weights: Weights, told: pd.DataFrame, told_cpu: pd.DataFrame | None = None) -> str:
    """The card, from the weights and the predictions for left-out families."""
    made = full.scoreboard(told)
    shown = made.lines[made.lines["predictor"].isin(("one ratio", "default", "default, host probed"))]
    shown = shown.drop(columns=["split", "rmse"])
    rows = weights.provenance["rows"]
    data = pd.DataFrame(
        [{"what": what, "data set": name, "rows": f"{n:,}"} for what, sets in rows.items() for name, n in sets.items()]
    )
    worst = report.families(told).head(12)
    size = sum(a.size for e in weights.networks.values() for net in e.networks for a in net.arrays.values())
    parts = [
        "# The default predictor's weights",
        f"Fitted {weights.provenance['fitted']} by `forerun train default` to rows measured until "
        f"{weights.provenance['measured_until']}. {size:,} numbers: for GPUs and for CPUs an ensemble of small "
        "networks over ops (two layers of 64), launch costs of the host by kind of op, nine energy factors, and the "
        "quantiles of left-out errors that the intervals stand on. Apache-2.0, like the rows of ours; the published "
        "sets are MIT or Apache-2.0 (docs/DATASET.md).",
        "## Training data\n\n" + report.markdown(data),
        "## How it was judged\n\n" + full.NOTES + "\n\n" + report.markdown(shown),
        *([] if told_cpu is None else ["## CPU, left-out families\n\n" + report.markdown(full.cpu_lines(told_cpu))]),
        "## Where it fails\n\nFamilies with the largest error of device time when left out:\n\n"
        + report.markdown(worst),
        "- One GPU teaches how whole models run; other GPUs are known by their operators only.\n"
        "- Host time stands on one host: probe yours (`forerun measure host`, then `--host this`).\n"
        "- CPUs stand on one machine of two cores.\n"
        "- TPUs and other accelerators get no learned efficiency: roofline, and a wide interval.",
    ]
    return "\n\n".join(parts) + "\n"
