"""MCP: the questions as tools with typed arguments, for assistants; over standard input and output, or over HTTP.

An assistant can look for a bottleneck (`explain`), propose a change (`optimise`) and check it (`predict`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import FastAPI
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from forerun import __version__
from forerun.errors import ForerunError
from forerun.web import catalogues
from forerun.web.requests import (
    CompareRequest,
    ExplainRequest,
    OptimiseRequest,
    PredictRequest,
    RecommendRequest,
)

Answer = Callable[[str, dict[str, Any]], Awaitable[Any]]
_INSTRUCTIONS = """\
forerun predicts how a deep-learning model will run on a device before anyone runs it: latency, throughput, memory,
energy, cost, each with an interval and the basis it stands on. Times are milliseconds, memory MB of 2**20 bytes. Say the
interval beside every number you pass on. To speed a model up: `explain` shows where the time goes, `optimise` what a
change would gain, `predict` with the changed settings checks it. `models` and `devices` list the names that are known.
"""
#: The most ops of an explanation that an assistant gets: the rest adds up to little and fills its memory.
_OPS = 25


def make_mcp(answer: Answer) -> MCPServer:
    """The tools; `answer` takes the name of an operation and its request."""
    server = MCPServer("forerun", version=__version__, instructions=_INSTRUCTIONS)

    async def asked(operation: str, request: Any) -> Any:
        try:
            return await answer(operation, request.model_dump())
        except ForerunError as error:
            raise ToolError(str(error)) from error

    @server.tool(description="How a model will run on a device: every estimate with its interval and basis.")
    async def predict(request: PredictRequest) -> dict[str, Any]:
        return dict(await asked("predict", request))

    @server.tool(description="One model on several devices, fastest first.")
    async def compare(request: CompareRequest) -> list[dict[str, Any]]:
        return list(await asked("compare", request))

    @server.tool(description="Which device, instance, batch and dtype to take, within limits, by a goal.")
    async def recommend(request: RecommendRequest) -> dict[str, Any]:
        return dict(await asked("recommend", request))

    @server.tool(description="What to change so that a model runs better on a device: gains with their intervals.")
    async def optimise(request: OptimiseRequest) -> dict[str, Any]:
        return dict(await asked("optimise", request))

    @server.tool(description=f"Where the time goes: the {_OPS} longest ops, their shares, and what limits each.")
    async def explain(request: ExplainRequest) -> dict[str, Any]:
        found = dict(await asked("explain", request))
        rest = found["ops"][_OPS:]
        found["ops"] = found["ops"][:_OPS]
        return found | {"other_ops": len(rest), "other_ops_share": sum(op["share"] for op in rest)}

    Part = Annotated[str | None, Field(max_length=200)]  # noqa: N806

    @server.tool(description="The device catalogue by id, or one device with the source of every field.")
    def devices(name: Part = None) -> Any:
        try:
            found = catalogues.devices(name)
        except ForerunError as error:
            raise ToolError(str(error)) from error
        return found if name else [_brief(device) for device in found]

    @server.tool(description="The models that are known by name; with `name`, those that contain it.")
    def models(name: Part = None) -> dict[str, Any]:
        try:
            return dict(catalogues.models(name))
        except ForerunError as error:
            raise ToolError(str(error)) from error

    return server


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
