"""The meaning of an open axis's name in an ONNX file: the batch, a sequence, a cache, or a sum of these."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

#: Placeholders that exporters write on unnamed axes.
ANONYMOUS = re.compile(r"^(\?|\*|-1|none|unknown|dynamic|any)?$", re.IGNORECASE)
_BATCH = re.compile(r"batch|^(bs|bsz|nb)$", re.IGNORECASE)
_SEQUENCE = re.compile(r"^(s|t|l)$|seq|token|length|max_len|(^|[^a-z])time([^a-z]|$)|frames", re.IGNORECASE)
_PAST = re.compile(r"past|cache", re.IGNORECASE)
#: Names of a first axis other than the batch.
_OTHER = re.compile(
    r"height|width|channel|feature|layer|head|hidden|vocab|point|box|node|edge|roi|^[hwcdk]$", re.IGNORECASE
)
_LONGEST = 200

_ARITHMETIC: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., int]] = {"floor": int, "Max": max, "max": max, "Min": min, "min": min}


def names_batch(dim: str) -> bool:
    """Whether a symbol is the batch by its name."""
    return bool(_BATCH.search(dim)) and _is_name(dim)


def is_sequence(dim: str) -> bool:
    """Whether a symbol is the length of a sequence by its name."""
    return bool(_SEQUENCE.search(dim)) and not _BATCH.search(dim) and _is_name(dim)


def is_past(dim: str) -> bool:
    """Whether a symbol is the length of a filled cache."""
    return bool(_PAST.search(dim)) and not _BATCH.search(dim) and _is_name(dim)


def may_be_batch(dim: str) -> bool:
    """Whether a symbol on the first axis can be taken as the batch: its name means nothing else."""
    return _is_name(dim) and not (_SEQUENCE.search(dim) or _PAST.search(dim) or _OTHER.search(dim))


def evaluated(dim: str, size_of: Callable[[str], int | None]) -> int | None:
    """The size of an axis by its symbol, or by a sum or product of symbols; None where one of them is unknown."""
    if (size := size_of(dim)) is not None or _is_name(dim):
        return size
    try:
        size = _value(ast.parse(dim[:_LONGEST], mode="eval").body, size_of)
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError, RecursionError, MemoryError):
        return None
    return size if size is not None and 0 <= size < 2**31 else None


def _is_name(dim: str) -> bool:
    """Whether a symbol is a plain name without arithmetic."""
    return not re.search(r"[+*/()]|\s-\s", dim)


def _value(tree: Any, size_of: Callable[[str], int | None]) -> int | None:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    if isinstance(tree, ast.Name):
        return size_of(tree.id)
    if isinstance(tree, ast.BinOp) and type(tree.op) in _ARITHMETIC:
        left, right = _value(tree.left, size_of), _value(tree.right, size_of)
        return None if left is None or right is None else _ARITHMETIC[type(tree.op)](left, right)
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in _FUNCTIONS:
        values = [_value(argument, size_of) for argument in tree.args]
        return None if None in values or not values else _FUNCTIONS[tree.func.id](*values)
    return None
