"""The commands that run models on this machine: measure, verify, sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun._util.extras import require
from forerun._util.quantities import DURATION, quantity
from forerun.cli.options import JsonOption, ModelArgument
from forerun.cli.progress import progress, tracked
from forerun.cli.terminal import show, waiting
from forerun.cli.watching import after_measuring, print_notes, said_after, update
from forerun.cli.workload_options import WorkloadSettings, takes_workload

if TYPE_CHECKING:
    from forerun.training.adapting.watching import Watched
    from forerun.workload import Workload

MeterOption = Annotated[str, typer.Option(help="auto, or the name of a meter: cuda, cpu, or one that is installed.")]
KeepOption = Annotated[bool, typer.Option("--keep/--no-keep", help="Add the row to the store.")]


#: What is measured is a name or an ONNX file: settings of other models are not offered.
_UNMEASURED = ("image_size", "images", "task", "trust_remote_code")


@takes_workload(*_UNMEASURED)
def measure(
    model: ModelArgument,
    settings: WorkloadSettings,
    device: MeterOption = "auto",
    keep: KeepOption = True,
    budget: Annotated[str | None, typer.Option(help="machine: the time budget, such as 60s.")] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from", help="machine: a file measured elsewhere, instead of measuring.")
    ] = None,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="machine: print a device file with the ceilings.")] = False,
    as_device: Annotated[Path | None, typer.Option(help="machine: write that device file, which must be new.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a model on this machine, on its GPU or else its CPU; print the row and add it to the store.

    Models are timm and torchvision names, language models and encoders of the Hugging Face catalogue (forerun models),
    families such as cnn:depth=6,filters=32, and ONNX files, which onnxruntime runs on the CPU (forerun[onnxruntime]).

    `forerun measure host` measures how fast this machine launches work; predictions for its GPU use it for a day.

    `forerun measure machine` measures the ceilings of its GPU or CPU: peaks by dtype, bandwidth, launch cost, power.
    """
    from forerun.api.questions import workload_from
    from forerun.cli.machine import MachineWords, measure_machine

    words = MachineWords(device, keep, budget, from_file, as_yaml, as_device, as_json)
    if model == "machine":
        return measure_machine(words)
    words.refuse_for(model)
    if model == "host":
        return _host(device, as_json)

    work = workload_from({"model": model, **settings.values})
    with waiting(f"measuring {model}", quiet=as_json):
        row = _measured(work, keep, device)
    seen = after_measuring(row, as_json) if keep else None
    if as_json:
        print(json.dumps(row | ({} if seen is None else {"watched": seen.to_dict()}), indent=2))
    else:
        from forerun.views.measurement import measurement_view

        show(*measurement_view(row))
        print_notes([] if seen is None else said_after(seen, model), as_json)


@takes_workload(*_UNMEASURED)
def verify(
    model: ModelArgument,
    settings: WorkloadSettings,
    device: Annotated[
        str | None, typer.Option(help="A .yaml file of this machine, when the catalogue lacks it.")
    ] = None,
    predictor: Annotated[str, typer.Option(help="The predictor to check.")] = "default",
    keep: KeepOption = True,
    as_json: JsonOption = False,
) -> None:
    """Predict a case for this machine, measure it here, and show both with the error.

    ONNX files are predicted and measured in onnxruntime.
    """
    from forerun.api.predict import verification
    from forerun.api.questions import workload_from
    from forerun.device import load_device
    from forerun.measure.machine import this_device
    from forerun.measure.onnx_runtime import runtime_of

    runtime = runtime_of(model, settings.values["runtime"])
    work = workload_from({"model": model, **settings.values, "runtime": runtime})
    with waiting("identifying this machine", quiet=as_json):
        chosen = load_device(device) if device else this_device()
    with waiting(f"predicting and measuring {model}", quiet=as_json):
        result = verification(work, chosen, _measured(work, keep), predictor=predictor)
    seen = after_measuring(result.row, as_json) if keep else None  # the prediction knew nothing of the row
    if as_json:
        print(json.dumps(result.to_dict() | ({} if seen is None else {"watched": seen.to_dict()}), indent=2))
    else:
        from forerun.views.measurement import verification_view

        show(*verification_view(result))
        print_notes([] if seen is None else said_after(seen, model), as_json)


