"""The stylesheets: `style.css` for fragments, confined to the class `forerun`, and `page.css` for whole pages."""

from __future__ import annotations

import functools
from pathlib import Path

_HERE = Path(__file__).parent


@functools.cache
def fragment_style() -> str:
    """The rules of tables, intervals and notes; every one of them is confined to the class `forerun`."""
    return (_HERE / "style.css").read_text(encoding="utf-8")


@functools.cache
def page_style() -> str:
    """The stylesheet of a whole page, whose root element has the class `forerun`: the fragments' and the page's own."""
    return fragment_style() + (_HERE / "page.css").read_text(encoding="utf-8")
