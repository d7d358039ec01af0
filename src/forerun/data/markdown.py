"""Frames as Markdown tables, for generated pages."""

from __future__ import annotations

import pandas as pd


def table(frame: pd.DataFrame, title: str) -> str:
    """A Markdown table under its title."""
    if frame.empty:
        return ""
    head = [str(c) for c in frame.columns]
    right = [pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join("---:" if r else "---" for r in right) + "|"]
    for row in frame.itertuples(index=False):
        lines.append("| " + " | ".join(f"{v:,}" if isinstance(v, int) else str(v) for v in row) + " |")
    return (f"**{title}**\n\n" if title else "") + "\n".join(lines)
