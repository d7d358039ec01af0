"""forerun predict, compare and explain. Each parses its options, calls the library and prints the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.options import (
    ConfidenceOption,
    DeviceOption,
    HostOption,
    InstanceOption,
    JsonOption,
    ModelArgument,
    PredictorOption,
    RegionOption,
    ThreadsOption,
    whole_number,
)
from forerun.cli.terminal import show, terminal_width, waiting
from forerun.cli.workload_options import WorkloadSettings, takes_workload
from forerun.errors import ForerunError


@takes_workload(several=True)
def predict(
    model: ModelArgument,
    device: DeviceOption,
    settings: WorkloadSettings,
    region: RegionOption = None,
    instance: InstanceOption = None,
    predictor: PredictorOption = "default",
    confidence: ConfidenceOption = 0.9,
    host: HostOption = "default",
    threads: ThreadsOption = None,
    measured: Annotated[
        bool,
        typer.Option(
            "--measured/--no-measured", help="Use a stored measurement of exactly this case, if there is one."
        ),
    ] = True,
    epochs: Annotated[
        int | None,
        typer.Option(help="With --mode training: number of epochs.", parser=whole_number, metavar="INTEGER"),
    ] = None,
    dataset_size: Annotated[
        int | None, typer.Option(help="Samples per epoch.", parser=whole_number, metavar="INTEGER")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict latency, memory, energy and cost of a model on a device."""
    from forerun.api.predict import predict as run

    with waiting(f"reading {model}", quiet=as_json):
        answer = run(
            model, device, region=region, instance=instance, predictor=predictor, confidence=confidence, host=host,
            measured=measured, epochs=epochs, dataset_size=dataset_size, threads=threads, **settings.values,
        )  # fmt: skip
    if as_json:
        print(answer.to_json(indent=2))
    else:
        show(answer)


@takes_workload(several=True)
def compare(
    model: ModelArgument,
    devices: Annotated[str, typer.Option("--devices", "-d", help="Devices, separated by commas.")],
    settings: WorkloadSettings,
    region: RegionOption = None,
    instance: InstanceOption = None,
    predictor: PredictorOption = "default",
    confidence: ConfidenceOption = 0.9,
    host: HostOption = "default",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict a model on several devices and list them, fastest first; a language model also in a serving engine."""
    from forerun.decisions.compare.compare import compare as run

    names = [d.strip() for d in devices.split(",") if d.strip()]
    if not names:
        raise ForerunError("--devices needs at least one device, such as t4,l4,h100-sxm")
    with waiting(f"reading {model}", quiet=as_json):
        frame = run(
            model, names, predictor=predictor, confidence=confidence, host=host, region=region, instance=instance,
            threads=threads, **settings.values,
        )  # fmt: skip
    if frame.served is not None:
        with waiting(f"planning services of {model}", quiet=as_json):
            _ = frame.served.plan
    if as_json:
        print(json.dumps(frame.plain_rows(), indent=2))
        return
    from forerun.api.questions import given_model
    from forerun.views.comparison import comparison_view
    from forerun.views.words import setting_words

    basis = f", basis: {', '.join(sorted(set(frame['basis'].dropna())))}" if "basis" in frame else ""
    request = given_model(model, settings.values)
    words = setting_words({**settings.values, "dtype": request.dtype, "published": request.published})
    title = f"{model}: {words}{', dtype as published' if request.published else ''}{basis}"
    carbon = region is not None or instance is not None
    show(*comparison_view(frame, title, terminal_width(), confidence, carbon))
    if frame.served is not None:
        from forerun.views.served import served_view

        show(*served_view(frame.served, terminal_width()))


@takes_workload()
def explain(
    model: ModelArgument,
    device: DeviceOption,
    settings: WorkloadSettings,
    predictor: PredictorOption = "default",
    host: HostOption = "default",
    top: Annotated[int, typer.Option(help="Number of rows to show.", min=1)] = 15,
    figure: Annotated[
        Path | None, typer.Option(help="HTML file for a chart of feature contributions (predictor trees).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show where the time goes: the time of each op, its share, and its bottleneck.

    For a whole-network predictor (trees), the contribution of each feature to the latency is shown instead.
    """
    from forerun.api.predict import explain as run
    from forerun.predictors.registry import load_predictor

    if "device_ms" not in load_predictor(predictor).targets:
        from forerun.cli.features import explain_features

        explain_features(model, device, predictor, host, settings, top=top, figure=figure, as_json=as_json)
        return
    if figure is not None:
        raise ForerunError(f"--figure shows feature contributions: {predictor} explains the time of ops instead")
    with waiting(f"reading {model}", quiet=as_json):
        explanation = run(model, device, predictor=predictor, host=host, **settings.values)
    if as_json:
        print(json.dumps(explanation.to_dict(), indent=2))
        return
    from forerun.views.explanation import explanation_view

    show(*explanation_view(explanation, terminal_width(), top))
