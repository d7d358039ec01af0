"""Records what eager PyTorch launches: runs a model once on meta tensors and writes down every aten call.

One mechanism for inference, training, prefill and decode. Views cost nothing and leave no op; edges come from the
storages (who wrote this memory last); lifetimes come from the storages' own deaths, so peak memory is what the
framework's reference counting makes it.
"""

from __future__ import annotations

import contextlib
import gc
import math
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch.utils._python_dispatch import TorchDispatchMode

from forerun.graph.ir import Graph, Op, Storage, Tensor
from forerun.graph.torch_modes import Emulation, leaf_functions
from forerun.graph.torch_ops import FREE, attributes, base_name, classify

DTYPES: dict[torch.dtype, str] = {
    torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16",
    torch.int64: "int64", torch.int32: "int32", torch.int16: "int16", torch.int8: "int8", torch.uint8: "uint8",
    torch.bool: "bool", torch.complex64: "complex64", torch.complex128: "complex128",
    torch.float8_e4m3fn: "fp8", torch.float8_e5m2: "fp8",
}  # fmt: skip
TORCH_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64}


class Recorder(TorchDispatchMode):
    """Writes every aten call into ops, tensors and storages while `recording` is on."""

    def __init__(self, repeats: dict[str, int], mask_density: float = 1.0) -> None:
        super().__init__()
        self.mask_density = mask_density
        self.guessed = False  # a size hung on values that are not there
        self.branched = False  # a branch did
        self.repeats = repeats  # scope of a folded block -> how many blocks it stands for
        self.parameter_scopes: dict[int, str] = {}
        self.recording = False
        self.phase = "forward"
        self.scopes: list[str] = []
        self.ops: list[Op] = []
        self.tensors: list[Tensor] = []
        self.storages: list[Storage] = []
        self.unknown: set[str] = set()
        # What costs the host time and the device none: views and allocations, modules entered, a library's wrapping.
        self.host_calls = {"views": 0, "modules": 0, "transformers": 0}
        self._tensor_ids: dict[tuple[Any, ...], int] = {}
        self._storage_ids: dict[int, int] = {}
        self._writer: list[int] = []
        self._repeat_of: dict[str, int] = {}
        self._made_in: dict[int, str] = {}  # storage made before the recorded call -> the scope that made it
        self._scope_of_node: dict[int, str] = {}  # autograd sequence number -> scope, to place backward ops

    # -- memory ------------------------------------------------------------------------------------------------------

    def storage_id(self, t: torch.Tensor, role: str = "activation", born: int | None = None, scope: str = "") -> int:
        storage = t.untyped_storage()
        key = storage._cdata
        if key not in self._storage_ids:
            index = len(self.storages)
            if not self.recording:
                scope = scope or self._made_in.get(key, "")
            born = len(self.ops) if born is None else born
            self.storages.append(Storage(storage.nbytes(), role, born, None, self._repeat(scope or self.scope())))
            self._writer.append(-1)
            self._storage_ids[key] = index
            weakref.finalize(storage, self._freed, key, index)
        return self._storage_ids[key]

    def _freed(self, key: int, index: int) -> None:
        self._storage_ids.pop(key, None)
        if self.recording:  # what outlives the call is freed by the caller, not by the graph
            self.storages[index].dies = max(len(self.ops) - 1, self.storages[index].born)

    def tensor_id(self, t: torch.Tensor) -> int:
        storage = self.storage_id(t)
        key = (storage, self._writer[storage], t.shape, t.dtype)
        if key not in self._tensor_ids:
            self._tensor_ids[key] = len(self.tensors)
            self.tensors.append(Tensor(tuple(t.shape), DTYPES.get(t.dtype, "fp32"), storage, self._writer[storage]))
        return self._tensor_ids[key]

    # -- where we are ------------------------------------------------------------------------------------------------

    def scope(self) -> str:
        if self.phase == "backward":
            node = torch._C._current_autograd_node()
            if node is None:
                return ""
            if hasattr(node, "variable"):  # gradients are added up per parameter
                return self.parameter_scopes.get(id(node.variable), "")
            return self._scope_of_node.get(node._sequence_nr(), "")
        return self.scopes[-1] if self.scopes and self.phase == "forward" else ""

    def _repeat(self, scope: str) -> int:
        if scope not in self._repeat_of:
            inside = (n for block, n in self.repeats.items() if scope == block or scope.startswith(block + "."))
            self._repeat_of[scope] = math.prod(inside)
        return self._repeat_of[scope]

    def _stand_in(self, name: str, args: Any) -> Any:
        """An answer where the real one hangs on values that meta tensors do not have; else None."""
        if name not in ("_local_scalar_dense", "nonzero") or args[0].device.type != "meta":
            return None
        if name == "nonzero":
            return self._found(args[0])
        self.branched = self.branched or (self.recording and args[0].dtype == torch.bool)
        return _scalar(args[0])

    def _found(self, mask: torch.Tensor) -> torch.Tensor:
        """What `nonzero` finds on a tensor without values: all of a vector, a share of a mask (uniform routing)."""
        hits = mask.numel() if mask.dim() < 2 else max(1, round(mask.numel() * self.mask_density))
        if self.recording:
            self.guessed = True
        return mask.new_empty((hits, mask.dim()), dtype=torch.int64)

    # -- recording ---------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = base_name(func.name())
        stand_in = self._stand_in(name, args)
        if stand_in is not None:
            return stand_in
        if not self.recording:
            out = _laid_out(name, args, func(*args, **kwargs))
            for t in tensors_in(out):
                self._made_in[t.untyped_storage()._cdata] = self.scope()
            return out
        if self.phase == "forward" and torch.is_grad_enabled():
            self._scope_of_node.setdefault(torch._C._autograd._get_sequence_nr() - 1, self.scope())
        inputs = tensors_in((args, kwargs))
        input_ids = [self.tensor_id(t) for t in inputs]
        out = _laid_out(name, args, func(*args, **kwargs))
        outputs = tensors_in(out)
        mutates = func._schema.is_mutable
        known = {t.untyped_storage()._cdata for t in inputs}
        is_view = bool(outputs) and not mutates and all(t.untyped_storage()._cdata in known for t in outputs)
        on_host = all(t.device.type != "meta" for t in (*inputs, *outputs))  # Adam's step counters, layer drop
        if name in FREE or is_view or on_host or not (outputs or mutates):
            for t in outputs:
                self.storage_id(t)
            self.host_calls["views"] += self._repeat(self.scope())
            return out
        self._record(func, name, args, inputs, input_ids, outputs)
        return out

    def _record(self, func: Any, name: str, args: Any, inputs: Any, input_ids: Any, outputs: Any) -> None:
        index = len(self.ops)
        kind = classify(name)
        if kind == "unknown":
            self.unknown.add(func.name())
        scope = self.scope()
        attrs = attributes(kind, name, args, outputs)
        if kind == "matmul" and name in ("addmm", "baddbmm", "addbmm", "addmv"):
            input_ids = [input_ids[1], input_ids[2], input_ids[0]]  # (bias, a, b) -> (a, b, bias)
        if kind == "optimizer":
            attrs = self._optimizer_attrs(func, inputs, tensors_in(args[0]))
        if _strided(kind, inputs):
            attrs = {**attrs, "strided": True}
        written = outputs or (tensors_in(args[0]) if kind == "optimizer" else inputs[:1])
        op = Op(kind, func.name(), tuple(input_ids), (), attrs, scope, self.phase, self._repeat(scope))
        self.ops.append(op)
        for i, t in enumerate(written):
            storage = self.storage_id(t, born=index, scope=scope)
            if kind == "optimizer" and i < len(input_ids):  # one result per parameter, repeated as its parameter is
                self.storages[storage].repeat = self.storages[self.tensors[input_ids[i]].storage].repeat
            self._writer[storage] = index
        op.outputs = tuple(self.tensor_id(t) for t in written)

    def _optimizer_attrs(self, func: Any, inputs: Any, first_list: Any) -> dict[str, Any]:
        """Bytes of a foreach call over all parameters, each counted as often as its folded block is repeated."""

        def weigh(ts: Any) -> tuple[int, int]:
            times = [self.storages[self.storage_id(t)].repeat for t in ts]
            return sum(r * t.numel() * t.element_size() for r, t in zip(times, ts, strict=True)), sum(times)

        written, count = weigh(first_list)
        lists = sum("List[Tensor]" in str(a.type) for a in func._schema.arguments)
        return {"bytes_read": weigh(inputs)[0], "bytes_written": written, "tensors": count, "lists": max(1, lists)}


