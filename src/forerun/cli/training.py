"""The commands that make and judge predictors: train, evaluate."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from forerun.cli.options import JsonOption
from forerun.cli.terminal import show, waiting
from forerun.errors import ForerunError

FoldsOption = Annotated[int | None, typer.Option(help="Parts that the families are left out in.", min=2)]
StepsOption = Annotated[int | None, typer.Option(help="Steps of each fit.", min=50)]


def train(
    name: Annotated[str, typer.Argument(help="Which predictor: default.")] = "default",
    out: Annotated[Path | None, typer.Option(help="Folder for the weights; without it nothing is kept.")] = None,
    folds: FoldsOption = None,
    steps: StepsOption = None,
    public: Annotated[bool, typer.Option("--public/--no-public", help="Learn from imported sets too.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Rebuilds a predictor's weights from the store, with its intervals, and says how far the answers drift."""
    from forerun.cli.measuring import tracker
    from forerun.data.store import Store
    from forerun.evaluate import model_card
    from forerun.evaluate.kept import keep_left_out
    from forerun.predictors.default import DefaultPredictor
    from forerun.training import default
    from forerun.training.drift import drift

    folds, steps = folds or default.FOLDS, steps or default.STEPS
    if name != "default":
        raise ForerunError(f"{name} has nothing to train; choose default")
    found = default.gather(Store(), tracker("reading rows", quiet=as_json), public=public)
    with folding(quiet=as_json) as tell:
        told = default.left_out(found, folds=folds, steps=steps, tell=tell)
    with waiting("fitting to everything", quiet=as_json):
        told_cpu = None if found.cpu is None else default.left_out_cpu(found.cpu, folds=folds, steps=steps)
        weights = default.train(found, told, told_cpu, steps=steps)
    moved = drift(DefaultPredictor(weights=weights), found.models, told)
    if out is not None:
        weights.save(out)
        keep_left_out(out, told, told_cpu)
        (out / "MODEL_CARD.md").write_text(model_card.text(weights, told, told_cpu))
    if as_json:
        print(json.dumps(moved, indent=2))
        return
    for line, value in moved.items():
        print(f"{line}: {value}")
    print(f"weights written to {out}" if out else "nothing was kept: give --out")


def evaluate(
    out: Annotated[Path | None, typer.Option(help="Folder for SCOREBOARD.md and its plots.")] = None,
    refit: Annotated[
        bool, typer.Option(help="Fit again without each family, instead of reading what was kept.")
    ] = False,
    devices: Annotated[bool, typer.Option(help="Also leave whole GPUs out (needs imported sets; minutes).")] = False,
    parts: Annotated[bool, typer.Option(help="Also the error with parts of the predictor left out (minutes).")] = False,
    folds: FoldsOption = None,
    steps: StepsOption = None,
    as_json: JsonOption = False,
) -> None:
    """The scoreboard: predictions for families that were left out, against what was measured."""
    from forerun.cli.measuring import tracker
    from forerun.data.store import Store
    from forerun.evaluate import full, report
    from forerun.evaluate.kept import CPU, kept_left_out
    from forerun.predictors.default import SHIPPED
    from forerun.training import default

    folds, steps = folds or default.FOLDS, steps or default.STEPS
    found = None
    if refit or devices or parts:
        found = default.gather(Store(), tracker("reading rows", quiet=as_json))
    if refit and found is not None:
        with folding(quiet=as_json) as tell:
            told = default.left_out(found, folds=folds, steps=steps, tell=tell)
    else:
        told = kept_left_out(SHIPPED)
    with waiting("counting", quiet=as_json):
        made = full.scoreboard(told)
        extra = {
            "CPU: latency of left-out families": full.cpu_lines(kept_left_out(SHIPPED, CPU)),
            "Does it fit: cases that were run": full.misfits(Store()),
        }
        if devices and found is not None:
            extra |= full.left_out_devices(found, told, Store(), steps=steps)
        if parts and found is not None:
            how = f"one network each of {steps} steps; full: as it ships" if not refit else f"{steps} steps each"
            extra[f"What each part buys ({how})"] = full.ablation(found, told, folds=folds, steps=steps)
    if as_json:
        print(made.lines.to_json(orient="records", indent=2))
    else:
        from forerun.cli.data import table_of

        show(table_of(full.summary(made), ""))
        for title, lines in extra.items():
            show(table_of(lines, title))
    if out is not None:
        print(f"written: {report.write(made, told, out, extra, full.NOTES)}", file=sys.stderr)


@contextmanager
def folding(quiet: bool) -> Iterator[Any]:
    """Shows how many parts are done."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("leaving families out", total=None)
        yield lambda done, parts: progress.update(task, completed=done, total=parts)
