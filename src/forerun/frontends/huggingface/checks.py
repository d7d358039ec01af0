"""Checks of a Hugging Face config as plain data, before anything is built from it."""

from __future__ import annotations

import math
import re
from typing import Any

from forerun._util.readable import short
from forerun.errors import ForerunError
from forerun.frontends.config_sizes import COUNTED, check_sizes

MOST_PARTS = 100_000  # experts times layers
MOST_PARAMETERS = 10**15
#: Fields with the number of modules built side by side.
_EXPERTS = re.compile(r"^(n|num|moe)_\w*experts$|^num_experts$")
#: How transformers writes numbers that JSON does not have.
_FLOATS = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}


def checked(config: dict[str, Any], where: str) -> dict[str, Any]:
    """The config with its special numbers decoded, after checking that every size can be built."""
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise ForerunError(f"{where}: model_type must be a name such as llama, got {short(kind)}")
    check_sizes(config, where)
    layers, experts = _largest(config, COUNTED), _largest(config, _EXPERTS)
    if layers * experts > MOST_PARTS:
        raise ForerunError(f"the {kind} config has {layers:,} layers of {experts:,} experts: too many to build")
    return dict(_decoded(config))


def _largest(config: Any, fields: re.Pattern[str], name: str = "") -> int:
    """The largest number in the fields of these names, at least one."""
    if isinstance(config, dict):
        return max((_largest(value, fields, str(key).lower()) for key, value in config.items()), default=1)
    if isinstance(config, (list, tuple)):
        return max((_largest(value, fields, name) for value in config), default=1)
    counts = isinstance(config, (int, float)) and math.isfinite(config) and fields.search(name)
    return max(1, int(config)) if counts else 1


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"__float__"} and str(value["__float__"]) in _FLOATS:
            return _FLOATS[str(value["__float__"])]
        return {k: _decoded(v) for k, v in value.items()}
    return type(value)(_decoded(v) for v in value) if isinstance(value, (list, tuple)) else value


def check_parameters(name: str, parameters: int) -> None:
    """Rejects a model too large for any machine: its sizes are a mistake."""
    if parameters > MOST_PARAMETERS:
        raise ForerunError(f"{name} would have {parameters:.3g} parameters: some size in its config is wrong")