def sweep(
    specs: Annotated[list[Path], typer.Argument(help="Sweep specs (.yaml or .json); several share the time budget.")],
    time_budget: Annotated[str, typer.Option(help="When to stop: 90s, 20m, 1.5h.")] = "1h",
    out: Annotated[Path | None, typer.Option(help="File of rows; a second run continues it.")] = None,
    device: MeterOption = "auto",
    seed: Annotated[int, typer.Option(help="Seed for the order of the models.")] = 0,
    resume: Annotated[list[Path] | None, typer.Option(help="Files of rows that are measured already.")] = None,
    data: Annotated[str | None, typer.Option(help="Images (.npz) for sweeps of kind curve.")] = None,
    case_limit: Annotated[str, typer.Option(help="The most time for one case.")] = "20s",
    cooldown: Annotated[float, typer.Option(help="Seconds of rest before each model.", min=0)] = 0.0,
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Add the rows to the store at the end.")] = True,
    graphs: Annotated[bool, typer.Option("--graphs/--no-graphs", help="Add the hash of its graph to each row.")] = True,
    trust_remote_code: Annotated[bool, typer.Option(help="Run the Python files that the specs name.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure many cases on this machine. A sweep can be interrupted and resumed: no row is lost or measured twice."""
    from forerun.data.intake import take_in
    from forerun.data.store import Store
    from forerun.measure import sweep as sweeping

    store = Store()
    names = [str(sweeping.load(path)["name"]) for path in specs]
    place = out or store.folder / "sweeps" / f"{'+'.join(names)}-{device}.jsonl"
    with progress("measuring", quiet=as_json) as report:
        done, total = sweeping.run(
            specs, place, budget_s=quantity(time_budget, DURATION, positive=True), device=device, seed=seed,
            resume=resume or [], data=data, case_limit_s=quantity(case_limit, DURATION, positive=True),
            cooldown_s=cooldown, trust_remote_code=trust_remote_code, progress=report,
        )  # fmt: skip
    added: dict[str, int] = {}
    seen: list[Watched] = []
    if keep and place.exists():
        filed = tracked("filing", quiet=as_json)
        added = take_in([place], store, graphs=graphs, progress=filed, trust_remote_code=trust_remote_code)
        seen = update(as_json)
    if as_json:
        print(json.dumps({"done": done, "wanted": total, "rows": str(place), "stored": added}, indent=2))
        return
    rest = "" if done == total else "; run it again to continue"
    print(f"{done} of {total} cases are measured{rest}. Rows: {place}")
    if keep:
        print(f"New in the store: {', '.join(f'{n} {table}' for table, n in added.items()) or 'nothing'}")
    for one in seen:
        print_notes([one.line, *([one.drift] if one.drift else [])], as_json)


def _host(device: str, as_json: bool) -> None:
    from dataclasses import asdict

    from forerun.measure import host, saved_host

    with waiting("measuring the host", quiet=as_json):
        speed = host.probe(device=device)
        place = saved_host.keep(speed)
    if as_json:
        print(json.dumps(asdict(speed), indent=2))
        return
    print(f"{speed.cpu}: launching work takes {speed.slowness:.2f} times as long as on the reference host")
    if speed.dispatch_only:
        print("There is no GPU here, so only the dispatcher was timed.")
    hours = int(saved_host.FRESH.total_seconds() // 3600)
    where = "" if speed.dispatch_only else f"for {speed.device_id} during {hours} hours, and "
    print(f"Saved in {place}; predictions use it {where}with --host this")


def _measured(work: Workload, keep: bool, device: str = "auto") -> dict[str, Any]:
    from forerun.measure.once import measure_workload
    from forerun.workload import is_onnx_file

    if keep:
        require("adding the row to the store (--no-keep omits it)", "pyarrow", "filelock", extra="measure")
    row = measure_workload(work, device)
    if keep:
        from forerun.data import saved_graphs
        from forerun.data.intake import add_graphs, model_row
        from forerun.data.store import Store

        rows = [model_row(row, "own")]
        store = Store()
        saved_graphs.save(store, add_graphs(rows, onnx_files=[work.model] if is_onnx_file(work.model) else ()))
        store.append("models", rows)
    return row
