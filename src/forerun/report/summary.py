"""The words of the first screen: what bounds the model, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from forerun.device import Device
from forerun.errors import ForerunError
from forerun.readable import pretty
from forerun.report.changes import Change, changes
from forerun.report.operators import by_bound
from forerun.report.parts import Level, listed, percent, value_text
from forerun.report.study import Study

_ADVICE = {
    "compute": "arithmetic limits it, so a faster precision or less arithmetic helps",
    "memory": "memory traffic limits it, so a smaller dtype or fused operators help",
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
        found = {mode: changes(study, device, mode) for mode in (study.mode, "training")}
        rows += [c.row() for some in found.values() for c in some]
        parts = [f"{mode}: {_proposal(mode, some)}" for mode, some in found.items() if some]
        none = "none of the changes that were tried surely makes it faster"
        proposed.append(f"{device.id}, {'; '.join(parts)}." if parts else f"{device.id}: {none}.")
    by_id = {level.id: level for level in levels}
    outlook = [*by_id["training"].findings[: len(study.devices)], *_several(by_id["distributed"])]
    outlook += by_id["cloud"].findings[:2]
    return Summary(bounds, proposed, outlook, {"bounds": bounds, "changes": rows, "outlook": outlook})


def _several(level: Level) -> list[str]:
    """Up to how many GPUs data parallel training pays, in one sentence."""
    worth = level.data.get("worth", {})
    by_count: dict[int, list[str]] = {}
    for device, count in worth.items():
        by_count.setdefault(count, []).append(device)
    parts = [f"up to {count} on {listed(names)}" for count, names in by_count.items()]
    return [f"Data parallel training on 1 to 8 GPUs pays {'; '.join(parts)}."] if parts else []


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
            f"{text}. The host sets the pace: launching the kernels takes {value_text(answer.host_ms, interval=False)}"
            f", and the device is busy {percent(share)} of the time."
        )
    try:
        found = study.explain(device)
    except ForerunError:
        return f"{text}. The device sets the pace."
    shares = by_bound(found)
    first = next(iter(shares), "memory")
    kernel, _, _, share = found.by_kernel()[0]
    return (
        f"{text}. The device sets the pace: {percent(shares[first])} of its time is {first}-bound; {_ADVICE[first]}. "
        f"The largest part, {percent(share)}, is spent in {kernel} kernels."
    )


def _proposal(mode: str, found: Sequence[Change]) -> str:
    """The best change, and the best one of another kind."""
    others = [c for c in found if c.kind != found[0].kind][:1]
    call = "step" if mode == "training" else "call"
    return ", or ".join(
        f"{c.words} ({pretty(c.gain.value)} times the throughput, {pretty(c.gain.low)} … {pretty(c.gain.high)}; "
        f"{value_text(c.latency_ms, interval=False)} a {call})"
        for c in (found[0], *others)
    )
