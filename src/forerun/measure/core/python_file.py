"""Networks that a Python file builds: `sweeps/packages/audio.py:conv_tasnet`, a function that returns the module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

SOURCE = "python"


def built(name: str) -> Any:
    """The module that the function builds. The file runs with all rights of this process, as a spec's author wants."""
    path, _, function = name.rpartition(":")
    module_name = f"forerun_measured_{Path(path).stem}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None or not Path(path).is_file():
            raise ValueError(f"there is no Python file {path}")
        sys.modules[module_name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module_name])
    return getattr(sys.modules[module_name], function)()
