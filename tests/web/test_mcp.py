"""MCP by the official client: over HTTP and over standard input and output."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from web_server import Served

import forerun

ROOT = Path(__file__).parents[2]
MODEL = "cnn:depth=2,filters=8"


async def _look_and_change(session: ClientSession) -> dict[str, Any]:
    """An assistant's way: where does the time go, what would help, does it."""
    await session.initialize()
    tools = {tool.name: tool for tool in (await session.list_tools()).tools}
    case = {"model": MODEL, "device": "l4", "batch": 8}
    explained = await session.call_tool("explain", case)
    proposed = await session.call_tool("optimise", {**case, "goal": "throughput"})
    checked = await session.call_tool("predict", {**case, "dtype": "fp16"})
    wrong = await session.call_tool("predict", {**case, "device": "l44"})
    misspelt = await session.call_tool("predict", {**case, "bach": 3})
    listed = await session.call_tool("models", {"name": "resnet50"})
    return {
        "tools": tools, "explained": _data(explained), "proposed": _data(proposed), "checked": _data(checked),
        "wrong": wrong, "misspelt": misspelt, "listed": _data(listed),
    }  # fmt: skip


def _data(result: Any) -> Any:
    assert not result.is_error, result
    return json.loads(result.content[0].text)


def _judge(found: dict[str, Any]) -> None:
    assert set(found["tools"]) == {
        "predict", "compare", "recommend", "optimise", "explain", "serving", "plan_serving", "plan_training",
        "devices", "models",
    }  # fmt: skip
    schema = found["tools"]["predict"].input_schema
    assert set(schema["required"]) == {"model", "device"}
    assert schema["properties"]["batch"]["minimum"] == 1
    assert found["explained"]["ops"][0]["share"] > 0
    assert found["proposed"]["goal"] == "throughput"
    expected = forerun.predict(MODEL, "l4", batch=8, dtype="fp16")
    assert expected.latency_ms is not None
    # A brief answer has six digits.
    assert found["checked"]["latency_ms"]["value"] == pytest.approx(expected.latency_ms.value, rel=1e-5)
    assert found["wrong"].is_error and "unknown device" in found["wrong"].content[0].text
    assert found["misspelt"].is_error
    assert found["misspelt"].content[0].text == "predict takes no argument 'bach'. Did you mean batch?"
    assert "resnet50" in found["listed"]["vision"]


def test_over_http(served: Served) -> None:
    async def ask(url: str) -> dict[str, Any]:
        async with streamable_http_client(url) as streams, ClientSession(streams[0], streams[1]) as session:
            return await _look_and_change(session)

    _judge(asyncio.run(ask(f"{served.url}/mcp")))


def test_over_standard_input_and_output(tmp_path: Path) -> None:
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "forerun", "mcp"], env=dict(os.environ), cwd=tmp_path
    )

    async def ask() -> dict[str, Any]:
        async with stdio_client(command) as streams, ClientSession(streams[0], streams[1]) as session:
            return await _look_and_change(session)

    _judge(asyncio.run(ask()))


def test_the_recorded_conversation_is_what_forerun_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/MCP.md is written by a command, which also compares; a page with another number is found out."""
    command = [sys.executable, str(ROOT / "benchmarks" / "mcp_conversation.py"), "--check"]
    page = ROOT / "docs" / "MCP.md"
    result = subprocess.run([*command, "--out", str(page)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    latency = re.search(r'"latency_ms": \{\n  "value": ([\d.]+)', page.read_text())
    assert latency is not None
    wrong = tmp_path / "MCP.md"
    wrong.write_text(page.read_text().replace(latency[1], f"{1.1 * float(latency[1]):.3g}"))
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = importlib.import_module("mcp_conversation")

    async def as_before() -> str:
        return page.read_text()

    monkeypatch.setattr(script, "recorded", as_before)
    monkeypatch.setattr(sys, "argv", ["mcp_conversation.py", "--check", "--out", str(wrong)])
    with pytest.raises(SystemExit, match="is not what forerun answers now"):
        script.main()
