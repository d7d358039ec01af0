"""`forerun adapt`: a device, corrected by a handful of measured calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from forerun._util.quantities import DURATION, quantity
from forerun.cli.options import JsonOption
from forerun.cli.progress import tracked
from forerun.cli.terminal import waiting
from forerun.cli.watching import watching
from forerun.errors import ForerunError


def adapt(
    device: Annotated[
        str | None, typer.Option("--device", "-d", help="The device: an id, a .yaml file, or a folder adapted before.")
    ] = None,
    rows: Annotated[
        Path | None, typer.Option(help="Its measured cases: a store, or a .jsonl, .csv or .parquet file.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder (--rows) or the sweep file (--plan) to write.")] = None,
    plan: Annotated[
        int | None, typer.Option(help="Choose so many cases that tell most about the device.", min=1, max=200)
    ] = None,
    architectures: Annotated[
        Path | None, typer.Option(help="Cases of a new kind of network on known devices, instead of --rows.")
    ] = None,
    time_budget: Annotated[str, typer.Option(help="--plan: the time to measure, such as 20m.")] = "20m",
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Use what this machine measures for its predictions, from now on; say how far."),
    ] = False,
    state: Annotated[
        str | None, typer.Argument(help="--watch: off ends it, fresh forgets what was measured before.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Correct predictions for a device by 5 to 200 measured cases, or choose the cases to measure.

    The folder is a device: forerun predict resnet50 --device FOLDER/. That of --architectures is a predictor.

    With --watch, measure, verify and sweep improve the next predictions for this machine by themselves.
    """
    if watch or state is not None:
        if not watch or any(one is not None for one in (device, rows, out, plan, architectures)):
            raise ForerunError("--watch goes alone, or with one word: on, off or fresh")
        watching(state, as_json)
        return
    if architectures is not None:
        if rows is not None or plan is not None:
            raise ForerunError("--architectures goes without --rows and --plan")
        _adapt(device, architectures, out, as_json, networks=True)
        return
    if device is None:
        raise ForerunError("--device says which device is adapted: an id, or a .yaml file of it")
    if (rows is None) == (plan is None):
        raise ForerunError("give --rows (what was measured) or --plan (how many cases to measure), one of the two")
    if plan is not None:
        _plan(device, plan, quantity(time_budget, DURATION, positive=True), out, as_json)
    elif rows is not None:
        _adapt(device, rows, out, as_json)


def _adapt(name: str | None, source: Path, out: Path | None, as_json: bool, networks: bool = False) -> None:
    from forerun.device import load_device
    from forerun.predictors.registry import load_predictor
    from forerun.training.adapting import fitting, folder
    from forerun.training.adapting.rows import cases_of, of_device, read

    device = None if name is None else load_device(name)
    if out is not None:
        folder.check_place(out)
    predictor = load_predictor("default")
    found = read(source)
    if device is not None:
        found = of_device(found, device)
    elif "device" not in found:
        raise ForerunError(f"the rows of {source} name no device: add a column device, or give --device")
    cases = cases_of(found, device, predictor, tracked("capturing measured models", as_json))
    with waiting("fitting", quiet=as_json):
        if networks or device is None:
            fitted = fitting.adapt_networks(cases.cases, predictor)
        else:
            fitted = fitting.adapt(device, cases.cases, predictor)
    if out is not None:
        folder.write(out, fitted, cases.cases, cases.notes)
    if as_json:
        print(json.dumps(_as_json(fitted, cases, out), indent=2))
        return
    title = "kind of network" if fitted.device is None else fitted.device.id
    print(f"{title}: {len(cases.cases)} cases of {len({str(c.row['model']) for c in cases.cases})} models")
    for what, score in (("before", fitted.before), ("adapted", fitted.after)):
        inside = "" if score.coverage != score.coverage else f", 90 % intervals cover {score.coverage:.0f} %"
        print(f"{what}: mean error {score.mape:.0f} %, within 10 %: {score.within_10:.0f} %{inside}")
    print("(each model held out in turn)")
    for line in (*fitted.named, *cases.notes):
        print(f"Note: {line}")
    option = "predictor" if fitted.device is None else "device"
    print(f"Written to {out}: use it with --{option} {out}" if out else "Nothing was written: give --out FOLDER")


def _as_json(fitted: Any, cases: Any, out: Path | None) -> dict[str, Any]:
    from dataclasses import asdict

    def scores(score: Any) -> dict[str, float | None]:
        return {name: None if value != value else round(value, 3) for name, value in asdict(score).items()}

    return {
        "device": None if fitted.device is None else fitted.device.id, "cases": len(cases.cases),
        "before": scores(fitted.before), "after": scores(fitted.after),
        "corrections": {
            name: {"times": factor, "deviation": deviation} for name, (factor, deviation) in fitted.corrections.items()
        },
        "power": fitted.power, "notes": [*fitted.named, *cases.notes], "out": None if out is None else str(out),
    }  # fmt: skip


def _plan(name: str, count: int, budget_s: float, out: Path | None, as_json: bool) -> None:
    from forerun.device import load_device
    from forerun.predictors.registry import load_predictor
    from forerun.training.adapting import planning

    device = load_device(name)
    tracker = tracked("capturing candidates", as_json)
    chosen = planning.plan(device, load_predictor("default"), count, budget_s, tracker)
    spec = planning.sweep_of(device, chosen)
    if out is not None:
        planning.write(out, spec)
    if as_json:
        print(json.dumps({"cases": [case.to_dict() for case in chosen.cases], "seconds": chosen.seconds,
                          "deviation_before": chosen.before, "deviation_after": chosen.after,
                          "out": None if out is None else str(out)}, indent=2))  # fmt: skip
        return
    if out is None:
        print(planning.as_text(spec), end="")
        return
    print(
        f"{len(chosen.cases)} cases, about {chosen.seconds:.0f} s: the expected error falls from "
        f"{100 * chosen.before:.0f} % to {100 * chosen.after:.0f} %"
    )
    print(f"Written to {out}: run forerun sweep {out} on the device")
