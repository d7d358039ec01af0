"""The size of every axis of an ONNX model's inputs: from the file, the batch, the sequence length or the user.

An axis follows the batch where the file or the user states it: a symbol that names the batch, an open first axis whose
name means nothing else, a 1 that the user gives on such an axis, or the number that every input of a file with fixed
shapes has in front. The user must give all other open axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import onnx
from onnx import TensorProto

from forerun.errors import ForerunError, did_you_mean
from forerun.frontends.onnx.symbols import (
    ANONYMOUS,
    evaluated,
    is_past,
    is_sequence,
    may_be_batch,
    names_batch,
)
from forerun.frontends.onnx.values import dims_of
from forerun.workload import Workload

Dims = list[int | str]


@dataclass(slots=True)
class Binding:
    """Input shapes at one batch."""

    shapes: dict[str, tuple[int, ...]]
    chosen: bool  # the user set the size of an open axis


@dataclass(frozen=True)
class Layout:
    """Which axis of every input follows the batch, and the batch that the file itself has on them, if it is fixed."""

    axes: dict[str, int] = field(default_factory=dict)
    fixed: int | None = None


class Axes:
    """The inputs of a model and how their open axes are filled for a workload."""

    def __init__(self, inputs: dict[str, tuple[Dims, bool]], workload: Workload) -> None:
        self.inputs = {name: dims for name, (dims, _) in inputs.items()}
        self.is_index = {name: index for name, (_, index) in inputs.items()}  # integers: token ids, masks
        self.workload = workload
        self.given = self._given_shapes()
        self.open = {name: axis for name in self.inputs if (axis := self._open_batch_axis(name)) is not None}

    def layouts(self) -> Iterator[Layout]:
        """Candidates for the batch in this file, the likeliest first."""
        fronts = {name: dims[0] for name, dims in self.inputs.items() if dims}
        numbers = {name: d for name, d in fronts.items() if isinstance(d, int)}
        if self.open or not fronts or len(numbers) < len(fronts):
            yield Layout(dict(self.open))
            return
        first, largest = next(iter(numbers.values())), max(numbers.values())
        if 1 in numbers.values() and largest > 1 and first == 1:
            states = {name: 1 for name in numbers if self._is_state(name)}
            yield Layout({name: 0 for name, d in numbers.items() if d == 1} | states, 1)
        for size in dict.fromkeys((first, largest) if set(numbers.values()) <= {1, largest} else (first,)):
            yield Layout({name: 0 for name, d in numbers.items() if d == size}, size)

    def _is_state(self, name: str) -> bool:
        """Whether an input has the shape of a recurrent state at batch 1: [layers, 1, size]."""
        dims = self.inputs[name]
        return len(dims) == 3 and dims[0] != 1 and dims[1] == 1

    def _given_shapes(self) -> dict[str, tuple[int, ...]]:
        """--input-shape as full shapes by input name; a bare shape may leave the batch out."""
        given = self.workload.input_shape
        if given is None:
            return {}
        if not isinstance(given, dict):
            without = [name for name, dims in self.inputs.items() if dims and _fits(dims[1:], given)]
            if without:
                return dict.fromkeys(without, (1, *given))
            batches = (1, self.workload.batch)
            fitting = [name for name, dims in self.inputs.items() if dims and _fits(dims[1:], given[1:])]
            with_batch = fitting if given[0] in batches else []
            if with_batch:
                return dict.fromkeys(with_batch, tuple(given))
            wanted = "; ".join(f"{name}: {_show(dims)}" for name, dims in self.inputs.items())
            raise ForerunError(f"--input-shape {_text(given)} fits no input of this file; it has {wanted}")
        return {name: self._full_shape(name, shape) for name, shape in given.items()}

    def _full_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that the user gave by name, with a 1 for the batch where it was omitted."""
        if name not in self.inputs:
            known = ", ".join(self.inputs)
            raise ForerunError(f"this file has no input '{name}'; it has {known}.{did_you_mean(name, self.inputs)}")
        dims = self.inputs[name]
        if len(shape) + 1 == len(dims):
            axis = next((i for i, d in enumerate(dims) if isinstance(d, str) and names_batch(d)), 0)
            if _fits([d for i, d in enumerate(dims) if i != axis], shape):
                return (*shape[:axis], 1, *shape[axis:])
        if len(dims) != len(shape):
            raise ForerunError(
                f"--input-shape {name}={_text(shape)} has {len(shape)} dimensions, "
                f"but the input has {len(dims)}: {_show(dims)}"
            )
        for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
            if isinstance(dim, int) and dim != size and (axis > 0 or size not in (1, self.workload.batch)):
                raise ForerunError(
                    f"axis {axis} of input '{name}' is fixed at {dim} in this file and cannot be {size}; "
                    "export the model with a dynamic axis there"
                )
        return shape

    def _open_batch_axis(self, name: str) -> int | None:
        """The open axis of an input that follows the batch, or None."""
        dims, given = self.inputs[name], self.given.get(name)
        named = [axis for axis, dim in enumerate(dims) if isinstance(dim, str) and names_batch(dim)]
        if named:
            if given is not None:
                self._check_batch(name, named[0], given)
            return named[0]
        if given is not None:
            return self._given_batch_axis(name, dims, given)
        if not dims or not isinstance(dims[0], str) or not may_be_batch(dims[0]):
            return None
        beside = any(len(other) > 1 for key, other in self.inputs.items() if key != name)
        if len(dims) == 1 and not self.is_index[name] and (not beside or "sample" in dims[0].lower()):
            return None  # may be the samples of one recording as well as a batch
        return 0

    def _given_batch_axis(self, name: str, dims: Dims, given: Sequence[int]) -> int | None:
        """The axis that follows the batch in a shape that the user gave: one of the leading two, holding 1 or the
        batch."""
        batch = self.workload.batch
        second = len(dims) > 2 and isinstance(dims[1], str) and may_be_batch(dims[1])  # [layers, batch, size]
        if dims and isinstance(dims[0], str) and may_be_batch(dims[0]):
            # Where the user writes 1 for the batch on one input, a number equal to the batch on another is not the
            # batch.
            fronts = {
                shape[0] for other, shape in self.given.items() if shape and isinstance(self.inputs[other][0], str)
            }
            sizes = (1,) if 1 in fronts else (1, batch)
            if given[0] in sizes:
                return 0
            if second and given[1] in sizes:
                return 1
            self._check_batch(name, 0, given)
            return None
        elsewhere = any(d and isinstance(d[0], str) and may_be_batch(d[0]) for d in self.inputs.values())
        layers = dims[0] != 1 if dims else False
        return 1 if second and ((given[1] == batch and layers) or (given[1] == 1 and (elsewhere or layers))) else None

    def _check_batch(self, name: str, axis: int, given: Sequence[int]) -> None:
        if given[axis] not in (1, self.workload.batch):
            right = _text([1 if i == axis else size for i, size in enumerate(given)])
            raise ForerunError(
                f"axis {axis} of input '{name}' is the batch: --input-shape {name}={_text(given)} gives it "
                f"{given[axis]}, and --batch is {self.workload.batch}; give --input-shape {name}={right} and the batch "
                "with --batch"
            )

    def at(self, batch: int, layout: Layout) -> Binding:
        """Every input's shape at this batch."""
        symbols = self._symbols(batch, layout)
        free: list[bool] = []
        shapes = {
            name: tuple(self._size(name, axis, batch, layout, symbols, free) for axis in range(len(dims)))
            for name, dims in self.inputs.items()
        }
        return Binding(shapes, any(free))

    def _symbols(self, batch: int, layout: Layout) -> dict[str, int]:
        """The values of the file's symbols, as far as the batch and the given shapes determine them."""
        symbols: dict[str, int] = {}
        for name, axis in layout.axes.items():
            if isinstance(dim := self.inputs[name][axis], str) and dim:
                symbols[dim] = batch
        by_symbol: dict[str, tuple[int, str]] = {}
        for name, shape in self.given.items():
            own: dict[str, set[int]] = {}
            for axis, (dim, size) in enumerate(zip(self.inputs[name], shape, strict=True)):
                if isinstance(dim, str) and dim and axis != layout.axes.get(name):
                    own.setdefault(dim, set()).add(size)
            for dim, sizes in own.items():
                if len(sizes) > 1:
                    continue  # a placeholder that the exporter wrote on every open axis: each has its own size
                size = next(iter(sizes))
                before, first = by_symbol.setdefault(dim, (size, name))
                if before != size:
                    raise ForerunError(
                        f"axis '{dim}' cannot be both {before} ({first}) and {size} ({name}); "
                        "give the same number in every --input-shape"
                    )
                symbols.setdefault(dim, size)
        return symbols

    def _size(self, name: str, axis: int, batch: int, layout: Layout, symbols: dict[str, int], free: list[bool]) -> int:
        dim = self.inputs[name][axis]
        if layout.axes.get(name) == axis:
            return batch
        if isinstance(dim, int):
            return dim
        free.append(True)
        if name in self.given:
            return self.given[name][axis]
        own = name in layout.axes and dim == self.inputs[name][layout.axes[name]]  # the batch's name on a second axis
        size = None if own or not dim else evaluated(dim, lambda symbol: self._symbol_size(symbol, symbols, batch))
        if size is None and axis == 1 and self.is_index[name] and len(self.inputs[name]) == 2:
            size = self.workload.seq_len  # token ids
        if size is None:
            raise ForerunError(self._question(name, axis, dim))
        return size

    def _symbol_size(self, symbol: str, symbols: dict[str, int], batch: int) -> int | None:
        if symbol in symbols:
            return symbols[symbol]
        if names_batch(symbol):
            return batch
        if is_past(symbol):
            return 0  # an empty cache: the whole sequence is new
        return self.workload.seq_len if is_sequence(symbol) else None

    def _question(self, name: str, axis: int, dim: str) -> str:
        """The error that asks for the size of an open axis."""
        dims = self.inputs[name]
        example = ",".join(
            str(d) if isinstance(d, int) else "1" if self.open.get(name) == i else "SIZE" for i, d in enumerate(dims)
        )
        label = f" ('{dim}')" if dim else ""
        sequence = is_sequence(dim) or (self.is_index[name] and axis == 1)
        how = f"--seq-len, or --input-shape {name}={example}" if sequence else f"--input-shape {name}={example}"
        batch = " (1 stands for the batch, which follows --batch)" if name in self.open else ""
        return f"axis {axis}{label} of input '{name}' is open in this file; give {how}{batch}"


