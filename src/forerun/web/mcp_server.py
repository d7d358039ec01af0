"""MCP: the operations as tools with typed arguments, for assistants; over standard input and output, or over HTTP.

An assistant can look for a bottleneck (`explain`), propose a change (`optimise`) and check it (`predict`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forerun._util.readable import short
from forerun._util.version import __version__
from forerun.errors import ForerunError, did_you_mean
from forerun.web.compact import MOST_BYTES
from forerun.web.local_files import LocalFiles
from forerun.web.mcp_tools import TOOLS, Answer
from forerun.web.models import without_folders
from forerun.web.traffic import QueueFull

log = logging.getLogger("forerun.web")
_INSTRUCTIONS = f"""\
forerun predicts how a deep-learning model will run on a device before anyone runs it: latency, throughput, memory,
energy, cost, each with a prediction interval and its basis. Times are milliseconds, memory MB of 2**20 bytes. Name
the interval beside every number you pass on. To speed a model up: `explain` shows where the time goes, `optimise` what
a change would gain, `predict` with the changed settings checks it. `models` and `devices` list the known names. An
answer has at most {MOST_BYTES:,} bytes; `more` in it says what is omitted and how to get it (`detail`, `fields`,
`page`).
"""


def make_mcp(answer: Answer) -> Server[Any]:
    """The tools; `answer` takes the name of an operation and its request."""

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[types.Tool(name=t.name, description=t.about, input_schema=t.schema()) for t in TOOLS.values()]
        )

    async def call_tool(_: Any, call: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            tool = TOOLS.get(call.name)
            if tool is None:
                hint = did_you_mean(call.name, TOOLS, limit=1) or f" There are {', '.join(TOOLS)}."
                raise ForerunError(f"there is no tool {short(call.name)}.{hint}")
            return _result(await tool.answer(call.arguments or {}, answer))
        except ForerunError as error:
            return _result(without_folders(str(error))[:MOST_BYTES], is_error=True)
        except QueueFull:
            return _result("the server is at its request limit; try again in a moment", is_error=True)
        except Exception:  # the traceback goes to the log
            log.exception("the tool %s", short(call.name))
            return _result("internal server error (logged)", is_error=True)

    return Server(
        "forerun", version=__version__, instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


def _result(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)


def mount_mcp(app: FastAPI) -> None:
    """Streamable HTTP under /mcp, beside REST and with the same queue."""

    async def answer(operation: str, request: dict[str, Any]) -> Any:
        async with app.state.places.place():
            return await app.state.answering.answer(operation, request)

    server = make_mcp(answer)
    inner = server.streamable_http_app(
        streamable_http_path="/mcp", stateless_http=True, json_response=True,
        # The gate has checked Host and Origin, and knows names that this would not.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )  # fmt: skip
    for route in inner.routes:
        if isinstance(route, Route):
            route.app = _in_sentences(route.app)
    app.router.routes.extend(inner.routes)
    app.state.lives.append(lambda: server.session_manager.run())


_REFUSED = {400: "this is not an MCP message (JSON-RPC 2.0)", 405: "MCP messages are sent by POST, one per request",
            406: "an MCP client must accept application/json and text/event-stream"}  # fmt: skip


def _in_sentences(app: ASGIApp) -> ASGIApp:
    """The transport with its refusals as JSON-RPC and in one sentence. GET would open an endless stream that this
    server does not use: MCP allows refusing it."""

    async def refuse(status: int, scope: Scope, receive: Receive, send: Send) -> None:
        error = {"code": -32600, "message": _REFUSED.get(status, _REFUSED[400])}
        allowed = {"Allow": "POST"} if status == 405 else None
        await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status, allowed)(scope, receive, send)

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        refused = 0

        async def sent(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] >= 400:
                refused = message["status"]
            if not refused:
                await send(message)

        if scope["method"] != "POST":
            await refuse(405, scope, receive, send)
            return
        await app(scope, receive, sent)
        if refused:
            await refuse(refused, scope, receive, send)

    return answered


def serve_stdio(folders: Sequence[Path]) -> None:
    """Serves an assistant that started this process, until it closes the pipe; models may be files in the folders."""
    files = LocalFiles(folders)

    def answered(operation: str, request: dict[str, Any]) -> Any:
        from forerun.web.operations import OPERATIONS

        return OPERATIONS[operation](files.opened(request))

    async def answer(operation: str, request: dict[str, Any]) -> Any:
        return await asyncio.to_thread(answered, operation, request)

    async def run() -> None:
        server = make_mcp(answer)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    asyncio.run(run())
