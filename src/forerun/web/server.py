"""One process: the page, REST and MCP on one port. `make_app` puts them together, `serve` runs them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException as StarletteHTTPException

from forerun import __version__
from forerun.errors import ForerunError
from forerun.web import catalogues, rest
from forerun.web.answering import Answering
from forerun.web.gate import Gate
from forerun.web.mcp_server import mount_mcp
from forerun.web.models import FOLDER, without_folders
from forerun.web.settings import ServerSettings
from forerun.web.traffic import Metrics, Places, QueueFull
from forerun.web.uploads import TooLarge, Uploads
from forerun.web.workers import Workers


def make_app(settings: ServerSettings, *, page: bool = True) -> FastAPI:
    """The whole server; its workers start and end with it."""
    private = Path(tempfile.mkdtemp(prefix="forerun-serve-"))
    empty = private / "empty"
    empty.mkdir()
    uploads = Uploads(
        private / "uploads", most_mb=settings.upload_mb, together_mb=settings.uploads_mb,
        minutes=settings.upload_minutes,
    )  # fmt: skip
    os.environ[FOLDER] = str(uploads.folder)
    os.chdir(empty)  # a name in a request is no path: here there is nothing to open
    if not settings.allow_hub:
        os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    workers = Workers(settings.workers, empty, job_s=settings.job_s, memory_mb=settings.job_memory_mb)

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        cleaning = asyncio.create_task(_clean(uploads))
        threading.Thread(target=catalogues.models, daemon=True).start()  # imports what every question needs
        try:
            async with contextlib.AsyncExitStack() as stack:
                for part in app.state.lives:
                    await stack.enter_async_context(part())
                yield
        finally:
            cleaning.cancel()
            workers.close()
            shutil.rmtree(private, ignore_errors=True)

    app = FastAPI(
        title="forerun", version=__version__, lifespan=life, docs_url=None, redoc_url=None,
        description="How a deep-learning model will run, before anyone runs it. Every answer has its interval and the "
        "basis it stands on; the JSON is that of the command line.",
    )  # fmt: skip
    state = app.state
    state.settings, state.uploads, state.metrics, state.lives = settings, uploads, Metrics(), []
    state.answering = Answering(workers)
    state.places = Places(settings.running, settings.waiting)
    state.metrics.taken.set_function(lambda: state.places.taken)
    app.add_middleware(Gate, settings=settings, metrics=state.metrics)

    _refusals(app)
    app.include_router(rest.router)

    @app.get("/healthz", include_in_schema=True)
    def healthz() -> dict[str, Any]:
        """Whether the server answers, and whether its workers have started."""
        return {"status": "ok", "version": __version__, "workers_ready": workers.ready()}

    @app.get("/metrics", response_class=Response)
    def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(generate_latest(state.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    mount_mcp(app)
    if page:
        from forerun.web.page.mount import mount_page

        app = mount_page(app)
    return app


async def _clean(uploads: Uploads) -> None:
    while True:
        await asyncio.sleep(30)
        await asyncio.to_thread(uploads.delete_old)


def _refusals(app: FastAPI) -> None:
    """Every refusal is one sentence with the number of the request."""

    def answer(request: Request, sentence: str, status: int, **headers: str) -> Response:
        return rest.problem(sentence, getattr(request.state, "request_id", ""), status, **headers)

    @app.exception_handler(ForerunError)
    async def mistaken(request: Request, error: ForerunError) -> Response:
        return answer(request, without_folders(str(error)), 413 if isinstance(error, TooLarge) else 422)

    @app.exception_handler(QueueFull)
    async def full(request: Request, _: QueueFull) -> Response:
        return answer(request, "the server has as many requests as it can take; try again", 429, **{"Retry-After": "2"})

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body") or "the request"
        status = 400 if first["type"] == "json_invalid" else 422
        return answer(request, f"{where}: {first['msg']}", status)

    @app.exception_handler(StarletteHTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return answer(request, str(error.detail), error.status_code, **dict(error.headers or {}))


def serve(settings: ServerSettings, *, page: bool = True) -> None:
    """Runs the server until it is stopped. Where it listens goes to standard output, the log to standard error."""
    import uvicorn

    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("forerun.web").setLevel(logging.INFO)
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listening = socket.create_server((settings.host, settings.port), family=family, backlog=256)
    except OSError as error:
        raise ForerunError(f"the server cannot listen on {settings.host}:{settings.port}: {error.strerror}") from error
    with listening:
        app = make_app(settings, page=page)
        place = f"http://{settings.host}:{listening.getsockname()[1]}"
        print(f"forerun serves {place} (REST under /v1, its schema at /openapi.json, MCP at /mcp)", flush=True)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_keep_alive=30,
            h11_max_incomplete_event_size=64 * 1024, timeout_graceful_shutdown=3,
        )  # fmt: skip
        uvicorn.Server(config).run(sockets=[listening])
