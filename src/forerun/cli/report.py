"""`forerun report`: one HTML page that analyses a model on several devices."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from forerun.cli.options import (
    ConfidenceOption,
    HostOption,
    JsonOption,
    ModelArgument,
    PredictorOption,
    RegionOption,
    ThreadsOption,
    whole_number,
)
from forerun.cli.progress import progress
from forerun.cli.workload_options import WorkloadSettings, takes_workload
from forerun.errors import ForerunError


@takes_workload("batch")
def report(
    model: ModelArgument,
    devices: Annotated[str, typer.Option("--device", "--devices", "-d", help="Devices, separated by commas.")],
    settings: WorkloadSettings,
    batch: Annotated[
        int,
        typer.Option("--batch", "-b", help="Samples per call, and per GPU.", parser=whole_number, metavar="INTEGER"),
    ] = 32,
    output: Annotated[
        str, typer.Option("--output", "-o", help="The HTML file; an existing one is replaced.")
    ] = "report.html",
    dataset_size: Annotated[
        int, typer.Option(help="Samples per epoch of training.", parser=whole_number, metavar="INTEGER")
    ] = 1_281_167,
    epochs: Annotated[int, typer.Option(help="Epochs of training.", parser=whole_number, metavar="INTEGER")] = 90,
    loading_rate: Annotated[
        float | None, typer.Option(help="Samples per second that data loading delivers; default: it never waits.")
    ] = None,
    measured: Annotated[
        bool,
        typer.Option("--measured", help="Measure ceilings and a short training run too, on the device that is here."),
    ] = False,
    region: RegionOption = None,
    predictor: PredictorOption = "default",
    confidence: ConfidenceOption = 0.9,
    host: HostOption = "default",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write one HTML page that analyses a model: operators, training, distributed, inference, serving, cloud."""
    from forerun.report.make import make_report as run

    names = [d.strip() for d in devices.split(",") if d.strip()]
    if not names:
        raise ForerunError("--device needs at least one device, such as v100-16gb,a100-sxm4-40gb")
    with progress(f"report on {model}", quiet=as_json) as report_progress:
        result = run(
            model, names, output, batch=batch, dataset_size=dataset_size, epochs=epochs, region=region,
            predictor=predictor, confidence=confidence, host=host, threads=threads, progress=report_progress,
            loading_samples_per_s=loading_rate, measured=measured, **settings.values,
        )  # fmt: skip
    if as_json:
        print(json.dumps(result.to_dict(), indent=2))
        return
    from forerun._util.readable import visible
    from forerun.cli.terminal import show

    for line in result.summary:
        show(visible(line))
    print(f"The report is in {visible(output)}")
