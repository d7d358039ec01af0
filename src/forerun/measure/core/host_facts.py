"""Host and software facts that a row records."""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .meters import Meter


def host() -> dict[str, Any]:
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "mhz": _cpu_mhz(), "python": platform.python_version()}


@functools.cache
def machine() -> str:
    """An identity that distinguishes machines that share files: network name, CPU, number of cores."""
    return f"{platform.node()}, {cpu_name()}, {os.cpu_count()} cores"


def software(meter: Meter) -> dict[str, Any]:
    """The versions that a row depends on: PyTorch's, the vendor's, and the libraries'."""
    import importlib
    import importlib.metadata

    import torch

    versions: dict[str, Any] = {"torch": torch.__version__, **meter.versions()}
    for package in ("transformers", "torchvision", "triton", "numpy"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    try:
        versions["timm"] = importlib.import_module("timm.version").__version__
    except Exception:  # noqa: BLE001 - a broken timm must not prevent the measurement of other models
        versions["timm"] = None
    return versions


def cpu_name() -> str:
    for line in read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def cpu_model() -> str | None:
    """'6/207': CPU family and model, which differ between CPUs that virtual machines report under one name."""
    fields: dict[str, str] = {}
    for line in read("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    family, model = fields.get("cpu family"), fields.get("model")
    return f"{family}/{model}" if family and model else None


def memory_mb() -> float:
    """The host's memory, or the container's limit."""
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = read("/sys/fs/cgroup/memory.max").strip()
    return (min(available, int(limit)) if limit.isdigit() else available) / 2**20


def read(path: str) -> str:
    """The text of a system file; empty if it does not exist."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _cpu_mhz() -> float | None:
    for line in read("/proc/cpuinfo").splitlines():
        if line.startswith("cpu MHz"):
            return float(line.partition(":")[2])
    return None
