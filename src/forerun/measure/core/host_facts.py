"""What a row records of the host and of the software."""

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
    """What tells this machine from others that may see the same files: its name on the network, its CPU, its cores."""
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
    except Exception:  # noqa: BLE001 - a broken timm must not stop the measuring of other models
        versions["timm"] = None
    return versions


def cpu_name() -> str:
    for line in read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def cpu_model() -> str | None:
    """'6/207': family and model, which separate what virtual machines give one name."""
    found: dict[str, str] = {}
    for line in read("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    family, model = found.get("cpu family"), found.get("model")
    return f"{family}/{model}" if family and model else None


def memory_mb() -> float:
    """The host's memory, or what the container may use of it."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = read("/sys/fs/cgroup/memory.max").strip()
    return (min(found, int(limit)) if limit.isdigit() else found) / 2**20


def read(path: str) -> str:
    """A file of the system, empty where there is none."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _cpu_mhz() -> float | None:
    for line in read("/proc/cpuinfo").splitlines():
        if line.startswith("cpu MHz"):
            return float(line.partition(":")[2])
    return None
