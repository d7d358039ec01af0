"""Left-out predictions of several predictors for the same rows: those that were kept, and fits for the rest."""

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
from forerun.evaluate.kept import KEPT_SPLITS, is_prediction, kept_left_out
from forerun.evaluate.left_out import Progress, left_out, whole_parts
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

    What was kept with the weights that ship is used for the splits of KEPT_SPLITS unless `refit`. `gather` is called
    only where a predictor has to be fitted to more than the columns of the table, or `fresh_rows` are to be taken from
    the store. Of kept predictions, only the rows that `wanted` has are taken (all without it).
    """
    reads_kept = split in KEPT_SPLITS and not refit
    kept = {n: f for n in names if reads_kept and (f := kept_frame(n, split, wanted)) is not None}
    rest = [n for n in names if n not in kept]
    found = dict(kept)
    cases: TrainingCases | None = None
    for name in rest:
        predictor = unfitted(name, parameters or {})
        by_columns = not predictor.reads_graphs and type(predictor).predict_cases is not Predictor.predict_cases
        base = None
        if by_columns and split in KEPT_SPLITS and not fresh_rows:
            base = _table(predictor, [*kept.values()], [name, "default"], wanted)
        if base is not None:
            source = from_rows(base)
        else:
            cases = cases or gather()
            source = cases
        with progress(name) if progress else nullcontext() as shown:
            found[name] = left_out(predictor, source, split, folds=folds, keep=keep, progress=shown)
    if not found:
        raise ForerunError("name at least one predictor")
    largest = max(found.values(), key=lambda frame: frame.shape)
    return {name: _aligned(found[name], largest) for name in names}


def unfitted(name: str, parameters: dict[str, Any]) -> Predictor:
    """An unfitted predictor; of a folder or a registered object, with its parameters. What its constructor does not
    have is left out."""
    kind, folder = predictor_class(name), saved_folder(name)
    known = kind.load(folder) if folder else PREDICTORS.load(name)
    taken = (known if isinstance(known, Predictor) else kind()).parameters()
    return kind(**{**taken, **{key: value for key, value in parameters.items() if key in taken}})


def read_settings(name: str, file: Path) -> dict[str, Any]:
    """Parameters of a predictor's constructor from a JSON file; what it does not take is refused."""
    found = read_json(file)
    if not isinstance(found, dict):
        raise ForerunError(f"{file} holds no settings: it must be an object of names and values")
    taken = predictor_class(name)().parameters()
    for key, value in found.items():
        if key not in taken:
            raise ForerunError(f"the predictor {name} has no parameter {key!r}.{did_you_mean(key, taken)}")
        if not _fits_default(value, taken[key]):
            raise ForerunError(
                f"{file}: {key} of the predictor {name} cannot be {value!r}: it is {taken[key]!r} by default"
            )
    return found


def _fits_default(value: Any, usual: Any) -> bool:
    """Whether a value of a file can stand for a parameter with this default."""
    if usual is None or isinstance(usual, (list, tuple)):
        return isinstance(value, list) or (usual is None and value is None)
    if isinstance(usual, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(value) is type(usual)


def targets_of(words: str) -> tuple[str, ...]:
    """The targets that a list of words means: latency, device, memory, energy or their full names; all for none."""
    chosen: list[str] = []
    for word in filter(None, (part.strip() for part in words.split(","))):
        found = [t for t in TARGETS if word in (t, t.partition("_")[0])]
        if not found:
            raise ForerunError(f"{word!r} is not a quantity that is scored.{did_you_mean(word, TARGETS)}")
        chosen += found
    return tuple(dict.fromkeys(chosen)) or TARGETS


def kept_frame(name: str, split: str, wanted: pd.DataFrame | None = None) -> pd.DataFrame | None:
    """The predictions that were kept of a predictor, by name or folder, or None."""
    folder, needs_fit = saved_folder(name) or SHIPPED / name, predictor_class(name).needs_fit
    if not needs_fit:
        split = "family"  # what is not fitted gives the same answers whatever is left out
    found = _kept(folder, KEPT_SPLITS[split])
    if needs_fit and split in ("family", "model", "name") and (found is None or split != "name"):
        found = _kept(folder, KEPT_SPLITS["family"])
        by = None if found is None else _left_out_by(found)
        # What was kept before families were joined stands for both splits; without blocks, its rows part by name.
        if by != split and (by, split) != ("name", "family"):
            return None
    if found is None:
        return None
    chosen = found if wanted is None else found.merge(wanted[KEYS].drop_duplicates(), on=KEYS)
    return chosen if len(chosen) else None


def _kept(folder: Path, part: str) -> pd.DataFrame | None:
    try:
        return kept_left_out(folder, part)
    except ForerunError:
        return None


def _left_out_by(found: pd.DataFrame) -> str:
    """What was left out of answers kept as those of families: networks where all rows are of one, and where rows tell
    no blocks, families by their names."""
    if whole_parts(found) == "model":
        return "model"
    return "family" if "block" in found else "name"


def _table(
    predictor: Predictor, frames: Sequence[pd.DataFrame], names: Sequence[str], wanted: pd.DataFrame | None
) -> pd.DataFrame | None:
    """The most rows with all columns that a predictor looks at, of these frames or of what was kept under these names:
    whatever was left out, the rows are the same."""
    able = [frame for frame in frames if set(predictor.columns) <= set(frame.columns)]
    for name, split in ((name, split) for name in names for split in KEPT_SPLITS if not able):
        found = kept_frame(name, split, wanted)
        if found is not None and set(predictor.columns) <= set(found.columns):
            return found
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
    mine = first.drop(columns=_predictions(first))
    theirs = frame[KEYS + _predictions(frame)].assign(asked=True)
    out = mine.merge(theirs, on=KEYS, how="left", validate="one_to_one")
    return out.assign(asked=out["asked"].eq(True))


def _predictions(rows: pd.DataFrame) -> list[str]:
    """The columns that a predictor filled."""
    return [c for c in rows.columns if is_prediction(c)]
