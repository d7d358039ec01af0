"""A Hugging Face config as data: whatever would make transformers import, download or run something is dropped.

A config.json may name kernels on the hub for its attention and its experts, code beside it, and another checkpoint as
its backbone. Anyone can write one, so only its sizes and switches are used.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any

from forerun._util.readable import short
from forerun.errors import ForerunError
from forerun.frontends.huggingface import catalog as hf_catalog
from forerun.frontends.huggingface.quantised import without_quantisation

#: Fields that choose the attention kernel; eager and sdpa are PyTorch's own and are used.
_ATTENTION = ("_attn_implementation", "attn_implementation", "_attn_implementation_internal")
_HONOURED = ("eager", "sdpa")
#: Other fields that choose code, besides those that start with an underscore, which are transformers' own.
_CODE = re.compile(
    r"^_|implementation$|^auto_map$|kernel_?(config|repo|mapping)|^(use|hub)_kernels?$|^custom_pipelines$"
)
#: How transformers writes numbers that JSON does not have: {"__float__": "Infinity"}.
_FLOAT = "__float__"
#: Fields that name a network of timm or a checkpoint of the hub.
_NETWORKS = ("backbone", "architecture")


def data_only(config: dict[str, Any], trust_remote_code: bool = False) -> dict[str, Any]:
    """The config without fields that choose code, unless the user trusts it, and without those that `quantised`
    reads."""
    return without_quantisation(config if trust_remote_code else dict(_cleaned(config)))


def _cleaned(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_cleaned(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {_FLOAT}:
        return {_FLOAT: str(value[_FLOAT])}
    out = {}
    for key, inner in value.items():
        if key in _ATTENTION:
            if inner in _HONOURED:
                out["attn_implementation"] = inner
        elif key in _NETWORKS and isinstance(inner, str):
            out |= _network(key, inner)
        elif not _CODE.search(str(key)):
            out[key] = _cleaned(inner)
    return out


def _network(key: str, name: str) -> dict[str, Any]:
    """A network that a config names: of timm by its bare name, of the hub from the catalogue, never downloaded."""
    known = hf_catalog.architecture(name) if key == "backbone" and "/" in name else None
    if known is not None:
        return {"backbone_config": known.config}
    if re.search(r"[/:\\]", name):
        raise ForerunError(
            f"the config's {key} {short(name)} would be downloaded: give its settings as backbone_config instead"
        )
    return {key: name}


def notes(config: dict[str, Any]) -> list[str]:
    """Which kernels a config requests and what is predicted instead."""
    attentions = {
        str(inner) for key, inner in _fields(config) if key in _ATTENTION and inner and inner not in _HONOURED
    }
    others = {
        f"{key} {short(inner)}" for key, inner in _fields(config)
        if key not in _ATTENTION and key.endswith("implementation") and isinstance(inner, str)
    }  # fmt: skip
    out = [
        f"the config requests {short(name)} attention: predicted is PyTorch's scaled_dot_product_attention, which runs "
        "a FlashAttention kernel in half precision where the mask allows it; no other kernel is loaded"
        for name in sorted(attentions)
    ]
    return out + [f"the config's {field} is ignored: a config cannot choose kernels" for field in sorted(others)]


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key), inner
            yield from _fields(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _fields(inner)


_holding = threading.Lock()
_held: list[bool] = []  # the setting of the hub's client, once for each holder of offline mode


@contextlib.contextmanager
def without_the_hub() -> Iterator[None]:
    """The hub's client offline: what builds a model from data downloads nothing, whatever the data says."""
    from huggingface_hub import constants

    with _holding:
        _held.append(constants.HF_HUB_OFFLINE)
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        with _holding:
            before = _held.pop()
            constants.HF_HUB_OFFLINE = before if not _held else True
