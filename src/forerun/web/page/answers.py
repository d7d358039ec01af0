"""The operations of the page by the names of its tabs: a request's fields in, HTML out. They run where answering puts
them, in the server or in a worker, so what they return is plain data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forerun.web.page import compared, decided, explained, predicted, stored

ANSWERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "predict": predicted.predict,
    "compare": compared.compare,
    "recommend": decided.recommend,
    "optimise": decided.optimise,
    "budget": decided.budget,
    "explain": explained.explain,
    "data": stored.data,
}
