"""Which size every axis of an ONNX model's inputs takes: from the file, the batch, the sequence length or the user."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto

from forerun.errors import ForerunError, did_you_mean
from forerun.graph.sources.onnx_values import dims_of
from forerun.workload import Workload

_BATCH = re.compile(r"^(n|b|bs|bsz|nb|(num_?)?samples)$|batch", re.IGNORECASE)
_SEQUENCE = re.compile(r"^(s|t|l)$|seq|token|length|max_len|\btime\b|frames", re.IGNORECASE)
_PAST = re.compile(r"past|cache", re.IGNORECASE)

Dims = list[int | str]


@dataclass(slots=True)
class Binding:
    """Input shapes at one batch."""

    shapes: dict[str, tuple[int, ...]]
    chosen: bool  # the user gave shapes, so a clash is theirs to put right


class Axes:
    """The inputs of a model and how their open axes are filled for a workload."""

    def __init__(self, inputs: dict[str, tuple[Dims, bool]], workload: Workload) -> None:
        self.inputs = {name: dims for name, (dims, _) in inputs.items()}
        self.is_index = {name: index for name, (_, index) in inputs.items()}  # integers: token ids, masks
        self.workload = workload
        self.given = self.given_shapes()
        self.fixed_batch = self.find_fixed_batch()

    def given_shapes(self) -> dict[str, tuple[int, ...]]:
        """--input-shape as full shapes by input name; a bare shape leaves axis 0 to the batch."""
        asked = self.workload.input_shape
        if asked is None:
            return {}
        if not isinstance(asked, dict):
            fitting = [
                name for name, dims in self.inputs.items()
                if len(dims) == len(asked) + 1
                and all(isinstance(d, str) or d == a for d, a in zip(dims[1:], asked, strict=True))
            ]  # fmt: skip
            if not fitting:
                wanted = "; ".join(f"{name}: {self.show(dims)}" for name, dims in self.inputs.items())
                raise ForerunError(
                    f"--input-shape {','.join(map(str, asked))} (without the batch) fits no input of this file; "
                    f"it has {wanted}."
                )
            return dict.fromkeys(fitting, (self.workload.batch, *asked))
        for name, shape in asked.items():
            if name not in self.inputs:
                known = ", ".join(self.inputs)
                raise ForerunError(f"This file has no input '{name}'; it has {known}.{did_you_mean(name, self.inputs)}")
            dims = self.inputs[name]
            if len(dims) != len(shape):
                raise ForerunError(
                    f"--input-shape {name}={','.join(map(str, shape))} has {len(shape)} dimensions, "
                    f"but the input has {len(dims)}: {self.show(dims)}."
                )
            for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
                if isinstance(dim, int) and dim != size and axis > 0:
                    raise ForerunError(
                        f"Axis {axis} of input '{name}' is fixed at {dim} in this file and cannot be {size}; "
                        "export the model with a dynamic axis there."
                    )
        return {name: tuple(int(d) for d in shape) for name, shape in asked.items()}

    @staticmethod
    def show(dims: Sequence[int | str]) -> str:
        return "[" + ", ".join(str(d) or "?" for d in dims) + "]"

    def find_fixed_batch(self) -> int | None:
        """The one number that every input has in front, when no input leaves its batch open."""
        fronts = [dims[0] for dims in self.inputs.values() if dims]
        named = [d for dims in self.inputs.values() for d in dims if isinstance(d, str) and _BATCH.search(d)]
        if not fronts or named or any(isinstance(d, str) for d in fronts):
            return None
        numbers = {int(d) for d in fronts}
        if len(numbers - {1}) > 1:
            return None
        return max(numbers)

    def at(self, batch: int) -> Binding:
        """Every input's shape at this batch."""
        symbols: dict[str, int] = {}
        for name, shape in self.given.items():
            for axis, (dim, size) in enumerate(zip(self.inputs[name], shape, strict=True)):
                if not isinstance(dim, str) or not dim or axis == 0 or _BATCH.search(dim):
                    continue
                if symbols.setdefault(dim, size) != size:
                    raise ForerunError(
                        f"Axis '{dim}' cannot be both {symbols[dim]} and {size} ({name}); "
                        "give the same number in every --input-shape."
                    )
        shapes = {name: self.one(name, dims, batch, symbols) for name, dims in self.inputs.items()}
        return Binding(shapes, bool(self.given) or self.workload.seq_len is not None)

    def one(self, name: str, dims: Dims, batch: int, symbols: dict[str, int]) -> tuple[int, ...]:
        shape = []
        for axis, dim in enumerate(dims):
            if isinstance(dim, int):
                front = axis == 0 and self.fixed_batch is not None and dim == self.fixed_batch
                shape.append(batch if front else dim)
                continue
            size = self.size_of(name, axis, dim, batch, symbols)
            if size is None:
                example = ",".join(str(d) if isinstance(d, int) else (str(batch) if i == 0 else "SIZE")
                                   for i, d in enumerate(dims))  # fmt: skip
                label = f" ('{dim}')" if dim else ""
                if _SEQUENCE.search(dim) or (self.is_index[name] and axis == 1):
                    raise ForerunError(
                        f"Axis {axis}{label} of input '{name}' is open in this file; give --seq-len, "
                        f"or --input-shape {name}={example}."
                    )
                raise ForerunError(
                    f"Axis {axis}{label} of input '{name}' is open in this file; give --input-shape {name}={example}."
                )
            if dim:
                symbols.setdefault(dim, size)
            shape.append(size)
        return tuple(shape)

    def size_of(self, name: str, axis: int, dim: str, batch: int, symbols: dict[str, int]) -> int | None:
        if dim in symbols:
            return symbols[dim]
        if name in self.given:
            given = self.given[name][axis]
            # A full shape names a batch too; it moves with the batch that is asked for.
            return batch if axis == 0 and given == self.workload.batch else given
        if " + " in dim or "+" in dim:
            parts = [self.size_of(name, axis, p.strip(), batch, symbols) for p in dim.split("+")]
            return None if any(p is None for p in parts) else sum(p for p in parts if p is not None)
        if dim.isdigit():
            return int(dim)
        if _PAST.search(dim) and axis > 0:
            return 0  # an empty cache: the whole sequence is new
        if _BATCH.search(dim):
            return batch
        if _SEQUENCE.search(dim) and (axis > 0 or not _BATCH.search(dim)):
            return self.workload.seq_len if axis > 0 or self.workload.seq_len is not None else batch
        if axis == 0:
            return batch
        if axis == 1 and self.is_index[name] and len(self.inputs[name]) == 2:
            return self.workload.seq_len
        return None


def axes_of(proto: onnx.ModelProto, workload: Workload) -> Axes:
    """The open and fixed axes of a model's inputs."""
    weights = {t.name for t in proto.graph.initializer} | {s.values.name for s in proto.graph.sparse_initializer}
    inputs = {}
    for info in proto.graph.input:
        if info.name in weights or info.type.HasField("sequence_type"):
            continue
        dims = dims_of(info.type)
        if dims is None:
            given = workload.input_shape
            if not isinstance(given, dict) or info.name not in given:
                raise ForerunError(
                    f"Input '{info.name}' has no shape in this file; give --input-shape {info.name}=1,3,224,224 "
                    "(with the sizes of your data)."
                )
            dims = ["" for _ in given[info.name]]
        # -1 and 0 are how some exporters write an open axis.
        open_dims: list[int | str] = ["" if isinstance(d, int) and d <= 0 else d for d in dims]
        kind = info.type.tensor_type.elem_type
        inputs[info.name] = (open_dims, kind in (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL))
    return Axes(inputs, workload)