def _laid_out(name: str, args: Any, out: Any) -> Any:
    """What a convolution returns, its channels last where CUDA would put them: meta tensors are never so."""
    if name == "convolution" and any(map(_channels_last, args[:2])):
        return torch.empty_like(out, memory_format=torch.channels_last)
    if name == "convolution_backward" and out[0] is not None and any(map(_channels_last, args[1:3])):
        return torch.empty_like(out[0], memory_format=torch.channels_last), *out[1:]
    return out


def _channels_last(t: torch.Tensor) -> bool:
    """By strides alone, as CUDA asks: tokens without the first one leave gaps between images."""
    return t.dim() == 4 and suggest_memory_format(t) == torch.channels_last


#: Ops whose kernels run several times slower when they cannot read their inputs in one sweep.
_MEMORY_BOUND = frozenset({"copy", "elementwise", "reduce", "norm", "softmax", "gather"})
#: Ops on images that have other kernels for channels last, and how many of their inputs are images.
_IMAGES = {"conv": 1, "conv_backward": 2, "resize": 1}


def _strided(kind: str, inputs: Any) -> bool:
    """Whether the inputs cannot be read in one sweep: gaps, other orders than each other, or rows used again. Of ops on
    images, whether these have their channels last."""
    if kind in _IMAGES:
        return any(map(_channels_last, inputs[: _IMAGES[kind]]))
    if kind not in _MEMORY_BOUND:
        return False
    seen = [t for t in inputs if t.numel() > 1 and t.is_floating_point()]
    if not seen:
        return False
    if kind != "elementwise":
        return any(not t.is_contiguous() for t in seen)
    first = seen[0]
    return any(t.shape != first.shape or t.stride() != first.stride() for t in seen) or not _dense(first)


