"""The commands that fit and evaluate predictors: train, evaluate."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.cli.options import JsonOption
from forerun.cli.progress import progress, tracked
from forerun.cli.terminal import show, waiting
from forerun.errors import ForerunError

if TYPE_CHECKING:
    import pandas as pd

    from forerun.evaluate.results import Section
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
BASELINES = "dummy,one-ratio,roofline,default"


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
    as_json: JsonOption = False,
) -> None:
    """Fit a predictor and its prediction intervals to the store. The first run captures every measured model (hours).

    Captured graphs and finished parts are cached: run a stopped command again to resume it.
    """
    from forerun.data.store import Store
    from forerun.evaluate.collect import read_settings, unfitted
    from forerun.evaluate.costs import costs
    from forerun.evaluate.judged import judged
    from forerun.evaluate.trained import save_trained
    from forerun.training.drift import drift
    from forerun.training.provenance import provenance

    chosen = {} if settings is None else read_settings(name, settings)
    predictor = unfitted(name, {**chosen, **({} if steps is None else {"steps": steps})})
    if steps is not None and "steps" not in predictor.parameters():
        raise ForerunError(f"the predictor {name} takes no steps: leave --steps out")
    store = Store()
    for line in _missing(store) if public else ():
        print(line, file=sys.stderr)
    cases = gathered(store, public, as_json, where, operators if predictor.reads_graphs else 0)
    if not len(cases.models):
        raise ForerunError("there are no rows of models on GPUs to learn from")
    predictions = judged(
        predictor, cases, folds=folds, keep=_parts_folder(), progress=lambda title: progress(title, quiet=as_json)
    )
    for line in predictions.skipped:
        print(f"not held out: {line}", file=sys.stderr)
    with waiting("fitting to everything", quiet=as_json):
        start = time.perf_counter()
        predictor.fit(cases)
        training_s = time.perf_counter() - start
        predictor.calibrate(predictions.calibration, predictions.unseen_devices)
        fold_count = folds or predictor.hold_out.folds
        options = {"where": where, "public": public, "operators": operators, "steps": steps, "folds": fold_count}
        predictor.record_provenance(provenance(cases, store, options))
    result = drift(predictor, cases.models, predictions.models)
    if out is not None:
        with waiting("measuring its speed and size", quiet=as_json):
            save_trained(out, predictor, cases, predictions, costs(predictor, cases.models, training_s), store)
    if as_json:
        print(json.dumps(result, indent=2))
        return
    for title, value in result.items():
        print(f"{title}: {value}")
    print(f"written to {out}: use it with --predictor {out}" if out else "nothing was saved: give --out")


def evaluate(
    names: Annotated[str, typer.Argument(help="Predictors to compare, separated by commas.")] = BASELINES,
    split: Annotated[
        str, typer.Option(help="What is held out: family, name, kind, model, device or random.")
    ] = "family",
    targets: Annotated[str, typer.Option(help="Quantities, such as latency,memory,energy; default: all.")] = "",
    exam: Annotated[bool, typer.Option(help="Score the test set: families and a GPU not used for tuning.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for SCOREBOARD.md and its plots.")] = None,
    refit: Annotated[bool, typer.Option(help="Fit again instead of reading stored predictions (hours).")] = False,
    devices: Annotated[
        bool, typer.Option(help="Also hold out whole GPUs, with NeuSight's figures beside (imported sets; an hour).")
    ] = False,
    parts: Annotated[bool, typer.Option(help="Also an ablation study of the predictor's parts (an hour).")] = False,
    groups: Annotated[
        bool, typer.Option("--groups", help="Only print which families the split family holds out together.")
    ] = False,
    fits: Annotated[
        bool, typer.Option("--fits", help="Only score `fits` against batches that ran out of memory (minutes).")
    ] = False,
    collectives: Annotated[
        bool, typer.Option("--collectives", help="Only score collectives of several GPUs (imported sets).")
    ] = False,
    where: WhereOption = None,
    operators: OperatorsOption = None,
    folds: FoldsOption = None,
    steps: StepsOption = None,
    document: Annotated[
        Path | None,
        typer.Option(help="File for the comparison from stored predictions and costs, such as PREDICTORS.md."),
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Folder for interactive plots of the same.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare predictors on held-out cases: errors, coverage, intervals, the noise floor.

    Predictions that come with the package are read; other predictors are fitted with each part held out in turn.
    """
    from forerun.data.store import Store
    from forerun.evaluate import full, kinds, report
    from forerun.evaluate.collect import collect, stored_frame, targets_of
    from forerun.evaluate.fits import sections as fits_sections
    from forerun.evaluate.held_out import check_split
    from forerun.evaluate.results import Section
    from forerun.predictors.registry import predictor_class
    from forerun.training.gather import chosen_models

    if groups:
        _print_groups(as_json)
        return
    if fits:
        _print_fits(as_json)
        return
    if collectives:
        _print_collectives(as_json)
        return
    check_split(split)  # before anything is gathered, which may take hours
    chosen = [word.strip() for word in names.split(",") if word.strip()]
    _check_options(split, exam, out)
    if document is not None or figures is not None:
        _write_comparison(chosen, document, figures)
        return
    store = Store()
    cases: list[TrainingCases] = []

    def gather() -> TrainingCases:
        if not cases:
            by_graphs = any(predictor_class(name).reads_graphs for name in chosen)
            cases.append(gathered(store, True, as_json, where, operators if by_graphs else 0))
        return cases[0]

    wanted = targets_of(targets)
    parameters = {} if steps is None else {"steps": steps}
    # StoredPredictions predictions were made with the default settings of a fit.
    again = refit or any(given is not None for given in (folds, steps, operators))
    frames = collect(
        chosen, split, gather, refit=again, fresh_rows=refit, folds=folds, parameters=parameters, keep=_parts_folder(),
        progress=lambda name: progress(f"{name}: holding out", quiet=as_json),
        wanted=None if where is None else chosen_models(store, where),
    )  # fmt: skip
    if targets:
        _check_measured(frames, wanted)
    of_other_code = [] if again else _of_other_code(chosen, split)
    for sentence in of_other_code:
        print(sentence, file=sys.stderr)
    made = full.board_of_test_set(frames, wanted, split) if exam else full.study_board(frames, split, wanted)
    if made.lines.empty:
        raise ForerunError("fewer than five cases are left to score")
    extra: list[Section] = []
    drawn = "default" if "default" in frames else chosen[-1]
    with waiting("counting", quiet=as_json):
        if exam:
            extra += full.sections_of_test_gpu(chosen) if split == "family" else []
        elif split == "kind":
            extra += kinds.tables(frames, wanted)
        elif split == "family":
            extra += full.stored_sections(drawn)
    judged = full.judged_among(chosen) if devices or parts else []
    for name in judged:
        made_of = _hours_of(name, gather(), frames[name], store, devices, parts, folds, parameters, as_json)
        extra += made_of if len(judged) == 1 else [replace(one, name=f"{one.name}_{name}") for one in made_of]
    title = f"held out: {'the test set' if exam else split}"
    _print_board(made, frames, title, extra, as_json)
    if out is not None:
        extra += fits_sections(store)
        extra.append(Section.titled("exam", full.TEST_SET, full.summary(full.board_of_test_set(frames, wanted))))
        by_kind = stored_frame("default", "kind") if drawn == "default" else None
        if by_kind is not None:
            extra += kinds.tables({"default": by_kind}, wanted)
        told = (textwrap.fill(f"{each[0].upper()}{each[1:]}.", 120) for each in of_other_code)
        words = "\n\n".join([full.notes(frames[drawn]), *told])
        written = report.write(made, frames[drawn], predictor_class(drawn)(), out, extra, words)
        print(f"written: {written}", file=sys.stderr)


