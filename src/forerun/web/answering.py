"""Where a question is answered: at once in this process where its graphs are known, else by a worker."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from typing import Any

from forerun.errors import ForerunError
from forerun.graph.sources import is_captured
from forerun.questions import workload_from
from forerun.web.models import FOLDER
from forerun.web.operations import OPERATIONS, workload_settings
from forerun.web.workers import Workers

#: What is answered in milliseconds once the graph of its model is known. Decisions ask for many graphs.
_AT_ONCE = ("predict", "predict_many", "compare", "explain", "page_predict", "page_compare", "page_explain")


class Answering:
    """Questions by the name of their operation."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def answer(self, operation: str, request: dict[str, Any]) -> Any:
        """The operation's plain data; a ForerunError says what the user can put right."""
        return await asyncio.to_thread(self.answer_now, operation, request)

    def answer_now(self, operation: str, request: dict[str, Any]) -> Any:
        """The same in the caller's thread."""
        try:
            if operation in _AT_ONCE and all(is_captured(workload_from(w)) for w in _workloads(request)):
                return OPERATIONS[operation](request)
            return self._workers.run(operation, request)
        except ForerunError as error:
            raise ForerunError(_without_folders(str(error))) from error


def _workloads(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for one in request.get("workloads", [request]):
        yield workload_settings(one)


def _without_folders(sentence: str) -> str:
    """The sentence with the names of uploaded files instead of their places on the server."""
    folder = os.environ.get(FOLDER)
    return re.sub(re.escape(folder) + r"/[0-9a-f]{32}/", "", sentence) if folder else sentence
