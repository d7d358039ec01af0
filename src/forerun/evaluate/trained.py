"""The files that `forerun train` writes: the predictor, its held-out predictions, figures, costs, and a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from forerun.data.store import Store
from forerun.device.kinds import CPU, GPU
from forerun.evaluate import full, model_card
from forerun.evaluate.costs import store_costs
from forerun.evaluate.gains import keep_gains
from forerun.evaluate.judged import Judged
from forerun.evaluate.same_rows import device_lines
from forerun.evaluate.stamp import write_stamp
from forerun.evaluate.stored import store_device_lines, store_figures, store_predictions
from forerun.predictors.base import Predictor
from forerun.predictors.cases import TrainingCases


def save_trained(
    folder: Path, predictor: Predictor, cases: TrainingCases, judged: Judged, costs: dict[str, Any], store: Store,
    simulated: str = "",
) -> None:  # fmt: skip
    """Writes all of it; of published rows, whose licences may forbid passing them on, only figures are stored.
    `simulated` says in the card what is known of devices whose rows were simulated."""
    predictor.save(folder)
    only = None if predictor.hold_out.keeps_all_columns else predictor.columns
    for part, frame in judged.frames.items():
        store_predictions(folder, frame, part, only)
    by_family: dict[str, pd.DataFrame] = {
        part: judged.frames[part] for part in (GPU.part, CPU.part) if part in judged.frames
    }
    if by_family:
        keep_gains(folder, by_family, store.read("models"))
    if judged.unseen_devices is not None:
        store_figures(folder, full.figures_of_test_gpu(judged.unseen_devices))
        store_device_lines(folder, device_lines(predictor, judged.unseen_devices, cases))
    store_costs(folder, costs)
    write_stamp(str(folder))
    (folder / "MODEL_CARD.md").write_text(model_card.text(predictor, judged.frames, simulated))
