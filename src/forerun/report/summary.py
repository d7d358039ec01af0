"""The text of the first screen: what bounds the model, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from forerun._util.readable import pretty
from forerun.device import Device
from forerun.errors import ForerunError
from forerun.report.changes import Change, changes
from forerun.report.operators import by_bound
from forerun.report.parts import Level, listed, percent, value_text
from forerun.report.study import Study

_ADVICE = {
    "compute": "a faster precision or less arithmetic helps",
    "memory": "a smaller dtype or fused operators help",
    "launch": "its kernels are too small for the device, so a larger batch or fewer kernels help",
}


@dataclass(frozen=True)
class Summary:
    """What the first screen says: sentences for each device, and for the whole."""

    bounds: Sequence[str]
    changes: Sequence[str]
    outlook: Sequence[str]
    data: dict[str, Any]


def summary(study: Study, levels: Sequence[Level]) -> Summary:
    bounds, proposed, rows = [], [], []
    for device in study.devices:
        bounds.append(_bound(study, device))
        by_mode = {mode: changes(study, device, mode) for mode in (study.mode, "training")}
        rows += [c.row() for claimed in by_mode.values() for c in claimed]
        parts = [f"{mode}: {_proposal(mode, claimed)}" for mode, claimed in by_mode.items() if claimed]
        none = "none of the changes that were tried is sure to make it faster"
        proposed.append(f"{device.id}, {'; '.join(parts)}." if parts else f"{device.id}: {none}.")
    by_id = {level.id: level for level in levels}
    outlook = [*by_id["training"].findings[: len(study.devices)], *_several(by_id["distributed"])]
    outlook += by_id["cloud"].findings[:2]
    if "measured" in by_id:
        outlook += by_id["measured"].findings[:1]
    return Summary(bounds, proposed, outlook, {"bounds": bounds, "changes": rows, "outlook": outlook})


def _several(level: Level) -> list[str]:
    """Up to how many GPUs data parallel training pays, in one sentence."""
    worth = level.data.get("worth", {})
    by_count: dict[int, list[str]] = {}
    for device, count in worth.items():
        by_count.setdefault(count, []).append(device)
    parts = [f"up to {count} on {listed(names)}" for count, names in by_count.items()]
    return [f"Data parallel training on 1 to 8 GPUs scales well {'; '.join(parts)}."] if parts else []


def _bound(study: Study, device: Device) -> str:
    answer = study.predict(device)
    if isinstance(answer, str):
        return f"{device.id}: {answer}."
    text = (
        f"{device.id}: a call takes {value_text(answer.latency_ms)} ({study.precision.label}, batch {study.batch}), "
        f"{value_text(answer.throughput, interval=False)}"
    )
    if answer.bound == "host" and answer.device_ms and answer.latency_ms:
        share = min(1.0, answer.device_ms.value / answer.latency_ms.value)
        return (
            f"{text}. It is host-bound: launch overhead takes {value_text(answer.host_ms, interval=False)}"
            f", and the device is busy {percent(share)} of the time."
        )
    try:
        explanation = study.explain(device)
    except ForerunError:
        return f"{text}. It is device-bound."
    shares = by_bound(explanation)
    first = next(iter(shares), "memory")
    kernel, _, _, share = explanation.by_kernel()[0]
    return (
        f"{text}. It is device-bound: {percent(shares[first])} of the device time is {first}-bound; {_ADVICE[first]}. "
        f"The largest part, {percent(share)}, is spent in {kernel} kernels."
    )


def _proposal(mode: str, claimed: Sequence[Change]) -> str:
    """The best change, and the best one of another kind."""
    others = [c for c in claimed if c.kind != claimed[0].kind][:1]
    call = "step" if mode == "training" else "call"
    return ", or ".join(
        f"{c.words} ({pretty(c.gain.value)} times the throughput, {pretty(c.gain.low)} … {pretty(c.gain.high)}; "
        f"{value_text(c.latency_ms, interval=False)} a {call})"
        for c in (claimed[0], *others)
    )
