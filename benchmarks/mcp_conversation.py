"""Records docs/MCP.md: an assistant looks for a bottleneck of a real model, proposes changes and checks them.

    python benchmarks/mcp_conversation.py             # writes it
    python benchmarks/mcp_conversation.py --check     # exit code 1 where it is not what is answered now

The calls go to `forerun mcp` by the official client, and the answers are what it sent, cut to the fields that the text
names. The words of the person and the assistant are written here, with their numbers taken from the answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

#: Two numbers of three digits that differ by less are the same: processors round differently.
TOLERANCE = 0.011
CASE = {"model": "timm/convnext_tiny", "device": "a100", "batch": 32}
_INTRO = """\
# forerun for assistants (MCP)

`forerun mcp` gives an assistant ten tools: `predict`, `compare`, `recommend`, `optimise`, `explain`, `serving`,
`plan_serving`, `plan_training`, `devices` and `models`. An assistant that starts programs is told the command; one that
speaks HTTP is given `http://127.0.0.1:8000/mcp` of a running `forerun serve`.

```json
{"mcpServers": {"forerun": {"command": "forerun", "args": ["mcp"]}}}
```

An answer has at most 8 kB, so that it does not fill an assistant's context. Every tool takes three arguments that say
how much of it is shown:

| argument | meaning |
|---|---|
| `detail` | `brief` (default): what matters, with six digits; `full`: all that the command line prints with `--json` |
| `fields` | only these fields of the full answer, by their names or paths: `["latency_ms", "rows.device"]` |
| `page` | of a long answer, such as all candidates of `recommend` or the whole catalogue |

Where something was omitted, `more` in the answer says what, and how to ask for it. An argument that a tool does not
have is refused with the name of the nearest that it has.

Over standard input and output a model may be a file or folder in the working directory, or in the folders of
`forerun mcp --folder`: an ONNX file, a `config.json`, a program of `torch.export`. A path that leads out of these
folders, by `..` or by a link, is refused; so is Python code. Over HTTP no path is opened.

What follows was recorded by `python benchmarks/mcp_conversation.py`: the calls and the numbers are real, answers are
cut to the fields that matter here.
"""


class Recorder:
    """Calls tools and keeps what was asked and answered as Markdown."""

    def __init__(self, session: ClientSession) -> None:
        self._session, self.lines = session, [_INTRO]

    def says(self, who: str, words: str) -> None:
        self.lines.append(f"**{who}**: {words}\n")

    async def call(self, tool: str, arguments: dict[str, Any], shown: Any) -> Any:
        """The tool's answer; `shown` picks what the page has of it."""
        result = await self._session.call_tool(tool, arguments)
        assert not result.is_error, result
        data = json.loads(result.content[0].text)
        self.lines.append(f"```\n{tool}({json.dumps(arguments)})\n```\n")
        self.lines.append(f"```json\n{json.dumps(_rounded(shown(data)), indent=1)}\n```\n")
        return data


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value


def _times(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in ("latency_ms", "device_ms", "host_ms", "bound", "basis", "check")}


def _ops(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [{n: op[n] for n in ("op", "shape", "calls", "time_ms", "share", "bound")} for op in found["ops"][:4]]


def _claimed(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [line for line in found["changes"] if line["verdict"] == "claimed"]


def _gains(found: dict[str, Any]) -> list[dict[str, Any]]:
    lines = [*_claimed(found)[:2], next(line for line in found["changes"] if line["verdict"] == "cannot tell")]
    return [{n: line[n] for n in ("name", "verdict", "gain", "memory_change_mb", "code", "risk")} for line in lines]


async def converse(session: ClientSession) -> list[str]:
    await session.initialize()
    said = Recorder(session)
    said.says("Person", "My ConvNeXt-Tiny runs batches of 32 images on an A100. Can it be faster?")
    now = await said.call("predict", CASE, _times)
    latency = now["latency_ms"]
    said.says(
        "Assistant",
        f"A batch takes {latency['value']:.3g} ms (90 % interval {latency['low']:.3g} to {latency['high']:.3g}), and "
        f"the call is {now['bound']}-bound: {now['device_ms']['value']:.3g} ms of kernels against "
        f"{now['host_ms']['value']:.3g} ms of launching. I look at where they go.",
    )
    await said.call("explain", CASE, _ops)
    said.says("Assistant", "Matmuls in fp32 take most of it. I ask what changes would gain.")
    found = await said.call("optimise", CASE, _gains)
    best = _claimed(found)[0]
    said.says(
        "Assistant",
        f"The largest gain that its interval supports is “{best['name']}”: {best['gain']['value']:.2g} times "
        f"({best['gain']['low']:.2g} to {best['gain']['high']:.2g}). I leave "
        "changes without a certain gain alone. I check it.",
    )
    settings = best["prediction"]["workload"]
    changed = {**CASE, **{n: settings[n] for n in ("batch", "dtype", "amp", "runtime") if n in settings}}
    then = await said.call("predict", changed, _times)
    after = then["latency_ms"]
    said.says(
        "Assistant",
        f"With it a batch takes {after['value']:.3g} ms ({after['low']:.3g} to {after['high']:.3g}). `{best['code']}` "
        f"does it; mind that {best['risk']}. On the card itself `{then['check']}` checks the number.",
    )
    return said.lines


async def recorded() -> str:
    """The page, as forerun answers now."""
    command = StdioServerParameters(command=sys.executable, args=["-m", "forerun", "mcp"], env=dict(os.environ))
    async with stdio_client(command) as streams, ClientSession(streams[0], streams[1]) as session:
        return "\n".join(await converse(session))


def same(page: str, other: str) -> bool:
    """Whether two recordings say the same: the words are equal, and the numbers but for the last of their digits."""
    number = r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
    if re.sub(number, "0", page) != re.sub(number, "0", other):
        return False
    pairs = zip(re.findall(number, page), re.findall(number, other), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=TOLERANCE) for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs" / "MCP.md")
    parser.add_argument("--check", action="store_true", help="compare with the page instead of writing it")
    options = parser.parse_args()
    page = asyncio.run(recorded())
    if not options.check:
        options.out.write_text(page)
    elif not same(options.out.read_text(), page):
        sys.exit(f"{options.out} is not what forerun answers now: run python benchmarks/mcp_conversation.py")


if __name__ == "__main__":
    main()
