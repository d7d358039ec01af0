"""forerun describe: a model's graph in words."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from forerun.cli.options import JsonOption, ModelArgument
from forerun.cli.terminal import show, waiting
from forerun.cli.workload_options import WorkloadSettings, takes_workload


@takes_workload()
def describe(
    model: ModelArgument,
    settings: WorkloadSettings,
    predictor: Annotated[
        str | None, typer.Option(help="Folder of a fitted gnn-llm, which says what it sees in the graph.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Describe a model's graph in words: nodes, edges, FLOPs, parameters, and every kind of layer."""
    from forerun.api.description import describe as run

    with waiting(f"reading {model}", quiet=as_json):
        described = run(model, predictor=predictor, **settings.values)
    if as_json:
        print(json.dumps(described.to_dict(), indent=2))
    else:
        show(described)
