"""The MCP tools: for each its arguments, its operation, and the fields of its brief answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, ValidationError

from forerun._util.readable import short
from forerun.errors import ForerunError, did_you_mean
from forerun.web import catalogues
from forerun.web.compact import Brief, compact
from forerun.web.requests import (
    Asked,
    CompareRequest,
    ExplainRequest,
    OptimiseRequest,
    PlanServingRequest,
    PlanTrainingRequest,
    PredictRequest,
    RecommendRequest,
    ServingRequest,
)

Answer = Callable[[str, dict[str, Any]], Awaitable[Any]]
#: The most ops of a brief explanation: the others are a small share.
_OPS = 25
_ABOUT_CHANGES = ("device", "device_ms", "throughput", "memory_mb", "energy_j", "cost_usd", "bound")
_LISTED = ("id", "name", "kind", "vendor", "memory_gb", "bandwidth_gbs", "tdp_w")


class Shown(Asked):
    """How much of an answer is shown: the same for every tool."""

    detail: Literal["brief", "full"] = Field("brief", description="full: everything, with all digits.")
    fields: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=100)] | None = Field(
        None, description='Only these fields of the full answer, by name or path: ["latency_ms", "rows.device"].'
    )
    page: Annotated[int, Field(ge=1, le=10**6)] = Field(1, description="A long answer has several pages.")


class PredictArguments(PredictRequest, Shown):
    """`predict`."""


class CompareArguments(CompareRequest, Shown):
    """`compare`."""


class RecommendArguments(RecommendRequest, Shown):
    """`recommend`."""


class OptimiseArguments(OptimiseRequest, Shown):
    """`optimise`."""


class ExplainArguments(ExplainRequest, Shown):
    """`explain`."""


class ServingArguments(ServingRequest, Shown):
    """`serving`."""


class PlanServingArguments(PlanServingRequest, Shown):
    """`plan_serving`."""


class PlanTrainingArguments(PlanTrainingRequest, Shown):
    """`plan_training`."""


class ListArguments(Shown):
    """`devices` and `models`."""

    name: Annotated[str | None, Field(max_length=200)] = None


@dataclass(frozen=True)
class Tool:
    """One tool. `listed` runs at once, in the server; else the operation of its name runs."""

    name: str
    about: str
    arguments: type[Shown]
    brief: Brief | None = None  # None: no brief form, as the answer is short or a list of names
    listed: Callable[[str | None], Any] | None = None

    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments, for assistants."""
        schema = self.arguments.model_json_schema()
        known = self.known()
        properties = {name: about for name, about in schema["properties"].items() if name in known}
        return {key: value for key, value in schema.items() if key not in ("title", "description", "examples")} | {
            "properties": properties
        }

    def known(self) -> list[str]:
        """The names of its arguments."""
        return [name for name, about in self.arguments.model_fields.items() if about.exclude is not True]

    async def answer(self, given: Mapping[str, Any], answer: Answer) -> str:
        """The answer as JSON; a ForerunError says in one sentence what is wrong with the request."""
        arguments = self._checked(given)
        request = arguments.model_dump(exclude=set(Shown.model_fields))
        result = await answer(self.name, request) if self.listed is None else self.listed(request["name"])
        if self.name == "explain" and arguments.detail == "brief" and not arguments.fields:
            result = _with_other_ops(result)
        brief = self.brief if isinstance(result, list) or self.listed is None else None
        return compact(result, brief, detail=arguments.detail, fields=arguments.fields, page=arguments.page)

    def _checked(self, given: Mapping[str, Any]) -> Shown:
        known = self.known()
        for name in given:
            if name not in known:
                hint = did_you_mean(name, known, limit=1) or f" It takes {', '.join(known)}."
                raise ForerunError(f"{self.name} takes no argument {short(name)}.{hint}")
        try:
            return self.arguments.model_validate({name: _parsed(name, value) for name, value in given.items()})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or self.name
            if first["type"] == "missing":
                raise ForerunError(f"{self.name} needs the argument {where}") from None
            raise ForerunError(f"{where}: {first['msg']}, got {short(first['input'])}") from None


def _parsed(name: str, value: Any) -> Any:
    """The value itself, or parsed as JSON: some assistants send lists and objects as text."""
    if name == "model" or not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return orjson.loads(value)
    except ValueError:
        return value


def _with_other_ops(explanation: dict[str, Any]) -> dict[str, Any]:
    rest = explanation["ops"][_OPS:]
    return {**explanation, "other_ops": len(rest), "other_ops_share": sum(op["share"] for op in rest)}


def _without_predictions(*lists: str) -> tuple[str, ...]:
    """For a proposed change, an assistant needs the settings and the time."""
    return tuple(f"{name}.prediction.{field}" for name in lists for field in _ABOUT_CHANGES)


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "predict", "How a model will run on a device: every estimate with its interval and basis.",
            PredictArguments, Brief(without=("provenance", "mig_options")),
        ),
        Tool(
            "compare", "One model on several devices, fastest first; a language model also in a serving engine.",
            CompareArguments,
            Brief(without=(*(f"result.{n}" for n in ("model", "batch", "dtype", "mode", "seq_len")), *(
                f"result.serving.{n}" for n in ("reasons", "capacity", "on_front", "max_sequences", "device")))),
        ),
        Tool(
            "recommend", "Which device, instance, batch and dtype to choose, within limits, by a goal: the best rows.",
            RecommendArguments,
            Brief(without=("latency_cost_front", "energy_throughput_front", "excluded", "candidates"),
                  first={"rows": 6}),
        ),
        Tool(
            "optimise", "What to change so that a model runs better on a device: gains with their intervals.",
            OptimiseArguments,
            Brief(without=("now.provenance", "now.mig_options", "now.memory_parts_mb", "now.host", "now.assumptions",
                           *_without_predictions("changes", "together")), first={"changes": 8}),
        ),
        Tool(
            "explain", "Where the time goes: the longest ops, their shares, and what limits each.", ExplainArguments,
            Brief(first={"ops": _OPS}),
        ),
        Tool(
            "serving", "A language model in a serving engine (vLLM, SGLang, TensorRT-LLM) under a load: time to first "
            "token, token gaps, throughput, energy, cost.", ServingArguments,
            Brief(without=("timeline", "assumptions", "budgets", *(
                f"{name}.p50" for name in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms")))),
        ),
        Tool(
            "plan_serving", "Which devices, how many, in which layout, to serve a language model under a load within "
            "limits, with the engine's command.", PlanServingArguments,
            Brief(without=("candidates", "front", "left_out"), first={"rows": 4}),
        ),
        Tool(
            "plan_training", "How to pre-train a language model on up to so many devices: the layout, time, cost and "
            "energy with intervals, memory, and the command.", PlanTrainingArguments,
            Brief(without=("front.launch", "front.memory_mb", "front.parts"), first={"front": 4}),
        ),
        Tool(
            "devices", "The device catalogue by id, or one device with the source of every field.", ListArguments,
            Brief(only=tuple(f"result.{name}" for name in _LISTED)), catalogues.devices,
        ),
        Tool(
            "models", "The models that are known by name; with `name`, those that contain it.", ListArguments,
            listed=catalogues.models,
        ),
    )
}  # fmt: skip
