"""Counts the Python of a model itself: calls that it makes beside those that PyTorch dispatches.

A call of a model is Python, too: modules that call each other, tensors rearranged by name, messages passed between
nodes. On the host, that Python runs between launches. Counted are calls of Python functions and of C functions that are
not PyTorch's. What PyTorch does within an operator is not counted, nor is what a capture adds to it.

CPython reports calls to `sys.monitoring` (from 3.12 on, to which code outside models is reported once) or to
`sys.setprofile`. Where a profiler of the user's runs already, nothing is counted.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import BuiltinMethodType, CodeType, FrameType, MethodDescriptorType, ModuleType
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")

#: Parts of PyTorch that run in a capture only (meta tensors, modes), or that implement its operators.
_TORCH = str(Path(torch.__file__).parent) + os.sep
_DISPATCH = (
    "_ops.py", "_tensor_str.py", "overrides.py", "types.py", "_compile.py", "_subclasses", "_library", "library.py",
    "_dynamo", "_inductor", "_functorch", "_higher_order_ops", "_prims", "_prims_common", "_refs", "_decomp",
    "_meta_registrations.py", "_logging", "fx", "utils/_python_dispatch.py", "utils/_pytree.py", "utils/_cxx_pytree.py",
    "utils/_device.py", "utils/weak.py", "_guards.py",
)  # fmt: skip
_NOT_COUNTED = tuple(_TORCH + name.replace("/", os.sep) for name in _DISPATCH)
#: forerun's own code, but for the networks that it makes.
_OWN = str(Path(__file__).parents[1]) + os.sep
_NETWORKS = _OWN + "networks" + os.sep
_MODULE_CALL = _TORCH + os.path.join("nn", "modules", "module.py")
#: What counts of a code object.
_ITSELF, _CALLS = 1, 2
#: Parts of a module's call, which are longer while the capture follows it.
_FOLLOWED = {"_call_impl": _ITSELF, "inner": 0}
#: Functions of which later versions of Python make no call.
_INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")
#: Code that runs when memory is freed, which is not at the same place every time.
_WHENEVER = ("weakref.py", "_weakrefset.py")

_here = threading.local()


class PythonCalls:
    """How many calls were made since they were last taken: of Python functions, and of C functions."""

    def __init__(self) -> None:
        self.functions = self.c_functions = 0
        self._counts: dict[int, int] = {}  # by the id of a code object
        self._kept: list[CodeType] = []  # so that no id is used twice
        self._plain: dict[type, bool] = {}  # by the type that a C function is bound to

    def take(self) -> tuple[int, int]:
        """What was counted, which starts anew."""
        counted = self.functions, self.c_functions
        self.functions = self.c_functions = 0
        return counted

    def begun(self, code: CodeType) -> None:
        """A Python function begins, or goes on."""
        found = self._counts.get(id(code))
        if (self._remembered(code) if found is None else found) & _ITSELF:
            self.functions += 1

    def called(self, code: CodeType, bound_to: Any) -> None:
        """The code calls a C function of a module or object."""
        found = self._counts.get(id(code))
        if (self._remembered(code) if found is None else found) & _CALLS:
            kind = type(bound_to)
            plain = self._plain.get(kind)
            if plain is None:
                plain = self._plain[kind] = not (issubclass(kind, torch.Tensor) or _is_torch(kind))
            if plain and not ((kind is ModuleType or kind is type) and _is_torch(bound_to)):
                self.c_functions += 1

    def _remembered(self, code: CodeType) -> int:
        self._kept.append(code)
        found = self._counts[id(code)] = _counted(code)
        return found


def _counted(code: CodeType) -> int:
    """What of a code object counts: that it is called, and what it calls."""
    if not _is_file_of_model(code.co_filename) or code.co_name == "__del__":
        return 0
    if code.co_filename == _MODULE_CALL and code.co_name in _FOLLOWED:
        return _FOLLOWED[code.co_name]
    return _CALLS if code.co_name in _INLINED else _ITSELF | _CALLS


@functools.cache
def _is_file_of_model(name: str) -> bool:
    if name.startswith(_TORCH):
        return not name.startswith(_NOT_COUNTED)
    if name.startswith(_OWN):
        return name.startswith(_NETWORKS)
    return not name.startswith("<frozen") and not name.endswith(_WHENEVER)


def _is_torch(owner: Any) -> bool:
    name = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    return str(name).partition(".")[0] == "torch"


@contextlib.contextmanager
def counting() -> Iterator[PythonCalls | None]:
    """Counts the calls of this thread inside the block; None where they cannot be counted."""
    calls = PythonCalls()
    with _reported(calls) as reported:
        yield calls if reported else None


def uncounted(function: Callable[P, T]) -> Callable[P, T]:
    """A function during which nothing is counted: PyTorch's dispatch, and what it calls."""

    @functools.wraps(function)
    def apart(*args: P.args, **kwargs: P.kwargs) -> T:
        profile = getattr(_here, "profile", None)
        if profile is None:
            return function(*args, **kwargs)
        _here.profile = None
        _switch(None)
        try:
            return function(*args, **kwargs)
        finally:
            _here.profile = profile
            _switch(profile)

    return apart


