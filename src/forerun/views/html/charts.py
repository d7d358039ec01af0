"""Charts in a page that needs no network: plotly itself, the charts as data, and the script that draws them."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forerun._util.extras import needed
from forerun.views.html.bars import text
from forerun.views.html.style import page_style

#: The browser refuses to fetch anything: the page works offline.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)


def page_head(title: str) -> str:
    """A page up to its body: title, style, and the policy that nothing is fetched."""
    return f"""<!DOCTYPE html>
<html lang="en" class="forerun">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{text(title)}</title>
<style>
{page_style()}</style>
</head>"""


def chart_html(figure: Any, title: str, words: str, charts: list[dict[str, Any]]) -> str:
    """The place of a plotly figure in a page; its data is added to `charts`, which `charts_html` puts at the end."""
    name = f"chart-{len(charts) + 1}"
    content = json.loads(figure.to_json(validate=False))
    charts.append({"id": name, "data": rounded(content["data"]), "layout": content["layout"]})
    height = f"height:{content['layout']['height']}px"
    plot = f'<div class="plot" id="{name}" style="{height}" role="img" aria-label="{text(words)}"></div>'
    return f'<figure class="chart"><figcaption>{text(title)}</figcaption>{plot}</figure>'


def charts_html(charts: Sequence[dict[str, Any]]) -> str:
    """The scripts that draw the charts, for the end of a page."""
    script = (Path(__file__).parent / "charts.js").read_text(encoding="utf-8")
    return f"""<script type="application/json" id="charts">{json_text(charts)}</script>
{_plotly_element()}
<script>{script}</script>"""


def _plotly_element() -> str:
    """The code of plotly from its Python package, for charts.js to unpack: 2 MB as gzip in base64 instead of
    5. Its notice of version and licence stays readable."""
    with needed("a report"):
        from plotly.offline import get_plotlyjs
    code = str(get_plotlyjs())
    notice = code.partition("*/")[0].lstrip("/* \n")
    packed = base64.b64encode(gzip.compress(code.encode(), mtime=0)).decode()
    return f'<!-- {notice.strip()} -->\n<script type="application/octet-stream" id="plotly">{packed}</script>'


def json_text(data: Any) -> str:
    """JSON that cannot close the element around it, with twelve digits; non-finite values are null."""
    encoded = json.dumps(_finite(data), separators=(",", ":"), allow_nan=False)
    return encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [_finite(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.12g}") if math.isfinite(value) else None
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return value.item() if hasattr(value, "item") else str(value)


def rounded(value: Any) -> Any:
    """Four digits, enough for drawing; the data beside it has all of them."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
