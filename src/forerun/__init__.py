"""forerun: know how a deep-learning model will run before you run it.

import forerun
forerun.predict("resnet50", "a100", batch=8)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forerun.api import compare, explain, predict, predict_many
    from forerun.device import Device, load_device
    from forerun.errors import ForerunError
    from forerun.population import predict_population
    from forerun.prediction import Estimate, Prediction
    from forerun.workload import Workload

__version__ = "0.1.0"

_HOME = {
    "predict_population": "population", "predict": "api", "predict_many": "api", "compare": "api", "explain": "api",
    "Device": "device", "load_device": "device", "ForerunError": "errors",
    "Estimate": "prediction", "Prediction": "prediction", "Workload": "workload",
}  # fmt: skip

__all__ = [
    "Device", "Estimate", "ForerunError", "Prediction", "Workload", "compare", "explain", "load_device", "predict",
    "predict_many", "predict_population",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Loads each part when it is first asked for, so that `import forerun` costs next to nothing."""
    if name not in _HOME:
        raise AttributeError(f"module 'forerun' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"forerun.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
