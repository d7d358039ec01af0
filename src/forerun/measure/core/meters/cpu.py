"""The machine's CPU: resident memory from /proc, energy from RAPL where it is readable."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, ClassVar

from .. import host_facts, quantised
from .base import Meter, Packer

RAPL = Path("/sys/class/powercap/intel-rapl:0/energy_uj")


class CpuMeter(Meter):
    """Available wherever PyTorch is; times come from the wall clock only."""

    kind = "cpu"
    device = "cpu"
    is_host = True
    weight_packers: ClassVar[dict[str, Packer]] = {"int8": quantised.int8_rows, "int4": quantised.int4_rows}

    def __init__(self) -> None:
        super().__init__()
        self.why_no_kernels = "a CPU launches no kernels"
        self.why_no_graph = "a CPU has no graph capture"
        try:
            RAPL.read_text()
        except OSError as error:
            self.why_no_energy = f"RAPL is not readable: {error.strerror}"

    @classmethod
    def available(cls) -> bool:
        return True

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": host_facts.cpu_name(), "model": host_facts.cpu_model()}

    def versions(self) -> dict[str, Any]:
        import torch

        return {**super().versions(), "cuda": torch.version.cuda}

    def total_mb(self) -> float | None:
        return host_facts.memory_mb()

    def reset_memory(self) -> None:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, the peak of resident memory

    def memory(self) -> dict[str, float | None]:
        return {"allocated_mb": None, "reserved_mb": None, "used_mb": _status_mb("VmHWM")}

    def allocated_mb(self) -> float | None:
        return _status_mb("VmRSS")

    def energy_mj(self) -> float | None:
        try:
            return int(RAPL.read_text()) / 1000
        except (OSError, ValueError):
            return None


def _status_mb(field: str) -> float | None:
    for line in host_facts.read("/proc/self/status").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    return None
