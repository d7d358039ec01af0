"""A program of torch.export as a module on meta: its calls are PyTorch's own operators, run one after another."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import nn

from forerun.capture.exported_file import SCALAR_TYPES, Program, TensorSpec
from forerun.errors import ForerunError

_OPERATOR = re.compile(r"torch\.ops\.aten\.([A-Za-z_]\w*)\.(\w+)")
#: Operators that reach beyond the tensors they are given.
_REFUSED = frozenset({"from_file", "_print", "set_data", "record_stream", "_debug_has_internal_overlap"})
#: Arithmetic on sizes, by the end of its name.
_ON_SIZES: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "truediv": operator.truediv, "mod": operator.mod, "neg": operator.neg, "pos": operator.pos, "eq": operator.eq,
    "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "and_": operator.and_, "or_": operator.or_, "trunc": math.trunc, "sym_max": max, "sym_min": min, "sym_int": int,
    "sym_float": float, "sym_not": operator.not_, "_sym_sqrt": math.sqrt,
}  # fmt: skip
_MEMORY_FORMATS = {
    1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d, 4: torch.preserve_format,
}  # fmt: skip
#: Operators that differ in training, and the argument that says so.
_SWITCHES: dict[Any, int] = {
    torch.ops.aten.batch_norm.default: 5, torch.ops.aten.dropout.default: 2, torch.ops.aten.dropout_.default: 2,
    torch.ops.aten.feature_dropout.default: 2, torch.ops.aten.alpha_dropout.default: 2,
    torch.ops.aten.lstm.input: 6, torch.ops.aten.gru.input: 6,
}  # fmt: skip
_FIXED_NORM = torch.ops.aten._native_batch_norm_legit_no_training.default
_TRAINED_NORM = torch.ops.aten._native_batch_norm_legit.default


class ExportedModule(nn.Module):
    """Runs a program on flat inputs. `dtype` replaces the dtype that most of its weights have."""

    def __init__(self, program: Program, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.program = program
        self.given_dtype = main_dtype(program)
        self.dtype = dtype or self.given_dtype
        self.weights = nn.ParameterList()
        for spec in program.parameters:
            tensor = self.empty(spec)
            self.weights.append(nn.Parameter(tensor, requires_grad=tensor.is_floating_point()))
        for i, spec in enumerate(program.buffers):
            self.register_buffer(f"buffer_{i}", self.empty(spec))
        self.batches = torch.zeros((), dtype=torch.int64, device="meta")  # that batch norms have seen
        self.done = _last_uses(program.graph)

    def empty(self, spec: TensorSpec, symbols: dict[str, int] | None = None) -> torch.Tensor:
        """A tensor of the program's, on meta; `symbols` gives sizes that the caller chooses."""
        sizes = [(symbols or {}).get(s.symbol or "", s.value) for s in spec.sizes]
        return torch.empty(sizes, dtype=self.cast(getattr(torch, spec.dtype)), device="meta")

    def cast(self, dtype: torch.dtype) -> torch.dtype:
        return self.dtype if dtype == self.given_dtype else dtype

    def forward(self, *inputs: torch.Tensor) -> Any:
        program = self.program
        values: dict[str, Any] = dict(program.constants)
        values |= {spec.name: t for spec, t in zip(program.inputs, inputs, strict=True)}
        values |= {spec.name: t for spec, t in zip(program.parameters, self.weights, strict=True)}
        values |= {spec.name: getattr(self, f"buffer_{i}") for i, spec in enumerate(program.buffers)}
        return self._run(program.graph, values, self.done)

    def _run(self, graph: dict[str, Any], values: dict[str, Any], done: dict[int, list[str]]) -> list[Any]:
        for number, node in enumerate(graph["nodes"]):
            result = self._call(node, values)
            outputs = [_names(o) for o in node["outputs"]]
            if len(outputs) == 1 and not isinstance(outputs[0], list):
                values[outputs[0]] = result
            else:
                flat = outputs[0] if len(outputs) == 1 and isinstance(outputs[0], list) else outputs
                values |= {name: r for name, r in zip(flat, result, strict=False) if isinstance(name, str)}
            del result
            for name in done.get(number, ()):
                values.pop(name, None)
        return [self._value(o, values) for o in graph["outputs"]]

    def _call(self, node: dict[str, Any], values: dict[str, Any]) -> Any:
        target = str(node["target"])
        if target.endswith("higher_order.wrap_with_set_grad_enabled"):
            enabled, body, *operands = (i["arg"] for i in node["inputs"])
            with torch.set_grad_enabled(torch.is_grad_enabled() and bool(self._value(enabled, values))):
                return self._inner(body["as_graph"]["graph"], [self._value(o, values) for o in operands])
        args = [self._value(i["arg"], values) for i in node["inputs"] if not _is_keyword(i)]
        kwargs = {i["name"]: self._value(i["arg"], values) for i in node["inputs"] if _is_keyword(i)}
        function = _function(target)
        return self._trained(function, args, kwargs) if self.training else function(*args, **kwargs)

    def _trained(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A call in a training step: programs are exported for inference as a rule, and their batch norms and dropouts
        are then switched as `Module.train()` would."""
        place = _SWITCHES.get(function)
        if function is _FIXED_NORM:
            self.batches.add_(1)
            return _TRAINED_NORM(*args[:5], True, *args[5:])
        if place is None or len(args) <= place or args[place]:
            return function(*args, **kwargs)
        if function is torch.ops.aten.batch_norm.default:
            self.batches.add_(1)
        return function(*args[:place], True, *args[place + 1 :], **kwargs)

    def _inner(self, graph: dict[str, Any], operands: list[Any]) -> Any:
        names = [_names(i) for i in graph["inputs"]]
        out = self._run(graph, dict(zip(names, operands, strict=True)), _last_uses(graph))
        return out[0] if graph.get("is_single_tensor_return") else out

    def _value(self, given: dict[str, Any], values: dict[str, Any]) -> Any:
        ((form, content),) = given.items()
        if form == "as_none":
            return None
        if form in ("as_tensor", "as_custom_obj"):
            return values[content["name"]]
        if form == "as_tensors":
            return [values[c["name"]] for c in content]
        if form in ("as_sym_int", "as_sym_float", "as_sym_bool"):
            return _number(content, values)
        if form in ("as_sym_ints", "as_sym_floats", "as_sym_bools"):
            return [_number(c, values) for c in content]
        if form == "as_optional_tensor":
            return self._value(content, values)
        if form == "as_optional_tensors":
            return [self._value(c, values) for c in content]
        if form == "as_scalar_type":
            return self.cast(getattr(torch, SCALAR_TYPES[content]))
        if form == "as_device":
            return torch.device("meta")
        if form == "as_memory_format":
            return _MEMORY_FORMATS[content]
        if form == "as_layout":
            return torch.strided
        if form in ("as_int", "as_ints", "as_float", "as_floats", "as_bool", "as_bools", "as_string", "as_int_lists"):
            return content
        raise ForerunError(f"the program has an argument of the form {form}, which cannot be read")


def main_dtype(program: Program) -> torch.dtype:
    """The floating-point dtype that most weights have, or else the first input."""
    sizes: dict[torch.dtype, int] = {}
    for spec in program.parameters or program.inputs:
        dtype = getattr(torch, spec.dtype)
        if dtype.is_floating_point:
            sizes[dtype] = sizes.get(dtype, 0) + math.prod(s.value for s in spec.sizes)
    return max(sizes, key=lambda d: sizes[d]) if sizes else torch.float32


def _function(target: str) -> Callable[..., Any]:
    """What a call of a program runs: an operator of PyTorch's own, or arithmetic on sizes. There is nothing else."""
    found = _OPERATOR.fullmatch(target)
    if found and found[1] not in _REFUSED and not found[1].lstrip("_").startswith("sparse"):
        overload = getattr(getattr(torch.ops.aten, found[1], None), found[2], None)
        if isinstance(overload, torch._ops.OpOverload):
            return _on_meta(overload)
    module, _, name = target.rpartition(".")
    if module in ("_operator", "operator", "math", "torch") and name in _ON_SIZES:
        return _ON_SIZES[name]
    raise ForerunError(f"the program calls {target}, which is not an operator that forerun runs")


def _on_meta(overload: Any) -> Callable[..., Any]:
    """The operator; one that makes a tensor makes it on meta, whatever the program says or leaves open."""
    if not any(one.name == "device" and one.kwarg_only for one in overload._schema.arguments):
        return cast(Callable[..., Any], overload)
    return lambda *args, **kwargs: overload(*args, **{**kwargs, "device": "meta"})


def _is_keyword(given: dict[str, Any]) -> bool:
    return given.get("kind") == 2  # older files have no kind: their arguments are in the order of the schema


def _number(given: dict[str, Any], values: dict[str, Any]) -> Any:
    ((form, content),) = given.items()
    return values[content] if form == "as_name" else content


def _names(given: Any) -> Any:
    """The name of what a call puts out, or a list of names; None where it is not used."""
    ((form, content),) = given.items()
    if form == "as_tensors":
        return [c["name"] for c in content]
    if form in ("as_sym_int", "as_sym_float", "as_sym_bool"):
        return content.get("as_name")
    if form == "as_optional_tensor":
        return _names(content)
    return content.get("name") if isinstance(content, dict) else None


def _last_uses(graph: dict[str, Any]) -> dict[int, list[str]]:
    """Call -> the names that no later one reads, whose memory is free after it. Outputs are kept."""
    last: dict[str, int] = {}
    for number, node in enumerate(graph["nodes"]):
        for tree in ([given["arg"] for given in node["inputs"]], node["outputs"]):
            last |= dict.fromkeys(_named(tree), number)
    for name in _named(graph["outputs"]):
        last.pop(name, None)
    done: dict[int, list[str]] = {}
    for name, number in last.items():
        done.setdefault(number, []).append(name)
    return done


def _named(tree: Any) -> Iterator[str]:
    """Every name in an argument; those inside another program are its own."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if key in ("name", "as_name") and isinstance(value, str):
            yield value
        elif isinstance(value, (dict, list)) and key not in ("graph", "as_graph"):
            yield from _named(value)
