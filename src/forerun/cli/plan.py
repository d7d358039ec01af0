"""forerun plan: how many devices, laid out how, for a job."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from forerun.cli.options import DeviceOption, InstanceOption, JsonOption, whole_number
from forerun.cli.terminal import show, waiting
from forerun.errors import ForerunError

app = typer.Typer(
    help="Plans: how many devices, laid out how.", no_args_is_help=True, pretty_exceptions_enable=False,
    rich_markup_mode=None,
)  # fmt: skip
#: What a letter behind a number of tokens means.
_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


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
            model, device, count=count, tokens=_tokens(tokens), seq_len=seq_len, batch=batch, precision=precision,
            goal=goal, max_hours=max_hours, max_usd=max_usd, max_kwh=max_kwh, instance=instance,
        )  # fmt: skip
    if as_json:
        print(json.dumps(answer.to_dict(), indent=2))
    else:
        show(answer)


@app.callback()
def plans() -> None:
    """Plan a job: how many devices, laid out how."""


def _tokens(text: str) -> float:
    """'100B' as a number."""
    worth = _UNITS.get(text[-1:].upper(), 1.0)
    digits = text[:-1] if worth > 1 else text
    try:
        return float(digits.replace(",", "")) * worth
    except ValueError:
        raise ForerunError(f"--tokens {text[:40]!r} is not a number of tokens such as 100B, 15T or 3e9") from None
