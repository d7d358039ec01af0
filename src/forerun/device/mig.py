"""MIG: the slices of an NVIDIA GPU, and a slice as a device."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import Any

from forerun.device import fields
from forerun.device.device import Device
from forerun.device.reading import CATALOG, key, read_yaml, source_line, unknown
from forerun.errors import ForerunError


@dataclass(frozen=True)
class MigProfile:
    """One way to cut a slice: how much of the GPU it gets, and how many such slices fit on one GPU."""

    name: str  # "1g.18gb": compute slices, nominal memory; "+me" has the media engines
    compute_slices: int
    memory_mb: float  # as listed, in MB of 2**20 bytes: what CUDA reports in the slice
    sm_count: int
    sm_fraction: float  # of the GPU's SMs: not compute_slices / 7, because some SMs belong to no slice
    memory_fraction: float  # also the fraction of bandwidth and of L2
    max_instances: int
    media: bool
    source: str
    memory_slices: int  # that it occupies, of those of its geometry
    starts: tuple[int, ...]  # the memory slices at which it may begin


@dataclass(frozen=True)
class Geometry:
    """What the slices of a GPU are cut from. Two slices never share a memory slice."""

    compute_slices: int
    memory_slices: int
    source: str  # of the placements
    assumed: bool  # no listing of this GPU is known: the placements are those of one with equal slices


def geometry(device: Device) -> Geometry | None:
    """The slices that a device is cut from; None when it has no MIG or its profiles are not known."""
    content = _content()
    entry = content["profiles"].get(device.id)
    if entry is None:
        return None
    full = content["geometries"][entry["geometry"]]
    source = source_line(content["sources"], entry["placements_source"])
    assumed = entry.get("placements_assumed", False)
    return Geometry(full["compute_slices"], full["memory_slices"], source, assumed)


def with_mig() -> list[str]:
    """The ids of the devices whose MIG profiles are known."""
    return list(_content()["profiles"])


def profiles(device: Device) -> list[MigProfile]:
    """The MIG profiles of a device, smallest first; empty when it has no MIG or its profiles are not known."""
    return list(_profiles(device.id, device.sm_count))


@cache
def _profiles(device_id: str, whole_sm_count: float | None) -> tuple[MigProfile, ...]:
    content = _content()
    entry = content["profiles"].get(device_id)
    if entry is None:
        return ()
    full = content["geometries"][entry["geometry"]]
    starts = {(p["compute_slices"], p["memory_slices"]): tuple(p["starts"]) for p in full["placements"]}
    profiles = []
    for row in entry["rows"]:
        part, whole = map(int, row["memory_fraction"].split("/"))
        memory_slices = part * full["memory_slices"] // whole
        # Where the SM count of the whole GPU is unknown, the share of the compute slices stands in for that of the SMs.
        share = row["sm_count"] / whole_sm_count if whole_sm_count else row["compute_slices"] / full["compute_slices"]
        profiles.append(
            MigProfile(
                name=row["name"],
                compute_slices=row["compute_slices"],
                memory_mb=float(row["memory_mb"]),
                sm_count=row["sm_count"],
                sm_fraction=share,
                memory_fraction=part / whole,
                max_instances=row["max_instances"],
                media=row["name"].endswith("+me"),
                source=source_line(content["sources"], row.get("source", entry["source"])),
                memory_slices=memory_slices,
                starts=starts[row["compute_slices"], memory_slices],
            )
        )
    return tuple(sorted(profiles, key=lambda p: (p.compute_slices, p.memory_mb, p.media)))


def slice_device(gpu: Device, profile: str | MigProfile) -> Device:
    """The device that one MIG slice is. Compute scales with its SMs; memory, bandwidth and L2 with its memory share."""
    if isinstance(profile, str):
        known = {key(p.name): p for p in profiles(gpu)}
        if not known:
            raise ForerunError(f"{gpu.id} has no MIG profiles in the catalogue")
        if key(profile) not in known:
            hint = f"It has {', '.join(p.name for p in known.values())}."
            raise unknown(f"MIG profile of {gpu.id}", profile, (p.name for p in known.values()), hint)
        profile = known[key(profile)]

    def share(value: float | None, fraction: float) -> float | None:
        return None if value is None else value * fraction

    calibrated = {name: value for name, value in gpu.calibrated.items() if name not in fields.CEILINGS}
    for name in ("idle_w", "static_w"):
        if name in calibrated:
            calibrated[name] *= profile.sm_fraction
    memory_mb = min(profile.memory_mb, gpu.usable_mb or profile.memory_mb)
    scaled = f"slice {profile.name} of {gpu.id}"
    return dataclasses.replace(
        gpu,
        id=f"{gpu.id}/{profile.name}",
        name=f"{gpu.name} MIG {profile.name}",
        peak_tflops={dtype: peak * profile.sm_fraction for dtype, peak in gpu.peak_tflops.items()},
        memory_gb=profile.memory_mb / 1024,
        # The listed sizes are what CUDA reports in the slice; that of the whole GPU is rounded up beyond what it has.
        driver_memory_mb=memory_mb,
        usable_memory_mb=memory_mb,
        bandwidth_gbs=share(gpu.bandwidth_gbs, profile.memory_fraction),
        l2_cache_mb=share(gpu.l2_cache_mb, profile.memory_fraction),
        sm_count=float(profile.sm_count),
        # Power is not fenced off per slice; its share of the compute is what advice charges to it.
        tdp_w=share(gpu.tdp_w, profile.sm_fraction),
        idle_w=share(gpu.idle_w, profile.sm_fraction),
        interconnect_gbs=None,  # no peer-to-peer traffic in MIG mode
        pcie_gbs=None,
        launch_price_usd=None,
        calibrated=calibrated,
        provenance={name: f"{line}; {scaled}" for name, line in gpu.provenance.items()}
        | dict.fromkeys(("memory_gb", "driver_memory_mb", "usable_memory_mb", "sm_count"), profile.source),
    )


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(CATALOG / "mig.yaml")
    return content
