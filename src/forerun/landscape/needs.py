"""The packages of the extra `landscape`: one sentence where they are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from forerun.errors import MissingPackage

COMMAND = "pip install 'forerun[landscape]'"
_PACKAGES = ("sklearn", "optuna", "shap", "lime", "umap", "plotly", "matplotlib", "pint")


def require(what: str) -> None:
    """Raises the sentence that installs the extra, before any work, where one of its packages is missing."""
    for name in _PACKAGES:
        if find_spec(name) is None:
            raise MissingPackage(what, name, COMMAND)


@contextmanager
def extra(what: str) -> Iterator[None]:
    """Turns a missing package of the extra into the sentence that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _PACKAGES:
            raise
        raise MissingPackage(what, missing, COMMAND) from error
