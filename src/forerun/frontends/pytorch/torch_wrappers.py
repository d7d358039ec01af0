"""Takes a module out of what was put around it to compile it or to spread it over several devices."""

from __future__ import annotations

from typing import Any

from forerun.errors import ForerunError

#: Beginning of a wrapper's module -> (the attribute that holds the wrapped one, what is omitted).
_WRAPPERS: dict[str, tuple[str, str]] = {
    "torch._dynamo.": ("_orig_mod", "torch.compile: --runtime compile predicts it"),
    "torch.nn.parallel.data_parallel": ("module", "DataParallel: one device is predicted"),
    "torch.nn.parallel.distributed": ("module", "DistributedDataParallel: one device is predicted"),
    "torch.distributed.fsdp": ("module", "FullyShardedDataParallel: one device is predicted"),
}


def unwrapped(model: Any) -> tuple[Any, list[str]]:
    """The module inside all wrappers, and a note for each of them."""
    notes = []
    while (found := _wrapper(model)) is not None:
        attribute, what = found
        model = getattr(model, attribute)
        notes.append(f"the module is answered without {what}")
    return model, notes


def unwrap_inside(model: Any) -> Any:
    """The module with every wrapped part of it taken out of its wrapper, in place."""
    for name, part in list(model.named_children()):
        inner, _ = unwrapped(part)
        if inner is not part:
            model._modules[name] = inner
        unwrap_inside(inner)
    if getattr(model, "_compiled_call_impl", None) is not None:  # Module.compile() leaves no wrapper
        model._compiled_call_impl = None
    return model


def _wrapper(model: Any) -> tuple[str, str] | None:
    name = f"{type(model).__module__}."
    for beginning, (attribute, what) in _WRAPPERS.items():
        if name.startswith(beginning) and getattr(model, attribute, None) is not None:
            return attribute, what
    return None


def check_initialised(model: Any) -> None:
    """Refuses a module whose layers take their sizes from the first call."""
    from torch.nn.parameter import is_lazy

    lazy = next((n for n, p in [*model.named_parameters(), *model.named_buffers()] if is_lazy(p)), None)
    if lazy is not None:
        raise ForerunError(
            f"{type(model).__name__} has layers that get their sizes at the first call ({lazy.rpartition('.')[0]}): "
            "call it once, then predict"
        )
