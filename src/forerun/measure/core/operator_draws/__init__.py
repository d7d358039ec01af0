"""Shapes of operators, by label.

The plain draw covers the operators of most networks, partly with shapes of real models. All other labels are drawn only
if a spec names them (`only`): each has a function that draws log-uniform shapes in the range of such networks.
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