# -- sys.setprofile ----------------------------------------------------------------------------------------------------


def _switch(profile: Any) -> None:
    """What this thread's calls are reported to. `sys.monitoring` reports those of all threads, and goes on."""
    if sys.version_info < (3, 12):
        sys.setprofile(profile)


@contextlib.contextmanager
def _by_profile(calls: PythonCalls) -> Iterator[bool]:
    if sys.getprofile() is not None:
        yield False
        return

    begun, called = calls.begun, calls.called

    def profile(frame: FrameType, event: str, found: Any) -> None:
        if event == "call":
            begun(frame.f_code)
        elif event == "c_call":
            called(frame.f_code, found.__self__)

    _here.profile = profile
    sys.setprofile(profile)
    try:
        yield True
    finally:
        sys.setprofile(None)
        _here.profile = None


# -- sys.monitoring ----------------------------------------------------------------------------------------------------

if sys.version_info >= (3, 12):
    _EVENTS = sys.monitoring.events
    _TOOL = sys.monitoring.PROFILER_ID
    _changing = threading.Lock()
    _threads = 0

    def _on_begun(code: CodeType, _offset: int) -> Any:
        calls = getattr(_here, "profile", None)
        if not _is_file_of_model(code.co_filename):
            return sys.monitoring.DISABLE  # in every thread: no capture counts this code
        if calls is not None:
            calls.begun(code)
        return None

    def _on_called(code: CodeType, _offset: int, function: Any, first: Any) -> Any:
        if not _is_file_of_model(code.co_filename):
            return sys.monitoring.DISABLE
        calls = getattr(_here, "profile", None)
        if calls is not None:
            if isinstance(function, BuiltinMethodType):
                calls.called(code, function.__self__)
            elif isinstance(function, MethodDescriptorType):
                calls.called(code, first)
        return None

    @contextlib.contextmanager
    def _by_monitoring(calls: PythonCalls) -> Iterator[bool]:
        global _threads
        with _changing:
            free = _threads > 0 or sys.monitoring.get_tool(_TOOL) is None
            if free and not _threads:
                sys.monitoring.use_tool_id(_TOOL, "forerun")
                for event in (_EVENTS.PY_START, _EVENTS.PY_RESUME):
                    sys.monitoring.register_callback(_TOOL, event, _on_begun)
                sys.monitoring.register_callback(_TOOL, _EVENTS.CALL, _on_called)
                sys.monitoring.set_events(_TOOL, _EVENTS.PY_START | _EVENTS.PY_RESUME | _EVENTS.CALL)
            _threads += free
        if not free:
            yield False
            return
        _here.profile = calls
        try:
            yield True
        finally:
            _here.profile = None
            with _changing:
                _threads -= 1
                if not _threads:
                    sys.monitoring.set_events(_TOOL, 0)
                    sys.monitoring.free_tool_id(_TOOL)


def _reported(calls: PythonCalls) -> contextlib.AbstractContextManager[bool]:
    """Reports the calls of this thread inside the block; False where something else is told of them."""
    if sys.version_info >= (3, 12):
        return _by_monitoring(calls)
    return _by_profile(calls)
