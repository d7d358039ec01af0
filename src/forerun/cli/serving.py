"""forerun serving: a model in a serving engine under a load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forerun._util.quantities import LATENCY, optional_quantity
from forerun.cli.options import (
    ConfidenceOption,
    DeviceOption,
    DtypeOption,
    InstanceOption,
    JsonOption,
    ModelArgument,
    whole_number,
)
from forerun.cli.terminal import show, terminal_width, waiting

EngineOption = Annotated[str, typer.Option(help="vllm, sglang or tensorrt-llm.")]
RateOption = Annotated[float | None, typer.Option(help="Requests per second.")]
InputOption = Annotated[float, typer.Option("--input", help="Mean prompt tokens.")]
OutputOption = Annotated[float, typer.Option("--output", help="Mean new tokens.")]
InputSpreadOption = Annotated[float, typer.Option(help="Deviation of prompt lengths over the mean (0: all alike).")]
OutputSpreadOption = Annotated[float, typer.Option(help="The same of answers.")]
MaxTtftOption = Annotated[str | None, typer.Option(help="Limit of the time to first token: 500ms.")]
MaxItlOption = Annotated[str | None, typer.Option(help="Limit of the gap between tokens: 30ms.")]


def serving(
    model: ModelArgument,
    device: DeviceOption,
    engine: EngineOption = "vllm",
    tp: Annotated[
        int | None,
        typer.Option("--tp", help="Devices of a replica (tensor parallel); default: the fewest that hold it."),
    ] = None,
    pp: Annotated[int, typer.Option("--pp", help="Pipeline stages of a replica.")] = 1,
    ep: Annotated[int, typer.Option("--ep", help="Devices that share the experts of a layer.")] = 1,
    count: Annotated[
        int | None, typer.Option(help="Devices in all: further replicas where it is more than one needs.")
    ] = None,
    dtype: DtypeOption = None,
    rate: RateOption = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Clients that each send a request after the answer to their last.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="CSV or JSONL of arrival_s, input_tokens, output_tokens[, prefix_id].")
    ] = None,
    input_: InputOption = 1024,
    output: OutputOption = 256,
    input_spread: InputSpreadOption = 0.0,
    output_spread: OutputSpreadOption = 0.0,
    cv: Annotated[
        float,
        typer.Option("--cv", help="Coefficient of variation of the gaps between arrivals; 1: Poisson, above: bursts."),
    ] = 1.0,
    prefix: Annotated[int, typer.Option(help="Tokens that all prompts begin with.")] = 0,
    requests: Annotated[
        int | None, typer.Option(help="Requests to simulate.", parser=whole_number, metavar="INTEGER")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Token budget of an iteration; default: the engine's.")] = None,
    max_sequences: Annotated[int | None, typer.Option(help="Sequences of an iteration; default: the engine's.")] = None,
    max_ttft: MaxTtftOption = None,
    max_itl: MaxItlOption = None,
    static: Annotated[bool, typer.Option("--static", help="Static batching instead, for comparison.")] = False,
    disaggregate: Annotated[
        str | None, typer.Option(help="Replicas that compute prompts and replicas that decode: 2:1.")
    ] = None,
    router: Annotated[str, typer.Option(help="round-robin or least-loaded.")] = "round-robin",
    instance: InstanceOption = None,
    confidence: ConfidenceOption = 0.9,
    seed: Annotated[int, typer.Option(help="Of the drawn arrivals and lengths.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Simulate a model in a serving engine: time to first token, token gaps, throughput, energy, cost."""
    from forerun.serving.predicting import serving as run

    with waiting(f"simulating {engine} with {model}", quiet=as_json):
        answer = run(
            model, device, engine=engine, tp=tp, pp=pp, ep=ep, count=count, dtype=dtype, rate=rate,
            concurrency=concurrency,
            input=input_, output=output, input_spread=input_spread, output_spread=output_spread, cv=cv, prefix=prefix,
            trace=trace, requests=requests, max_tokens=max_tokens, max_sequences=max_sequences,
            max_ttft_ms=optional_quantity(max_ttft, LATENCY), max_itl_ms=optional_quantity(max_itl, LATENCY),
            static=static, disaggregate=disaggregate, router=router, instance=instance, confidence=confidence,
            seed=seed,
        )  # fmt: skip
    if as_json:
        print(answer.to_json(indent=2))
        return
    from forerun.views.serving import serving_view

    show(*serving_view(answer, terminal_width()))
