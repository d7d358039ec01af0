"""Held-out predictions of a predictor under every split that it names, made before it is fitted to all rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from forerun.device.kinds import GPU
from forerun.errors import ForerunError
from forerun.evaluate.full import where_run
from forerun.evaluate.held_out import (
    GROUPS,
    Progress,
    few_of_a_kind,
    groups_of,
    held_out,
    whole_parts,
)
from forerun.evaluate.stored import STORED_SPLITS
from forerun.predictors.base import Predictor
from forerun.predictors.cases import TrainingCases

_TITLES = {
    "random": "holding out rows", "kind": "holding out kinds of network", "device": "holding out GPUs",
    "name": "holding out families by name",
}  # fmt: skip
_PLURALS = {"family": "families", "model": "networks"}


@dataclass
class Judged:
    """Held-out predictions by part of the rows (`stored.file_of`), and those for published rows of held-out GPUs."""

    frames: dict[str, pd.DataFrame] = field(default_factory=dict)
    unseen_devices: pd.DataFrame | None = None
    #: What it says of simulated rows that it did not see, where it learned from no others: how far it is from the
    #: predictor that made them, which decides its intervals and is no accuracy.
    imitated: pd.DataFrame | None = None
    skipped: list[str] = field(default_factory=list)  # why splits were skipped

    @property
    def models(self) -> pd.DataFrame:
        """Predictions for models on GPUs: their family held out, or single rows where only these were held out."""
        return self.frames.get(GPU.part, next(iter(self.frames.values())))

    @property
    def calibration(self) -> pd.DataFrame:
        """The rows whose errors decide the intervals: those of families, and of kinds that hold few rows each."""
        if self.imitated is not None:
            return self.imitated
        chosen = [frame for part, frame in self.frames.items() if part not in ("kind", "name", "random")]
        if "kind" in self.frames:
            chosen.append(few_of_a_kind(self.frames["kind"]))
        return pd.concat(chosen or [self.models], ignore_index=True)


def judged(
    predictor: Predictor, cases: TrainingCases, *, folds: int | None = None, keep: Path | None = None,
    progress: Callable[[str], AbstractContextManager[Progress | None]],
) -> Judged:  # fmt: skip
    """Fits the predictor without each part of every split in `hold_out.splits`, and predicts that part."""
    out = Judged()

    def predicted(title: str, split: str, part: str = GPU.part) -> pd.DataFrame:
        with progress(f"{predictor.name}: {title}") as shown:
            part_folds = None if split in ("kind", "device") else folds
            return held_out(predictor, cases, split, folds=part_folds, part=part, keep=keep, progress=shown)

    if cases.simulated_models and not predictor.sees_devices:
        made = cases.simulated_models
        rows = made.rows.drop(columns="simulated")
        alone = TrainingCases(replace(made, rows=rows), made.take(np.zeros(len(made), dtype=bool)))
        with progress(f"{predictor.name}: holding out simulated rows") as shown:
            split = whole_parts(rows)
            return Judged(imitated=held_out(predictor, alone, split, folds=folds, keep=keep, progress=shown))
    for split in predictor.hold_out.splits:
        if split == "device":
            if cases.published_models:
                out.unseen_devices = predicted(_TITLES[split], split)
            continue
        if split == "family":
            for part in predictor.parts_answered(cases):
                # Where all rows are of one family, its networks are held out.
                groups = whole_parts(cases.whole_models[part].rows)
                where = where_run(part)
                out.frames[part] = predicted(f"holding out {_PLURALS[groups]} ({where})", groups, part)
        elif predictor.needs_fit and groups_of(cases.models.rows, split).nunique() < 2:
            out.skipped.append(f"there is only one {GROUPS[split]} among the rows")
        else:
            out.frames[STORED_SPLITS[split]] = predicted(_TITLES[split], split)
    if not out.frames:
        raise ForerunError(f"{out.skipped[0]}: nothing would be left to learn from")
    return out
