"""A device: the datasheet of the hardware that a model runs on."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forerun.device import capacity, fields, kinds
from forerun.device.adapted import Adaptation
from forerun.device.generations import Generation, find_generation
from forerun.errors import ForerunError, did_you_mean


@dataclass(frozen=True)
class Device:
    """One accelerator or processor as seen by software. Unknown values are None, and absent from `peak_tflops`."""

    id: str
    name: str
    vendor: str | None = None
    kind: str = kinds.USUAL  # device/kinds.py
    architecture: str | None = None
    compute_capability: float | None = None  # NVIDIA only
    # Dense peaks by dtype as listed, in TFLOP/s (TOP/s for integers), on the fastest unit, fp16 with fp32 accumulation.
    # For what a framework can reach, ask peak().
    peak_tflops: Mapping[str, float] = field(default_factory=dict, hash=False)
    unsupported: tuple[str, ...] = ()  # dtypes for which the chip certainly has no units
    memory_gb: float | None = None  # as advertised; for the real capacity, see memory_mb and usable_mb
    driver_memory_mb: float | None = None  # as stated by a source; memory_mb falls back to a rule
    usable_memory_mb: float | None = None  # as stated by a source; usable_mb falls back to a rule
    inline_ecc: bool = False  # keeps ECC bits in its GDDR as shipped, which costs a sixteenth
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
    adaptation: Adaptation | None = None  # corrections from measured calls (forerun adapt)

    def __hash__(self) -> int:
        """Hashes the id only: devices are keys of many caches, and equal devices have equal ids."""
        return hash(self.id)

    @functools.cached_property
    def traits(self) -> kinds.DeviceKind:
        """The properties of its kind."""
        return kinds.device_kind(self.kind)

    @functools.cached_property
    def memory_mb(self) -> float | None:
        """Memory as the driver reports it (`nvidia-smi`, memory.total), in MB of 2**20 bytes: a T4 of 16 GB has 15360.

        By rule (device/capacity.py) where no source states it; None where `memory_gb` is not known either."""
        if self.driver_memory_mb is not None or self.memory_gb is None:
            return self.driver_memory_mb
        return self.traits.memory.reported_mb(self, self.memory_gb * capacity.MB_PER_GB)

    @functools.cached_property
    def usable_mb(self) -> float | None:
        """What processes can get of it altogether, their contexts included (PyTorch's total_memory): a T4's 14912.

        On a CPU that is all that the operating system reports; what it and other processes use is not known here.
        """
        if self.usable_memory_mb is not None:
            return self.usable_memory_mb
        reported = self.memory_mb
        return None if reported is None else self.traits.memory.usable_mb(self, reported)

    @property
    def capacity_sources(self) -> dict[str, str]:
        """Where `memory_mb` and `usable_mb` come from: the source of the stated value, or 'by rule' and which."""
        if self.memory_mb is None:
            return {}
        rule = self.traits.memory
        return {
            name: self.provenance.get(field, "") if getattr(self, field) is not None else f"by rule: {why(self)}"
            for name, field, why in (
                ("memory_mb", "driver_memory_mb", rule.why_reported),
                ("usable_mb", "usable_memory_mb", rule.why_usable),
            )
        }  # fmt: skip

    @property
    def generation(self) -> Generation | None:
        """The catalogue's entry for the chip's architecture, or None when it is not listed."""
        return find_generation(self.architecture, self.compute_capability)

    @property
    def generation_note(self) -> str | None:
        """A sentence if a GPU's generation is not listed, so that predictions are based on less; None otherwise.

        Predictions for other kinds of device use no facts of the generation.
        """
        if not self.traits.has_generations or self.generation is not None:
            return None
        assumed = "how far its power limit slows arithmetic and what its libraries reserve are assumed"
        if self.architecture is None:
            return f"{self.id} names no generation (architecture): {assumed}"
        return f"the generation {self.architecture} is not in the catalogue: {assumed}"

    @property
    def is_nvidia(self) -> bool:
        """Whether CUDA libraries run on it: by the vendor or, where none is given, by the generation."""
        return self.maker == "nvidia"

    @property
    def maker(self) -> str | None:
        """The vendor in lower case, by the generation where none is given; None when neither says."""
        vendor = self.vendor or (self.generation.vendor if self.generation else None)
        return vendor and vendor.lower()

    @property
    def ceilings(self) -> dict[str, float]:
        """The calibrated values made by `forerun measure machine`, in a fixed order."""
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
        So is tf32 on GPUs that are not NVIDIA's: PyTorch uses their units only on request (HIPBLASLT_ALLOW_TF32).
        """
        supported = self.supports(dtype)
        peak = self.peak_tflops.get(dtype)
        if dtype == "tf32" and self.traits.asks_for_tf32 and self.maker not in (None, "nvidia"):
            supported, peak = False, None
        if dtype in ("fp16", "bf16", "tf32") and (peak is not None or supported is False):
            return max(peak or 0.0, self.peak_tflops.get("fp32", 0.0)) or None
        return peak

    def missing(self, *names: str) -> list[str]:
        """The unknown fields among these. Names are those of the catalogue: 'memory_gb', 'fp16_tflops', ..."""
        return [name for name in names if self._value(name) is None]

    def _value(self, name: str) -> Any:
        if name in fields.PEAKS:
            return self.peak_tflops.get(fields.peak_dtype(name))
        if name not in _NAMES:
            raise ForerunError(fields.unknown_field(name, [*_NAMES, *fields.PEAKS]))
        return getattr(self, name)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values for JSON; unknown is None."""
        stated = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self) if f.name != "adaptation"}
        if self.adaptation is not None:
            stated["adaptation"] = dict(self.adaptation.values)
        memory = {"memory_mb": self.memory_mb, "usable_mb": self.usable_mb}
        return {**stated, **memory, "provenance": {**self.provenance, **self.capacity_sources}}


_NAMES = frozenset(f.name for f in dataclasses.fields(Device))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value
