"""Judges predictors that learned from simulated rows on published rows of such chips: the table in docs/TRAIN.md.

    python benchmarks/simulated_rows.py [--write]

    --cases CASES     take what `benchmarks/fit_default.py gather CASES` captured, instead of capturing it again
    --workloads N     simulate N of the measured workloads, drawn at random, instead of all
    --predictors P    trees,regressors unless others are named

Captures every measured language model the first time (half an hour). Import neusight first. The store stays as it is.
"""

from __future__ import annotations

import argparse
import pickle
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from language_graphs import write
from predictor_studies import LANGUAGE, gathered

if TYPE_CHECKING:
    from forerun.data.store import Store
    from forerun.predictors.cases import Cases, TrainingCases

DEVICES = "a100-sxm4-80gb,v100-16gb,h100-sxm"
PREDICTORS = "trees,regressors"
FOLDS = 5


def language_cases(folder: Path | None, store: Store) -> TrainingCases:
    """The measured rows of language models."""
    from forerun.data.sql import row_ids
    from forerun.predictors.cases import TrainingCases

    if folder is None:
        return gathered(LANGUAGE)
    chosen = set(row_ids(store, "models", LANGUAGE))
    models, cpu = (_chosen(pickle.loads((folder / f"{part}.pkl").read_bytes()), chosen)
                   for part in ("models", "cpu_models"))  # fmt: skip
    return TrainingCases(models, models.take(np.zeros(len(models), dtype=bool)), cpu_models=cpu)


def _chosen(cases: Cases, row_ids: set[str]) -> Cases:
    return cases.take(cases.rows["row_id"].isin(row_ids).to_numpy())


def drawn(cases: TrainingCases, workloads: int | None, answered: np.ndarray) -> TrainingCases:
    """The cases whose workloads are simulated: so many of those that are answered, or all."""
    keys = cases.models.rows["case_key"]
    names = np.random.default_rng(0).permutation(keys[answered].unique())[:workloads]
    return replace(cases, models=cases.models.take(keys.isin(names).to_numpy() & answered))


def judged(names: str, cases: TrainingCases, workloads: int | None, store: Store) -> pd.DataFrame:
    """The lines of every predictor under one another."""
    from forerun.cli.progress import tracked
    from forerun.evaluate.held_out import held_out
    from forerun.evaluate.on_published import COVERAGE, lines, published_truth
    from forerun.predictors.registry import predictor_class
    from forerun.training.simulated import chosen_devices, simulated_cases

    made: Cases | None = None
    truth: Any = None
    tables = []
    for name in names.split(","):
        predictor = predictor_class(name)()
        devices = chosen_devices(DEVICES, predictor, store)
        if made is None:
            subset = drawn(cases, workloads, predictor.answers_row(cases.models.rows))
            made = simulated_cases(subset, devices, predictor, tracked("simulating", False))
            truth = published_truth(store, devices, predictor)
            if truth is None:
                raise SystemExit("no published rows of these chips: forerun data import neusight FOLDER")
        seen = replace(cases, simulated_models=made)
        found = held_out(predictor, seen, "family", folds=FOLDS)
        predictor.fit(seen).calibrate(found)
        table = lines(predictor, truth, cases.models).rename(columns={name: "mean error"})
        tables.append(table.assign(predictor=name, rows=len(made))[
            ["predictor", "device", "mode", "calls", "rows", "mean error", COVERAGE, "default", "one ratio"]
        ])  # fmt: skip
        print(tables[-1].to_string(index=False), flush=True)
    return pd.concat(tables, ignore_index=True)


def markdown(table: pd.DataFrame) -> str:
    shown = table.rename(columns={"rows": "simulated rows"})
    lines = [f"| {' | '.join(shown)} |", f"|{'---|' * 3}{'---:|' * (len(shown.columns) - 3)}"]
    for row in shown.itertuples(index=False):
        cells = [str(value) for value in row[:3]] + [f"{value:,.0f}" for value in row[3:]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    from forerun.data.store import Store

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/TRAIN.md")
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--workloads", type=int)
    parser.add_argument("--predictors", default=PREDICTORS)
    given = parser.parse_args()
    store = Store()
    text = markdown(judged(given.predictors, language_cases(given.cases, store), given.workloads, store))
    print(text)
    if given.write:
        write("simulatedrows", text)


if __name__ == "__main__":
    main()
