"""The memory capacity of a device: what its driver reports, and what processes can use.

The catalogue states both where a source does (`driver_memory_mb`, `usable_memory_mb`). The rules below, one for each
kind of memory, stand in for what is not stated. They were read off the catalogue's own stated values;
tests/device/test_device.py applies them to every device that has one and holds the deviation:

| rule | derived from | largest deviation |
| --- | --- | --- |
| reported by NVIDIA's driver | 58 boards from the K80 to the GB300 | 0.7 % (K80; 0.1 % from Maxwell on) |
| usable on NVIDIA's boards | 22 boards from the P100 to the B200 | 2.1 % below (P100), 0.6 % from Turing on |
| AMD's boards | MI210, MI250X and MI300X; Radeon RX 6600 XT and 7700 XT | none |
| Intel's boards | Max 1550 and 1100, Arc A770, Arc Pro B60 | 0.2 % |
| NVIDIA Jetson | Orin Nano, Orin NX, AGX Orin 32 GB, Xavier NX | 1.7 % |
| Apple | M1, M1 Pro, M2 Max and others in llama.cpp's logs | none |
| TPUs and other accelerators | TPU v4, v5e, v6e | 3 % (below what they report) |
"""

from __future__ import annotations

from typing import Any, Protocol

#: Vendors' 'GB' of device memory are 2**30 bytes; ours are MB of 2**20.
MB_PER_GB = 1024.0
#: What NVIDIA's driver shows of the memory on the board: all of it up to Turing, all but 12 MB of 24 GB on Ampere and
#: Ada, and about half a per cent less from Hopper on, HBM and GDDR7 alike.
_SHOWN_BEFORE_AMPERE, _SHOWN_AMPERE_AND_ADA, _SHOWN_SINCE_HOPPER = 1.0, 0.9996, 0.9952
_BEFORE_AMPERE = ("kepler", "maxwell", "pascal", "volta", "turing")
_AMPERE_AND_ADA = ("ampere", "ada")
#: GDDR has no room of its own for ECC bits: boards that keep them in the memory itself lose one sixteenth of it.
_LEFT_BY_INLINE_ECC = 15 / 16
#: NVML's "reserved": what drivers 550 to 595 keep for themselves, in MB, and per MB of memory.
_RESERVED_MB, _RESERVED_SHARE = 430.0, 0.0016
_AMD_HELD_BACK_MB = 16.0
#: Level Zero's total_memory on Arc boards; the Max series, with HBM, shows all.
_INTEL_GDDR_USABLE = 0.944
#: CUDA's total_memory on a Jetson, which shares its memory with the operating system and firmware.
_JETSON_USABLE = 0.935
#: Metal's recommendedMaxWorkingSetSize: two thirds of a Mac's memory, three quarters where there is more than 36 GB.
_APPLE_USABLE, _APPLE_USABLE_LARGE, _APPLE_LARGE_GB = 2 / 3, 3 / 4, 36.0
#: Compilers and runtimes of TPUs and other accelerators keep 2 to 4 % for themselves: the most that was seen.
_ACCELERATOR_USABLE = 0.96


class Chip(Protocol):
    """What the rules look at of a device (device/device.py)."""

    @property
    def architecture(self) -> str | None: ...
    @property
    def inline_ecc(self) -> bool: ...
    @property
    def maker(self) -> str | None: ...
    @property
    def generation(self) -> Any: ...  # of generations.py


class MemoryRule:
    """The default rule for memory that no source states: all of it is usable."""

    def reported_mb(self, chip: Chip, nominal: float) -> float:
        """What the driver reports of `memory_gb`, in MB."""
        return nominal

    def usable_mb(self, chip: Chip, reported: float) -> float:
        """The part of the reported memory that processes can use."""
        return reported

    def why_reported(self, chip: Chip) -> str:
        return "all of memory_gb"

    def why_usable(self, chip: Chip) -> str:
        return "all that the operating system reports"


class BoardMemory(MemoryRule):
    """A GPU's own memory, of which its driver keeps a part: NVIDIA's, which keeps most, where no vendor is known."""

    def reported_mb(self, chip: Chip, nominal: float) -> float:
        if chip.maker == "amd":
            return nominal - _AMD_HELD_BACK_MB
        if chip.maker == "intel":
            return nominal
        return nominal * _shown(chip) * (_LEFT_BY_INLINE_ECC if chip.inline_ecc else 1.0)

    def usable_mb(self, chip: Chip, reported: float) -> float:
        if chip.maker == "amd":
            return reported
        if chip.maker == "intel":
            return reported * (1.0 if chip.architecture == "xe-hpc" else _INTEL_GDDR_USABLE)
        return reported - min(_RESERVED_MB + _RESERVED_SHARE * reported, reported / 4)  # a quarter: boards of 1 or 2 GB

    def why_reported(self, chip: Chip) -> str:
        if chip.maker == "intel":
            return super().why_reported(chip)
        if chip.maker == "amd":
            return f"memory_gb less {_AMD_HELD_BACK_MB:g} MB"
        ecc = ", less 1/16 for ECC" if chip.inline_ecc else ""
        return f"{_shown(chip):.2%} of memory_gb{ecc}, as the driver reports boards of this generation"

    def why_usable(self, chip: Chip) -> str:
        if chip.maker in ("amd", "intel"):
            return f"as {'ROCm' if chip.maker == 'amd' else 'Level Zero'} reports on boards of this vendor"
        return f"less {_RESERVED_MB:g} MB and {_RESERVED_SHARE:.2%} that the driver keeps"


class SharedMemory(MemoryRule):
    """Memory that a GPU shares with the CPU beside it: Macs, and Jetsons, as which those of no known vendor count."""

    def usable_mb(self, chip: Chip, reported: float) -> float:
        if chip.maker == "apple":
            large = reported > _APPLE_LARGE_GB * MB_PER_GB
            return reported * (_APPLE_USABLE_LARGE if large else _APPLE_USABLE)
        return reported * _JETSON_USABLE

    def why_usable(self, chip: Chip) -> str:
        return "Metal's working set" if chip.maker == "apple" else f"{_JETSON_USABLE:.1%}, as CUDA reports on a Jetson"


class CompilerMemory(MemoryRule):
    """Memory of a TPU or another accelerator, of which its compiler and runtime keep a part."""

    def usable_mb(self, chip: Chip, reported: float) -> float:
        return reported * _ACCELERATOR_USABLE

    def why_usable(self, chip: Chip) -> str:
        return f"{_ACCELERATOR_USABLE:.0%}, as its compiler keeps a part"


def _shown(chip: Chip) -> float:
    generation = chip.generation.id if chip.generation else None
    if generation in _BEFORE_AMPERE:
        return _SHOWN_BEFORE_AMPERE
    return _SHOWN_AMPERE_AND_ADA if generation in _AMPERE_AND_ADA else _SHOWN_SINCE_HOPPER