def _fits(dims: Sequence[int | str], sizes: Sequence[int]) -> bool:
    return len(dims) == len(sizes) and all(isinstance(d, str) or d == a for d, a in zip(dims, sizes, strict=True))


def _show(dims: Sequence[int | str]) -> str:
    return "[" + ", ".join(str(d) or "?" for d in dims) + "]"


def _text(sizes: Sequence[int]) -> str:
    return ",".join(map(str, sizes))


def axes_of(proto: onnx.ModelProto, workload: Workload) -> Axes:
    """The open and fixed axes of a model's inputs."""
    weights = {t.name for t in proto.graph.initializer} | {s.values.name for s in proto.graph.sparse_initializer}
    inputs = {}
    for info in proto.graph.input:
        if info.name in weights or not info.type.HasField("tensor_type"):
            continue
        dims = dims_of(info.type)
        if dims is None:
            given = workload.input_shape
            if not isinstance(given, dict) or info.name not in given:
                raise ForerunError(
                    f"input '{info.name}' has no shape in this file; give --input-shape {info.name}=1,3,224,224 "
                    "(with the sizes of your data; 1 stands for the batch, which follows --batch)"
                )
            dims = ["" for _ in given[info.name]]
        # Some exporters write an open axis as -1, 0 or a word such as "?".
        is_open = [(isinstance(d, int) and d <= 0) or (isinstance(d, str) and ANONYMOUS.match(d)) for d in dims]
        open_dims: Dims = ["" if o else d for o, d in zip(is_open, dims, strict=True)]
        kind = info.type.tensor_type.elem_type
        inputs[info.name] = (open_dims, kind in (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL))
    return Axes(inputs, workload)
