"""Lines, tables and notes as one fragment of HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from forerun.views.blocks import Block, Folded, Line, Notes, Table
from forerun.views.html.bars import text
from forerun.views.html.style import fragment_style
from forerun.views.html.tables import class_html, folded_html, table_html


def fragment(blocks: Iterable[Block], *, after_title: str = "") -> str:
    """All blocks in their order, in an element that the stylesheet is confined to; `after_title` is ready HTML between
    the lines at the top and the rest."""
    parts = list(blocks)
    top = next((at for at, block in enumerate(parts) if not isinstance(block, Line)), len(parts))
    inside = "".join(_html(parts[:top])) + after_title + "".join(_html(parts[top:]))
    return f'<div class="forerun answer">{inside}</div>'


def notebook_cell(fragment: str) -> str:
    """A fragment as the output of a notebook's cell: with only the stylesheet that it needs."""
    return f"<style>\n{fragment_style()}</style>\n{fragment}"


def _html(blocks: Iterable[Block]) -> Iterator[str]:
    for commands, group in groupby(blocks, key=lambda b: isinstance(b, Line) and not b.wrap):
        if commands:
            lines = "\n".join(text(line.code) for line in group if isinstance(line, Line))
            yield f"<pre><code>{lines}</code></pre>"
            continue
        for block in group:
            if isinstance(block, Line):
                yield _line(block)
            elif isinstance(block, Table):
                yield table_html(block)
            elif isinstance(block, Notes):
                count = len(block.lines)
                yield notes_html(f"{count} note{'s' if count != 1 else ''}", block.lines)
            elif isinstance(block, Folded):
                yield notes_html(block.words, block.lines)


def notes_html(words: str, lines: Iterable[str]) -> str:
    """Sentences folded under a summary."""
    return folded_html(words, f'<ul class="notes">{"".join(f"<li>{text(line)}</li>" for line in lines)}</ul>')


def _line(line: Line) -> str:
    code = f"<code>{text(line.code)}</code>" if line.code else ""
    if not line.words and not code:
        return ""
    tag = {"title": "h2", "heading": "h3"}.get(line.tone, "p")
    inset = "inset" if line.words.startswith("  ") else ""
    return f"<{tag}{class_html(line.tone if tag == 'p' else '', inset)}>{text(line.words)}{code}</{tag}>"
