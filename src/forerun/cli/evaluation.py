"""The command that evaluates predictors: `forerun evaluate`."""

from __future__ import annotations

import functools
import json
import sys
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.cli.options import JsonOption
from forerun.cli.progress import progress, tracked
from forerun.cli.terminal import show, waiting
from forerun.cli.training import FoldsOption, OperatorsOption, StepsOption, WhereOption, gathered, parts_folder
from forerun.errors import ForerunError

if TYPE_CHECKING:
    import pandas as pd

    from forerun.data.store import Store
    from forerun.evaluate.results import Section
    from forerun.predictors.cases import TrainingCases

BASELINES = "dummy,one-ratio,roofline,default"


def evaluate(
    names: Annotated[str, typer.Argument(help="Predictors to compare, separated by commas.")] = BASELINES,
    split: Annotated[
        str, typer.Option(help="What is held out: family, name, kind, model, device, random or stratified.")
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
    cards: Annotated[
        bool, typer.Option("--cards", help="Only score training and energy on held-out GPUs (imported sets; minutes).")
    ] = False,
    collectives: Annotated[
        bool, typer.Option("--collectives", help="Only score collectives of several GPUs (imported sets).")
    ] = False,
    generations: Annotated[
        bool, typer.Option("--generations", help="Only score whole generations, families held out (minutes).")
    ] = False,
    serving_runs: Annotated[
        bool, typer.Option("--serving-runs", help="Only score replays of measured serving runs (minutes).")
    ] = False,
    pretraining: Annotated[
        bool, typer.Option("--pretraining", help="Only score steps of pre-training on many GPUs (imported sets).")
    ] = False,
    mlperf_scaling: Annotated[
        bool, typer.Option("--mlperf-scaling", help="Only score training from few devices to many (imported set).")
    ] = False,
    serving: Annotated[
        bool, typer.Option("--serving", help="Only score serving engines on published runs (imported sets; minutes).")
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
    from forerun.evaluate.held_out import check_split

    for print_alone, wanted in (
        (_print_groups, groups), (_print_fits, fits), (_print_cards, cards), (_print_collectives, collectives),
        (_print_generations, generations), (_print_serving_runs, serving_runs), (_print_pretraining, pretraining),
        (_print_mlperf_scaling, mlperf_scaling), (_print_serving, serving),
    ):  # fmt: skip
        if wanted:
            return print_alone(as_json)
    check_split(split)  # before anything is gathered, which may take hours
    chosen = [word.strip() for word in names.split(",") if word.strip()]
    _check_options(split, exam, out)
    if document is not None or figures is not None:
        return _write_comparison(chosen, document, figures)
    request = _Evaluation(chosen, split, exam, refit, where, operators, folds, steps, as_json)
    _compare(request, targets, devices, parts, out)


def _compare(request: _Evaluation, targets: str, devices: bool, parts: bool, out: Path | None) -> None:
    """Prints the scoreboard, and writes it where a folder is given."""
    from forerun.evaluate import full
    from forerun.evaluate.collect import targets_of

    scored, split = targets_of(targets), request.split
    frames = request.frames()
    if targets:
        _check_measured(frames, scored)
    of_other_code = [] if request.again else _of_other_code(request.chosen, split)
    for sentence in of_other_code:
        print(sentence, file=sys.stderr)
    made = full.board_of_test_set(frames, scored, split) if request.exam else full.study_board(frames, split, scored)
    if made.lines.empty:
        raise ForerunError("fewer than five cases are left to score")
    extra = request.tables(frames, scored)
    if devices or parts:
        extra += request.tables_of_hours(frames, devices, parts)
    _print_board(made, frames, f"held out: {'the test set' if request.exam else split}", extra, request.quiet)
    if out is not None:
        request.write_scoreboard(made, frames, scored, extra, of_other_code, out)


@dataclass(frozen=True)
class _Evaluation:
    """What `forerun evaluate` is asked for; rows are gathered when they are first needed."""

    chosen: list[str]
    split: str
    exam: bool
    refit: bool
    where: str | None
    operators: int | None
    folds: int | None
    steps: int | None
    quiet: bool

    @functools.cached_property
    def store(self) -> Store:
        from forerun.data.store import Store

        return Store()

    @functools.cached_property
    def cases(self) -> TrainingCases:
        from forerun.predictors.registry import predictor_class

        by_graphs = any(predictor_class(name).reads_graphs for name in self.chosen)
        return gathered(self.store, True, self.quiet, self.where, self.operators if by_graphs else 0)

    @property
    def parameters(self) -> dict[str, Any]:
        return {} if self.steps is None else {"steps": self.steps}

    @property
    def again(self) -> bool:
        """Whether predictors are fitted: stored predictions were made with the default settings of a fit."""
        return self.refit or any(given is not None for given in (self.folds, self.steps, self.operators))

    def frames(self) -> dict[str, pd.DataFrame]:
        """The held-out predictions of every predictor."""
        from forerun.evaluate.collect import collect
        from forerun.training.gather import chosen_models

        return collect(
            self.chosen, self.split, lambda: self.cases, refit=self.again, fresh_rows=self.refit, folds=self.folds,
            parameters=self.parameters, keep=parts_folder(),
            progress=lambda name: progress(f"{name}: holding out", quiet=self.quiet),
            wanted=None if self.where is None else chosen_models(self.store, self.where),
        )  # fmt: skip

    def drawn(self, frames: dict[str, pd.DataFrame]) -> str:
        """The predictor whose further tables and plots are shown."""
        return "default" if "default" in frames else self.chosen[-1]

    def tables(self, frames: dict[str, pd.DataFrame], wanted: tuple[str, ...]) -> list[Section]:
        """The tables beside the scoreboard."""
        from forerun.evaluate import full, kinds

        with waiting("counting", quiet=self.quiet):
            if self.exam:
                return full.sections_of_test_gpu(self.chosen) if self.split == "family" else []
            if self.split == "kind":
                return kinds.tables(frames, wanted)
            return full.stored_sections(self.drawn(frames)) if self.split == "family" else []

    def tables_of_hours(self, frames: dict[str, pd.DataFrame], devices: bool, parts: bool) -> list[Section]:
        """Tables of each predictor that take an hour: held-out GPUs, and the ablation study."""
        from forerun.evaluate import full
        from forerun.evaluate.collect import unfitted

        judged, out = full.judged_among(self.chosen), []
        for name in judged:
            made = []
            if devices:
                with progress(f"{name}: holding out GPUs", quiet=self.quiet) as shown:
                    made += full.held_out_devices(
                        self.cases, frames[name], self.store, predictor=unfitted(name, self.parameters),
                        keep=parts_folder(), progress=shown,
                    )  # fmt: skip
            if parts:
                one = unfitted(name, {**self.parameters, "seeds": (0,)})
                made.append(full.parts(one, self.cases, frames[name], folds=self.folds))
            out += made if len(judged) == 1 else [replace(each, name=f"{each.name}_{name}") for each in made]
        return out

    def write_scoreboard(
        self, made: Any, frames: dict[str, pd.DataFrame], wanted: tuple[str, ...], extra: list[Section],
        of_other_code: list[str], out: Path,
    ) -> None:  # fmt: skip
        """SCOREBOARD.md with its plots, further tables and notes."""
        from forerun.evaluate import full, kinds, report
        from forerun.evaluate.collect import stored_frame
        from forerun.evaluate.fits import sections as fits_sections
        from forerun.evaluate.results import Section
        from forerun.predictors.registry import predictor_class

        drawn = self.drawn(frames)
        extra = [*extra, *fits_sections(self.store)]
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


def _print_cards(as_json: bool) -> None:
    """The errors of training and energy on other GPUs, each held out, as tables or as JSON."""
    from forerun.cli.data import table_of
    from forerun.data.store import Store
    from forerun.evaluate import cards, report

    rows = cards.gathered(Store(), tracked("capturing the models", quiet=as_json))
    found = cards.sections(cards.judged(rows))
    if as_json:
        print(json.dumps({one.name: one.table.to_dict("records") for one in found}, indent=2))
        return
    for one in found:
        shown = report.readable(one.table, cards.SHARE_COLUMNS)
        show(table_of(shown, f"{one.title}\n\n{one.words}", numbers=one.table))


def _print_collectives(as_json: bool) -> None:
    """The errors of predicted collectives, each system held out, as a table or as JSON."""
    from forerun.data.store import Store
    from forerun.evaluate import collectives

    with waiting("fitting with each system held out", quiet=as_json):
        found = collectives.section(Store())
    _print_section(found, collectives.SHARE_COLUMNS, as_json)


def _print_pretraining(as_json: bool) -> None:
    """The errors of predicted steps of pre-training, a model or a GPU held out, as a table or as JSON."""
    from forerun.data.store import Store
    from forerun.evaluate import pretraining

    with waiting("fitting with each model and each GPU held out", quiet=as_json):
        found = pretraining.section(pretraining.measured(Store()))
    _print_section(found, pretraining.SHARE_COLUMNS, as_json)


def _print_mlperf_scaling(as_json: bool) -> None:
    """The errors of larger systems given the smallest, a submitter or a benchmark held out, as a table or as JSON."""
    from forerun.data.store import Store
    from forerun.evaluate import mlperf_scaling

    with waiting("fitting with each submitter and each benchmark held out", quiet=as_json):
        found = mlperf_scaling.section(mlperf_scaling.measured(Store()))
    _print_section(found, mlperf_scaling.SHARE_COLUMNS, as_json)


def _print_section(found: Section, shares: tuple[str, ...], as_json: bool) -> None:
    from forerun.cli.data import table_of
    from forerun.evaluate import report

    if as_json:
        print(found.table.to_json(orient="records", indent=2))
        return
    title = f"{found.title}\n\n{found.words}"
    show(table_of(report.readable(found.table, shares), title, numbers=found.table))


def _print_generations(as_json: bool) -> None:
    """The errors of whole generations, families held out, as a table or as JSON."""
    from forerun.data.store import Store
    from forerun.evaluate import generations

    found = generations.section(Store(), tracked("predicting the calls", quiet=as_json))
    _print_section(found, generations.SHARE_COLUMNS, as_json)


def _print_serving_runs(as_json: bool) -> None:
    """The errors of replayed serving runs, each model held out, as a table or as JSON."""
    from forerun.data.store import Store
    from forerun.evaluate import serving_runs

    with waiting("replaying with each model held out", quiet=as_json):
        found = serving_runs.section(serving_runs.judge(Store()))
    _print_section(found, serving_runs.SHARE_COLUMNS, as_json)


def _print_serving(as_json: bool) -> None:
    """The errors of predicted serving runs, with models or devices held out, as a table or as JSON."""
    from forerun.data.store import Store
    from forerun.evaluate import serving

    with waiting("reading runs and pricing their models", quiet=as_json):
        found = serving.section(Store())
    _print_section(found, serving.SHARE_COLUMNS, as_json)


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
