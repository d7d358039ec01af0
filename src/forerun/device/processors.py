"""Peaks, bandwidth, caches and idle power of a CPU, from its cores, clock, vector units and memory channels.

    peak       = cores x base clock x operations per cycle of the microarchitecture
    bandwidth  = channels x transfers per second x 8 bytes
    idle power = the microarchitecture's share of the thermal design power

The base clock is the one that a maker guarantees with all cores busy; few cores, and code with narrow vectors, run
faster. An entry of the catalogue, or of a user, states the facts under `processor`; what its datasheet states stands
above what follows from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun._util.readable import short
from forerun.device import fields

#: Operations of a core per cycle: lanes x 2 (multiply and add) x units. A dtype that is absent has no units of its own.
_AVX2 = {"fp64": 16.0, "fp32": 32.0}  # two units of 256 bits
_AVX512 = {"fp64": 32.0, "fp32": 64.0}  # two units of 512 bits
_VNNI = {**_AVX512, "int8": 256.0}  # 4 bytes to a lane
_AMX = {**_VNNI, "bf16": 1024.0, "int8": 2048.0}  # tiles of 16 rows of 64 bytes
PER_CYCLE: Mapping[str, Mapping[str, float]] = {
    "broadwell": _AVX2, "skylake": _AVX512, "cascade-lake": _VNNI, "ice-lake": _VNNI, "sapphire-rapids": _AMX,
    "emerald-rapids": _AMX,
    "zen1": {"fp64": 8.0, "fp32": 16.0},  # two units of 128 bits
    "zen2": _AVX2, "zen3": _AVX2,
    # AVX-512 on units of 256 bits, in two cycles; products of bf16 and of bytes at two and four to a lane
    "zen4": {**_AVX2, "bf16": 64.0, "int8": 128.0},
    # two units of 128 bits, which know fp16 and products of bytes
    "neoverse-n1": {"fp64": 8.0, "fp32": 16.0, "fp16": 32.0, "int8": 64.0},
}  # fmt: skip
#: Power of a thread of an idle server over that of a busy one, by microarchitecture; that of the newest one of the same
#: maker where none is listed, and the median where no maker is known.
IDLE_SHARE = {
    "broadwell": 0.193, "skylake": 0.154, "cascade-lake": 0.161, "zen1": 0.322, "zen2": 0.280, "neoverse-n1": 0.280,
    "ice-lake": 0.161, "sapphire-rapids": 0.161, "emerald-rapids": 0.161, "zen3": 0.280, "zen4": 0.280,
}  # fmt: skip
USUAL_IDLE_SHARE = 0.237
IDLE_SOURCE = (
    "idle over busy power of SPECpower servers of the microarchitecture, or of the one before it (Cloud Carbon "
    "Footprint, in sustainable-computing-io/kepler, data/power_data.csv, commit 5102e4dc), of the design power, 2022"
)
BYTES_PER_TRANSFER = 8

_FACTS = {
    "cores": (1, 1024, "cores of a socket"), "clock_ghz": (0.3, 7, "GHz of the base clock"),
    "channels": (1, 64, "memory channels of a socket"), "mts": (400, 20000, "million transfers per second"),
    "cache_mb": (0.1, 4000, "megabytes of the last cache"), "sockets": (1, 16, "sockets of a machine at most"),
}  # fmt: skip
_NEEDED = ("cores", "clock_ghz")


def facts_problem(facts: Any) -> str | None:
    """Why an entry's `processor` cannot be one, as a sentence; None when it can."""
    if not isinstance(facts, Mapping):
        return f"processor must be a mapping of {', '.join(_FACTS)}, got {short(facts)}"
    for name, value in facts.items():
        if name == "source":
            continue
        if name not in _FACTS:
            return f"processor: {fields.unknown_field(name, (*_FACTS, 'source'))}"
        low, high, unit = _FACTS[name]
        number = fields.number(value)
        if number is None or not low <= number <= high:
            return f"processor: {name} must be {low:g} to {high:g} {unit}, got {short(value)}"
    if lacking := [name for name in _NEEDED if name not in facts]:
        return f"processor: {lacking[0]} is missing"
    if ("channels" in facts) != ("mts" in facts):
        return "processor: channels and mts belong together"
    return None


def derived(facts: Mapping[str, Any], architecture: str | None) -> dict[str, tuple[float, str]]:
    """The fields that follow from the facts, by name: the value, and how it was computed."""
    cores, clock = float(facts["cores"]), float(facts["clock_ghz"])
    found = {"sm_count": (cores, ""), "boost_clock_mhz": (clock * 1e3, "base clock")}
    for dtype, each in PER_CYCLE.get(architecture or "", {}).items():
        name = f"{dtype}_{'tops' if dtype.startswith('int') else 'tflops'}"
        found[name] = (cores * clock * each / 1e3, f"{cores:g} cores x {clock:g} GHz x {each:g} operations per cycle")
    if "channels" in facts:
        channels, rate = float(facts["channels"]), float(facts["mts"])
        found["bandwidth_gbs"] = (
            channels * rate * BYTES_PER_TRANSFER / 1e3,
            f"{channels:g} channels x {rate:g} MT/s x {BYTES_PER_TRANSFER} bytes",
        )
    if "cache_mb" in facts:
        found["l2_cache_mb"] = (float(facts["cache_mb"]), "last cache of the socket")
    return {name: (float(f"{value:.6g}"), how) for name, (value, how) in found.items()}


def idle_w(tdp_w: float, architecture: str | None) -> float:
    """Watts of a socket that has nothing to do, from its thermal design power."""
    return float(f"{tdp_w * IDLE_SHARE.get(architecture or '', USUAL_IDLE_SHARE):.3g}")
