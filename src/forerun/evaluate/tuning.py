"""Hyperparameter search: the parameters with which a predictor has the least error on held-out families.

Trials are stored in a file as they end (Optuna's journal), one study for the same predictor, rows, targets and folds: a
search that was stopped can be resumed. The test set is excluded: nothing is tuned on it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun._util.extras import needed
from forerun.errors import ForerunError
from forerun.evaluate.held_out import Progress, held_out, whole_parts
from forerun.evaluate.test_set import in_test_set
from forerun.predictors.base import Predictor, log_ratio
from forerun.predictors.cases import TrainingCases

if TYPE_CHECKING:
    from optuna import Study, Trial

#: Number of folds that families are held out in; small, since every trial fits as often.
FOLDS = 4


@dataclass(frozen=True)
class Tuned:
    """The best trial of a search, and how many there were."""

    predictor: str
    settings: dict[str, Any]  # parameters of the constructor
    error: float  # mean over targets of the median |log(predicted / measured)| of held-out predictions
    usual_error: float | None  # the same with the default parameters; None where these were not tried
    split: str  # what was held out: family, or model where all rows are of one family
    before: int  # trials that an earlier run had ended
    trials: int  # trials that ended, those before among them
    failed: int  # trials that failed
    stopped: bool  # by the user

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def tune(
    kind: type[Predictor], cases: TrainingCases, folder: Path, *, trials: int = 50, targets: Sequence[str] = (),
    folds: int = FOLDS, seconds: float | None = None, grid: bool = False, progress: Progress | None = None,
) -> Tuned:  # fmt: skip
    """Tries parameters until `trials` have ended in all runs together, or for `seconds`; `grid` tries the predictor's
    grid in random order instead of what earlier trials suggest. The first trial has the default parameters."""
    check(kind, grid)
    cases = without_test_set(cases)
    split = whole_parts(cases.models.rows)
    chosen = [t for t in kind.targets if not targets or t in targets]
    if not chosen:
        raise ForerunError(f"the predictor {kind.name} predicts {', '.join(kind.targets)}, none of the targets given")
    study = _study(kind, cases, folder, (split, folds, grid, *chosen))
    before = len(_ended(study))
    began, stopped = time.monotonic(), False
    combinations = _combinations(kind) if grid else []
    trials = min(trials, len(combinations)) if grid else trials
    while (done := len(_ended(study))) < trials and not (seconds and time.monotonic() - began > seconds):
        if progress:
            progress(done, trials)
        if grid:
            study.enqueue_trial(combinations[done])
        trial = study.ask()
        settings = _settings(kind, trial, grid, first=done == 0)
        trial.set_user_attr("settings", settings)
        try:
            study.tell(trial, error(kind(**settings), cases, chosen, split, folds))
        except KeyboardInterrupt:
            trial.set_user_attr("stopped", True)
            _fail(study, trial)
            stopped = True
            break
        except ForerunError as reason:  # a fit that diverged: worth knowing, and no reason to stop
            trial.set_user_attr("reason", str(reason))
            _fail(study, trial)
    if progress:
        progress(len(_ended(study)), trials)
    return _best(kind, study, split, before, stopped)


def check(kind: type[Predictor], grid: bool = False) -> None:
    """Refuses a predictor that has nothing to tune, and a missing package."""
    if (grid and not kind.grid()) or not kind.search_space(_optuna().create_study().ask()):
        raise ForerunError(f"the predictor {kind.name} has {'no grid' if grid else 'nothing'} to tune")


def without_test_set(cases: TrainingCases) -> TrainingCases:
    """The cases on which something may be chosen."""
    parts = {name: getattr(cases, name) for name in ("models", "cpu_models", "published_models")}
    remaining = {name: part and part.take(~in_test_set(part.rows).to_numpy()) for name, part in parts.items()}
    if not remaining["models"]:
        raise ForerunError("there are no rows of models on GPUs to tune on, the test set's families aside")
    return replace(cases, **remaining)


def error(predictor: Predictor, cases: TrainingCases, targets: Sequence[str], split: str, folds: int) -> float:
    """The mean over targets of the median |log(predicted / measured)| of held-out predictions."""
    predictions = held_out(predictor, cases, split, folds=folds)
    scored = [target for target in targets if _any(predictions, target)]
    medians = [float(np.nanmedian(np.abs(log_ratio(predictions, target)))) for target in scored]
    if not medians:
        raise ForerunError(f"the predictor {predictor.name} predicts none of the rows")
    return float(np.mean(medians))


def _any(predictions: Any, target: str) -> bool:
    return bool(np.isfinite(log_ratio(predictions, target)).any())


def _settings(kind: type[Predictor], trial: Trial, grid: bool, first: bool) -> dict[str, Any]:
    if grid:
        return {name: trial.suggest_categorical(name, list(values)) for name, values in kind.grid().items()}
    suggested = kind.search_space(trial)
    if not first:
        return suggested
    return {name: value for name, value in kind().parameters().items() if name in suggested}


def _combinations(kind: type[Predictor]) -> list[dict[str, Any]]:
    """Every combination of the grid, in an order that is random and always the same."""
    names, values = zip(*kind.grid().items(), strict=True)
    combinations = [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*values)]
    random.Random(0).shuffle(combinations)
    return combinations


def _study(kind: type[Predictor], cases: TrainingCases, folder: Path, question: tuple[Any, ...]) -> Study:
    """The study of the same question, new or as it was left."""
    optuna = _optuna()
    from optuna.storages.journal import JournalFileBackend

    rows = hashlib.sha256(json.dumps(question).encode())
    for name, part in cases.parts.items():
        known = [c for c in ("case_key", "repeat", "device", *kind.targets) if c in part.rows]
        rows.update(f"{name}\n{part.rows[known].to_csv(index=False)}".encode())
    name = f"{kind.name}-{rows.hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(folder / f"{name}.journal")))
    study = optuna.create_study(storage=storage, study_name=name, load_if_exists=True)
    # Another seed after every trial, so that a resumed search does not repeat its draws.
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials), multivariate=True, group=True)
    return study


def _ended(study: Study) -> list[Any]:
    """Trials that have a value, or failed by themselves."""
    return [t for t in study.trials if t.state.is_finished() and not t.user_attrs.get("stopped")]


def _fail(study: Study, trial: Trial) -> None:
    study.tell(trial, state=_optuna().trial.TrialState.FAIL)


def _best(kind: type[Predictor], study: Study, split: str, before: int, stopped: bool) -> Tuned:
    ended = _ended(study)
    able = [t for t in ended if t.value is not None]
    if not able:
        reason = next((t.user_attrs["reason"] for t in ended if "reason" in t.user_attrs), "it was stopped")
        raise ForerunError(f"no trial of the predictor {kind.name} came to an end: {reason}")
    best = min(able, key=lambda t: t.value)
    defaults = kind().parameters()
    tried = [t.value for t in able if {**defaults, **t.user_attrs["settings"]} == defaults]
    return Tuned(
        kind.name, best.user_attrs["settings"], best.value, tried[0] if tried else None, split, before, len(ended),
        len(ended) - len(able), stopped,
    )  # fmt: skip


def _optuna() -> Any:
    with needed("forerun tune"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    return optuna
