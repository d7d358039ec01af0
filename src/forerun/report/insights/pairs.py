"""Cases that differ in one setting alone: by which factor time, memory and energy differ between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from forerun.report.insights.rows import SETTINGS, TARGETS, Rows

#: Fewer pairs than these are not summarised.
LEAST_PAIRS = 8
#: What is compared: the targets, and the part of a call's time in which the device works.
QUANTITIES = ("latency_ms", "device_ms", "memory_mb", "energy_j")
#: Where a batch begins to be of the next size.
BATCHES = (1, 8, 64)
#: Measures of size.
SIZES = ("macs_per_item", "parameters")
#: Settings that are names, and what each is compared with, the first that there is.
BASES = {"precision": ("fp32", "bf16", "fp16"), "mode": ("inference",), "runtime": ("eager",)}


@dataclass(frozen=True)
class Effect:
    """What a change of one setting does to one quantity, over pairs of cases that are otherwise the same."""

    setting: str
    change: str  # 'doubled, batch 1 to 8', 'fp32 to fp16'
    where: str  # the mode or the device that the pairs are of
    target: str
    pairs: int
    models: int
    factor: float  # the median; of a doubling where the setting is a number
    low: float  # first and third quartile
    high: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def effects(rows: Rows) -> list[Effect]:
    """Every effect that enough pairs show."""
    found: list[Effect] = []
    frame = _with_codes(rows.frame)
    for target in QUANTITIES:
        known = frame[frame[target] > 0]
        found += _of_batches(known, target)
        found += _doubled(_steps(known, "seq_len", target), "seq_len", target, "prompt doubled")
        for setting, bases in BASES.items():
            found += _of_names(known, setting, bases, target)
        found += _of_devices(known, target)
    return found


def _of_batches(known: pd.DataFrame, target: str) -> list[Effect]:
    steps = _steps(known, "batch", target)
    found = []
    for at, least in enumerate(BATCHES):
        most = BATCHES[at + 1] if at + 1 < len(BATCHES) else np.inf
        part = steps[(steps["lower"] >= least) & (steps["upper"] <= most)]
        words = f"batch doubled, from {least} to {most:.0f}" if np.isfinite(most) else f"batch doubled, above {least}"
        found += _doubled(part, "batch", target, words)
    return found


def _steps(known: pd.DataFrame, setting: str, target: str) -> pd.DataFrame:
    """Neighbours `lower` and `upper` in a number, of cases that are otherwise the same; `factor` is of a doubling."""
    known = known[known[setting] > 0].sort_values(setting, kind="stable")
    group = _groups(known, [name for name in SETTINGS if name != setting])
    before = known.groupby(group)[[setting, target]].shift()
    lines = known.assign(lower=before[setting], upper=known[setting], ratio=known[target] / before[target])
    lines = lines[lines["upper"] > lines["lower"]]
    return lines.assign(factor=lines["ratio"] ** (1 / np.log2(lines["upper"] / lines["lower"])))


def _with_codes(frame: pd.DataFrame) -> pd.DataFrame:
    """With a random number for every value of every setting, so that the sum over settings tells cases apart."""
    rng = np.random.default_rng(0)
    codes = {}
    for name in (*SETTINGS, "family"):
        places = pd.factorize(frame[name], use_na_sentinel=False)[0]
        codes[f"{name} code"] = rng.integers(-(2**62), 2**62, places.max(initial=0) + 1)[places]
    return frame.assign(**codes)


def _groups(known: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """A number per line: the same for cases that agree in these settings, unknown ones included."""
    return np.asarray(known[[f"{name} code" for name in names]].sum(axis=1))  # overflow wraps around


def _doubled(steps: pd.DataFrame, setting: str, target: str, change: str) -> list[Effect]:
    """The effect by mode and device."""
    return [
        _effect(part, setting, change, f"{mode}, {device}", target)
        for (mode, device), part in steps.groupby(["mode", "device"])
        if len(part) >= LEAST_PAIRS
    ]


def _of_names(known: pd.DataFrame, setting: str, bases: Sequence[str], target: str) -> list[Effect]:
    found = []
    for at, base in enumerate(bases):
        for other in sorted(set(known[setting]) - set(bases[: at + 1])):
            both = _both(known, setting, base, other, target)
            by = "mode" if setting != "mode" else "precision"
            for (name, device), part in both.groupby([by, "device"]):
                if len(part) >= LEAST_PAIRS:
                    found.append(_effect(part, setting, f"{base} to {other}", f"{name}, {device}", target))
    return found


def _of_devices(known: pd.DataFrame, target: str) -> list[Effect]:
    """Between devices on which the same cases ran, whatever the data set."""
    sizes = known["device"].value_counts()
    found = []
    names = list(sizes.index)
    for at, base in enumerate(names):
        for other in names[at + 1 :]:
            both = _both(known[known["device"].isin((base, other))], "device", base, other, target)
            if len(both) >= LEAST_PAIRS:
                found.append(_effect(both, "device", f"{base} to {other}", "all modes", target))
    return found


def _both(known: pd.DataFrame, setting: str, base: str, other: str, target: str) -> pd.DataFrame:
    """Cases that ran with either name and are otherwise the same, with the `factor` of the second over the first."""
    dropped = {setting, *(("dataset", "power_limit_w") if setting == "device" else ())}
    rest = [name for name in SETTINGS if name not in dropped]
    if setting == "mode":  # a call of inference has no optimizer
        rest.remove("optimizer")
    part = known[known[setting].isin((base, other))]
    part = part.assign(group=_groups(part, rest))
    one = part[part[setting] == base].drop_duplicates("group").set_index("group")[target]
    second = part[part[setting] == other].drop_duplicates("group")
    both = second[second["group"].isin(one.index)]
    return both.assign(factor=both[target] / both["group"].map(one))


def _effect(part: pd.DataFrame, setting: str, change: str, where: str, target: str) -> Effect:
    low, middle, high = (float(part["factor"].quantile(q)) for q in (0.25, 0.5, 0.75))
    return Effect(setting, change, where, target, len(part), int(part["model"].nunique()), middle, low, high)


@dataclass(frozen=True)
class SizeLaw:
    """How a quantity grows with the size of networks of one family that run the same way: size to this power."""

    target: str
    size: str  # parameters or macs_per_item
    mode: str
    power: float
    explained: float  # share of the variance within families
    cases: int
    groups: int


def size_laws(rows: Rows) -> list[SizeLaw]:
    """The powers, by quantity, measure of size and mode, fitted within family and setting."""
    found = []
    frame = _with_codes(rows.frame)
    for target in TARGETS:
        for size in SIZES:
            known = frame[(frame[target] > 0) & (frame[size] > 0)]
            for mode, part in known.groupby("mode"):
                law = _law(part, target, size, str(mode))
                found += [law] if law else []
    return found


def _law(part: pd.DataFrame, target: str, size: str, mode: str) -> SizeLaw | None:
    settings = ["family", "device", "batch", "precision", "seq_len", "optimizer", "runtime"]
    part = part.assign(group=_groups(part, settings), x=np.log(part[size]), y=np.log(part[target]))
    inside = part[["x", "y"]] - part.groupby("group")[["x", "y"]].transform("mean")
    inside = inside[inside["x"].abs() > 0.05]
    variance = float((inside["x"] ** 2).sum())
    if len(inside) < 3 * LEAST_PAIRS or variance == 0:
        return None
    power = float((inside["x"] * inside["y"]).sum()) / variance
    rest, whole = float(((inside["y"] - power * inside["x"]) ** 2).sum()), float((inside["y"] ** 2).sum())
    groups = int(part.loc[inside.index, "group"].nunique())
    return SizeLaw(target, size, mode, power, 1 - rest / whole if whole else 0.0, len(inside), groups)


def host_bound(rows: Rows, at_most: float) -> list[dict[str, Any]]:
    """By range of the batch, the share of calls whose device waits for its host: busy for less than `at_most`."""
    known = rows.frame[(rows.frame["device_ms"] > 0) & (rows.frame["latency_ms"] > 0)]
    waits = known["device_ms"] / known["latency_ms"] < at_most
    lines = []
    for at, least in enumerate(BATCHES):
        most = BATCHES[at + 1] if at + 1 < len(BATCHES) else np.inf
        inside = (known["batch"] >= least) & (known["batch"] < most)
        if inside.sum() >= LEAST_PAIRS:
            lines.append({
                "from": least, "below": most if np.isfinite(most) else None, "cases": int(inside.sum()),
                "share": float(waits[inside].mean()),
            })  # fmt: skip
    return lines
