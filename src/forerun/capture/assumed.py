"""Results of calls that depend on values, which meta tensors do not have; every assumption becomes a note.

A value that is read is taken as 1, a condition as False, a data-dependent size as its upper bound. A loop that ends by
a value would then never end: the second time that it reads the value, it gets one that ends it. A check that raises
where its condition is not met is taken as passed.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from forerun.capture import meta_results
from forerun.capture.detector_counts import NOTE, boxes_found
from forerun.errors import ForerunError

#: A line of a model that reads a value more often than this in one module is a loop that waits for it; loops over
#: experts read once for each of them.
MOST_ASKED = 600
#: The value that ends a loop, by the kind that it waits for.
_ENDINGS: dict[str, tuple[Any, ...]] = {"bool": (True,), "float": (0.0, 1e9, -1e9), "int": (0, 2**30, -1)}
#: The value that is assumed, by its kind.
_TAKEN: dict[str, Any] = {"bool": False, "float": 1.0, "int": 1}
_TORCH = str(Path(torch.__file__).parent) + os.sep  # torchvision is beside it
_OWN = str(Path(__file__).parent) + os.sep
_STEPS = str(Path(__file__).with_name("steps.py"))  # the caller of the model
#: The most lines of a model that a note names.
_NAMED = 3


class EndlessLoop(Exception):
    """A line of the model reads a value again and again."""

    def __init__(self, line: str, kind: str) -> None:
        super().__init__(f"the loop at {line} does not end")
        self.line, self.kind = line, kind


class Assumptions:
    """The assumptions of one capture about values, and the lines of the model that read them."""

    def __init__(self, mask_density: float = 1.0) -> None:
        self.mask_density = mask_density  # share of a mask that is set
        #: Code that names no device runs with meta as the default: what it still creates on the CPU is moved to meta.
        self.everything_on_meta = torch.get_default_device().type == "meta"
        self.spread_evenly = False
        self.unpadded = False
        self.detects = False
        self.branches: set[str] = set()
        self.values: dict[str, None] = {}
        self.sizes: dict[str, None] = {}
        self.loops: dict[str, int] = {}  # line -> which of _ENDINGS ends it
        self.passed: dict[str, None] = {}  # lines that check a condition and raise where it is not met
        self._last_condition: tuple[Any, str] = (None, "")  # the function and the line that read last
        self._asked: Counter[tuple[str, str]] = Counter()

    def begin(self) -> None:
        """Starts a new pass through the model."""
        self._asked.clear()

    def end_loop(self, loop: EndlessLoop) -> None:
        """From the next pass on, the loop's second read gets a value that ends it."""
        self.loops[loop.line] = self.loops.get(loop.line, -1) + 1
        self.values.pop(loop.line, None)
        self.branches.discard(loop.line)
        if self.loops[loop.line] == len(_ENDINGS[loop.kind]):
            raise ForerunError(
                f"the loop at {loop.line} depends on a tensor's values, which are unknown before it runs"
            )

    def pass_check(self, fault: Exception) -> bool:
        """Whether the model raised because a condition was taken as not met; from the next pass on it is met."""
        code, line = self._last_condition
        if line in self.passed or code is None or code is not _raised_in(fault):
            return False
        self.passed[line] = None
        self.branches.discard(line)
        return True

    def scalar(self, t: torch.Tensor, scope: str, noted: bool) -> Any:
        """The result of `.item()`: 1 or False; at the second read of a loop, the value that ends it."""
        kind = _kind(t)
        line = model_line()
        if kind == "bool":
            if line in self.passed:
                return True
            frame = _model_frame()
            self._last_condition = (frame and frame.f_code, line)
        self._asked[line, scope] += 1
        times_asked = self._asked[line, scope]
        if times_asked > MOST_ASKED:
            raise EndlessLoop(line, kind)
        if line in self.loops and times_asked % 2 == 0:
            return _ENDINGS[kind][min(self.loops[line], len(_ENDINGS[kind]) - 1)]
        if noted and line not in self.loops:
            self._note(kind, line)
        return _TAKEN[kind]

    def _note(self, kind: str, line: str) -> None:
        if kind == "bool":
            self.branches.add(line)
        else:
            self.values[line] = None

    def no(self) -> bool:
        """The result of a comparison of whole tensors."""
        self.branches.add(model_line())
        return False

    def read(self, t: torch.Tensor) -> Any:
        """The result of `.tolist()`: ones in the shape of the tensor."""
        kind = _kind(t)
        self._note(kind, model_line())
        value: Any = _TAKEN[kind]
        for size in reversed(t.shape):
            value = [value] * size
        return value

    def hits(self, mask: torch.Tensor) -> int:
        """The number of nonzero elements: all of a vector, a share of a mask."""
        boxes = boxes_found(_model_frame(), mask.numel())
        if boxes is not None:
            self.detects = True
            return boxes
        if self.mask_density < 1:
            self.spread_evenly = True
        else:
            self.sizes[model_line()] = None
        return mask.numel() if mask.dim() < 2 else max(1, round(mask.numel() * self.mask_density))

    def found(self, mask: torch.Tensor) -> torch.Tensor:
        """The result of `nonzero`."""
        return mask.new_empty((self.hits(mask), mask.dim()), dtype=torch.int64)

    def indices(self, given: Any) -> list[Any]:
        """Indices with every mask replaced by the positions that it selects, as CUDA does."""
        masks = (torch.bool, torch.uint8)
        return [
            column
            for index in given
            for column in (
                self.found(index).unbind(1)
                if isinstance(index, torch.Tensor) and index.dtype in masks and index.device.type == "meta"
                else (index,)
            )
        ]

    def notes(self) -> list[str]:
        """A sentence for every assumption."""
        out = []
        if self.branches:
            out.append("data-dependent conditions are assumed to be False")
        if self.spread_evenly:
            out.append("data-dependent sizes (which token goes to which expert) are assumed to be spread evenly")
        if self.sizes:
            out.append(
                "data-dependent sizes (what a mask selects, how many values differ) are taken at their upper "
                f"bound{_at(self.sizes)}"
            )
        if self.detects:
            out.append(NOTE)
        if self.unpadded:
            out.append("packed sequences are assumed to be as long as their padded input: their lengths are unknown")
        if self.values:
            out.append(f"values that the model reads from its tensors are assumed to be 1{_at(self.values)}")
        if self.passed:
            out.append(f"checks of a tensor's values are assumed to pass{_at(self.passed)}")
        if self.loops:
            out.append(f"data-dependent loops are counted once{_at(self.loops)}")
        return out


