"""Shapes of operators, by label.

The plain draw holds what most networks are made of, partly with shapes of real models. All other labels are drawn only
where a spec names them (`only`): each has a function that draws a shape log-uniformly within what such networks use.
"""

from __future__ import annotations

from . import images, sequences, tables
from .plain import plain_shape, sized
from .rare import RARE
from .real import real_shape
from .registry import DRAWS, Drawn, log_uniform

__all__ = [
    "DRAWS", "RARE", "Drawn", "images", "log_uniform", "plain_shape", "real_shape", "sequences", "sized", "tables",
]  # fmt: skip
