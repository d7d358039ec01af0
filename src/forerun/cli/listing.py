"""forerun devices, hosts, models, doctor and install: what there is to predict with, and what is missing."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from forerun.cli.options import JsonOption
from forerun.cli.terminal import plain_text, show, terminal_width, waiting


def devices(
    name: Annotated[str | None, typer.Argument(help="A device whose fields and sources are shown.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the device catalogue, or show one device: the source of every field, and what was measured of it."""
    from forerun.cli.machine import known_ceilings, list_of_measured, measured_here
    from forerun.device import all_devices, load_device
    from forerun.views.device import device_view, devices_table

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


def doctor(as_json: JsonOption = False) -> None:
    """Report versions, this machine, the store, the weights, and what is missing. Add --json to a bug report."""
    from forerun.cli.doctor import examine, view

    found = examine()
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        show(*view(found))


def install(what: Annotated[str, typer.Argument(help="keras or paddle.")]) -> None:
    """Install the packages that read one kind of model, in an environment of their own."""
    from rich.console import Console

    from forerun.frontends.converters import environment as converter_env

    with Console(stderr=True).status(plain_text(f"installing {what} …")) as status:
        where = converter_env.install(what, progress=lambda line: status.update(plain_text(line)))
    print(f"{what} is ready in {where}")
