"""forerun mig: placement of several workloads on the slices of MIG GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from forerun._util.quantities import LATENCY, optional_quantity
from forerun.cli.options import (
    ConfidenceOption,
    DeviceOption,
    HostOption,
    JsonOption,
    PredictorOption,
)
from forerun.cli.terminal import show, terminal_width, waiting


def mig(
    device: DeviceOption,
    workloads: Annotated[
        list[str] | None,
        typer.Argument(help="Workloads: MODEL, or MODEL:batch=8,seq=128,dtype=fp16,count=2,max-latency=20ms,rate=50."),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A .yaml or .json file with a list of workloads.")] = None,
    goal: Annotated[str, typer.Option(help="gpus (the fewest), energy or latency.")] = "gpus",
    gpus: Annotated[int | None, typer.Option(help="The most GPUs to use.")] = None,
    max_latency: Annotated[
        str | None, typer.Option(help="The most latency of a call, for workloads without their own limit: 20ms, 0.5s.")
    ] = None,
    sure: Annotated[
        bool, typer.Option("--sure", help="Require that upper ends of intervals fit and are fast enough, too.")
    ] = False,
    predictor: PredictorOption = "default",
    confidence: ConfidenceOption = 0.9,
    host: HostOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Pack workloads onto MIG slices: valid placements, memory and latency on each slice, commands that create them."""
    from forerun.decisions.mig.packing import pack_mig
    from forerun.decisions.mig.workloads import read_file

    requests = [*(workloads or []), *(read_file(file) if file else [])]
    with waiting(f"predicting workloads on slices of {device}", quiet=as_json):
        packing = pack_mig(
            requests, device, goal=goal, gpus=gpus, max_latency_ms=optional_quantity(max_latency, LATENCY),
            sure=sure, predictor=predictor, confidence=confidence, host=host,
        )  # fmt: skip
    if as_json:
        print(json.dumps(packing.to_dict(), indent=2))
        return
    from forerun.views.mig import packing_view

    show(*packing_view(packing, terminal_width()))
