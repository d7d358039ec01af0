"""`forerun tune`: searches for the parameters of a predictor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.options import JsonOption
from forerun.cli.progress import progress
from forerun.cli.training import WhereOption, gathered
from forerun.errors import ForerunError


def tune(
    name: Annotated[str, typer.Argument(help="Which predictor: trees, mlp, regressors, or one of your own.")],
    trials: Annotated[int, typer.Option(help="Trials in all, those of earlier runs among them.", min=1)] = 50,
    seconds: Annotated[float | None, typer.Option(help="Start no trial after this many seconds.", min=0)] = None,
    folds: Annotated[int, typer.Option(help="Number of cross-validation folds over families.", min=2)] = 4,
    targets: Annotated[str, typer.Option(help="Quantities, such as latency,energy; default: all it predicts.")] = "",
    grid: Annotated[bool, typer.Option("--grid", help="Try the predictor's grid instead of a search.")] = False,
    where: WhereOption = None,
    public: Annotated[bool, typer.Option("--public/--no-public", help="Learn from imported sets too.")] = True,
    out: Annotated[Path | None, typer.Option(help="File for the best settings: forerun train --settings FILE.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Search for a predictor's hyperparameters that minimise error on held-out families.

    Finished trials are saved: run a stopped command (Ctrl-C too) again to resume it.
    """
    from forerun.data.places import default_folder
    from forerun.data.store import Store
    from forerun.evaluate import tuning
    from forerun.evaluate.collect import targets_of
    from forerun.predictors.registry import predictor_class

    kind = predictor_class(name)
    tuning.check(kind, grid)
    if out is not None and not out.parent.is_dir():
        raise ForerunError(f"there is no folder {out.parent} for {out.name}")
    chosen = targets_of(targets) if targets else ()
    cases = gathered(Store(), public, as_json, where, None if kind.reads_graphs else 0)
    with progress(f"{kind.name}: trials", quiet=as_json) as report:
        found = tuning.tune(
            kind, cases, default_folder() / "tuning", trials=trials, targets=chosen, folds=folds, seconds=seconds,
            grid=grid, progress=report,
        )  # fmt: skip
    if out is not None:
        out.write_text(json.dumps(found.settings, indent=1) + "\n")
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
        return
    earlier = f", {found.before} of them before this run" if found.before else ""
    failed = f", {found.failed} failed" if found.failed else ""
    print(f"{found.trials} trials{earlier}{failed}{'; stopped' if found.stopped else ''}")
    defaults = "" if found.usual_error is None else f" (default settings: {found.usual_error:.4f})"
    held_out = "families" if found.split == "family" else "models"
    print(f"median error of held-out {held_out}, as a logarithm: {found.error:.4f}{defaults}")
    print(f"settings: {json.dumps(found.settings)}")
    if out is not None:
        print(f"written to {out}: use them with forerun train {name} --settings {out}")
