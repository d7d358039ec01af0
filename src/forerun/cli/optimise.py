"""`forerun optimise`: changes that make a model run better."""

from __future__ import annotations

import json
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
)
from forerun.cli.terminal import show, terminal_width, waiting
from forerun.cli.workload_options import WorkloadSettings, takes_workload
from forerun.decisions.optimise.goals import GOALS

GoalOption = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(GOALS)}; all but latency and memory are per sample, so that the batch may grow.",
        autocompletion=lambda incomplete: [goal for goal in GOALS if goal.startswith(incomplete)],
    ),
]


@takes_workload()
def optimise(
    model: ModelArgument,
    device: DeviceOption,
    settings: WorkloadSettings,
    goal: GoalOption = "latency",
    region: RegionOption = None,
    instance: InstanceOption = None,
    predictor: PredictorOption = "default",
    confidence: ConfidenceOption = 0.9,
    host: HostOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Suggest changes that make a model faster or smaller, each with its predicted gain and interval."""
    from forerun.decisions.optimise.optimise import optimise as run

    with waiting(f"trying changes of {model}", quiet=as_json):
        result = run(
            model, device, goal=goal, predictor=predictor, confidence=confidence, host=host, region=region,
            instance=instance, **settings.values,
        )  # fmt: skip
    if as_json:
        print(json.dumps(result.to_dict(), indent=2))
        return
    from forerun.views.optimise import optimise_view

    show(*optimise_view(result, terminal_width()))
