"""Dispatch of requests: in this process if their graphs are cached, else in a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from forerun.api.questions import workload_from
from forerun.errors import ForerunError
from forerun.frontends import is_captured
from forerun.web.models import uploads_in, without_folders
from forerun.web.operations import OPERATIONS, service_of, workload_settings
from forerun.web.uploads import Uploads
from forerun.web.workers import Workers

#: Operations that take milliseconds once the graph of the model is cached. Decisions need many graphs.
_AT_ONCE = ("predict", "predict_many", "compare", "explain", "page_predict", "page_compare", "page_explain")


class Answering:
    """Requests by the name of their operation."""

    def __init__(self, workers: Workers, uploads: Uploads) -> None:
        self._workers, self._uploads = workers, uploads
        self._scoreboard: asyncio.Future[Any] | None = None

    async def answer(self, operation: str, request: dict[str, Any]) -> Any:
        """The operation's plain data; a ForerunError says what the user can change."""
        return await asyncio.to_thread(self.answer_now, operation, request)

    async def scoreboard(self) -> Any:
        """The scoreboard: computed once, by a worker."""
        if self._scoreboard is None or (self._scoreboard.done() and self._scoreboard.exception()):
            self._scoreboard = asyncio.ensure_future(self.answer("scoreboard", {}))
        return await asyncio.shield(self._scoreboard)

    def answer_now(self, operation: str, request: dict[str, Any]) -> Any:
        """The same in the caller's thread."""
        with self.uploads():
            if (
                operation in _AT_ONCE
                and not _plans(operation, request)
                and all(is_captured(workload_from(w)) for w in _workloads(request))
            ):
                return OPERATIONS[operation](request)
            return self._workers.run(operation, request)

    @contextmanager
    def uploads(self) -> Iterator[None]:
        """In the block a request may name an upload, and no message shows its path."""
        with uploads_in(self._uploads.folder):
            try:
                yield
            except ForerunError as error:
                raise ForerunError(without_folders(str(error))) from error


def _plans(operation: str, request: dict[str, Any]) -> bool:
    """Whether a comparison also plans services, which takes seconds."""
    return operation.endswith("compare") and service_of(request) is not None


def _workloads(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for given in request.get("workloads", [request]):
        yield workload_settings(given)
