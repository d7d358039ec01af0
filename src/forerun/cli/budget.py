"""`forerun budget`: the cost of a job, what fits into a budget, and which network to choose."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from forerun._util.quantities import LATENCY, optional_quantity
from forerun.cli.options import (
    ConfidenceOption,
    HostOption,
    InstanceOption,
    JsonOption,
    PredictorOption,
    RegionOption,
    whole_number,
)
from forerun.cli.progress import progress
from forerun.cli.terminal import show, waiting
from forerun.cli.workload_options import WorkloadSettings, takes_workload
from forerun.errors import ForerunError


def _integer_option(help_text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(help=help_text, parser=whole_number, metavar="INTEGER")
    return option


@takes_workload("batch", "mode")
def budget(
    model: Annotated[
        str,
        typer.Argument(
            help="A model; timm or torchvision: the best published model; cnn: the best network of our curves."
        ),
    ],
    settings: WorkloadSettings,
    device: Annotated[
        str | None,
        typer.Option("--device", "-d", help="A device, or several with commas; default: all with a price."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="A data set by name: imagenet, cifar10, coco, squad, …")] = None,
    dataset_size: Annotated[int | None, _integer_option("Samples in an epoch.")] = None,
    epochs: Annotated[int | None, _integer_option("Epochs; default: as many as fit.")] = None,
    steps: Annotated[int | None, _integer_option("Steps, instead of epochs over a data set.")] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            "-b",
            help="Samples per step and device; default: 32, with --max-latency 1.",
            parser=whole_number,
            metavar="INTEGER",
        ),
    ] = None,
    mode: Annotated[str | None, typer.Option(help="training (the default) or inference.")] = None,
    gpus: Annotated[int, _integer_option("Devices of one machine, data parallel: 1 to 8.")] = 1,
    max_hours: Annotated[float | None, typer.Option(help="Time limit in hours.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Time limit in seconds.")] = None,
    max_usd: Annotated[float | None, typer.Option(help="Cost limit in US dollars.")] = None,
    max_kwh: Annotated[float | None, typer.Option(help="Energy limit in kWh.")] = None,
    max_carbon_kg: Annotated[float | None, typer.Option(help="Limit of CO2 emissions in kg.")] = None,
    max_latency: Annotated[
        str | None, typer.Option(help="With timm or torchvision: latency limit of a call, such as 5ms.")
    ] = None,
    eval_size: Annotated[int | None, _integer_option("Samples evaluated after every epoch; default: none.")] = None,
    loading_rate: Annotated[
        float | None, typer.Option(help="Samples per second that data loading delivers; default: it never waits.")
    ] = None,
    most: Annotated[int, _integer_option("Most published models to predict.")] = 40,
    region: RegionOption = None,
    instance: InstanceOption = None,
    predictor: PredictorOption = "default",
    confidence: ConfidenceOption = 0.9,
    host: HostOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Predict time and cost of a training job, and what fits a budget: on which device, with which network."""
    from forerun.decisions.budget.budget import budget as run
    from forerun.decisions.budget.published_accuracy import COLLECTIONS

    names = [d.strip() for d in device.split(",") if d.strip()] if device is not None else None
    if names == []:
        raise ForerunError("--device needs a device, such as l4 or t4,l4,h100-sxm")
    searching = model in COLLECTIONS
    with progress("predicting", as_json or not searching) as report, waiting(f"reading {model}", as_json or searching):
        answer = run(
            model, device=names, dataset=dataset, dataset_size=dataset_size, epochs=epochs, steps=steps, batch=batch,
            gpus=gpus, max_hours=max_hours, max_seconds=max_seconds, max_usd=max_usd, max_kwh=max_kwh,
            max_carbon_kg=max_carbon_kg, max_latency_ms=optional_quantity(max_latency, LATENCY), eval_size=eval_size,
            loading_samples_per_s=loading_rate, most=most, mode=mode, region=region, instance=instance,
            predictor=predictor, confidence=confidence, host=host, progress=report, **settings.values,
        )  # fmt: skip
    if as_json:
        print(json.dumps(answer.to_dict(), indent=2))
    else:
        show(answer)
