"""The commands of the library itself. Each parses its options, calls the library and prints the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from forerun import __version__
from forerun.cli import budget, data, landscape, measuring, mig, optimise, recommend, report, serve, training, tune
from forerun.cli.features import explain_features
from forerun.cli.options import (
    ConfidenceOption,
    DeviceOption,
    HostOption,
    InstanceOption,
    JsonOption,
    ModelArgument,
    PredictorOption,
    RegionOption,
    whole_number,
)
from forerun.cli.terminal import plain_text, show, terminal_width, waiting
from forerun.cli.workload_options import WorkloadSettings, takes_workload
from forerun.errors import ForerunError

app = typer.Typer(
    help="Know how a deep-learning model will run before you run it.",
    no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
)  # fmt: skip


@app.callback(invoke_without_command=True)
def top(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"forerun {__version__}")
        raise typer.Exit


@app.command()
@takes_workload()
def predict(
    model: ModelArgument,
    device: DeviceOption,
    settings: WorkloadSettings,
    region: RegionOption = None,
    instance: InstanceOption = None,
    predictor: PredictorOption = "default",
    confidence: ConfidenceOption = 0.9,
    host: HostOption = "default",
    measured: Annotated[
        bool, typer.Option("--measured/--no-measured", help="Answer from the store where it has the very case.")
    ] = True,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="With --mode training: epochs of the whole training.", parser=whole_number, metavar="INTEGER"
        ),
    ] = None,
    dataset_size: Annotated[
        int | None, typer.Option(help="Samples in an epoch.", parser=whole_number, metavar="INTEGER")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict latency, memory, energy and cost of a model on a device."""
    from forerun.api import predict as run

    with waiting(f"reading {model}", quiet=as_json):
        answer = run(
            model, device, region=region, instance=instance, predictor=predictor, confidence=confidence, host=host,
            measured=measured, epochs=epochs, dataset_size=dataset_size, **settings.values,
        )  # fmt: skip
    if as_json:
        print(answer.to_json(indent=2))
    else:
        show(answer)


@app.command()
@takes_workload()
def compare(
    model: ModelArgument,
    devices: Annotated[str, typer.Option("--devices", "-d", help="Devices, separated by commas.")],
    settings: WorkloadSettings,
    region: RegionOption = None,
    instance: InstanceOption = None,
    predictor: PredictorOption = "default",
    confidence: ConfidenceOption = 0.9,
    host: HostOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Predict a model on several devices and list them, fastest first."""
    from forerun.api import compare as run

    names = [d.strip() for d in devices.split(",") if d.strip()]
    if not names:
        raise ForerunError("--devices needs at least one device, such as t4,l4,h100-sxm")
    with waiting(f"reading {model}", quiet=as_json):
        frame = run(
            model, names, predictor=predictor, confidence=confidence, host=host, region=region, instance=instance,
            **settings.values,
        )  # fmt: skip
    if as_json:
        print(frame.to_json(orient="records", indent=2))
        return
    from forerun.show import comparison_view, setting_words

    basis = f", basis: {', '.join(sorted(set(frame['basis'].dropna())))}" if "basis" in frame else ""
    title = f"{model}: {setting_words({**settings.values, 'dtype': frame['dtype'].iloc[0]})}{basis}"
    carbon = region is not None or instance is not None
    show(*comparison_view(frame, title, terminal_width(), confidence, carbon))


@app.command()
@takes_workload()
def explain(
    model: ModelArgument,
    device: DeviceOption,
    settings: WorkloadSettings,
    predictor: PredictorOption = "default",
    host: HostOption = "default",
    top: Annotated[int, typer.Option(help="How many rows to show.", min=1)] = 15,
    figure: Annotated[
        Path | None, typer.Option(help="HTML file for a chart of what features contribute (predictor trees).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show where the time goes: the time of each op, its share, and what limits it.

    A predictor that looks at a network as a whole (trees) shows what each number it sees does to the latency instead.
    """
    from forerun.api import explain as run
    from forerun.predictors.registry import load_predictor

    if "device_ms" not in load_predictor(predictor).targets:
        explain_features(model, device, predictor, host, settings, top=top, figure=figure, as_json=as_json)
        return
    if figure is not None:
        raise ForerunError(f"--figure shows what features contribute: {predictor} explains the time of ops instead")
    with waiting(f"reading {model}", quiet=as_json):
        found = run(model, device, predictor=predictor, host=host, **settings.values)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
        return
    from forerun.show import explanation_view

    show(*explanation_view(found, top, terminal_width()))


@app.command()
def devices(
    name: Annotated[str | None, typer.Argument(help="A device whose fields and sources are shown.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the device catalogue, or show one device: the source of every field, and what was measured of it."""
    from forerun.cli.machine import known_ceilings, list_of_measured, measured_here
    from forerun.device import all_devices, load_device
    from forerun.show import device_view, devices_table

    if name is None:
        found = all_devices()
        if as_json:
            print(json.dumps([d.to_dict() for d in found], indent=2))
        else:
            show(devices_table(found, terminal_width()), *list_of_measured())
        return
    device = load_device(name)
    own = measured_here(device)
    if as_json:
        print(json.dumps({**device.to_dict(), "measured_here": own}, indent=2))
    else:
        show(*device_view(device), *known_ceilings(device, own))


@app.command()
def hosts(
    name: Annotated[str | None, typer.Argument(help="A host whose rows and source are shown.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the hosts that --host knows by name and this machine's probe, or show one with the rows it comes from."""
    from forerun.cli.hosts import list_hosts

    found, view = list_hosts(name)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        show(*view)


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="A model, or a part of its name.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the models that are known by name, or show one of them."""
    from forerun.cli.models import list_models

    with waiting("reading the catalogue", quiet=as_json):
        found = list_models(name)
    if as_json:
        print(json.dumps(found.data, indent=2))
    else:
        show(*found.view)


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Report versions, this machine, the store, the weights, and what is missing. Add --json to a bug report."""
    from forerun.cli.doctor import examine, view

    found = examine()
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        show(*view(found))


@app.command()
def install(what: Annotated[str, typer.Argument(help="keras or paddle.")]) -> None:
    """Install the packages that read one kind of model, in an environment of their own."""
    from rich.console import Console

    from forerun.graph.sources import converter_env

    with Console(stderr=True).status(plain_text(f"installing {what} …")) as status:
        where = converter_env.install(what, progress=lambda line: status.update(plain_text(line)))
    print(f"{what} is ready in {where}")


app.command()(recommend.recommend)
app.command()(optimise.optimise)
app.command()(budget.budget)
app.command()(mig.mig)
app.command()(report.report)
app.command()(serve.serve)
app.command()(serve.mcp)
app.command()(measuring.measure)
app.command()(measuring.verify)
app.command()(measuring.sweep)
app.command()(training.train)
app.command()(training.evaluate)
app.command()(tune.tune)
app.add_typer(data.app, name="data")
app.add_typer(landscape.app, name="landscape")
