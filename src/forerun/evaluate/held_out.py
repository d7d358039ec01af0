"""Held-out predictions: those for cases that a predictor was not fitted to, by which it is scored.

Works for every predictor. A split divides the rows into parts (families, kinds of network, devices, or single rows);
for each part a fresh predictor is fitted to everything else and predicts that part. Parts are fitted in parallel, and
each is stored as soon as it is done, so that a run that was stopped can be resumed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from forerun._util.source_hash import defining_file
from forerun.data import splits
from forerun.device.kinds import GPU
from forerun.errors import ForerunError
from forerun.evaluate.parts import Progress, cached_parts
from forerun.predictors.base import TARGETS, Predictor, TooFewCases
from forerun.predictors.cases import Cases, TrainingCases
from forerun.training.published import other_families

SPLITS = {
    "family": "whole families of models, several at a time; relatives, whose blocks are alike, together",
    "name": "families by their names, several at a time: relatives stay in training",
    "kind": "whole kinds of network, one at a time",
    "model": "whole networks by name, several at a time: relatives of their family stay in training",
    "device": "whole GPUs of the published sets, one at a time",
    "stratified": "single rows, with the same share of each family and mode in every fold: as optimistic",
    "random": "single rows: optimistic for every predictor, since near relatives stay in training",
}
#: What a split holds out, one at a time or several together.
GROUPS = {
    "family": "family", "name": "family", "model": "network", "kind": "kind of network", "device": "device",
    "random": "case", "stratified": "case",
}  # fmt: skip
#: Columns that the host's measured speed changes.
PROBED = ("latency_ms", "energy_j")
#: Columns that decide what is learned from a row.
_DECIDES = ("case_key", "repeat", "device", "family", "op", "shape", "dtype", "direction", "loop_ms", *TARGETS)


def held_out(
    predictor: Predictor, cases: TrainingCases, split: str = "family", *, folds: int | None = None,
    part: str = GPU.part, keep: Path | None = None, progress: Progress | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Every row of whole models with `predicted_<target>`, by a predictor of the same parameters fitted without it.

    Rows of one part of `TrainingCases.whole_models`; with split "device" the published rows.
    `predicted_<target>_probed` is the prediction when the host's speed at that moment is known. Finished parts are
    stored in the folder `keep`, so that a run that was stopped can be resumed; they are used again for the same code,
    rows and parameters only. Families and rows are held out in the predictor's own number of folds unless another is
    given.
    """
    folds = folds or predictor.hold_out.folds
    test_cases = _test_cases(cases, split, part)
    parts = list(_parts(test_cases.rows, split, folds))
    if predictor.needs_fit and len(parts) < 2 and not _others(cases, test_cases, split):
        raise ForerunError(f"there is only one {GROUPS[split]} among the rows: nothing would be left to learn from")
    place = keep and keep / fingerprint(predictor, cases, split, folds, part)

    predictor.prepare(cases)
    names = [f"part_{number:03}" for number in range(len(parts))]

    def fit_part(name: str) -> pd.DataFrame:
        return _predicted(predictor, cases, test_cases, parts[names.index(name)], split, part)

    quick = predictor.hold_out.cheap_to_fit
    out: dict[str, np.ndarray] = {}
    for number, predictions in enumerate(cached_parts(fit_part, names, place, progress, in_moments=quick)):
        for name in predictions:
            out.setdefault(str(name), np.full(len(test_cases.rows), np.nan))[parts[number]] = predictions[name]
    if place is not None:
        for stale in place.parent.glob(f"{predictor.name}-{split}-*"):  # of other code or other rows
            if stale != place and stale.name.endswith(f"-{part}"):
                shutil.rmtree(stale, ignore_errors=True)
    return test_cases.rows.assign(**out)


def groups_of(rows: pd.DataFrame, split: str) -> pd.Series:
    """By row, the group that is held out together."""
    if split == "family":
        return splits.independent(rows)
    if split == "name":
        return splits.by_name(rows)
    if split == "model":
        return rows["model"]
    if split in ("random", "stratified"):
        return rows["case_key"]
    return {"device": lambda: rows["device"]}.get(split, lambda: splits.kinds_of_network(rows))()


def whole_parts(rows: pd.DataFrame) -> str:
    """The split that holds out families or, where all rows are of one family, its networks."""
    return "family" if groups_of(rows, "family").nunique() > 1 else "model"


def whole_groups(rows: pd.DataFrame, split: str) -> pd.Series:
    """`groups_of` rows that were held out by this split: with "family", of `whole_parts`."""
    found = groups_of(rows, split)
    return groups_of(rows, "model") if split == "family" and found.nunique() <= 1 else found


#: A kind of network with more than this share of the rows is no new kind: without it little is left to learn from.
_MOST_OF_A_KIND = 0.1


