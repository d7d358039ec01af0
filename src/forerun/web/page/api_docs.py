"""A small page about the REST interface, generated from the OpenAPI document; it works offline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from forerun._util.version import __version__
from forerun.views.html.bars import text
from forerun.views.html.style import page_style


def api_page(document: dict[str, Any]) -> str:
    """Every path with its purpose and an example request."""
    entries = "".join(_entries(document))
    return f"""<!DOCTYPE html>
<html lang="en" class="forerun"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>forerun: REST and MCP</title><style>{page_style()}
.forerun pre {{ padding: .6rem .8rem; background: var(--card); border-radius: .35rem; overflow-x: auto; }}
</style></head><body>
<header><h1>REST and MCP</h1>
<p class="about">forerun {text(__version__)}. The page, REST and MCP have the same operations; the JSON is that of the
command line. <a href="/">The page</a> · <a href="/openapi.json">openapi.json</a> · MCP (streamable HTTP) is at
<code>/mcp</code>, and <code>forerun mcp</code> speaks it over standard input and output.</p></header>
<main>{entries}</main></body></html>
"""


def _entries(document: dict[str, Any]) -> Iterator[str]:
    for path, methods in document.get("paths", {}).items():
        for method, about in methods.items():
            example = _example(document, about)
            words = text(" ".join(str(about.get("description", "")).split()))
            yield f"<h2><code>{text(method.upper())} {text(path)}</code></h2><p>{words}</p>"
            if example is not None:
                line = (
                    f"curl -s -X {method.upper()} http://127.0.0.1:8000{path} -H 'Content-Type: application/json' "
                    f"-d '{json.dumps(example)}'"
                )
                yield f"<pre><code>{text(line)}</code></pre>"


def _example(document: dict[str, Any], about: dict[str, Any]) -> Any:
    content = about.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    examples = document.get("components", {}).get("schemas", {}).get(name, {}).get("examples", [])
    return examples[0] if examples else None
