"""Holes of the tables filled: every filled value keeps its method, its sentence and its confidence."""

from forerun.landscape.fill.methods import METHODS, fill

__all__ = ["METHODS", "fill"]
