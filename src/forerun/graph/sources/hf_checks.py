"""What a Hugging Face config may hold: checked on the plain data, before anything is built from it.

A config is text from anywhere. A number of layers decides how many modules are made, so one number too large costs
hours; sizes beyond these limits are refused with a sentence.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError

MOST_BYTES = 32 * 2**20
MOST_LAYERS = 1024
MOST_SIZE = 2**31 - 1
MOST_PARTS = 100_000  # experts times layers
MOST_PARAMETERS = 10**15
MOST_DEPTH = 24
#: Fields that say how many modules are made, one after the other or side by side.
_LAYERS = re.compile(r"^(n|num|number_of)?_?\w*(layers?|depths?|blocks|stages|stacks|repeats)$")
_EXPERTS = re.compile(r"^(n|num|moe)_\w*experts$|^num_experts$")
#: Fields whose numbers are names or choices, not sizes.
_NOT_SIZES = ("_id", "_ids", "_index", "_token", "seed", "_layer", "_idx")
#: How transformers writes numbers that JSON does not have.
_FLOATS = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}


def read_json(path: Path) -> dict[str, Any]:
    """A config file as plain data."""
    try:
        if not path.is_file() and path.exists():
            raise ForerunError(f"{path} is not a file")
        if path.stat().st_size > MOST_BYTES:
            raise ForerunError(f"{path} has more than {MOST_BYTES >> 20} MB: it is no config")
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ForerunError(f"{path} cannot be read: {e.strerror}") from e
    except ValueError as e:
        raise ForerunError(f"{path} is not valid JSON: {e}") from e
    except RecursionError as e:
        raise ForerunError(f"{path} is nested too deeply to be a config") from e
    if not isinstance(config, dict) or "model_type" not in config:
        raise ForerunError(f"{path} is not a Hugging Face config: it has no model_type")
    return config


def checked(config: dict[str, Any]) -> dict[str, Any]:
    """The config with its special numbers decoded, once every size in it is one that can be built."""
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise ForerunError(f"model_type must be a word such as llama, got {str(kind)[:60]!r}")
    decoded = _decoded(config, 0)
    parts = [1, 1]
    _check(decoded, parts)
    if parts[0] * parts[1] > MOST_PARTS:
        raise ForerunError(f"the {kind} config has {parts[0]:,} layers of {parts[1]:,} experts: too many to build")
    return dict(decoded)


def _decoded(value: Any, depth: int) -> Any:
    if depth > MOST_DEPTH:
        raise ForerunError(f"the config is nested more than {MOST_DEPTH} deep")
    if isinstance(value, dict):
        if set(value) == {"__float__"} and value["__float__"] in _FLOATS:
            return _FLOATS[value["__float__"]]
        return {k: _decoded(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_decoded(v, depth + 1) for v in value)
    return value


def _check(config: dict[Any, Any], parts: list[int]) -> None:
    """Refuses sizes that cannot be built; `parts` collects the largest numbers of layers and experts."""
    for name, value in config.items():
        word = str(name).lower()
        if isinstance(value, dict):
            _check(value, parts)
            continue
        numbers = value if isinstance(value, (list, tuple)) else [value]
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, (int, float)) or word.endswith(_NOT_SIZES):
                continue
            if isinstance(number, int) and abs(number) > MOST_SIZE:
                raise ForerunError(f"{name} is {_short(number)}: no model has sizes beyond {MOST_SIZE:,}")
            if _LAYERS.match(word):
                if number > MOST_LAYERS:
                    raise ForerunError(f"{name} is {_short(number)}: forerun builds at most {MOST_LAYERS:,}")
                parts[0] = max(parts[0], int(number))
            if _EXPERTS.match(word):
                if number > MOST_PARTS:
                    raise ForerunError(f"{name} is {_short(number)}: forerun builds at most {MOST_PARTS:,}")
                parts[1] = max(parts[1], int(number))


def _short(number: float) -> str:
    return f"{number:,}" if abs(number) < 10**12 else f"{float(number):.3g}" if abs(number) < 10**300 else "too large"


def check_parameters(name: str, parameters: int) -> None:
    """Refuses a model that no machine holds: its sizes are a mistake."""
    if parameters > MOST_PARAMETERS:
        raise ForerunError(f"{name} would have {parameters:.3g} parameters: some size in its config is wrong")
