"""MCP: the questions as tools with typed arguments, for assistants; over standard input and output, or over HTTP.

An assistant can look for a bottleneck (`explain`), propose a change (`optimise`) and check it (`predict`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, get_type_hints

from fastapi import FastAPI
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from forerun import __version__
from forerun.errors import ForerunError
from forerun.web import catalogues
from forerun.web.models import without_folders
from forerun.web.requests import (
    CompareRequest,
    ExplainRequest,
    OptimiseRequest,
    PredictRequest,
    RecommendRequest,
)

Answer = Callable[[str, dict[str, Any]], Awaitable[Any]]
Name = Annotated[str | None, Field(max_length=200)]
_INSTRUCTIONS = """\
forerun predicts how a deep-learning model will run on a device before anyone runs it: latency, throughput, memory,
energy, cost, each with an interval and the basis it stands on. Times are milliseconds, memory MB of 2**20 bytes. Name
the interval beside every number you pass on. To speed a model up: `explain` shows where the time goes, `optimise` what
a change would gain, `predict` with the changed settings checks it. `models` and `devices` list the known names.
"""
#: The most ops of an explanation that an assistant gets: the rest adds up to little and fills its memory.
_OPS = 25


def make_mcp(answer: Answer) -> MCPServer:
    """The tools; `answer` takes the name of an operation and its request."""
    server = MCPServer("forerun", version=__version__, instructions=_INSTRUCTIONS)

    async def asked(operation: str, request: BaseModel) -> Any:
        try:
            return await answer(operation, request.model_dump())
        except ForerunError as error:
            raise ToolError(without_folders(str(error))) from error

    async def predict(request: PredictRequest) -> dict[str, Any]:
        """How a model will run on a device: every estimate with its interval and basis."""
        return dict(await asked("predict", request))

    async def compare(request: CompareRequest) -> list[dict[str, Any]]:
        """One model on several devices, fastest first."""
        return list(await asked("compare", request))

    async def recommend(request: RecommendRequest) -> dict[str, Any]:
        """Which device, instance, batch and dtype to take, within limits, by a goal."""
        return dict(await asked("recommend", request))

    async def optimise(request: OptimiseRequest) -> dict[str, Any]:
        """What to change so that a model runs better on a device: gains with their intervals."""
        return dict(await asked("optimise", request))

    async def explain(request: ExplainRequest) -> dict[str, Any]:
        """Where the time goes: the longest ops, their shares, and what limits each."""
        found = dict(await asked("explain", request))
        rest = found["ops"][_OPS:]
        found["ops"] = found["ops"][:_OPS]
        return found | {"other_ops": len(rest), "other_ops_share": sum(op["share"] for op in rest)}

    for tool, fields in (
        (predict, PredictRequest), (compare, CompareRequest), (recommend, RecommendRequest),
        (optimise, OptimiseRequest), (explain, ExplainRequest),
    ):  # fmt: skip
        server.tool(description=tool.__doc__)(_with_fields(tool, fields))

    @server.tool(description="The device catalogue by id, or one device with the source of every field.")
    def devices(name: Name = None) -> Any:
        try:
            found = catalogues.devices(name)
        except ForerunError as error:
            raise ToolError(str(error)) from error
        return found if name else [_brief(device) for device in found]

    @server.tool(description="The models that are known by name; with `name`, those that contain it.")
    def models(name: Name = None) -> dict[str, Any]:
        try:
            return dict(catalogues.models(name))
        except ForerunError as error:
            raise ToolError(str(error)) from error

    return server


def _with_fields(tool: Callable[[Any], Awaitable[Any]], fields: type[BaseModel]) -> Callable[..., Awaitable[Any]]:
    """The tool with the request's fields as its own arguments, which is how assistants read and fill them."""

    @functools.wraps(tool)
    async def flat(**given: Any) -> Any:
        return await tool(fields(**given))

    known = fields.model_fields.items()
    arguments = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[field.annotation, field])
        if field.is_required()
        else inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[field.annotation, field], default=field.default
        )
        for name, field in known
        if field.exclude is not True
    ]
    result = get_type_hints(tool)["return"]
    flat.__signature__ = inspect.Signature(arguments, return_annotation=result)  # type: ignore[attr-defined]
    flat.__annotations__ = {a.name: a.annotation for a in arguments} | {"return": result}
    return flat


def _brief(device: dict[str, Any]) -> dict[str, Any]:
    return {name: device.get(name) for name in ("id", "name", "kind", "vendor", "memory_gb", "bandwidth_gbs", "tdp_w")}


def mount_mcp(app: FastAPI) -> None:
    """Streamable HTTP under /mcp, beside REST and with the same queue."""

    async def answer(operation: str, request: dict[str, Any]) -> Any:
        async with app.state.places.place():
            return await app.state.answering.answer(operation, request)

    server = make_mcp(answer)
    inner = server.streamable_http_app(streamable_http_path="/mcp", stateless_http=True, json_response=True)
    app.router.routes.extend(inner.routes)
    app.state.lives.append(lambda: server.session_manager.run())


def serve_stdio() -> None:
    """Answers an assistant that started this process, until it closes the pipe."""
    import asyncio

    from forerun.web.operations import OPERATIONS

    async def answer(operation: str, request: dict[str, Any]) -> Any:
        return await asyncio.to_thread(OPERATIONS[operation], request)

    make_mcp(answer).run("stdio")
