"""forerun recommend: which device, instance, batch and dtype, within limits, for a goal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from forerun._util.quantities import (
    CARBON,
    COST,
    ENERGY,
    LATENCY,
    MEMORY,
    PRICE,
    THROUGHPUT,
    optional_quantity,
)
from forerun.advice.limits import GOALS
from forerun.cli.options import (
    ConfidenceOption,
    HostOption,
    JsonOption,
    ModelArgument,
    PredictorOption,
    ThreadsOption,
    whole_number,
)
from forerun.cli.terminal import show, terminal_width, waiting
from forerun.cli.workload_options import WorkloadSettings, takes_workload
from forerun.errors import ForerunError
from forerun.runtimes.registry import BUILT_IN

if TYPE_CHECKING:
    from forerun.decisions.plans.serving_answer import ServingPlan
    from forerun.decisions.recommend.recommendation import Recommendation


@takes_workload("batch", "dtype", "tf32", "runtime")
def recommend(
    model: ModelArgument,
    settings: WorkloadSettings,
    goal: Annotated[str, typer.Option("--goal", "-g", help=", ".join(GOALS))] = "cost",
    batch: Annotated[
        str | None, typer.Option("--batch", "-b", "--batches", help="Batch sizes to try; default: 1 to 1024.")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            "--dtypes",
            help="Dtypes to try; default: as published, fp32, tf32, fp16, bf16 (training: fp32, tf32).",
        ),
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(BUILT_IN)}; default: eager, and cudagraph if only host time keeps every measured "
            "device above --max-latency."
        ),
    ] = None,
    max_latency: Annotated[str | None, typer.Option(help="Latency limit of a call: 25ms, 0.5s.")] = None,
    min_throughput: Annotated[
        str | None, typer.Option(help="Lower limit of samples or tokens per second: 2000.")
    ] = None,
    max_memory: Annotated[str | None, typer.Option(help="Memory limit per device: 24GB.")] = None,
    max_price: Annotated[str | None, typer.Option(help="Price limit in US dollars per hour: 2/h.")] = None,
    max_cost: Annotated[
        str | None, typer.Option(help="Cost limit in US dollars per million samples or tokens: 0.5.")
    ] = None,
    max_energy: Annotated[str | None, typer.Option(help="Energy limit per sample or token: 10J.")] = None,
    max_carbon: Annotated[
        str | None, typer.Option(help="Limit of CO2 emissions per million samples or tokens: 5g.")
    ] = None,
    clouds: Annotated[str | None, typer.Option(help="aws, gcp, azure, lambda, runpod.")] = None,
    regions: Annotated[
        str | None, typer.Option(help="Groups (eu, europe, asia …), countries or cloud regions.")
    ] = None,
    vendors: Annotated[str | None, typer.Option(help="NVIDIA, AMD, Google …")] = None,
    devices: Annotated[str | None, typer.Option("--devices", "-d", help="Only these devices.")] = None,
    gpus: Annotated[str | None, typer.Option(help="Numbers of devices; default: as instances have them.")] = None,
    mig: Annotated[bool, typer.Option("--mig/--no-mig", help="Include MIG slices.")] = True,
    predictor: PredictorOption = "default",
    confidence: ConfidenceOption = 0.9,
    host: HostOption = "default",
    threads: ThreadsOption = None,
    top: Annotated[int, typer.Option(help="Number of choices to show.", min=1)] = 10,
    all_candidates: Annotated[
        bool, typer.Option("--all", help="Show every instance and every rejected candidate.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Choose a device, an instance, a batch and a dtype for a model, within limits, for a goal."""
    from forerun.decisions.recommend.recommend import recommend as run

    with waiting(f"comparing devices for {model}", quiet=as_json):
        result = run(
            model, goal=goal, max_latency_ms=optional_quantity(max_latency, LATENCY),
            min_throughput=optional_quantity(min_throughput, THROUGHPUT),
            max_memory_mb=optional_quantity(max_memory, MEMORY),
            max_usd_per_hour=optional_quantity(max_price, PRICE), max_usd_per_million=optional_quantity(max_cost, COST),
            max_energy_j=optional_quantity(max_energy, ENERGY), max_carbon_g=optional_quantity(max_carbon, CARBON),
            clouds=_names("--clouds", clouds), regions=_names("--regions", regions),
            vendors=_names("--vendors", vendors), devices=_names("--devices", devices),
            dtypes=_names("--dtype", dtype), batches=_numbers("--batch", batch), gpus=_numbers("--gpus", gpus), mig=mig,
            predictor=predictor, confidence=confidence, host=host, runtime=runtime, threads=threads, **settings.values,
        )  # fmt: skip
    _show(result, top, all_candidates, as_json)


def _show(result: Recommendation | ServingPlan, top: int, all_candidates: bool, as_json: bool) -> None:
    if as_json:
        data = result.to_dict()
        if not all_candidates:
            del data["candidates"]
        print(json.dumps(data, indent=2))
        return
    from forerun.decisions.recommend.recommendation import Recommendation

    if not isinstance(result, Recommendation):
        from forerun.views.plan_serving import plan_view

        show(*plan_view(result, terminal_width()))
        return
    from forerun.views.recommend import recommendation_view

    show(*recommendation_view(result, width=terminal_width(), top=top, everything=all_candidates))


def _names(option: str, text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [word.strip() for word in text.split(",") if word.strip()]
    if not names:
        raise ForerunError(f"{option} needs at least one name")
    return names


def _numbers(option: str, text: str | None) -> list[int] | None:
    names = _names(option, text)
    try:
        return None if names is None else [whole_number(name) for name in names]
    except typer.BadParameter as error:
        raise ForerunError(f"{option}: {error}") from None
