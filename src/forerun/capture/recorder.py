"""Records every aten call that PyTorch dispatches on meta tensors, as ops, tensors and storages.

Views cost nothing and are not ops. Edges come from the storages (the last writer of this memory). Lifetimes come from
the storages' own deaths, so peak memory is what the framework's reference counting makes it.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from forerun.capture import garbage
from forerun.capture.assumed import Assumptions, run
from forerun.capture.aten_calls import AtenCall, aten_call
from forerun.capture.layout import copied, cuda_layout, strided
from forerun.capture.nested import tensors_in
from forerun.capture.python_calls import PythonCalls, uncounted
from forerun.capture.torch_ops import attributes
from forerun.graph.ir import PHASES, Op, Storage, Tensor

#: PyTorch's dtypes by the names of the IR.
DTYPES: dict[torch.dtype, str] = {
    torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16",
    torch.int64: "int64", torch.int32: "int32", torch.int16: "int16", torch.int8: "int8", torch.uint8: "uint8",
    torch.bool: "bool", torch.complex64: "complex64", torch.complex128: "complex128",
    torch.float8_e4m3fn: "fp8", torch.float8_e5m2: "fp8",
}  # fmt: skip


class TooManyCalls(Exception):
    """A forward pass launches more calls than the limit of counting."""


class Recorder(TorchDispatchMode):
    """Records every aten call as ops, tensors and storages while `recording` is on."""

    def __init__(self, repeats: dict[str, int], mask_density: float = 1.0, most_calls: int | None = None) -> None:
        super().__init__()
        self.calls, self.most_calls = 0, most_calls
        self.assumed = Assumptions(mask_density)
        self.repeats = repeats  # scope of a folded block -> how many blocks it represents
        self.parameter_scopes: dict[int, str] = {}
        self.parameter_shapes: set[torch.Size] = set()
        self.recording = False
        self._phase = "forward"
        self.scopes: list[str] = []
        self.ops: list[Op] = []
        self.tensors: list[Tensor] = []
        self.storages: list[Storage] = []
        # Host-only work: views and allocations, modules entered, a library's wrappers.
        self.host_calls = {"views": 0, "modules": 0, "transformers": 0}
        self.python: PythonCalls | None = None  # counts while a call is recorded
        self.python_calls: dict[str, tuple[float, float]] = dict.fromkeys(PHASES, (0.0, 0.0))
        self._tensor_ids: dict[tuple[Any, ...], int] = {}
        self._storage_ids: dict[int, int] = {}
        self._deaths: dict[int, Any] = {}  # storage -> the reference that reports when it is freed
        self._writer: list[int] = []
        self._repeats_by_scope: dict[str, int] = {}
        self._made_in: dict[int, str] = {}  # storage created before the recorded call -> the scope that created it
        self._scope_of_node: dict[int, str] = {}  # autograd sequence number -> scope, to place backward ops
        self._nodes: int | None = None  # the number of autograd nodes at the last call

    # -- memory ------------------------------------------------------------------------------------------------------

    def storage_id(self, t: torch.Tensor, role: str = "activation", born: int | None = None, scope: str = "") -> int:
        storage = t.untyped_storage()
        key = storage._cdata
        index = self._storage_ids.get(key)
        if index is None:
            index = len(self.storages)
            if not self.recording:
                scope = scope or self._made_in.get(key, "")
            born = len(self.ops) if born is None else born
            self.storages.append(Storage(storage.nbytes(), role, born, None, self.repeat_of(scope or self.scope())))
            self._writer.append(-1)
            self._storage_ids[key] = index
            self._deaths[key] = weakref.ref(storage, functools.partial(self._freed, key, index))
        return index

    def _freed(self, key: int, index: int, _storage: Any) -> None:
        self._storage_ids.pop(key, None)
        self._deaths.pop(key, None)
        # What outlives the call is freed by the caller, not by the graph. Deaths by the garbage collector are not part
        # of the call either: they come at another op every time.
        if self.recording and not garbage.is_collected_here():
            self.storages[index].dies = max(len(self.ops) - 1, self.storages[index].born)

    def tensor_id(self, t: torch.Tensor) -> int:
        storage = self.storage_id(t)
        writer, shape, dtype = self._writer[storage], t.shape, t.dtype
        key = (storage, writer, shape, dtype)
        index = self._tensor_ids.get(key)
        if index is None:
            index = self._tensor_ids[key] = len(self.tensors)
            self.tensors.append(Tensor(tuple(shape), DTYPES.get(dtype, "fp32"), storage, writer))
        return index

    # -- phases and scopes ---------------------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        return self._phase

    @phase.setter
    def phase(self, phase: str) -> None:
        self.settle()
        self._phase = phase

    def enter(self, scope: str | None) -> None:
        """A module begins; None: one without a name. What ran since the one before it, a turn of a loop over blocks for
        example, is repeated as this one is."""
        scope = scope if scope is not None else self.scopes[-1] if self.scopes else ""
        self.settle(scope)
        self.scopes.append(scope)
        if self.recording:
            self.host_calls["modules"] += self.repeat_of(self.scopes[-1])

    def leave(self) -> None:
        self.settle()
        self.scopes.pop()

    def settle(self, scope: str | None = None) -> None:
        """Adds the calls of Python since the last change of phase or module, which belong to a scope, or the current
        one."""
        if self.python is None:
            return
        of_python, of_c = self.python_calls[self._phase]
        functions, c_functions = self.python.take()
        times = (
            self._parameters_each()
            if self._phase == "optimizer"
            else self.repeat_of(self.scope() if scope is None else scope)
        )
        self.python_calls[self._phase] = of_python + times * functions, of_c + times * c_functions

    def python_facts(self) -> dict[str, Any]:
        """Calls of Python functions and of C functions in each phase; nothing where they were not counted."""
        if self.python is None:
            return {}
        return {"python_calls": {name: [round(n) for n in counts] for name, counts in self.python_calls.items()}}

    def _parameters_each(self) -> float:
        """How many parameters each one represents, on average."""
        each = [self.repeat_of(scope) for scope in self.parameter_scopes.values()]
        return sum(each) / max(len(each), 1)

    def scope(self) -> str:
        if self.phase == "backward":
            node = torch._C._current_autograd_node()
            if node is None:
                return ""
            if hasattr(node, "variable"):  # gradients are accumulated per parameter
                return self.parameter_scopes.get(id(node.variable), "")
            return self._scope_of_node.get(node._sequence_nr(), "")
        return self.scopes[-1] if self.scopes and self.phase == "forward" else ""

    def _place_nodes(self) -> None:
        """Records the scope of every autograd node created since the last call: one as a rule, two where an in-place
        call saves a copy of its input first. An op with a backward of its own runs with gradients off."""
        last = torch._C._autograd._get_sequence_nr()
        for number in range(last - 1 if self._nodes is None else self._nodes, last):
            self._scope_of_node.setdefault(number, self.scope())
        self._nodes = last

    def repeat_of(self, scope: str) -> int:
        """How many equal ops an op in this scope represents."""
        if scope not in self._repeats_by_scope:
            inside = (n for block, n in self.repeats.items() if scope == block or scope.startswith(block + "."))
            self._repeats_by_scope[scope] = math.prod(inside)
        return self._repeats_by_scope[scope]

    def _stand_in(self, name: str, args: Any) -> Any:
        """An assumed result where the real one depends on values that meta tensors do not have; else None."""
        if not args[0].is_meta:
            return None
        if name == "nonzero":
            return self.assumed.found(args[0])
        if name in ("equal", "allclose"):
            return self.assumed.no()
        return self.assumed.scalar(args[0], self.scopes[-1] if self.scopes else "", noted=self.phase != "optimizer")

    def _count_call(self) -> None:
        """Counts the calls of a pass that is not recorded, and ends it where there are too many."""
        self.calls += 1
        if self.most_calls is not None and self.calls > self.most_calls:
            raise TooManyCalls

    # -- recording ---------------------------------------------------------------------------------------------------

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled in a capture; PyTorch would wrap every call, to keep its compiler out."""
        return False

    @uncounted
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        call = aten_call(func)
        if call.asks and (stand_in := self._stand_in(call.name, args)) is not None:
            return stand_in
        if call.indexes:  # masks become the positions they select, as CUDA does it
            args = (args[0], self.assumed.indices(args[1]), *args[2:])
        if not self.recording:
            self._count_call()
            out = cuda_layout(call.name, args, run(self.assumed, func, call.name, args, kwargs))
            scope = self.scope()
            for t in tensors_in(out):
                self._made_in[t.untyped_storage()._cdata] = scope
            return out
        if self.phase == "forward":
            self._place_nodes()
        inputs = tensors_in((args, kwargs) if kwargs else args)
        input_ids = [self.tensor_id(t) for t in inputs]
        summed = self.phase == "backward" and self._sums_gradients(call.full_name, args)
        out = args[0] if summed else cuda_layout(call.name, args, run(self.assumed, func, call.name, args, kwargs))
        outputs = tensors_in(out)
        if not summed and (call.free or self._launches_nothing(call, inputs, outputs)):
            for t in outputs:
                self.storage_id(t)
            self.host_calls["views"] += self.repeat_of(self.scope())
            return out
        self._record(call, args, inputs, input_ids, outputs)
        return out

    def _sums_gradients(self, name: str, args: Any) -> bool:
        """Whether a call adds two gradients of a parameter that is used twice, which autograd does in place where it
        alone holds the first; of tensors without data it makes a third."""
        if name != "aten::add.Tensor" or not all(isinstance(t, torch.Tensor) for t in args[:2]):
            return False
        first, second = args[:2]
        alike = first.shape == second.shape and first.dtype == second.dtype and first.is_contiguous()
        return alike and first.shape in self.parameter_shapes

    @staticmethod
    def _launches_nothing(call: AtenCall, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> bool:
        """Whether a call only returns a view, or stays on the host: Adam's step counters, layer drop."""
        if not call.mutates:
            if not outputs:
                return True
            known = {t.untyped_storage()._cdata for t in inputs}
            if all(t.untyped_storage()._cdata in known for t in outputs):
                return True
        return not any(t.is_meta for t in inputs) and not any(t.is_meta for t in outputs)

    def _record(self, call: AtenCall, args: Any, inputs: Any, input_ids: Any, outputs: Any) -> None:
        index = len(self.ops)
        kind, plain = call.kind, call.plain
        scope = self.scope()
        attrs = attributes(kind, plain, args, outputs)
        if kind == "matmul" and plain in ("addmm", "baddbmm", "addbmm", "addmv", "_addmm_activation"):
            input_ids = [input_ids[1], input_ids[2], input_ids[0]]  # (bias, a, b) -> (a, b, bias)
        if kind == "optimizer":
            attrs = self._optimizer_attrs(call.func, inputs, tensors_in(args[0]))
        if strided(kind, inputs):
            attrs = {**attrs, "strided": True}
        if pieces := copied(kind, plain, inputs):
            attrs = {**attrs, "copied": pieces}
        written = outputs or (tensors_in(args[0]) if kind == "optimizer" else inputs[:1])
        op = Op(kind, call.full_name, tuple(input_ids), (), attrs, scope, self.phase, self.repeat_of(scope))
        self.ops.append(op)
        for i, t in enumerate(written):
            storage = self.storage_id(t, born=index, scope=scope)
            if kind == "optimizer" and i < len(input_ids):  # one result per parameter, repeated as its parameter is
                self.storages[storage].repeat = self.storages[self.tensors[input_ids[i]].storage].repeat
            self._writer[storage] = index
        op.outputs = tuple(self.tensor_id(t) for t in written)

    def _optimizer_attrs(self, func: Any, inputs: Any, first_list: Any) -> dict[str, Any]:
        """Bytes of a foreach call over all parameters, each counted as often as its folded block repeats."""

        def weigh(ts: Any) -> tuple[int, int]:
            times = [self.storages[self.storage_id(t)].repeat for t in ts]
            return sum(r * t.numel() * t.element_size() for r, t in zip(times, ts, strict=True)), sum(times)

        written, count = weigh(first_list)
        lists = sum("List[Tensor]" in str(a.type) for a in func._schema.arguments)
        return {"bytes_read": weigh(inputs)[0], "bytes_written": written, "tensors": count, "lists": max(1, lists)}


class Census(Recorder):
    """Counts the launches of a forward pass, by call and result shapes; folded blocks times their repeats."""

    def __init__(self, repeats: dict[str, int], mask_density: float, most_calls: int | None = None) -> None:
        super().__init__(repeats, mask_density, most_calls)
        self.count: Counter[tuple[Any, ...]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = aten_call(func)
        if call.asks and (stand_in := self._stand_in(call.name, args)) is not None:
            return stand_in
        self._count_call()
        if call.indexes:
            args = (args[0], self.assumed.indices(args[1]), *args[2:])
        out = run(self.assumed, func, call.name, args, kwargs or {})
        shapes = tuple([t.shape for t in tensors_in(out) if t.is_meta])
        if shapes:
            self.count[call.full_name, shapes] += self.repeat_of(self.scope())
        return out
