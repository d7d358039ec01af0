"""What reads the device: one class per kind of machine, and None with a reason for what cannot be read."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path
from typing import Any

from .nvml import MEMORY_CLOCK, SM_CLOCK, Nvml

MB = 2**20


class Meter:
    """The null meter: synchronises nothing, knows nothing, and says why."""

    kind = "null"
    device = "cpu"

    def __init__(self) -> None:
        self.why_no_energy = "no energy counter on this machine"
        self.why_no_kernels = "no device profiler on this machine"
        self.why_no_graph = "CUDA graphs need an NVIDIA GPU"

    def sync(self) -> None:
        """Waits until the device has done all its work."""

    def reset_memory(self) -> None:
        """Gives cached memory back and starts the peak anew."""

    def allocated_mb(self) -> float | None:
        return None

    def memory(self) -> dict[str, float | None]:
        return {"allocated_mb": None, "reserved_mb": None, "used_mb": None}

    def energy_mj(self) -> float | None:
        return None

    def state(self) -> dict[str, float | None]:
        """Clocks, temperature and power at this moment."""
        return {}

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": "unknown"}


class CpuMeter(Meter):
    """The machine's own CPU: resident memory from /proc, energy from RAPL where it may be read."""

    kind = "cpu"

    def __init__(self) -> None:
        super().__init__()
        self.why_no_kernels = "a CPU launches no kernels"
        self.rapl = Path("/sys/class/powercap/intel-rapl:0/energy_uj")
        try:
            self.rapl.read_text()
        except OSError as error:
            self.why_no_energy = f"RAPL is not readable: {error.strerror}"

    def reset_memory(self) -> None:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, the peak of resident memory

    def memory(self) -> dict[str, float | None]:
        return {"allocated_mb": None, "reserved_mb": None, "used_mb": _status_mb("VmHWM")}

    def allocated_mb(self) -> float | None:
        return _status_mb("VmRSS")

    def energy_mj(self) -> float | None:
        try:
            return int(self.rapl.read_text()) / 1000
        except (OSError, ValueError):
            return None

    def describe(self) -> dict[str, Any]:
        return {"kind": "cpu", "name": cpu_name(), "model": cpu_model()}


class CudaMeter(Meter):
    """An NVIDIA GPU: PyTorch's allocator, CUDA's clock, NVML's counters."""

    kind = "cuda"
    device = "cuda"

    def __init__(self) -> None:
        super().__init__()
        import torch

        self.torch = torch
        self.nvml: Nvml | None = None
        try:
            self.nvml = Nvml(0)
            if self.nvml.energy_mj() is None:
                self.why_no_energy = "NVML gives no total-energy counter for this GPU"
        except OSError as error:
            self.why_no_energy = str(error)
        # Read before the CUDA context exists, so that the context can be told from the rest.
        self.used_before_mb = self.nvml.used_mb() if self.nvml else None

    def sync(self) -> None:
        self.torch.cuda.synchronize()

    def reset_memory(self) -> None:
        cuda = self.torch.cuda
        cuda.synchronize()
        # cuBLAS keeps its workspaces among the live tensors; a fresh process would not have them yet.
        clear = getattr(self.torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()
        cuda.empty_cache()
        cuda.reset_peak_memory_stats()

    def allocated_mb(self) -> float | None:
        return float(self.torch.cuda.memory_allocated() / MB)

    def memory(self) -> dict[str, float | None]:
        cuda = self.torch.cuda
        return {
            "allocated_mb": cuda.max_memory_allocated() / MB,
            "reserved_mb": cuda.max_memory_reserved() / MB,
            "used_mb": self.nvml.used_mb() if self.nvml else None,
        }

    def energy_mj(self) -> float | None:
        return self.nvml.energy_mj() if self.nvml else None

    def state(self) -> dict[str, float | None]:
        if self.nvml is None:
            return {}
        return {
            "sm_clock_mhz": self.nvml.clock_mhz(SM_CLOCK),
            "memory_clock_mhz": self.nvml.clock_mhz(MEMORY_CLOCK),
            "temperature_c": self.nvml.temperature_c(),
            "power_now_w": self.nvml.power_w(),
        }

    def describe(self) -> dict[str, Any]:
        properties = self.torch.cuda.get_device_properties(0)
        return {
            "kind": "cuda",
            "name": properties.name,
            "sms": properties.multi_processor_count,
            "memory_mb": properties.total_memory / MB,
            "capability": f"{properties.major}.{properties.minor}",
            "used_before_mb": self.used_before_mb,
            "power_limit_w": self.nvml.power_limit_w() if self.nvml else None,
            "nvml": self.nvml.how if self.nvml else None,
        }


def meter_for(device: str) -> Meter:
    """`auto` takes the GPU where there is one."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # as NVML counts
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    return CudaMeter() if device == "cuda" else CpuMeter()


def host() -> dict[str, Any]:
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "mhz": _cpu_mhz(), "python": platform.python_version()}


def software() -> dict[str, Any]:
    """The versions that a row depends on."""
    import importlib.metadata

    import torch

    versions: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda}
    versions["cudnn"] = torch.backends.cudnn.version() if torch.cuda.is_available() else None
    for package in ("transformers", "torchvision", "triton", "numpy"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    try:
        versions["timm"] = importlib.import_module("timm.version").__version__
    except Exception:  # noqa: BLE001 - a broken timm must not stop the measuring of other models
        versions["timm"] = None
    try:
        versions["driver"] = Nvml(0).driver()
    except OSError:
        versions["driver"] = None
    return versions


def cpu_name() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def cpu_model() -> str | None:
    """'6/207': family and model, which tell apart what virtual machines call by one name."""
    found: dict[str, str] = {}
    for line in _read("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    family, model = found.get("cpu family"), found.get("model")
    return f"{family}/{model}" if family and model else None


def _cpu_mhz() -> float | None:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("cpu MHz"):
            return float(line.partition(":")[2])
    return None


def _status_mb(field: str) -> float | None:
    for line in _read("/proc/self/status").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
