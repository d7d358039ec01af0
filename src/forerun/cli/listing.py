"""forerun devices, hosts, models, doctor and install: what is available, and what is missing."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from forerun.cli.options import JsonOption
from forerun.cli.terminal import plain_text, show, terminal_width, waiting


def devices(
    name: Annotated[str | None, typer.Argument(help="Show the fields and sources of this device.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the device catalogue, or show one device: the source of every field, and its measured ceilings."""
    from forerun.cli.machine import known_ceilings, list_of_measured, measured_here
    from forerun.device import all_devices, load_device
    from forerun.views.device import device_view, devices_table

    if name is None:
        rows = all_devices()
        if as_json:
            print(json.dumps([d.to_dict() for d in rows], indent=2))
        else:
            show(devices_table(rows, terminal_width()), *list_of_measured())
        return
    device = load_device(name)
    ceilings = measured_here(device)
    if as_json:
        print(json.dumps({**device.to_dict(), "measured_here": ceilings}, indent=2))
    else:
        show(*device_view(device), *known_ceilings(device, ceilings))


def hosts(
    name: Annotated[str | None, typer.Argument(help="Show the rows and source of this host or CPU.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the hosts and CPUs that --host takes by name and this machine's probe, or show what one is based on."""
    from forerun.cli.hosts import list_hosts

    rows, view = list_hosts(name)
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        show(*view)


def models(
    name: Annotated[str | None, typer.Argument(help="A model, or a part of its name.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the models that are available by name, or show one of them."""
    from forerun.cli.models import list_models

    with waiting("reading the catalogue", quiet=as_json):
        listing = list_models(name)
    if as_json:
        print(json.dumps(listing.data, indent=2))
    else:
        show(*listing.view)


def doctor(as_json: JsonOption = False) -> None:
    """Report versions, this machine, the store, the weights, and what is missing. Add --json to a bug report."""
    from forerun.cli.doctor import examine, view

    report = examine()
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        show(*view(report))


def install(what: Annotated[str, typer.Argument(help="keras or paddle.")]) -> None:
    """Install the packages that read one kind of model, in a separate environment."""
    from rich.console import Console

    from forerun.frontends.converters import environment as converter_env

    with Console(stderr=True).status(plain_text(f"installing {what} …")) as status:
        where = converter_env.install(what, progress=lambda line: status.update(plain_text(line)))
    print(f"{what} is ready in {where}")
