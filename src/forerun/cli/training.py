"""The command that fits predictors: `forerun train`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.cli.options import JsonOption
from forerun.cli.progress import progress, tracked
from forerun.cli.terminal import waiting
from forerun.errors import ForerunError

if TYPE_CHECKING:
    from forerun.predictors.base import Predictor
    from forerun.predictors.cases import TrainingCases

FoldsOption = Annotated[
    int | None,
    typer.Option(help="Number of cross-validation folds; default: the predictor's, mostly 16.", min=2),
]
WhereOption = Annotated[
    str | None, typer.Option(help="Only rows of models that meet an SQL condition, such as \"mode = 'training'\".")
]
StepsOption = Annotated[int | None, typer.Option(help="Steps of each fit, for predictors that take steps.", min=10)]
OperatorsOption = Annotated[
    int | None,
    typer.Option(help="How many single operators to learn from, evenly over their kinds; default: all.", min=0),
]


def train(
    name: Annotated[str, typer.Argument(help="Which predictor: any that is registered.")] = "default",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the fitted predictor; without it nothing is saved.")
    ] = None,
    folds: FoldsOption = None,
    steps: StepsOption = None,
    public: Annotated[bool, typer.Option("--public/--no-public", help="Learn from imported sets too.")] = True,
    where: WhereOption = None,
    operators: OperatorsOption = None,
    settings: Annotated[
        Path | None, typer.Option(help="JSON file of hyperparameters, as forerun tune writes it.")
    ] = None,
    stage: Annotated[
        str | None, typer.Option(help="gnn-llm: all, or one stage: mae, text, performance (default: all).")
    ] = None,
    lm: Annotated[
        str | None,
        typer.Option(help="gnn-llm: smollm2, small (trained here), or the folder of a causal language model."),
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="Folder of a fitted predictor to go on from (trappm, gnn-llm).")
    ] = None,
    simulated: Annotated[
        str | None,
        typer.Option(help="Devices without measurements, separated by commas: learn from simulated rows of them too."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a predictor and its prediction intervals to the store. The first run captures every measured model (hours).

    Captured graphs and finished parts are cached: run a stopped command again to resume it.
    """
    from forerun.data.store import Store
    from forerun.evaluate.costs import costs
    from forerun.evaluate.judged import judged
    from forerun.evaluate.on_published import simulation
    from forerun.evaluate.trained import save_trained
    from forerun.training.drift import drift
    from forerun.training.provenance import provenance
    from forerun.training.simulated import chosen_devices, with_simulated

    options = {"steps": steps, "stage": stage, "lm": lm, "start": None if start is None else str(start)}
    predictor = _chosen(name, settings, {key: value for key, value in options.items() if value is not None})
    predictor.check_parameters()
    store = Store()
    devices = [] if simulated is None else chosen_devices(simulated, predictor, store)
    for line in _missing(store) if public else ():
        print(line, file=sys.stderr)
    cases = gathered(store, public, as_json, where, operators if predictor.reads_graphs else 0)
    if not len(cases.models):
        raise ForerunError("there are no rows of models on GPUs to learn from")
    if devices:
        cases = with_simulated(cases, devices, predictor, store, tracked("simulating", as_json))
    if not predictor.predicts:
        return _fit_alone(predictor, cases, out, as_json)
    predictions = judged(
        predictor, cases, folds=folds, keep=parts_folder(), progress=lambda title: progress(title, quiet=as_json)
    )
    for line in predictions.skipped:
        print(f"not held out: {line}", file=sys.stderr)
    with waiting("fitting to everything", quiet=as_json):
        began = time.perf_counter()
        predictor.fit(cases)
        training_s = time.perf_counter() - began
        predictor.calibrate(predictions.calibration, predictions.unseen_devices)
        fold_count = folds or predictor.hold_out.folds
        options = {"where": where, "public": public, "operators": operators, "steps": steps, "folds": fold_count}
        options["simulated"] = ",".join(device.id for device in devices) or None
        predictor.record_provenance(provenance(cases, store, options))
    result = drift(predictor, cases.models, predictions.models) if predictions.frames else {}
    learned = cases.models
    card = ""
    if devices:
        found = simulation(predictor, devices, cases, predictions.imitated, store)
        card, result = found.text(), {**result, **found.results}
        learned = learned if predictor.sees_devices else cases.simulated_models or learned
    if out is not None:
        with waiting("measuring its speed and size", quiet=as_json):
            save_trained(out, predictor, cases, predictions, costs(predictor, learned, training_s), store, card)
    _print(result, out, f"use it with --predictor {out}", as_json)


def _fit_alone(predictor: Predictor, cases: TrainingCases, out: Path | None, as_json: bool) -> None:
    """Fits what answers nothing yet, such as a first stage: there is nothing to hold out."""
    with waiting("fitting", quiet=as_json):
        predictor.fit(cases)
    if out is not None:
        predictor.save(out)
    _print({"rows": len(cases.models)}, out, f"go on from it with --start {out}", as_json)


def _chosen(name: str, settings: Path | None, options: dict[str, Any]) -> Predictor:
    """The unfitted predictor with the settings of a file and with options; one that it does not take is refused."""
    from forerun.evaluate.collect import read_settings, unfitted

    chosen = {} if settings is None else read_settings(name, settings)
    predictor = unfitted(name, {**chosen, **options})
    for option in options:
        if option not in predictor.parameters():
            raise ForerunError(f"the predictor {name} takes no {option}: leave --{option} out")
    return predictor


def _print(result: dict[str, Any], out: Path | None, use: str, as_json: bool) -> None:
    """What came out of a fit, and what its folder is for."""
    if as_json:
        print(json.dumps(result, indent=2))
        return
    for title, value in result.items():
        print(f"{title}: {value}")
    print(f"written to {out}: {use}" if out else "nothing was saved: give --out")


def gathered(store: Any, public: bool, quiet: bool, where: str | None, operators: int | None) -> TrainingCases:
    """The cases of the store, with a bar while models are captured."""
    from forerun.training.gather import gather

    shown = tracked("capturing measured models", quiet)
    return gather(store, shown, public=public, where=where, operators_kept=operators)


def _missing(store: Any) -> list[str]:
    """A line for each published training set that is not imported, and what follows from that."""
    from forerun.data.importers import missing_sets

    found = missing_sets(store)
    lines = [f"not imported: {one.name} ({one.command})" for one in found]
    if found:
        lines.append(
            "Without published sets, GPUs other than our own are known by spec sheet only: errors on them are larger."
        )
    return lines


def parts_folder() -> Path:
    """The folder of finished parts of an evaluation."""
    from forerun.data.places import default_folder

    return default_folder() / "evaluations"
