"""NVML through nvidia-ml-py or, without it, the driver's library through ctypes."""

from __future__ import annotations

import ctypes
import os
from typing import Any

_LIBRARIES = (
    "libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
)
SM_CLOCK, MEMORY_CLOCK = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def visible(index: int) -> int | str:
    """NVML's index, or the UUID, of CUDA device `index` under CUDA_VISIBLE_DEVICES."""
    shown = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    if index >= len(shown):
        return index
    return int(shown[index]) if shown[index].isdigit() else shown[index]


class Nvml:
    """The counters of one GPU. Every reading is a number, or None if the driver does not provide it."""

    def __init__(self, index: int = 0) -> None:
        self.library, self.how = _load()
        if self.library.nvmlInit_v2() != 0:
            raise OSError("nvmlInit_v2 failed")
        self.handle = ctypes.c_void_p()
        chosen = visible(index)
        if isinstance(chosen, str):
            code = self.library.nvmlDeviceGetHandleByUUID(chosen.encode(), ctypes.byref(self.handle))
        else:
            code = self.library.nvmlDeviceGetHandleByIndex_v2(chosen, ctypes.byref(self.handle))
        if code != 0:
            raise OSError(f"NVML knows no GPU {chosen}")

    def energy_mj(self) -> int | None:
        """Millijoules since the driver was loaded."""
        return self._number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong())

    def power_w(self) -> float | None:
        milliwatts = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint())
        return None if milliwatts is None else milliwatts / 1000

    def power_limit_w(self) -> float | None:
        milliwatts = self._number("nvmlDeviceGetEnforcedPowerLimit", ctypes.c_uint())
        return None if milliwatts is None else milliwatts / 1000

    def temperature_c(self) -> int | None:
        return self._number("nvmlDeviceGetTemperature", ctypes.c_uint(), ctypes.c_uint(0))

    def clock_mhz(self, which: int = SM_CLOCK) -> int | None:
        return self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(), ctypes.c_uint(which))

    def used_mb(self) -> float | None:
        memory = _Memory()
        rc = self.library.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(memory))
        return None if rc else memory.used / 2**20

    def driver(self) -> str | None:
        text = ctypes.create_string_buffer(96)
        rc = self.library.nvmlSystemGetDriverVersion(text, ctypes.c_uint(96))
        return None if rc else text.value.decode()

    def _number(self, function: str, out: Any, *arguments: Any) -> int | None:
        call = getattr(self.library, function, None)
        if call is None or call(self.handle, *arguments, ctypes.byref(out)) != 0:
            return None
        return int(out.value)


def _load() -> tuple[Any, str]:
    """The C library; nvidia-ml-py, if installed, locates it on most systems."""
    try:
        import pynvml

        pynvml.nvmlInit()
        if pynvml.nvmlLib is not None:
            return pynvml.nvmlLib, "nvidia-ml-py"
    except Exception:  # noqa: BLE001 - not installed, or no driver: the plain library may still exist
        pass
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name), name
        except OSError:
            continue
    raise OSError("libnvidia-ml.so.1 is not on this machine")
