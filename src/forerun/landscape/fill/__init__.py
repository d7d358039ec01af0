"""Missing values of the tables, imputed: every filled value has its method, its sentence and its confidence."""

from forerun.landscape.fill.methods import METHODS, fill

__all__ = ["METHODS", "fill"]
