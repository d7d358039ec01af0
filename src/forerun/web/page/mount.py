"""Mounts the page on the server: Gradio's blocks at /, their scripts and styles, a policy for the browser."""

from __future__ import annotations

import contextlib
import gzip
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import FastAPI, Response
from starlette.datastructures import MutableHeaders
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forerun.views.html.style import fragment_style
from forerun.web.page import answers  # noqa: F401 - adds the page's operations
from forerun.web.page.api_docs import api_page
from forerun.web.page.blocks import make_blocks
from forerun.web.page.routes import PageRoutes

_HERE = Path(__file__).parent
_FONT = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")
#: The browser refuses to fetch anything from elsewhere. Parts of Gradio's own code need `eval`.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)
#: Gradio copies the whole form for every session. The number of copies that it keeps, though nothing here reads them.
_SESSIONS = 8
_FOREVER = {"Cache-Control": "public, max-age=86400"}


def mount_page(app: FastAPI) -> FastAPI:
    """The server with the page at /; its other paths keep working."""
    settings = app.state.settings
    app.add_middleware(Policy)

    @app.get("/page/plotly.js", include_in_schema=False)
    def plotly() -> Response:
        headers = {**_FOREVER, "Content-Encoding": "gzip"}
        return Response(_plotly(), media_type="text/javascript", headers=headers)

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return Response(api_page(app.openapi()), media_type="text/html")

    with _same_environment():  # Gradio writes into it
        blocks = make_blocks(app)
    blocks.state_session_capacity = _SESSIONS
    blocks.queue(max_size=settings.running + settings.waiting, default_concurrency_limit=None, api_open=False)
    threading.Thread(target=_warm, daemon=True).start()
    gr.mount_gradio_app(
        app, blocks, path="/", server_name=settings.host, server_port=settings.port, show_error=False, ssr_mode=False,
        footer_links=[], theme=_theme(), head=_head(), mcp_server=False, pwa=False, enable_monitoring=False,
        run_history=False,
    )  # fmt: skip
    mounted = next(route for route in app.routes if isinstance(route, Mount))
    mounted.app = PageRoutes(mounted.app, blocks)
    return app


@contextlib.contextmanager
def _same_environment() -> Iterator[None]:
    """Restores environment variables that the block changes."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _head() -> str:
    css = fragment_style() + (_HERE / "page.css").read_text(encoding="utf-8")
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    return f"<style>\n{css}</style>\n<script>{script}</script>"


def _theme() -> Any:
    """Calm colours, close to those of the answers, and fonts that every system has."""
    theme = gr.themes.Base(
        primary_hue="blue", neutral_hue="slate", radius_size="md", spacing_size="md", text_size="md",
        font=[*_FONT], font_mono=[*_MONO],
    )  # fmt: skip
    return theme.set(
        body_background_fill="#ffffff", body_background_fill_dark="#14181f",
        block_background_fill="transparent", block_background_fill_dark="transparent",
        block_border_width="0px", block_shadow="none", block_title_text_color="#1d2430",
        block_title_text_color_dark="#e4e7ec", block_label_text_weight="600", block_title_text_weight="600",
        block_padding="0px", input_background_fill="#ffffff", input_background_fill_dark="#1c222b",
        input_border_color="#cfd6de", input_border_color_dark="#3a4453", input_border_width="1px",
        button_primary_background_fill="#2467a6", button_primary_background_fill_hover="#1d5488",
        button_primary_background_fill_dark="#2f77b8", button_primary_background_fill_hover_dark="#3b86c9",
        button_primary_text_color="#ffffff", body_text_color="#1d2430", body_text_color_dark="#e4e7ec",
        body_text_color_subdued="#5b6472", body_text_color_subdued_dark="#9aa4b2",
    )  # fmt: skip


_PACKED: list[bytes] = []


def _plotly() -> bytes:
    """The code of plotly from its Python package."""
    if not _PACKED:
        from plotly.offline import get_plotlyjs

        _PACKED.append(gzip.compress(str(get_plotlyjs()).encode(), 6, mtime=0))
    return _PACKED[0]


def _warm() -> None:
    """Loads what the first request would wait for: libraries, the predictor, the code of the charts."""
    from forerun.predictors.registry import load_predictor

    load_predictor("default")
    _plotly()


class Policy:
    """Adds the policy to every page."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if headers.get("content-type", "").startswith("text/html"):
                    headers["Content-Security-Policy"] = _POLICY
            await send(message)

        await self._app(scope, receive, with_policy if scope["type"] == "http" else send)
