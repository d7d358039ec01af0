"""Where a question is answered: at once in this process where its graphs are known, else by a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from forerun.graph.sources import is_captured
from forerun.questions import workload_from
from forerun.web.operations import OPERATIONS, workload_settings
from forerun.web.workers import Workers

#: What is answered in milliseconds once the graph of its model is known. Decisions ask for many graphs.
_AT_ONCE = ("predict", "predict_many", "compare", "explain", "page_predict", "page_compare", "page_explain")


class Answering:
    """Questions by the name of their operation."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._scoreboard: asyncio.Future[Any] | None = None

    async def answer(self, operation: str, request: dict[str, Any]) -> Any:
        """The operation's plain data; a ForerunError says what the user can put right."""
        return await asyncio.to_thread(self.answer_now, operation, request)

    async def scoreboard(self) -> Any:
        """How far predictions are off: worked out once, by a worker."""
        if self._scoreboard is None or (self._scoreboard.done() and self._scoreboard.exception()):
            self._scoreboard = asyncio.ensure_future(self.answer("scoreboard", {}))
        return await asyncio.shield(self._scoreboard)

    def answer_now(self, operation: str, request: dict[str, Any]) -> Any:
        """The same in the caller's thread."""
        if operation in _AT_ONCE and all(is_captured(workload_from(w)) for w in _workloads(request)):
            return OPERATIONS[operation](request)
        return self._workers.run(operation, request)


def _workloads(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for one in request.get("workloads", [request]):
        yield workload_settings(one)
