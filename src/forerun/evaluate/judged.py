"""A predictor's answers for everything that it is judged by: each split that it names, before it is fitted to all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from forerun.device.kinds import GPU
from forerun.errors import ForerunError
from forerun.evaluate.full import where_run
from forerun.evaluate.kept import KEPT_SPLITS
from forerun.evaluate.left_out import (
    GROUPS,
    Progress,
    few_of_a_kind,
    groups_of,
    left_out,
    whole_parts,
)
from forerun.predictors.base import Predictor
from forerun.predictors.cases import TrainingCases

_TITLES = {
    "random": "leaving rows out", "kind": "leaving kinds of network out", "device": "leaving GPUs out",
    "name": "leaving families out by name",
}  # fmt: skip
_PLURALS = {"family": "families", "model": "networks"}


@dataclass
class Judged:
    """Left-out answers by part of the rows (`kept.file_of`), and those for published rows of left-out GPUs."""

    frames: dict[str, pd.DataFrame] = field(default_factory=dict)
    unseen_devices: pd.DataFrame | None = None
    skipped: list[str] = field(default_factory=list)  # why splits were left aside

    @property
    def models(self) -> pd.DataFrame:
        """Answers for models on GPUs: without their family, or without single rows where only these were left out."""
        return self.frames.get(GPU.part, next(iter(self.frames.values())))

    @property
    def calibration(self) -> pd.DataFrame:
        """The rows whose errors decide the intervals: those of families, and of kinds that hold few rows each."""
        chosen = [frame for part, frame in self.frames.items() if part not in ("kind", "name", "random")]
        if "kind" in self.frames:
            chosen.append(few_of_a_kind(self.frames["kind"]))
        return pd.concat(chosen or [self.models], ignore_index=True)


def judged(
    predictor: Predictor, cases: TrainingCases, *, folds: int | None = None, keep: Path | None = None,
    progress: Callable[[str], AbstractContextManager[Progress | None]],
) -> Judged:  # fmt: skip
    """Fits the predictor without each part of every split in `hold_out.splits`, and asks it about that part."""
    out = Judged()

    def answers(title: str, split: str, part: str = GPU.part) -> pd.DataFrame:
        with progress(f"{predictor.name}: {title}") as shown:
            many = None if split in ("kind", "device") else folds
            return left_out(predictor, cases, split, folds=many, part=part, keep=keep, progress=shown)

    for split in predictor.hold_out.splits:
        if split == "device":
            if cases.published_models:
                out.unseen_devices = answers(_TITLES[split], split)
            continue
        if split == "family":
            for part in predictor.parts_answered(cases):
                # Where all rows are of one family, its networks are left out.
                groups = whole_parts(cases.whole_models[part].rows)
                where = where_run(part)
                out.frames[part] = answers(f"leaving {_PLURALS[groups]} out ({where})", groups, part)
        elif predictor.needs_fit and groups_of(cases.models.rows, split).nunique() < 2:
            out.skipped.append(f"there is only one {GROUPS[split]} among the rows")
        else:
            out.frames[KEPT_SPLITS[split]] = answers(_TITLES[split], split)
    if not out.frames:
        raise ForerunError(f"{out.skipped[0]}: nothing would be left to learn from")
    return out