def _dense(t: torch.Tensor) -> bool:
    """Whether a tensor fills its memory without gaps, in whatever order of dimensions."""
    if t.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(t.stride(), t.shape, strict=True) if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _scalar(t: torch.Tensor) -> Any:
    """What `.item()` answers on a tensor without values: "nothing special here", one. Models branch on it."""
    return False if t.dtype == torch.bool else 1.0 if t.dtype.is_floating_point else 1


def tensors_in(tree: Any) -> list[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, (list, tuple)):
        return [t for item in tree for t in tensors_in(item)]
    if hasattr(tree, "values") and hasattr(tree, "keys"):  # dicts, and Hugging Face outputs, which are dict-like
        return [t for item in tree.values() for t in tensors_in(item)]
    return []


#: Recording puts hooks and patches into torch itself; two captures at once would see each other.
_ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def _recording(recorder: Recorder, emulation: Emulation, model: torch.nn.Module) -> Iterator[None]:
    """Everything that must be in place while a model runs: the modes, and `recorder.scopes` at the module that runs."""
    names = {id(m): n for n, m in model.named_modules()}
    thread = threading.get_ident()

    def enter(module: Any, _args: Any) -> None:
        if threading.get_ident() == thread:
            recorder.scopes.append(names.get(id(module), recorder.scopes[-1] if recorder.scopes else ""))
            if recorder.recording:
                recorder.host_calls["modules"] += recorder._repeat(recorder.scopes[-1])

    def leave(_module: Any, _args: Any, _out: Any) -> None:
        if threading.get_ident() == thread:
            recorder.scopes.pop()

    with _ONE_AT_A_TIME:
        handles = [
            torch.nn.modules.module.register_module_forward_pre_hook(enter),
            torch.nn.modules.module.register_module_forward_hook(leave, always_call=True),
        ]
        collecting = gc.isenabled()
        gc.disable()  # deaths come from reference counts alone, at the same op every time
        try:
            with leaf_functions(), emulation, recorder:
                yield
        finally:
            for h in handles:
                h.remove()
            if collecting:
                gc.enable()


