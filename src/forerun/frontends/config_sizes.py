"""Refuses configs whose counts no model has, before anything is built: a count becomes a loop, a size only a number."""

from __future__ import annotations

import math
import re
from typing import Any

from forerun._util.documents import check_depth
from forerun._util.readable import short
from forerun.errors import ForerunError

#: What is made one by one: layers above all. Language models have 130 at most.
COUNTED = re.compile(r"(^|_)(layers?|depths?|blocks?|stages?|repeats?|codebooks?|quantizers?|loops?|bottlenecks?)$")
MAX_COUNT = 512
#: Classes get a name each.
_NAMED = re.compile(r"num_labels|num_classes|n_classes")
MAX_NAMED = 1_000_000
#: A tensor's size beyond which no product of two is a number that a framework can hold.
MAX_SIZE = 2**31 - 1


#: Fields whose own fields are names that anybody chose: a class may be called "stage".
_NAMES_OF_CLASSES = ("label2id", "id2label")


def check_sizes(config: Any, where: str) -> None:
    """A ForerunError that names the field which no model has."""
    check_depth(config, where)
    _check(config, "", where)


def _check(value: Any, name: str, where: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in _NAMES_OF_CLASSES:
                _check(inner, str(key), where)
        return
    if isinstance(value, (list, tuple)):
        for inner in value:
            _check(inner, name, where)
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    most = MAX_SIZE if isinstance(value, int) else math.inf
    if COUNTED.search(name) and not name.startswith(("max_", "mask_")):
        most = MAX_COUNT
    elif _NAMED.fullmatch(name):
        most = MAX_NAMED
    if abs(value) > most and not _is_sentinel(name):
        raise ForerunError(f"{where}: {short(name)} is {short(value)}, and {most:,} is the most that forerun builds")


def _is_sentinel(name: str) -> bool:
    """Whether a huge value of a field means "no limit": a tokenizer's length, a token's id."""
    return name.startswith(("max_", "model_max_")) or name.endswith(("_id", "_ids", "max_length"))
