"""Calls of MCP's tools by the official client, to a real `forerun mcp` and to a real server."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import warm
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from web_server import Served

from forerun.web.compact import MOST_BYTES

Calls = list[tuple[str, dict[str, Any]]]


def over_stdio(calls: Calls, cwd: Path, *options: str) -> list[Any]:
    """What a real `forerun mcp`, started in a folder, answers to each call. It is forked from a Python that has
    imported the libraries, and two pipes join it to what the client starts."""

    async def ask(command: StdioServerParameters) -> list[Any]:
        async with stdio_client(command) as streams, ClientSession(streams[0], streams[1]) as session:
            await session.initialize()
            return [await session.call_tool(tool, arguments) for tool, arguments in calls]

    with tempfile.TemporaryDirectory() as folder:
        pipes = [Path(folder) / name for name in ("in", "out")]
        for pipe in pipes:
            os.mkfifo(pipe)

        def start() -> None:
            ends = [os.open(pipe, how) for pipe, how in zip(pipes, (os.O_RDONLY, os.O_WRONLY), strict=True)]
            python = warm.python(os.environ, also=warm.OF_SERVERS)
            words = ["-m", "forerun", "mcp", *options]
            python.start(words, cwd=cwd, env=os.environ, stdin=ends[0], stdout=ends[1], stderr=2, run_on=True)
            for end in ends:
                os.close(end)

        thread = threading.Thread(target=start)
        thread.start()
        through = 'cat "$1" & exec cat > "$0"'
        try:
            return asyncio.run(ask(StdioServerParameters(command="sh", args=["-c", through, *map(str, pipes)])))
        finally:
            thread.join()


def over_http(served: Served, calls: Calls) -> list[Any]:
    async def ask() -> list[Any]:
        async with (
            streamable_http_client(f"{served.url}/mcp") as streams,
            ClientSession(streams[0], streams[1]) as session,
        ):
            await session.initialize()
            return [await session.call_tool(tool, arguments) for tool, arguments in calls]

    return asyncio.run(ask())


def data(result: Any) -> Any:
    """The answer as data, once it is known to be short: all that an assistant is sent."""
    assert not result.is_error, result
    assert result.structured_content is None and len(result.content) == 1
    assert len(result.content[0].text.encode()) <= MOST_BYTES == 8_000
    return json.loads(result.content[0].text)


def refusal(result: Any) -> str:
    """The one sentence of a refusal."""
    assert result.is_error, result
    words: str = result.content[0].text
    assert "\n" not in words and len(words) < 1_000
    return words
