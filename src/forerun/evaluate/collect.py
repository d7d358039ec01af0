"""Held-out predictions of several predictors for the same rows: stored ones are read, the rest are fitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forerun._util.documents import read_json
from forerun.device.kinds import CPU, part_of
from forerun.errors import ForerunError, did_you_mean
from forerun.evaluate.held_out import Progress, held_out, whole_parts
from forerun.evaluate.stored import STORED_SPLITS, is_prediction, stored_predictions
from forerun.predictors.base import TARGETS, Predictor, kinds_of_rows
from forerun.predictors.cases import Cases, TrainingCases
from forerun.predictors.laws.features import NUMBERS, OpTable
from forerun.predictors.registry import PREDICTORS, predictor_class, saved_folder
from forerun.predictors.saved import SHIPPED

KEYS = ["case_key", "repeat", "device"]


def collect(
    names: Sequence[str], split: str, gather: Callable[[], TrainingCases], *, refit: bool = False,
    fresh_rows: bool = False, folds: int | None = None, parameters: dict[str, Any] | None = None,
    keep: Path | None = None, progress: Callable[[str], AbstractContextManager[Progress | None]] | None = None,
    wanted: pd.DataFrame | None = None,
) -> dict[str, pd.DataFrame]:  # fmt: skip
    """By predictor, the rows with its predictions; all frames hold the same rows in the same order.

    Predictions stored with the shipped weights are used for the splits of STORED_SPLITS unless `refit`. `gather` is
    called only where a predictor has to be fitted to more than the columns of the table, or `fresh_rows` are to be
    taken from the store. Of stored predictions, only the rows that `wanted` has are taken (all without it).
    """
    reads_stored = split in STORED_SPLITS and not refit
    stored = {n: f for n in names if reads_stored and (f := stored_frame(n, split, wanted)) is not None}
    rest = [n for n in names if n not in stored]
    frames = dict(stored)
    cases: TrainingCases | None = None
    for name in rest:
        predictor = unfitted(name, parameters or {})
        by_columns = not predictor.reads_graphs and type(predictor).predict_cases is not Predictor.predict_cases
        base = None
        if by_columns and split in STORED_SPLITS and not fresh_rows:
            base = _table(predictor, [*stored.values()], [name, "default"], wanted)
        if base is not None:
            source = from_rows(base)
        else:
            cases = cases or gather()
            source = cases
        with progress(name) if progress else nullcontext() as shown:
            frames[name] = held_out(predictor, source, split, folds=folds, keep=keep, progress=shown)
    if not frames:
        raise ForerunError("name at least one predictor")
    largest = max(frames.values(), key=lambda frame: frame.shape)
    return {name: _aligned(frames[name], largest) for name in names}


def unfitted(name: str, parameters: dict[str, Any]) -> Predictor:
    """An unfitted predictor with these parameters; all others are those of the folder or registered object that the
    name stands for. Parameters that its constructor does not have are ignored."""
    kind, folder = predictor_class(name), saved_folder(name)
    known = kind.load(folder) if folder else PREDICTORS.load(name)
    if folder and isinstance(known, Predictor) and known.learns_simulated and known.measured_devices() == frozenset():
        raise ForerunError(
            f"{name} learned from simulated rows alone, which are no measurements: nothing here judges it; its "
            "model card has its errors on published rows"
        )
    taken = (known if isinstance(known, Predictor) else kind()).parameters()
    return kind(**{**taken, **{key: value for key, value in parameters.items() if key in taken}})


def read_settings(name: str, file: Path) -> dict[str, Any]:
    """Parameters of a predictor's constructor from a JSON file; what it does not take is refused."""
    settings = read_json(file)
    if not isinstance(settings, dict):
        raise ForerunError(f"{file} holds no settings: it must be an object of names and values")
    taken = predictor_class(name)().parameters()
    for key, value in settings.items():
        if key not in taken:
            raise ForerunError(f"the predictor {name} has no parameter {key!r}.{did_you_mean(key, taken)}")
        if not _fits_default(value, taken[key]):
            raise ForerunError(
                f"{file}: {key} of the predictor {name} cannot be {value!r}: it is {taken[key]!r} by default"
            )
    return settings


