"""Held-out kinds of network: figures of the newer kinds together, and of every kind by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from forerun.data.splits import kinds_of_network
from forerun.evaluate import full
from forerun.evaluate.metrics import DETAILS, figures
from forerun.evaluate.results import Section
from forerun.evaluate.scoreboard import board, first_of_cases, regimes, with_intervals
from forerun.evaluate.test_set import in_test_set
from forerun.predictors.registry import predictor_class

#: The kinds that most measurements are of, here and elsewhere; all others are the new kinds.
WELL_KNOWN = ("image classifier", "encoder", "language model", "small CNN")


def tables(frames: Mapping[str, pd.DataFrame], targets: Sequence[str]) -> list[Section]:
    """The further tables of the split by kind: all new kinds together, and device time kind by kind."""
    first = next(iter(frames.values()))
    kinds = kinds_of_network(first)
    other = (~kinds.isin(WELL_KNOWN) & ~in_test_set(first)).to_numpy()
    if not other.any():
        return []
    among = ", ".join(f"{name}s" for name in WELL_KNOWN)
    together = full.summary(board(frames, split="kind", targets=targets, only=other))
    out = [Section("kinds", f"Kinds other than {among}: {kinds[other].nunique()} kinds", together)]
    for name, frame in frames.items():
        if "predicted_device_ms" in frame:
            title = f"Device time by kind, each held out as a whole: {name}"
            out.append(Section(f"by_kind_{name}", title, by_kind(frame, name, kinds)))
    return out


def by_kind(frame: pd.DataFrame, name: str, kinds: pd.Series) -> pd.DataFrame:
    """Device time of eager calls by kind, the worst first."""
    measured, predicted = (frame[c].to_numpy(dtype=float) for c in ("device_ms", "predicted_device_ms"))
    judged = predictor_class(name)()
    ends = with_intervals(frame, "device_ms", judged, split="kind") if judged.calibrates else None
    scored = regimes(frame)["all"] & first_of_cases(frame, measured) & ~in_test_set(frame).to_numpy()
    scored &= frame["asked"].to_numpy(dtype=bool) if "asked" in frame else True
    lines = []
    for kind in sorted(kinds[scored].unique()):
        selected = scored & (kinds == kind).to_numpy()
        edges = [end[selected] for end in ends] if ends is not None else []
        lines.append({"kind": kind, **figures(predicted[selected], measured[selected], *edges)})
    if not lines:
        return pd.DataFrame(columns=["kind", "n", "mape"])
    table = pd.DataFrame(lines).drop(columns=[*DETAILS, "coverage"], errors="ignore")
    return table.sort_values("mape", ascending=False, na_position="last", ignore_index=True)