def _of_other_code(chosen: list[str], split: str) -> list[str]:
    """A sentence for each predictor whose stored predictions are not those of today's code."""
    from forerun.evaluate.collect import stored_frame
    from forerun.evaluate.stamp import notice
    from forerun.evaluate.stored import STORED_SPLITS

    stored = [name for name in chosen if split in STORED_SPLITS and stored_frame(name, split) is not None]
    return [sentence for name in stored if (sentence := notice(name))]


def _hours_of(
    name: str, cases: TrainingCases, held_out: pd.DataFrame, store: Any, devices: bool, parts: bool,
    folds: int | None, parameters: dict[str, Any], quiet: bool,
) -> list[Section]:  # fmt: skip
    """Tables of a predictor that take an hour each: held-out GPUs, and the ablation study."""
    from forerun.evaluate import full
    from forerun.evaluate.collect import unfitted

    out: list[Section] = []
    if devices:
        with progress(f"{name}: holding out GPUs", quiet=quiet) as shown:
            out += full.held_out_devices(
                cases, held_out, store, predictor=unfitted(name, parameters), keep=_parts_folder(), progress=shown
            )
    if parts:
        out.append(full.parts(unfitted(name, {**parameters, "seeds": (0,)}), cases, held_out, folds=folds))
    return out


