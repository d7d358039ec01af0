"""One process: the page, REST and MCP on one port. `make_app` assembles them, `serve` runs them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import logging
import socket
import tempfile
import threading
from collections.abc import AsyncIterator
from typing import Any, cast

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException as StarletteHTTPException

from forerun._util.version import __version__
from forerun.errors import ForerunError
from forerun.web import catalogues, rest
from forerun.web.answering import Answering
from forerun.web.connections import LimitedConnection
from forerun.web.gate import Gate
from forerun.web.mcp_server import mount_mcp
from forerun.web.private_folder import private_folder
from forerun.web.settings import ServerSettings
from forerun.web.traffic import Metrics, Places, QueueFull
from forerun.web.uploads import TooLarge, Uploads
from forerun.web.workers import Workers

#: The interval at which old uploads are deleted and unused memory is returned.
_CLEANED_EVERY_S = 10


def make_app(settings: ServerSettings, *, page: bool = True) -> FastAPI:
    """The whole server; its workers start and end with it."""
    uploads = Uploads(
        most_mb=settings.upload_mb, together_mb=settings.uploads_mb, minutes=settings.upload_minutes,
        most=settings.most_uploads, at_once=settings.uploading,
    )  # fmt: skip
    workers = Workers(
        settings.workers, job_s=settings.job_s, memory_mb=settings.job_memory_mb, hub=settings.allow_hub,
        operations=("forerun.web.page.answers",) if page else (),
    )  # fmt: skip

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=catalogues.models, daemon=True).start()  # imports what every request needs
        async with contextlib.AsyncExitStack() as stack:
            folder = stack.enter_context(private_folder())
            uploads.open(folder / "uploads")
            stack.callback(workers.close)
            workers.start(folder)
            cleaning = asyncio.create_task(_clean(uploads))
            stack.callback(cleaning.cancel)
            for part in app.state.lives:
                await stack.enter_async_context(part())
            yield

    app = FastAPI(
        title="forerun", version=__version__, lifespan=life, docs_url=None, redoc_url=None,
        description="How a deep-learning model will run, before anyone runs it. Every answer has a prediction interval "
        "and its basis; the JSON is that of the command line.",
    )  # fmt: skip
    state = app.state
    state.settings, state.uploads, state.metrics, state.lives = settings, uploads, Metrics(), []
    state.answering = Answering(workers, uploads)
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
    paths = (getattr(route, "path", "") for route in (*app.routes, *rest.router.routes))
    state.metrics.know(path for path in paths if path)
    return app


async def _clean(uploads: Uploads) -> None:
    while True:
        await asyncio.sleep(_CLEANED_EVERY_S)
        await asyncio.to_thread(uploads.delete_old)
        _free_memory()


def _free_memory() -> None:
    """Returns unused memory to the system, where the C library (glibc) would keep it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _refusals(app: FastAPI) -> None:
    """Every refusal is one sentence with the number of the request."""

    def answer(request: Request, sentence: str, status: int, **headers: str) -> Response:
        return rest.problem(sentence, getattr(request.state, "request_id", ""), status, **headers)

    @app.exception_handler(ForerunError)
    async def mistaken(request: Request, error: ForerunError) -> Response:
        return answer(request, str(error), 413 if isinstance(error, TooLarge) else 422)

    @app.exception_handler(QueueFull)
    async def full(request: Request, _: QueueFull) -> Response:
        return answer(request, "the server is at its request limit; try again", 429, **{"Retry-After": "2"})

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part)[:60] for part in first["loc"] if part != "body") or "the request"
        status = 400 if first["type"] == "json_invalid" else 422
        return answer(request, f"{where}: {first['msg']}", status)

    @app.exception_handler(StarletteHTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return answer(request, str(error.detail), error.status_code, **dict(error.headers or {}))


def serve(settings: ServerSettings, *, page: bool = True) -> None:
    """Runs the server until it is stopped. Its address goes to standard output, the log to standard error."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("forerun.web").setLevel(logging.INFO)
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listening = socket.create_server((settings.host, settings.port), family=family, backlog=256)
    except OSError as error:
        raise ForerunError(f"the server cannot listen on {settings.host}:{settings.port}: {error.strerror}") from error
    with listening, tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):
        # This process is the server's own: in an empty folder, no name in a request can be a file.
        app = make_app(settings, page=page)
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        place = f"http://{shown}:{listening.getsockname()[1]}"
        print(f"forerun serves {place} (REST under /v1, its schema at /openapi.json, MCP at /mcp)", flush=True)
        uvicorn.Server(_uvicorn_config(app, settings)).run(sockets=[listening])


def _uvicorn_config(app: FastAPI, settings: ServerSettings) -> uvicorn.Config:
    """No WebSockets, since nothing here uses them; only proxies named by the operator are trusted."""
    protocol = functools.partial(LimitedConnection, settings=settings)
    return uvicorn.Config(
        app, http=cast("type[asyncio.Protocol]", protocol), ws="none", log_level="warning", access_log=False,
        server_header=False, timeout_keep_alive=15, h11_max_incomplete_event_size=64 * 1024,
        timeout_graceful_shutdown=3, proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
    )  # fmt: skip
