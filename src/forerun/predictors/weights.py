"""What a fitted predictor consists of, and its two files: arrays in safetensors, the rest in JSON; no code."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from forerun.errors import ForerunError
from forerun.graph.features import VARIANTS
from forerun.graph.profile import CLASSES, UNITS
from forerun.predictors import energy
from forerun.predictors.conformal import Calibration
from forerun.predictors.features import NUMBERS
from forerun.predictors.host import COUNTED
from forerun.predictors.network import GROUPS, Ensemble, Network

FORMAT = 4
ARRAYS, REST = "weights.safetensors", "weights.json"
_SCALARS = ("host_guess", "lead_us", "gap_us", "sharpness")


@dataclass(frozen=True)
class Weights:
    """Networks by kind of device, what a launch costs the host, energy factors, intervals, and their origin."""

    networks: Mapping[str, Ensemble]  # 'gpu', 'cpu'
    host_us: np.ndarray  # over host.COUNTED, on the reference host
    host_guess: float  # how slow a host is taken to be that nobody probed
    lead_us: float  # that a device waits in a call: around all kernels
    gap_us: float  # and between two
    sharpness: float
    joules: np.ndarray  # factors over energy.TERMS
    calibration: Calibration
    domain: Mapping[str, Any] = field(default_factory=dict)  # families, dtypes, devices, op variants that were seen
    provenance: Mapping[str, Any] = field(default_factory=dict)  # data sets with rows, licence, date; metrics

    def save(self, folder: Path) -> None:
        from safetensors.numpy import save_file

        folder.mkdir(parents=True, exist_ok=True)
        arrays = {
            f"{kind}/{i}/{name}": np.ascontiguousarray(value, dtype=np.float32)
            for kind, ensemble in self.networks.items()
            for i, network in enumerate(ensemble.networks)
            for name, value in network.arrays.items()
        }
        save_file(arrays | {"host_us": self.host_us.astype(np.float32), "energy": self.joules.astype(np.float32)},
                  folder / ARRAYS)  # fmt: skip
        rest = {"format": FORMAT, "names": _names(), **{name: getattr(self, name) for name in _SCALARS},
                "calibration": self.calibration.to_dict(), "domain": dict(self.domain),
                "provenance": dict(self.provenance)}  # fmt: skip
        (folder / REST).write_text(json.dumps(rest, indent=1, sort_keys=True) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Weights:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            rest = json.loads((folder / REST).read_text())
            arrays = load_file(folder / ARRAYS)
        except (OSError, ValueError, SafetensorError) as error:
            raise ForerunError(f"{folder} holds no weights of a predictor: {str(error).splitlines()[0]}") from error
        if rest.get("format") == FORMAT and rest.get("names") != _names():
            raise ForerunError(f"the weights in {folder} were made for other kinds of op: run forerun train default")
        if rest.get("format") != FORMAT:
            raise ForerunError(
                f"the weights in {folder} are of format {rest.get('format')}, this forerun reads {FORMAT}"
            )
        found: dict[str, dict[int, dict[str, np.ndarray]]] = {}
        for name, value in arrays.items():
            if name.count("/") == 2:
                kind, number, part = name.split("/")
                found.setdefault(kind, {}).setdefault(int(number), {})[part] = value
        networks = {kind: Ensemble(tuple(Network(a) for _, a in sorted(each.items()))) for kind, each in found.items()}
        return cls(
            networks=networks, host_us=arrays["host_us"].astype(float), joules=arrays["energy"].astype(float),
            calibration=Calibration.from_dict(rest["calibration"]), domain=rest["domain"],
            provenance=rest["provenance"], **{name: float(rest[name]) for name in _SCALARS},
        )  # fmt: skip


def _names() -> str:
    """A mark of the vocabularies that the arrays are indexed by."""
    words = json.dumps([CLASSES, UNITS, VARIANTS, NUMBERS, GROUPS, COUNTED, energy.TERMS])
    return hashlib.sha256(words.encode()).hexdigest()[:16]


@functools.lru_cache(maxsize=4)
def load_weights(folder: Path) -> Weights:
    return Weights.load(folder)