def few_of_a_kind(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of kinds with few rows each: with their kind held out, they stand for new kinds of network."""
    kinds = splits.kinds_of_network(rows)
    return rows[kinds.map(kinds.value_counts(normalize=True)).to_numpy() <= _MOST_OF_A_KIND]


def check_split(split: str) -> None:
    """Refuses a split that there is not."""
    if split not in SPLITS:
        raise ForerunError(f"there is no split {split!r}; choose {', '.join(SPLITS)}")


def refuse_simulated(rows: pd.DataFrame) -> None:
    """Raises a sentence where a predictor made some of the rows: they are no truth to judge predictions by."""
    if "simulated" in rows and rows["simulated"].notna().any():
        raise ForerunError("simulated rows are no measurements: nothing is judged by them, leave them out")


def _test_cases(cases: TrainingCases, split: str, part: str) -> Cases:
    check_split(split)
    test_cases = cases.published_models if split == "device" else cases.whole_models.get(part)
    refuse_simulated(test_cases.rows if test_cases else pd.DataFrame())
    if not test_cases:
        need = "published times of models (forerun data import timm PATH)" if split == "device" else "rows of models"
        raise ForerunError(f"the store has no {need}, which a split by {split} needs")
    return test_cases


def _parts(rows: pd.DataFrame, split: str, folds: int) -> list[np.ndarray]:
    """For every part, which rows are held out."""
    groups = groups_of(rows, split)
    if split == "stratified":
        strata = rows["family"].astype(str) + "/" + rows["mode"].astype(str)
        return [test for _, test in splits.stratified(groups, strata, folds)]
    if split in ("family", "name", "model", "random"):
        return [test for _, test in splits.hold_out(groups, folds)]
    return [(groups == name).to_numpy() for name in sorted(groups.unique())]


def _others(cases: TrainingCases, test_cases: Cases, split: str) -> bool:
    """Whether models of other GPUs than those held out are in training: those measured under our own protocol."""
    return split == "device" and any(
        not set(part.rows["device"]) <= set(test_cases.rows["device"]) for part in cases.whole_models.values()
    )


def _predicted(
    predictor: Predictor, cases: TrainingCases, test_cases: Cases, test: np.ndarray, split: str, part: str
) -> pd.DataFrame:
    """The predictions for the rows in `test`, with the host's speed unknown and known."""
    tested = test_cases.take(test)
    fresh = type(predictor)(**predictor.parameters())
    if split == "device":
        seen = cases.without_device(str(tested.rows["device"].iloc[0]))
        if predictor.hold_out.fits_kinds_apart:  # what CPUs show is another fit's
            seen = replace(seen, cpu_models=None, apart={})
    elif part != GPU.part:
        others = _empty(cases) if predictor.hold_out.fits_kinds_apart else _without(cases, tested.rows, split)
        seen = others.with_part(part, test_cases.take(~test))
    else:
        published = cases.published_models
        published = published and other_families(published, tested.rows, by_name=split == "name")
        if published and split == "kind":
            kinds = set(splits.kinds_of_network(tested.rows))
            published = published.take(~splits.kinds_of_network(published.rows).isin(kinds).to_numpy())
        seen = replace(cases, models=test_cases.take(~test), published_models=published)
        seen = replace(seen, cpu_models=None, apart={})
    if split != "device" and seen.simulated_models:
        seen = replace(seen, simulated_models=_other_networks(seen.simulated_models, tested.rows, split))
    try:
        fresh.fit(seen)
    except TooFewCases:  # a family may be all that a predictor learns from
        return pd.DataFrame(np.nan, index=range(len(tested)), columns=[f"predicted_{t}" for t in predictor.targets])
    predictions = fresh.predict_cases(tested)
    slowness = None if split == "device" or part != GPU.part else fresh.host_slowness_of(test_cases)
    if slowness is not None:
        probed = fresh.predict_cases(tested, slowness[test])
        columns = {f"predicted_{t}_probed": probed[f"predicted_{t}"] for t in PROBED if f"predicted_{t}" in probed}
        predictions = predictions.assign(host_slowness=slowness[test], **columns)
    if "copy_ms" in tested.rows and "predicted_latency_ms" in predictions:
        # The time to copy inputs follows from their size, and is given to every predictor.
        predictions["predicted_latency_ms"] += tested.rows["copy_ms"].to_numpy(dtype=float)
    return predictions


def _without(cases: TrainingCases, test_rows: pd.DataFrame, split: str) -> TrainingCases:
    """Without the held-out networks, which may have run on GPUs too: with split "model" those of the same name, else
    their whole families."""
    if split == "model":
        return replace(cases, models=cases.models.take(~cases.models.rows["model"].isin(test_rows["model"]).to_numpy()))
    named = split == "name"
    published = cases.published_models and other_families(cases.published_models, test_rows, by_name=named)
    return replace(cases, models=other_families(cases.models, test_rows, by_name=named), published_models=published)


def _other_networks(simulated: Cases, test_rows: pd.DataFrame, split: str) -> Cases:
    """Simulated rows without the networks that are held out."""
    if split in ("family", "name"):
        return other_families(simulated, test_rows, by_name=split == "name")
    groups = groups_of(simulated.rows, split)
    return simulated.take(~groups.isin(groups_of(test_rows, split)).to_numpy())


def _empty(cases: TrainingCases) -> TrainingCases:
    """No cases at all."""
    models, operators = (part.take(np.zeros(len(part), dtype=bool)) for part in (cases.models, cases.operators))
    return TrainingCases(models, operators)


def _code_hash(predictor: Predictor) -> str:
    """A hash of all files of forerun and of the file that defines the predictor; without such a file, as in a notebook,
    it differs every time."""
    source_file = defining_file(type(predictor))
    if source_file is None:
        return uuid.uuid4().hex
    files = sorted({*Path(__file__).parents[1].rglob("*.py"), source_file})
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def fingerprint(predictor: Predictor, cases: TrainingCases, split: str, folds: int, part: str) -> str:
    """A name for all that a stored part depends on: the predictor's parameters, every training row, the split, the
    code."""
    rows = hashlib.sha256()
    for name, measured in cases.parts.items():
        known = measured.rows[[column for column in _DECIDES if column in measured.rows]]
        rows.update(f"{name}\n{known.to_csv(index=False)}".encode())
    settings = {
        "parameters": predictor.parameters(), "rows": rows.hexdigest(), "split": split, "folds": folds,
        "part": part, "code": _code_hash(predictor),
    }  # fmt: skip
    code = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:12]
    return f"{predictor.name}-{split}-{code}-{part}"
