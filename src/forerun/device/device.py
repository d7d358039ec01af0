"""A device: the datasheet of the hardware that a model runs on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forerun.device import fields
from forerun.device.generations import Generation, find_generation
from forerun.errors import ForerunError, did_you_mean


@dataclass(frozen=True)
class Device:
    """One accelerator or processor as software sees it. What is not known is None, and absent from `peak_tflops`."""

    id: str
    name: str
    vendor: str | None = None
    kind: str = "gpu"  # one of fields.KINDS
    architecture: str | None = None
    compute_capability: float | None = None  # NVIDIA only
    # Dense peaks by dtype as listed, in TFLOP/s (TOP/s for integers), on the fastest unit, fp16 with fp32 accumulation.
    # For what a framework can reach, ask peak().
    peak_tflops: Mapping[str, float] = field(default_factory=dict, hash=False)
    unsupported: tuple[str, ...] = ()  # dtypes for which the chip certainly has no units
    memory_gb: float | None = None
    bandwidth_gbs: float | None = None
    l2_cache_mb: float | None = None
    sm_count: float | None = None
    boost_clock_mhz: float | None = None
    tdp_w: float | None = None
    idle_w: float | None = None
    interconnect_gbs: float | None = None  # sum of both directions, to all peers
    pcie_gbs: float | None = None  # one direction
    release_date: str | None = None
    launch_price_usd: float | None = None
    note: str | None = None
    calibrated: Mapping[str, float] = field(default_factory=dict, hash=False)  # measured, separate from the datasheet
    provenance: Mapping[str, str] = field(default_factory=dict, hash=False)  # field -> "source title, date"

    @property
    def memory_mb(self) -> float | None:
        """Memory in MB of 2**20 bytes: vendors' 'GB' of device memory are 2**30 bytes.

        An A100-40GB shows 40960 MiB. A few MB to 2 % may be held back: an H200 of 141 GB shows 143771, not 144384.
        """
        return None if self.memory_gb is None else self.memory_gb * 1024

    @property
    def generation(self) -> Generation | None:
        """The catalogue's entry for the chip's architecture, or None when it is not listed."""
        return find_generation(self.architecture, self.compute_capability)

    @property
    def generation_note(self) -> str | None:
        """A sentence when a GPU's generation is not listed, so that its answers stand on less; None otherwise.

        Predictions for other kinds of device use no facts of the generation.
        """
        if self.kind not in ("gpu", "soc") or self.generation is not None:
            return None
        assumed = "how far its power limit slows arithmetic and what its libraries reserve are assumed"
        if self.architecture is None:
            return f"{self.id} names no generation (architecture): {assumed}"
        return f"the generation {self.architecture} is not in the catalogue: {assumed}"

    @property
    def is_nvidia(self) -> bool:
        """Whether CUDA libraries run on it: by the vendor or, where none is given, by the generation."""
        vendor = self.vendor or (self.generation.vendor if self.generation else None)
        return (vendor or "").lower() == "nvidia"

    @property
    def ceilings(self) -> dict[str, float]:
        """Those of the calibrated values that `forerun measure machine` makes, in a fixed order."""
        return {name: self.calibrated[name] for name in fields.CEILINGS if name in self.calibrated}

    def supports(self, dtype: str) -> bool | None:
        """True: it has units for this dtype (a peak is known). False: it certainly has none. None: not known."""
        if dtype not in fields.DTYPES:
            raise ForerunError(f"unknown dtype {dtype!r}.{did_you_mean(dtype, fields.DTYPES)}")
        if dtype in self.peak_tflops:
            return True
        return False if dtype in self.unsupported else None

    def peak(self, dtype: str) -> float | None:
        """The TFLOP/s that a framework's kernels can reach in this dtype, or None when that is not known.

        Without fast units of its own, fp16, bf16 or tf32 is computed on the fp32 units, which every matrix library
        does: a GTX 1080 lists 0.14 TFLOP/s in native fp16 arithmetic, and runs fp16 models at its fp32 rate, 8.9.
        """
        supported = self.supports(dtype)
        own = self.peak_tflops.get(dtype)
        if dtype in ("fp16", "bf16", "tf32") and (own is not None or supported is False):
            return max(own or 0.0, self.peak_tflops.get("fp32", 0.0)) or None
        return own

    def missing(self, *names: str) -> list[str]:
        """Which of these are unknown. Names are those of the catalogue: 'memory_gb', 'fp16_tflops', ..."""
        return [name for name in names if self._value(name) is None]

    def _value(self, name: str) -> Any:
        if name in fields.PEAKS:
            return self.peak_tflops.get(fields.peak_dtype(name))
        if name not in _NAMES:
            raise ForerunError(fields.unknown_field(name, [*_NAMES, *fields.PEAKS]))
        return getattr(self, name)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values for JSON; unknown is None."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}


_NAMES = frozenset(f.name for f in dataclasses.fields(Device))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value
