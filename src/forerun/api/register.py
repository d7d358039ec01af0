"""`forerun.register`: what a package adds by an entry point, a notebook adds for its process."""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeVar

from forerun._util.readable import short
from forerun._util.registry import Registry
from forerun.device import Device
from forerun.device.loading import register_device
from forerun.errors import ForerunError
from forerun.runtimes import registry as runtimes
from forerun.runtimes.base import Runtime

T = TypeVar("T")

#: What can be registered: the class that states its contract, and the registry that takes it. Nothing of these is
#: imported before it is needed: an object of a contract can only come from where that was imported.
_REGISTRIES = {
    "forerun.predictors.base.Predictor": ("a predictor", "forerun.predictors.registry", "PREDICTORS"),
    "forerun.frontends.base.Frontend": ("a frontend", "forerun.frontends.registry", "FRONTENDS"),
    "forerun.data.importers.base.Importer": ("an importer", "forerun.data.importers", "IMPORTERS"),
    "forerun.measure.core.meters.base.Meter": ("a meter", "forerun.measure.core.meters", "METERS"),
}


def register(thing: T, name: str | None = None) -> T:
    """Adds a predictor, frontend, runtime, importer or meter (a class of its contract, or an object of one) or a
    `Device` to this process, as if an installed package brought it.

    It is found by `name`; without one by its own: the `name` of a predictor, importer or device, the `kind` of a meter,
    the name of a frontend's class. Registering a name again replaces what was registered before; what is installed is
    never replaced. Returns what was given, so that it decorates a class.
    """
    if isinstance(thing, Device):
        if name is not None:
            raise ForerunError(f"a device is found by its id, which is {thing.id}: leave name out")
        register_device(thing)
        return thing
    kind: type = thing if isinstance(thing, type) else type(thing)
    if issubclass(kind, Runtime) and thing is not Runtime:
        if name is not None:
            raise ForerunError(f"a runtime is found by its own name, which is {kind.name}: leave name out")
        runtimes.register(kind() if isinstance(thing, type) else thing)  # type: ignore[arg-type]
        return thing
    for base in kind.__mro__[1:]:
        known = _REGISTRIES.get(f"{base.__module__}.{base.__qualname__}")
        if known is not None:
            _, module, attribute = known
            registry: Registry[Any] = getattr(import_module(module), attribute)
            own = getattr(thing, "name", None) or getattr(thing, "kind", None) or kind.__name__
            registry.register(thing, own if name is None else name)
            return thing
    able = ", ".join([what for what, *_ in _REGISTRIES.values()] + ["a runtime"])
    raise ForerunError(f"register takes {able} (a class or an object) or a Device, got {short(thing)}")