def _kind(t: torch.Tensor) -> str:
    return "bool" if t.dtype == torch.bool else "float" if t.dtype.is_floating_point else "int"


def _at(lines: Any) -> str:
    named = [line for line in lines if line]
    if not named:
        return ""
    more = ", …" if len(named) > _NAMED else ""
    return f" ({', '.join(named[:_NAMED])}{more})"


def model_line() -> str:
    """The line of the model that is running, as file.py:12: the innermost one that is neither PyTorch's nor ours."""
    frame = _model_frame()
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame is not None else ""


def _model_frame() -> Any:
    """The innermost frame of the model; None in the backward pass, which no line of the model runs."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != _STEPS:
        if _is_of_model(frame.f_code):
            return frame
        frame = frame.f_back
    return None


def _is_of_model(code: Any) -> bool:
    return not code.co_filename.startswith((_TORCH, _OWN, "<"))


def _raised_in(fault: Exception) -> Any:
    """The function that raised, itself or by `torch._check`."""
    codes, trace = [], fault.__traceback__
    while trace is not None:
        codes.append(trace.tb_frame.f_code)
        trace = trace.tb_next
    while len(codes) > 1 and codes[-1].co_name.startswith("_check") and not _is_of_model(codes[-1]):
        codes.pop()
    return codes[-1] if codes else None


# -- calls whose result has a data-dependent size ------------------------------------------------------------------


def _masked_select(assumed: Assumptions, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    whole = mask.expand(torch.broadcast_shapes(x.shape, mask.shape))
    return x.new_empty((assumed.hits(whole),))


def _distinct(assumed: Assumptions, x: torch.Tensor, size: int, wants: tuple[bool, bool]) -> tuple[Any, ...]:
    """All distinct: values, and where requested the index and the count of each."""
    inverse, counts = wants
    assumed.sizes[model_line()] = None
    lengths = (size if inverse else 0, size if counts else 0)
    return tuple(x.new_empty((length,), dtype=torch.int64) for length in lengths)


def _unique(assumed: Assumptions, x: Any, sorted: bool = True, inverse: bool = False, counts: bool = False) -> Any:
    places, times = _distinct(assumed, x, x.numel(), (inverse, counts))
    return x.new_empty((x.numel(),)), places.reshape(x.shape) if inverse else places, times


def _unique_dim(
    assumed: Assumptions, x: Any, dim: int, sorted: bool = True, inverse: bool = False, counts: bool = False
) -> Any:
    return torch.empty_like(x), *_distinct(assumed, x, x.shape[dim], (inverse, counts))


def _unique_consecutive(
    assumed: Assumptions, x: Any, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> Any:
    if dim is None:
        return _unique(assumed, x, True, inverse, counts)
    return _unique_dim(assumed, x, dim, True, inverse, counts)


def _bincount(assumed: Assumptions, x: Any, weights: Any = None, minlength: int = 0) -> Any:
    assumed.sizes[model_line()] = None
    dtype = torch.int64 if weights is None else torch.float64
    return x.new_empty((max(minlength, x.numel()),), dtype=dtype)


def _repeat_interleave(assumed: Assumptions, repeats: Any, output_size: int | None = None) -> Any:
    """Each element once, unless the caller gives the output size."""
    if output_size is None:
        assumed.values[model_line()] = None
    return repeats.new_empty((repeats.numel() if output_size is None else output_size,), dtype=torch.int64)


#: aten call -> its result on meta. They are recorded like any other call.
SIZED: dict[str, Callable[..., Any]] = {
    "masked_select": _masked_select, "_unique2": _unique, "unique_dim": _unique_dim,
    "unique_consecutive": _unique_consecutive, "bincount": _bincount,
}  # fmt: skip
#: Calls that cannot run on meta as they are.
_OTHERWISE = frozenset({*SIZED, "repeat_interleave", "_to_copy"})


def run(assumed: Assumptions, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Runs a call on meta; where its size depends on values, the assumed result replaces it."""
    if name in _OTHERWISE and args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
        if name in SIZED:
            return SIZED[name](assumed, *args, **kwargs)
        if func is torch.ops.aten.repeat_interleave.Tensor:
            return _repeat_interleave(assumed, *args, **kwargs)
        if name == "_to_copy" and str(kwargs.get("device") or "").startswith("cpu"):
            kwargs = {**kwargs, "device": "meta"}  # a copy to the host takes its time; its values are unknown
    if assumed.everything_on_meta and name != "_pack_padded_sequence":  # which reads lengths on the CPU
        args, kwargs = _on_meta(args, kwargs)
    return meta_results.run(func, args, kwargs)


def _on_meta(args: Any, kwargs: Any) -> Any:
    """The operands with those left on the CPU moved to meta, where one of them is on meta."""
    from torch.utils._pytree import tree_leaves, tree_map

    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    stray = [t for t in tensors if t.device.type == "cpu" and t.dim()]
    if not stray or len(stray) == len(tensors):
        return args, kwargs
    by_id = {id(t): t for t in stray}
    return tree_map(lambda x: torch.empty_like(x, device="meta") if id(x) in by_id else x, (args, kwargs))