class Census(Recorder):
    """Counts what a forward pass launches, by call and result shapes; folded blocks as often as they stand for."""

    def __init__(self, repeats: dict[str, int], mask_density: float) -> None:
        super().__init__(repeats, mask_density)
        self.count: Counter[tuple[Any, ...]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        stand_in = self._stand_in(base_name(func.name()), args)
        if stand_in is not None:
            return stand_in
        out = func(*args, **(kwargs or {}))
        shapes = tuple(t.shape for t in tensors_in(out) if t.device.type == "meta")
        if shapes:
            self.count[func.name(), shapes] += self._repeat(self.scope())
        return out


def census(
    model: torch.nn.Module, call: Callable[[], Any], repeats: dict[str, int], mask_density: float
) -> Counter[tuple[Any, ...]]:
    """What one forward pass of `model` launches: {(aten call, result shapes): times}."""
    counter = Census(repeats, mask_density)
    with torch.no_grad(), _recording(counter, Emulation(), model):
        call()
    return counter.count


def record(
    model: torch.nn.Module,
    step: Callable[[Recorder, Emulation], Any],
    *,
    repeats: dict[str, int],
    amp: torch.dtype | None = None,
    mask_density: float = 1.0,
    held: Callable[[], Iterator[tuple[str, str, torch.Tensor]]],
) -> Graph:
    """Runs `step` twice (once to let lazy state come into being, once recorded) and returns the graph it launched.

    `held` yields (role, scope, tensor) for what exists before the call: inputs, gradients, optimizer state, cache.
    """
    recorder = Recorder(repeats, mask_density)
    recorder.host_calls["transformers"] = int(
        any(type(m).__module__.startswith("transformers.") for m in model.modules())
    )
    emulation = Emulation(amp)
    with _recording(recorder, emulation, model):
        step(recorder, emulation)
        emulation.clear_weight_cache()
        recorder.phase = "forward"
        for name, p in model.named_parameters():
            recorder.storage_id(p, "parameter", -1, name)
            recorder.parameter_scopes[id(p)] = name
        for name, b in model.named_buffers():
            recorder.storage_id(b, "buffer", -1, name)
        for role, scope, t in held():
            recorder.storage_id(t, role, -1, scope)
        recorder.recording = True
        result = step(recorder, emulation)
        recorder.recording = False
        outputs = tuple(recorder.tensor_id(t) for t in tensors_in(result))
        for role, _, t in held():
            if role == "gradient":
                recorder.storages[recorder.storage_id(t)].role = role
    notes = [f"no cost law for {n}: its bytes are counted, its FLOPs are not" for n in sorted(recorder.unknown)]
    if recorder.branched:
        notes.append("where the model asks whether a tensor's values meet a condition, the answer was taken as no")
    if recorder.guessed:
        notes.append("sizes that hang on the data (which token goes to which expert) are taken as spread evenly")
    graph = Graph(
        name=type(model).__name__,
        ops=recorder.ops,
        tensors=recorder.tensors,
        storages=recorder.storages,
        parameters=0,
        active_parameters=0,
        outputs=outputs,
        facts={"host_calls": dict(recorder.host_calls)},
        notes=notes,
    )
    return graph
