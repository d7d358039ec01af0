"""The commands. Each turns words into a call of the library and shows what comes back."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from forerun import __version__
from forerun.cli import data, measuring, training
from forerun.cli.options import (
    AmpOption,
    BatchOption,
    DeviceOption,
    DtypeOption,
    InputShapeOption,
    JsonOption,
    ModelArgument,
    ModeOption,
    OptimizerOption,
    RemoteCodeOption,
    RuntimeOption,
    SeqLenOption,
    TaskOption,
    parse_input_shape,
)
from forerun.cli.terminal import show, terminal_width, waiting
from forerun.errors import ForerunError

app = typer.Typer(
    help="Know how a deep-learning model will run before you run it.",
    no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
)  # fmt: skip


@app.callback(invoke_without_command=True)
def top(
    version: Annotated[bool, typer.Option("--version", help="Show the version and leave.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"forerun {__version__}")
        raise typer.Exit


@app.command()
def predict(
    model: ModelArgument,
    device: DeviceOption,
    batch: BatchOption = 1,
    dtype: DtypeOption = "fp32",
    mode: ModeOption = "inference",
    seq_len: SeqLenOption = None,
    input_shape: InputShapeOption = None,
    optimizer: OptimizerOption = None,
    amp: AmpOption = None,
    runtime: RuntimeOption = "eager",
    task: TaskOption = None,
    region: Annotated[str | None, typer.Option(help="Country or cloud region, for carbon: DEU, aws/us-east-1.")] = None,
    instance: Annotated[str | None, typer.Option(help="Cloud instance, for cost: p4d.24xlarge.")] = None,
    predictor: Annotated[str, typer.Option(help="Which predictor answers.")] = "default",
    confidence: Annotated[float, typer.Option(help="How often the interval shall hold: 0.5 to 0.99.")] = 0.9,
    host: Annotated[
        str, typer.Option(help="default, this (see: forerun measure host), or how many times slower.")
    ] = "default",
    trust_remote_code: RemoteCodeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Latency, memory, energy, cost of one model on one device."""
    from forerun.api import predict as run

    with waiting(f"reading {model}", quiet=as_json):
        answer = run(
            model, device, batch=batch, dtype=dtype, mode=mode, seq_len=seq_len, optimizer=optimizer, amp=amp,
            input_shape=parse_input_shape(input_shape), runtime=runtime, task=task, region=region, instance=instance,
            predictor=predictor, trust_remote_code=trust_remote_code, confidence=confidence, host=host,
        )  # fmt: skip
    if as_json:
        print(answer.to_json(indent=2))
    else:
        show(answer)


@app.command()
def compare(
    model: ModelArgument,
    devices: Annotated[str, typer.Option("--devices", "-d", help="Devices, separated by commas.")],
    batch: BatchOption = 1,
    dtype: DtypeOption = "fp32",
    mode: ModeOption = "inference",
    seq_len: SeqLenOption = None,
    input_shape: InputShapeOption = None,
    optimizer: OptimizerOption = None,
    amp: AmpOption = None,
    runtime: RuntimeOption = "eager",
    task: TaskOption = None,
    as_json: JsonOption = False,
) -> None:
    """One model on several devices, fastest first."""
    from forerun.api import compare as run

    names = [d.strip() for d in devices.split(",") if d.strip()]
    if not names:
        raise ForerunError("--devices needs at least one device, such as t4,l4,h100-sxm")
    with waiting(f"reading {model}", quiet=as_json):
        frame = run(
            model, names, batch=batch, dtype=dtype, mode=mode, seq_len=seq_len, optimizer=optimizer, amp=amp,
            input_shape=parse_input_shape(input_shape), runtime=runtime, task=task,
        )  # fmt: skip
    if as_json:
        print(frame.to_json(orient="records", indent=2))
        return
    from forerun.show import comparison_view

    said = [
        mode,
        f"batch {batch}",
        dtype,
        f"{seq_len:,} tokens" if seq_len else "",
        optimizer or "",
        f"amp {amp}" if amp else "",
    ]
    said += [
        runtime if runtime != "eager" else "",
        f"basis: {', '.join(sorted(set(frame['basis'].dropna())))}" if "basis" in frame else "",
    ]
    show(*comparison_view(frame, f"{model}: {', '.join(w for w in said if w)}", terminal_width()))


@app.command()
def explain(
    model: ModelArgument,
    device: DeviceOption,
    batch: BatchOption = 1,
    dtype: DtypeOption = "fp32",
    mode: ModeOption = "inference",
    seq_len: SeqLenOption = None,
    input_shape: InputShapeOption = None,
    optimizer: OptimizerOption = None,
    amp: AmpOption = None,
    runtime: RuntimeOption = "eager",
    task: TaskOption = None,
    top: Annotated[int, typer.Option(help="How many rows to show.", min=1)] = 15,
    as_json: JsonOption = False,
) -> None:
    """Where the time goes: per op its time, its share, and what binds it."""
    from forerun.api import explain as run

    with waiting(f"reading {model}", quiet=as_json):
        found = run(
            model, device, batch=batch, dtype=dtype, mode=mode, seq_len=seq_len, optimizer=optimizer, amp=amp,
            input_shape=parse_input_shape(input_shape), runtime=runtime, task=task,
        )  # fmt: skip
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
        return
    from forerun.show import explanation_view

    show(*explanation_view(found, top, terminal_width()))


@app.command()
def devices(
    name: Annotated[str | None, typer.Argument(help="A device, to see all its fields and their sources.")] = None,
    as_json: JsonOption = False,
) -> None:
    """The device catalogue, or one device with the source of every field."""
    from forerun.device import all_devices, load_device
    from forerun.show import device_view, devices_table

    if name is None:
        found = all_devices()
        if as_json:
            print(json.dumps([d.to_dict() for d in found], indent=2))
        else:
            show(devices_table(found))
        return
    device = load_device(name)
    if as_json:
        print(json.dumps(device.to_dict(), indent=2))
    else:
        show(*device_view(device))


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="A model, or part of a name to look for.")] = None,
    as_json: JsonOption = False,
) -> None:
    """The models known by name, or one of them."""
    from forerun.cli.models import list_models

    with waiting("reading the catalogue", quiet=as_json):
        found = list_models(name)
    if as_json:
        print(json.dumps(found.data, indent=2))
    else:
        show(*found.view)


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """What is installed, what is missing, and the command that adds it."""
    from forerun.cli.doctor import examine, view

    found = examine()
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        show(*view(found))


@app.command()
def install(what: Annotated[str, typer.Argument(help="keras or paddle: the packages that read such models.")]) -> None:
    """Adds the packages that one kind of model needs, in an environment of their own."""
    from rich.console import Console

    from forerun.graph.sources import converter_env

    with Console(stderr=True).status(f"installing {what} …") as status:
        where = converter_env.install(what, progress=lambda line: status.update(line))
    print(f"{what} is ready in {where}")


app.command()(measuring.measure)
app.command()(measuring.verify)
app.command()(measuring.sweep)
app.command()(training.train)
app.command()(training.evaluate)
app.add_typer(data.app, name="data")
