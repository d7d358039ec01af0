"""Shapes of operators behind kinds of networks that the plain draw does not hold, by label.

A spec asks for them by name (`only`). Each label's function draws a shape log-uniformly within what such networks use.
"""

from __future__ import annotations

from . import images, sequences, tables
from .registry import DRAWS, Drawn, log_uniform

__all__ = ["DRAWS", "Drawn", "images", "log_uniform", "sequences", "tables"]
