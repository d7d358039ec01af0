"""The weights of the default predictor, and their two files: arrays in safetensors, the rest in JSON; no code.

Arrays are stored with the names of their indices (kernel classes, variants, units, ...). Names that are new in the code
take the values of `unknown`; the predictor treats them as out of distribution and widens the interval. Names that the
code no longer has are dropped.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from forerun.device.kinds import device_kind
from forerun.errors import ForerunError
from forerun.graph.profile import CLASSES
from forerun.graph.variants import VARIANTS
from forerun.predictors.default.network import GROUPS, LEARNED_UNITS, Ensemble, Network
from forerun.predictors.laws import energy
from forerun.predictors.laws.conformal import Calibration
from forerun.predictors.laws.features import NUMBERS
from forerun.predictors.laws.host import COUNTED, HostCosts
from forerun.predictors.saved import ARRAYS, FILE, read_description
from forerun.runtimes.registry import of_row

FORMAT = 6
#: The vocabulary of every axis of an array; axes that are not named here have no names.
_AXES: dict[str, tuple[str | None, ...]] = {
    "class": ("classes", None), "unit": ("units", None), "variant": ("variants", None), "in": (None, "numbers", None),
    "mean": ("numbers",), "scale": ("numbers",), "log_compute": ("classes",), "log_memory": ("classes",),
    "log_intake": ("classes",), "log_floor_us": ("classes",),
}  # fmt: skip
#: Substitutes for names that the weights do not have. New numbers of an op have none: their weights are zero.
_STAND_IN = {"classes": "unknown", "units": "vector", "variants": "", "counted": "unknown"}


def network_name(kind: str, runtime: Any) -> str:
    """The network that predicts a kind of device under a runtime: that of the runtime's own part of the rows, or that
    of the kind; "" where there is none and the roofline is used."""
    run, of_kind = of_row(runtime), device_kind(kind)
    if run.part is not None and of_kind.is_host:
        return run.part
    return of_kind.part if of_kind.learned else ""


@dataclass(frozen=True)
class Weights:
    """Networks by kind of device, what a launch costs the host, energy factors, intervals, and their origin."""

    networks: Mapping[str, Ensemble]  # by `network_name`
    host: HostCosts
    joules: np.ndarray  # factors over energy.TERMS
    calibration: Calibration = field(default_factory=lambda: Calibration({}, {}))
    domain: Mapping[str, Any] = field(default_factory=dict)  # families, dtypes, devices, op variants that were seen
    provenance: Mapping[str, Any] = field(default_factory=dict)  # data sets with rows, their hashes, versions, dates
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of the predictor's constructor
    timing_groups: tuple[str, ...] = ("",)  # names of the launch floors that published rows have of their own

    def __post_init__(self) -> None:
        # Files are in single precision: rounded here, weights predict the same before saving and after loading.
        object.__setattr__(self, "joules", _single(self.joules))
        object.__setattr__(self, "host", replace(self.host, cost_us=_single(self.host.cost_us)))

    @functools.cached_property
    def stamp(self) -> str:
        """A hash of what predicts times: corrections of a device belong to it."""
        digest = hashlib.sha256(self.host.cost_us.tobytes())
        for kind in sorted(self.networks):
            for network in self.networks[kind].networks:
                for name in sorted(network.arrays):
                    digest.update(np.ascontiguousarray(network.arrays[name]).tobytes())
        return digest.hexdigest()[:12]

    def save(self, folder: Path) -> None:
        from safetensors.numpy import save_file

        folder.mkdir(parents=True, exist_ok=True)
        arrays = {
            f"{kind}/{i}/{name}": np.ascontiguousarray(value, dtype=np.float32)
            for kind, ensemble in self.networks.items()
            for i, network in enumerate(ensemble.networks)
            for name, value in network.arrays.items()
        }
        arrays |= {"host_us": self.host.cost_us.astype(np.float32), "energy": self.joules.astype(np.float32)}
        save_file(arrays, folder / ARRAYS)
        rest = {
            "predictor": "default", "format": FORMAT, "parameters": dict(self.parameters),
            "vocabularies": vocabularies(), "host": self.host.scalars(),
            "timing_groups": list(self.timing_groups), "calibration": self.calibration.to_dict(),
            "domain": dict(self.domain), "provenance": dict(self.provenance),
        }  # fmt: skip
        (folder / FILE).write_text(json.dumps(rest, indent=1, sort_keys=True) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Weights:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        rest = read_description(folder)
        if rest.get("predictor") != "default" or rest.get("format") != FORMAT:
            found = f"{rest.get('predictor')}, format {rest.get('format')}"
            raise ForerunError(f"{folder} holds {found}; this forerun reads weights of default in format {FORMAT}")
        try:
            arrays = load_file(folder / ARRAYS)
        except (OSError, SafetensorError) as error:
            raise ForerunError(f"{folder} holds no weights of a predictor: {str(error).splitlines()[0]}") from error
        stored = rest["vocabularies"]
        for name in ("groups", "terms"):
            if stored[name] != vocabularies()[name]:
                raise ForerunError(f"the weights in {folder} have other {name}: run forerun train default")
        found_networks: dict[str, dict[int, dict[str, np.ndarray]]] = {}
        for name, value in arrays.items():
            if name.count("/") == 2:
                kind, number, part = name.split("/")
                found_networks.setdefault(kind, {}).setdefault(int(number), {})[part] = renamed(part, value, stored)
        networks = {
            kind: Ensemble(tuple(Network(a) for _, a in sorted(each.items()))) for kind, each in found_networks.items()
        }
        cost_us = arrays["host_us"].astype(float)[places("counted", stored["counted"])]
        return cls(
            networks=networks, host=HostCosts.from_scalars(cost_us, rest["host"]),
            joules=arrays["energy"].astype(float), calibration=Calibration.from_dict(rest["calibration"]),
            domain=rest["domain"], provenance=rest["provenance"], parameters=rest.get("parameters", {}),
            timing_groups=tuple(rest["timing_groups"]),
        )  # fmt: skip


def _single(values: np.ndarray) -> np.ndarray:
    """Numbers of single precision, for arithmetic in double."""
    return values.astype(np.float32).astype(float)


def vocabularies() -> dict[str, Any]:
    """The names that arrays are indexed by in the code."""
    return {
        "classes": list(CLASSES), "units": list(LEARNED_UNITS), "variants": list(VARIANTS), "numbers": list(NUMBERS),
        "counted": list(COUNTED), "groups": [list(words) for words in GROUPS], "terms": list(energy.TERMS),
    }  # fmt: skip


def places(axis: str, stored: Sequence[str]) -> np.ndarray:
    """For every name in the code, its index among the stored ones, or that of its substitute; -1 where it has none."""
    at = {name: i for i, name in enumerate(stored)}

    def place(name: str) -> int:
        if name in at or axis not in _STAND_IN:
            return at.get(name, -1)
        # A class counted after the forward pass has a substitute of its own.
        behind = name.partition(":")[2]
        stand_in = f"{_STAND_IN[axis]}:{behind}" if axis == "counted" and behind else _STAND_IN[axis]
        return at[stand_in]

    return np.array([place(name) for name in vocabularies()[axis]])


def renamed(part: str, value: np.ndarray, stored: Mapping[str, Sequence[str]]) -> np.ndarray:
    """An array of a network, its axes in the order of the names in the code."""
    for axis, vocabulary in enumerate(_AXES.get(part, ())):
        if vocabulary is None or list(stored[vocabulary]) == vocabularies()[vocabulary]:
            continue
        order = places(vocabulary, stored[vocabulary])
        value = np.take(value, np.maximum(order, 0), axis=axis)
        # A number that the network was not trained on has weight zero.
        missing = [slice(None)] * axis + [order < 0]
        value[tuple(missing)] = 1.0 if part == "scale" else 0.0
    return value


def load_weights(folder: Path) -> Weights:
    """The weights in a folder; cached until its files change."""
    stamps = tuple(path.stat().st_mtime_ns for name in (FILE, ARRAYS) if (path := folder / name).exists())
    return _read(folder, stamps)


@functools.lru_cache(maxsize=4)
def _read(folder: Path, stamps: tuple[int, ...]) -> Weights:
    return Weights.load(folder)
