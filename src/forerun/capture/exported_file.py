"""Reads the program in a .pt2 file of torch.export, which is JSON; weights and pickles in the file are never opened."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError

#: Where the program is in the archive, in newer and older versions of PyTorch.
_PROGRAMS = ("models/model.json", "serialized_exported_program.json")
#: Bytes of JSON that are read at most: about a million calls.
MOST_BYTES = 512 * 2**20
_SYMBOL = re.compile(r"(?:Symbol\('(\w+)'[^()]*\)|([A-Za-z_]\w*))")
#: PyTorch's numbers for dtypes in such files.
SCALAR_TYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64",
    10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16", 29: "float8_e4m3fn",
    30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz", 34: "uint32", 35: "uint64",
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """One size of a tensor: fixed, or called by a symbol that the caller chooses; `value` is that of the example."""

    value: int
    symbol: str | None = None


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that the program is given: an input, a parameter, a buffer or a constant."""

    name: str
    dtype: str  # as PyTorch calls it
    sizes: tuple[Size, ...]


@dataclass(frozen=True)
class Program:
    """A program as its file has it: what it is given, and the calls in order."""

    inputs: tuple[TensorSpec, ...]
    constants: dict[str, Any]  # inputs that are no tensors, by name
    parameters: tuple[TensorSpec, ...]
    buffers: tuple[TensorSpec, ...]
    graph: dict[str, Any]


def read(path: Path) -> Program:
    """The program of a .pt2 file."""
    if not path.is_file():
        raise ForerunError(f"there is no file {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            found = [i for i in archive.infolist() if i.filename.endswith(_PROGRAMS)]
            if not found:
                raise ForerunError(f"{path} holds no program of torch.export (no {_PROGRAMS[0]} in it)")
            if found[0].file_size > MOST_BYTES:
                raise ForerunError(f"the program in {path} has {found[0].file_size:,} bytes, which is too much to read")
            content = json.loads(archive.read(found[0]))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError, RecursionError) as e:
        raise ForerunError(f"{path} is not a program of torch.export: {e}") from e
    try:
        return _program(content["graph_module"])
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as e:
        raise ForerunError(f"{path} is not a program of torch.export that can be read ({type(e).__name__}: {e})") from e


def _program(module: dict[str, Any]) -> Program:
    graph = module["graph"]
    given: dict[str, list[TensorSpec]] = {"user_input": [], "parameter": [], "buffer": [], "tensor_constant": []}
    constants: dict[str, Any] = {}
    for spec in module["signature"]["input_specs"]:
        ((kind, found),) = spec.items()
        argument = found.get("arg", found)
        if kind == "user_input":
            ((form, argument),) = argument.items()
            if form != "as_tensor":
                continue  # a number that the program has fixed
        if kind == "constant_input":
            constants[str(found["name"])] = next(iter(found["value"].values()), None)
        elif kind in given:
            given[kind].append(tensor_spec(str(argument["name"]), graph["tensor_values"][argument["name"]]))
        else:
            raise ForerunError(f"the program takes a {kind.replace('_', ' ')}, which only what made it can give")
    return Program(
        tuple(given["user_input"]), constants, tuple(given["parameter"]),
        (*given["buffer"], *given["tensor_constant"]), graph,
    )  # fmt: skip


def tensor_spec(name: str, meta: dict[str, Any]) -> TensorSpec:
    """A tensor from its entry in `tensor_values`."""
    if meta["dtype"] not in SCALAR_TYPES:
        raise ForerunError(f"the dtype {meta['dtype']} of {name} is not known")
    return TensorSpec(name, SCALAR_TYPES[meta["dtype"]], tuple(map(_size, meta["sizes"])))


def _size(given: dict[str, Any]) -> Size:
    if "as_int" in given:
        return Size(int(given["as_int"]))
    expression = given["as_expr"]
    hint = expression.get("hint") or {}
    symbol = _SYMBOL.fullmatch(str(expression["expr_str"]))
    return Size(int(hint.get("as_int", 2)), (symbol[1] or symbol[2]) if symbol else None)
