"""The mixin with which answers display themselves, independent of how they are drawn.

The view is looked up by type in `forerun.views`, which is loaded when something is first shown.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Rendered:
    """An answer that terminals, notebooks and `print` show by its view."""

    def __rich_console__(self, console: Any, options: Any) -> Any:
        yield from _views().blocks(self, options.max_width)

    def _repr_html_(self) -> str:
        return str(_views().notebook(self))

    def __str__(self) -> str:
        return str(_views().text(self))


def _views() -> Any:
    return import_module("forerun.views.rendering")
