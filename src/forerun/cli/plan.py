"""forerun plan: how many devices, in which layout."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from forerun._util.quantities import LATENCY, TOKENS, optional_quantity, quantity
from forerun.cli.options import (
    ConfidenceOption,
    DeviceOption,
    InstanceOption,
    JsonOption,
    ModelArgument,
    whole_number,
)
from forerun.cli.plain_values import PlainCommand
from forerun.cli.serving import (
    EngineOption,
    InputOption,
    InputSpreadOption,
    MaxItlOption,
    MaxTtftOption,
    OutputOption,
    OutputSpreadOption,
    RateOption,
)
from forerun.cli.terminal import show, terminal_width, waiting
from forerun.errors import ForerunError

app = typer.Typer(help="Plan devices and layouts for a service or a training.", no_args_is_help=True)


@app.command("serving", cls=PlainCommand)
def serving(
    model: ModelArgument,
    devices: Annotated[str, typer.Option("--devices", "-d", help="Devices to choose from: h200,b200.")],
    engine: EngineOption = "vllm",
    rate: RateOption = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Clients that each send a request after the answer to their last.")
    ] = None,
    input_: InputOption = 1024,
    output: OutputOption = 256,
    input_spread: InputSpreadOption = 0.0,
    output_spread: OutputSpreadOption = 0.0,
    max_ttft: MaxTtftOption = None,
    max_itl: MaxItlOption = None,
    goal: Annotated[str, typer.Option("--goal", "-g", help="cost, energy or devices.")] = "cost",
    dtypes: Annotated[str | None, typer.Option(help="Dtypes to try; default: the checkpoint's own, and fp8.")] = None,
    budgets: Annotated[str | None, typer.Option(help="Token budgets of an iteration to try: 2048,8192.")] = None,
    max_devices: Annotated[int, typer.Option(help="The most devices.")] = 1024,
    confidence: ConfidenceOption = 0.9,
    as_json: JsonOption = False,
) -> None:
    """Choose devices, their number and a layout to serve a model under a load, within limits, for a goal."""
    from forerun.decisions.plans.serving import plan_serving

    with waiting(f"comparing deployments of {model}", quiet=as_json):
        plan = plan_serving(
            model, devices=_words("--devices", devices), engine=engine, rate=rate, concurrency=concurrency,
            input=input_, output=output, input_spread=input_spread, output_spread=output_spread,
            max_ttft_ms=optional_quantity(max_ttft, LATENCY), max_itl_ms=optional_quantity(max_itl, LATENCY), goal=goal,
            dtypes=None if dtypes is None else _words("--dtypes", dtypes),
            budgets=None if budgets is None else [whole_number(word) for word in _words("--budgets", budgets)],
            max_devices=max_devices, confidence=confidence,
        )  # fmt: skip
    if as_json:
        content = plan.to_dict()
        del content["candidates"]
        print(json.dumps(content, indent=2))
        return
    from forerun.views.plan_serving import plan_view

    show(*plan_view(plan, terminal_width()))


@app.command()
def training(
    model: Annotated[str, typer.Argument(help="A causal language model of Hugging Face.")],
    device: DeviceOption,
    count: Annotated[int, typer.Option(help="The most devices.", parser=whole_number, metavar="INTEGER")],
    tokens: Annotated[str, typer.Option(help="Tokens to train on: 100B, 15T, 3e9.")],
    seq_len: Annotated[
        int, typer.Option("--seq-len", "-s", help="Tokens of a sequence.", parser=whole_number, metavar="INTEGER")
    ],
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch", "-b", help="Sequences of a step; default: 4 M tokens.", parser=whole_number, metavar="INTEGER"
        ),
    ] = None,
    precision: Annotated[str, typer.Option(help="bf16, fp8 or fp4.")] = "bf16",
    goal: Annotated[str, typer.Option(help="time, cost or energy.")] = "time",
    max_hours: Annotated[float | None, typer.Option(help="Time limit in hours.")] = None,
    max_usd: Annotated[float | None, typer.Option(help="Cost limit in US dollars.")] = None,
    max_kwh: Annotated[float | None, typer.Option(help="Energy limit in kWh.")] = None,
    instance: InstanceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan the pre-training of a language model: layout, time, cost, energy, and the command that starts it."""
    from forerun.decisions.plans.training import plan_training

    with waiting(f"reading {model}", quiet=as_json):
        answer = plan_training(
            model, device, count=count, tokens=quantity(tokens, TOKENS), seq_len=seq_len, batch=batch,
            precision=precision, goal=goal, max_hours=max_hours, max_usd=max_usd, max_kwh=max_kwh, instance=instance,
        )  # fmt: skip
    if as_json:
        print(json.dumps(answer.to_dict(), indent=2))
        return
    from forerun.views.plans import plan_view

    show(*plan_view(answer, terminal_width()))


def _words(option: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise ForerunError(f"{option} needs at least one name")
    return words
