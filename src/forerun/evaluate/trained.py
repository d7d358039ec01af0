"""What `forerun train` leaves in a folder: the predictor, its left-out answers, figures, costs, and a card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from forerun.data.store import Store
from forerun.device.kinds import CPU, GPU
from forerun.evaluate import full, model_card
from forerun.evaluate.costs import keep_costs
from forerun.evaluate.gains import keep_gains
from forerun.evaluate.judged import Judged
from forerun.evaluate.kept import keep_device_lines, keep_figures, keep_left_out
from forerun.evaluate.same_rows import device_lines
from forerun.evaluate.stamp import write_stamp
from forerun.predictors.base import Predictor
from forerun.predictors.cases import TrainingCases


def keep_trained(
    folder: Path, predictor: Predictor, cases: TrainingCases, judged: Judged, costs: dict[str, Any], store: Store
) -> None:
    """Writes all of it; published rows are not ours to pass on, so of these only figures are kept."""
    predictor.save(folder)
    only = None if predictor.hold_out.keeps_all_columns else predictor.columns
    for part, frame in judged.frames.items():
        keep_left_out(folder, frame, part, only)
    by_family: dict[str, pd.DataFrame] = {
        part: judged.frames[part] for part in (GPU.part, CPU.part) if part in judged.frames
    }
    if by_family:
        keep_gains(folder, by_family, store.read("models"))
    if judged.unseen_devices is not None:
        keep_figures(folder, full.exam_gpu_figures(judged.unseen_devices))
        keep_device_lines(folder, device_lines(predictor, judged.unseen_devices, cases))
    keep_costs(folder, costs)
    write_stamp(str(folder))
    (folder / "MODEL_CARD.md").write_text(model_card.text(predictor, judged.frames))