def _fits_default(value: Any, default: Any) -> bool:
    """Whether a value of a file is of the type of a parameter with this default."""
    if default is None or isinstance(default, (list, tuple)):
        return isinstance(value, list) or (default is None and value is None)
    if isinstance(default, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(value) is type(default)


def targets_of(words: str) -> tuple[str, ...]:
    """The targets that a list of words means: latency, device, memory, energy or their full names; all for none."""
    chosen: list[str] = []
    for word in filter(None, (part.strip() for part in words.split(","))):
        targets = [t for t in TARGETS if word in (t, t.partition("_")[0])]
        if not targets:
            raise ForerunError(f"{word!r} is not a quantity that is scored.{did_you_mean(word, TARGETS)}")
        chosen += targets
    return tuple(dict.fromkeys(chosen)) or TARGETS


def stored_frame(name: str, split: str, wanted: pd.DataFrame | None = None) -> pd.DataFrame | None:
    """The stored held-out predictions of a predictor, by name or folder, or None."""
    folder, needs_fit = saved_folder(name) or SHIPPED / name, predictor_class(name).needs_fit
    if not needs_fit:
        split = "family"  # a predictor that is not fitted predicts the same under every split
    frame = _stored(folder, STORED_SPLITS[split])
    if needs_fit and split in ("family", "model", "name") and (frame is None or split != "name"):
        frame = _stored(folder, STORED_SPLITS["family"])
        by = None if frame is None else _split_of(frame)
        # Predictions from before relatives were held out together serve both splits: without blocks, by name.
        if by != split and (by, split) != ("name", "family"):
            return None
    if frame is None:
        return None
    chosen = frame if wanted is None else frame.merge(wanted[KEYS].drop_duplicates(), on=KEYS)
    return chosen if len(chosen) else None


def _stored(folder: Path, part: str) -> pd.DataFrame | None:
    try:
        return stored_predictions(folder, part)
    except ForerunError:
        return None


def _split_of(frame: pd.DataFrame) -> str:
    """The split behind predictions that were stored as those of families: networks where all rows are of one family,
    and families by their names where rows have no column `block`."""
    if whole_parts(frame) == "model":
        return "model"
    return "family" if "block" in frame else "name"


def _table(
    predictor: Predictor, frames: Sequence[pd.DataFrame], names: Sequence[str], wanted: pd.DataFrame | None
) -> pd.DataFrame | None:
    """The most rows with all columns that a predictor reads, of these frames or of those stored under these names: the
    rows are the same under every split."""
    able = [frame for frame in frames if set(predictor.columns) <= set(frame.columns)]
    for name, split in ((name, split) for name in names for split in STORED_SPLITS if not able):
        frame = stored_frame(name, split, wanted)
        if frame is not None and set(predictor.columns) <= set(frame.columns):
            return frame
    return max(able, key=lambda frame: frame.shape, default=None)


def from_rows(rows: pd.DataFrame) -> TrainingCases:
    """Cases without operators, for predictors that read the columns of the table only; without predictions."""
    rows = rows.drop(columns=_predictions(rows))
    none = np.zeros(0)
    numbers = np.zeros((0, len(NUMBERS)))
    ops = OpTable(none, none, none, numbers, none, none, none, none)
    empty = np.zeros((len(rows), 0))
    every = Cases(rows.reset_index(drop=True), ops, np.zeros(0, dtype=int), none, empty, empty)
    on_cpu = np.array([part_of(kind) == CPU.part for kind in kinds_of_rows(rows)], dtype=bool)
    operators = every.take(np.zeros(len(rows), dtype=bool))
    return TrainingCases(every.take(~on_cpu), operators, cpu_models=every.take(on_cpu) if on_cpu.any() else None)


def _aligned(frame: pd.DataFrame, first: pd.DataFrame) -> pd.DataFrame:
    """The first frame's rows with another frame's predictions; `asked` is False where that has no such row."""
    if frame is first:
        return frame.assign(asked=True)
    rows = first.drop(columns=_predictions(first))
    predictions = frame[KEYS + _predictions(frame)].assign(asked=True)
    out = rows.merge(predictions, on=KEYS, how="left", validate="one_to_one")
    return out.assign(asked=out["asked"].eq(True))


def _predictions(rows: pd.DataFrame) -> list[str]:
    """The columns that a predictor filled."""
    return [c for c in rows.columns if is_prediction(c)]
