"""Frontends: every kind of model comes in here and leaves as graphs."""

from forerun.frontends import published  # noqa: F401 - workloads ask it for the dtype of a checkpoint
from forerun.frontends.loading import is_captured, load_graph, load_graphs
from forerun.frontends.registry import find_frontend, frontends, is_file, is_known_name, model_names

__all__ = [
    "find_frontend", "frontends", "is_captured", "is_file", "is_known_name", "load_graph", "load_graphs", "model_names",
]  # fmt: skip
