"""Runs a model once on meta tensors and records what eager PyTorch launches, as a graph.

One mechanism for inference, training, prefill and decode: their differences are in `steps`, recording
is in `recorder`.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from forerun.capture.assumed import EndlessLoop
from forerun.capture.capturing import capturing
from forerun.capture.garbage import watched
from forerun.capture.known_values import following
from forerun.capture.nested import tensors_in
from forerun.capture.python_calls import counting
from forerun.capture.recorder import Census, Recorder
from forerun.capture.torch_fast_path import fast_path
from forerun.capture.torch_leaves import leaf_functions
from forerun.capture.torch_modes import Emulation
from forerun.capture.torchvision_ops import compiled_ops
from forerun.graph.ir import Graph

TORCH_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64}


@contextlib.contextmanager
def _recording(recorder: Recorder, emulation: Emulation, model: torch.nn.Module, follow: bool) -> Iterator[None]:
    """Everything that must be active while a model runs: the modes, and `recorder.scopes` at the module that runs.

    Modes are per thread. Changes for all threads (`thread_patches`, hooks of modules) have no effect in other threads,
    so that several threads may capture at once and others run as before.
    """
    names = {id(m): n for n, m in model.named_modules()}
    thread = threading.get_ident()

    def enter(module: Any, _args: Any) -> None:
        if threading.get_ident() == thread:
            recorder.enter(names.get(id(module)))

    def leave(_module: Any, _args: Any, _out: Any) -> None:
        if threading.get_ident() == thread:
            recorder.leave()

    with contextlib.ExitStack() as undo:
        undo.callback(torch.nn.modules.module.register_module_forward_pre_hook(enter).remove)
        undo.callback(torch.nn.modules.module.register_module_forward_hook(leave, always_call=True).remove)
        for place in (watched(), capturing(), leaf_functions(), compiled_ops()):
            undo.enter_context(place)
        with fast_path(emulation.amp), emulation, recorder, following(follow):
            yield


def census(
    model: torch.nn.Module,
    call: Callable[[], Any],
    repeats: dict[str, int],
    mask_density: float,
    follow: bool = False,
    most_calls: int | None = None,
) -> Counter[tuple[Any, ...]]:
    """What one forward pass of `model` launches: {(aten call, result shapes): times}.

    Raises TooManyCalls once it has launched more than `most_calls`.
    """
    counter = Census(repeats, mask_density, most_calls)
    with torch.no_grad(), _recording(counter, Emulation(assumed=counter.assumed), model, follow):
        _first_pass(counter, call)
    return counter.count


def _first_pass(recorder: Recorder, run: Callable[[], Any]) -> None:
    """Runs a model; a data-dependent loop ends after one iteration, and checks pass."""
    while True:
        try:
            run()
            return
        except EndlessLoop as loop:
            recorder.assumed.end_loop(loop)
        except (AssertionError, RuntimeError, ValueError) as fault:
            if not recorder.assumed.pass_check(fault):
                raise
        recorder.scopes.clear()
        recorder.calls = 0
        recorder.assumed.begin()
        if isinstance(recorder, Census):
            recorder.count.clear()


def record(
    model: torch.nn.Module,
    step: Callable[[Recorder, Emulation], Any],
    *,
    repeats: dict[str, int],
    amp: torch.dtype | None = None,
    mask_density: float = 1.0,
    held: Callable[[], Iterator[tuple[str, str, torch.Tensor]]],
    follow: bool = False,
    most_calls: int | None = None,
    count_python: bool = True,
) -> Graph:
    """Runs `step` twice (once to create lazy state, once recorded) and returns the graph it launched.

    `held` yields (role, scope, tensor) for tensors that exist before the call: inputs, gradients, optimizer state,
    cache. With `follow`, known values of inputs are propagated (`known_values`). Raises TooManyCalls once the first run
    has launched more than `most_calls`. With `count_python`, the model's own Python is counted (`python_calls`).
    """
    recorder = Recorder(repeats, mask_density, most_calls)
    recorder.host_calls["transformers"] = int(
        any(type(m).__module__.startswith("transformers.") for m in model.modules())
    )
    emulation = Emulation(amp, recorder.assumed)
    with _recording(recorder, emulation, model, follow):
        _first_pass(recorder, lambda: step(recorder, emulation))
        recorder.assumed.begin()
        emulation.clear_weight_cache()
        recorder.phase = "forward"
        for name, p in model.named_parameters():
            recorder.storage_id(p, "parameter", -1, name)
            recorder.parameter_scopes[id(p)] = name
            recorder.parameter_shapes.add(p.shape)
        for name, b in model.named_buffers():
            recorder.storage_id(b, "buffer", -1, name)
        for role, scope, t in held():
            recorder.storage_id(t, role, -1, scope)
        recorder.recording = True
        with counting() if count_python else contextlib.nullcontext() as recorder.python:
            result = step(recorder, emulation)
            recorder.settle()
        recorder.recording = False
        outputs = tuple(recorder.tensor_id(t) for t in tensors_in(result))
        for role, _, t in held():
            if role == "gradient":
                recorder.storages[recorder.storage_id(t)].role = role
    graph = Graph(
        name=type(model).__name__,
        ops=recorder.ops,
        tensors=recorder.tensors,
        storages=recorder.storages,
        parameters=0,
        active_parameters=0,
        outputs=outputs,
        facts={"host_calls": dict(recorder.host_calls), **recorder.python_facts()},
        notes=recorder.assumed.notes(),
    )
    return graph
