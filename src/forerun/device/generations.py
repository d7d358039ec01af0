"""Chip generations: the facts that all devices of one architecture share, from catalog/generations.yaml."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from forerun.device import fields
from forerun.device.reading import CATALOG, key, read_yaml, source_line
from forerun.errors import ForerunError

_FILE = "generations.yaml"


@dataclass(frozen=True)
class Generation:
    """One architecture. A value that is not known is None."""

    id: str
    vendor: str | None = None
    unsupported: tuple[str, ...] = ()  # dtypes without arithmetic units
    fp32_gflops_per_watt: float | None = None  # of plain fp32 matmuls at the power limit
    half_gflops_per_watt: float | None = None  # of half-precision tensor-core matmuls at the power limit
    cublas_workspace_mb: float | None = None  # per cuBLAS handle
    cudnn_layout_copies: bool | None = None  # cuDNN keeps channels-last copies while a convolution runs
    provenance: Mapping[str, str] = field(default_factory=dict, hash=False)  # fact -> "source title, date"


#: The facts of a generation, each written as {value, source} in the catalogue, and their types.
_FACTS: dict[str, Callable[[Any], Any]] = {
    "unsupported": tuple, "fp32_gflops_per_watt": float, "half_gflops_per_watt": float, "cublas_workspace_mb": float,
    "cudnn_layout_copies": bool,
}  # fmt: skip
_PLAIN = ("vendor", "aliases", "compute_capability", "by_compute_capability")


@cache
def find_generation(architecture: str | None, compute_capability: float | None = None) -> Generation | None:
    """The generation of this name, or of this compute capability where no name is given; None when it is not listed.

    Names match exactly, but for case and for space, underscore and dash.
    """
    by_name, by_capability, _ = _catalogue()
    listed = by_capability.get(compute_capability or 0.0) if architecture is None else by_name.get(key(architecture))
    if listed is None:
        return None
    return listed.get(compute_capability) or listed[None]


def unlisted_generation() -> Generation:
    """What is assumed of an NVIDIA generation that the catalogue does not have."""
    return _catalogue()[2]


def generation_ids() -> list[str]:
    """The generations of the catalogue, sorted."""
    return sorted({variants[None].id for variants in _catalogue()[0].values()})


#: A generation by compute capability; under None what holds for every other one of its chips.
_Variants = dict[float | None, Generation]


@cache
def _catalogue() -> tuple[dict[str, _Variants], dict[float, _Variants], Generation]:
    """Generations by name and by compute capability, and what is assumed of an unlisted one."""
    content = read_yaml(CATALOG / _FILE)
    by_name: dict[str, _Variants] = {}
    by_capability: dict[float, _Variants] = {}
    for name, entry in content["generations"].items():
        special = entry.get("by_compute_capability", {})
        variants: _Variants = {None: _built(name, entry, content["sources"])}
        for capability, facts in special.items():
            variants[float(capability)] = _built(name, {**entry, **facts}, content["sources"])
        _put(by_name, [key(n) for n in (name, *entry.get("aliases", ()))], variants)
        _put(by_capability, [float(c) for c in entry.get("compute_capability", ())], variants)
    return by_name, by_capability, _built("unlisted", content["unlisted"], content["sources"])


def _put(known: dict[Any, _Variants], names: list[Any], variants: _Variants) -> None:
    for name in names:
        if name in known:
            raise ForerunError(f"{_FILE}: {name} names both {known[name][None].id} and {variants[None].id}")
        known[name] = variants


def _built(name: str, entry: dict[str, Any], sources: dict[str, Any]) -> Generation:
    if wrong := [n for n in entry if n not in (*_FACTS, *_PLAIN)]:
        raise ForerunError(f"{_FILE}: {name}: {fields.unknown_field(wrong[0], (*_FACTS, *_PLAIN))}")
    facts = {n: entry[n] for n in _FACTS if n in entry}
    values = {n: _FACTS[n](f["value"]) for n, f in facts.items()}
    provenance = {n: source_line(sources, f["source"], f.get("date")) for n, f in facts.items()}
    return Generation(name, entry.get("vendor"), **values, provenance=provenance)
