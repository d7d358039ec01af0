"""forerun: know how a deep-learning model will run before you run it.

import forerun
forerun.predict("resnet50", "a100", batch=8)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forerun._util.version import __version__ as __version__

if TYPE_CHECKING:
    from forerun.api.population import predict_population
    from forerun.api.predict import explain, predict, predict_many
    from forerun.api.register import register
    from forerun.decisions.budget.budget import budget
    from forerun.decisions.mig.packing import pack_mig
    from forerun.decisions.optimise.optimise import optimise
    from forerun.decisions.plans.serving import plan_serving
    from forerun.decisions.plans.training import plan_training
    from forerun.decisions.recommend.recommend import recommend
    from forerun.device import Device, load_device
    from forerun.errors import ForerunError
    from forerun.prediction import Estimate, Prediction
    from forerun.report.make import make_report
    from forerun.serving.predicting import serving
    from forerun.workload import Workload


#: Where each is found. A Workload comes with the frontends, which know the dtype that a checkpoint is published in.
_HOME = {
    "predict": "api.predict", "predict_many": "api.predict", "explain": "api.predict",
    "predict_population": "api.population", "register": "api.register",
    "compare": "decisions.compare.compare", "recommend": "decisions.recommend.recommend",
    "optimise": "decisions.optimise.optimise", "budget": "decisions.budget.budget",
    "pack_mig": "decisions.mig.packing", "plan_serving": "decisions.plans.serving",
    "plan_training": "decisions.plans.training", "make_report": "report.make",
    "Device": "device", "load_device": "device", "ForerunError": "errors",
    "Estimate": "prediction", "Prediction": "prediction", "Workload": "api.questions",
}  # fmt: skip

__all__ = [
    "Device",
    "Estimate",
    "ForerunError",
    "Prediction",
    "Workload",
    "budget",
    "compare",
    "explain",
    "load_device",
    "make_report",
    "optimise",
    "pack_mig",
    "plan_serving",
    "plan_training",
    "predict",
    "predict_many",
    "predict_population",
    "recommend",
    "register",
    "serving",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Loads each part when it is first asked for, so that `import forerun` costs next to nothing."""
    from importlib import import_module

    if name == "serving":  # a package that can be called, as a module of this name would hide a function
        return import_module("forerun.serving")
    if name not in _HOME:
        raise AttributeError(f"module 'forerun' has no attribute {name!r}")
    value = getattr(import_module(f"forerun.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