def _print_board(made: Any, frames: dict[str, pd.DataFrame], title: str, extra: list[Section], as_json: bool) -> None:
    """The scoreboard as JSON, or as a table with further tables below it."""
    if as_json:
        print(made.lines.to_json(orient="records", indent=2))
        return
    from forerun.cli.data import table_of
    from forerun.evaluate import full, report

    figures = full.summary(made)
    heading = f"{title}; {int(figures['n'].max()):,} cases{full.partial_coverage(frames)}"
    tables = {heading: figures, **{"\n\n".join(filter(None, (one.title, one.words))): one.table for one in extra}}
    for name, lines in tables.items():
        show(table_of(report.readable(lines), name, numbers=lines))


def _print_groups(as_json: bool) -> None:
    """The groups of the split by family, as a table or as JSON."""
    from forerun.cli.data import table_of
    from forerun.evaluate import relatives

    found = relatives.groups()
    if as_json:
        print(found.to_json(orient="records", indent=2))
        return
    several = int((found["families"].str.contains(",")).sum())
    title = f"held out together: {len(found)} groups, {several} of several families"
    show(table_of(found.astype(str), title, numbers=found))


def _print_fits(as_json: bool) -> None:
    """How often `fits` and the largest batch are right, as tables or as JSON."""
    from forerun.cli.data import table_of
    from forerun.data.store import Store
    from forerun.evaluate import fits

    with waiting("capturing the models whose limit was measured", quiet=as_json):
        found = fits.sections(Store())
    if as_json:
        print(json.dumps({one.name: one.table.to_dict("records") for one in found}, indent=2))
        return
    for one in found:
        show(table_of(one.table.astype(str), one.title, numbers=one.table))


def _print_collectives(as_json: bool) -> None:
    """The errors of predicted collectives, each system held out, as a table or as JSON."""
    from forerun.cli.data import table_of
    from forerun.data.store import Store
    from forerun.evaluate import collectives, report

    with waiting("fitting with each system held out", quiet=as_json):
        found = collectives.section(Store())
    if as_json:
        print(found.table.to_json(orient="records", indent=2))
        return
    show(
        table_of(
            report.readable(found.table, collectives.SHARE_COLUMNS),
            f"{found.title}\n\n{found.words}",
            numbers=found.table,
        )
    )


def _check_options(split: str, exam: bool, out: Path | None) -> None:
    """Refuses options that do not go together."""
    if out is not None and (exam or split != "family"):
        raise ForerunError("--out writes the scoreboard of split family and the test set: omit --exam and --split")


def _check_measured(frames: dict[str, pd.DataFrame], targets: tuple[str, ...]) -> None:
    """Refuses quantities that were asked for and that no row has."""
    first = next(iter(frames.values()))
    if missing := [target for target in targets if not (first[target] > 0).any()]:
        raise ForerunError(f"{' and '.join(missing)} was measured in none of the rows: there is nothing to score")


def _write_comparison(chosen: list[str], document: Path | None, figures: Path | None) -> None:
    """The document that compares predictors by their stored predictions, and interactive plots."""
    from forerun.evaluate import predictors_document, scatter
    from forerun.evaluate.same_rows import StoredPredictions

    written: list[Path] = []
    with waiting("comparing", quiet=False):
        if document is not None:
            written.append(predictors_document.write(document, chosen))
        if figures is not None:
            stored = StoredPredictions()
            made = [scatter.interactive(stored, chosen, target, figures) for target in predictors_document.TARGETS]
            written += [path for path in made if path is not None]
    for path in written:
        print(f"written: {path}")


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


def _parts_folder() -> Path:
    """The folder of finished parts of an evaluation."""
    from forerun.data.places import default_folder

    return default_folder() / "evaluations"
