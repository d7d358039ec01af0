"""Fits the law of transformers' `generate` to whole generations, and judges it with one group of related families held
out at a time.

The calls of a generation are predicted by the default predictor as it is shipped, which has seen single calls of most
of these families; what the loop adds is fitted without the family that is scored, on hosts as fast as their probes say.
The baselines know those hosts too: the plain sum of prefill and steps, which leaves the loop out, and that sum times
one ratio. Intervals are those of a host that was not probed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from forerun._util.extras import needed
from forerun.api.generation import GenerationAnswers, generation
from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate import relatives
from forerun.evaluate.results import Section
from forerun.measure.cases import workload_of
from forerun.predictors.base import Predictor
from forerun.predictors.laws.bounds import throughout_mb
from forerun.predictors.laws.generation import COUNTED, GenerationLaw, Loop
from forerun.predictors.laws.memory import MemoryEstimate, needed_interval, with_interval
from forerun.predictors.registry import load_predictor
from forerun.workload import DECODINGS

Progress = Callable[[Iterable[Any], int], Iterable[Any]]
#: Scored quantities: our name and the column of the store.
TARGETS = {
    "latency_ms": "latency_ms", "first_token_ms": "ttft_ms", "token_ms": "tpot_ms", "energy_j": "energy_j",
    "memory_mb": "memory_mb", "memory_allocated_mb": "memory_allocated_mb", "device_ms": "device_ms",
}  # fmt: skip
#: Columns of the table that are shares.
SHARE_COLUMNS = ("mape", "host probed", "one ratio", "without the loop", "interval_coverage", "repeats differ by")
#: A law that adds no costs of the host, no small kernels and no memory.
NOTHING = GenerationLaw({"gpu": {}, "cpu": {}})
#: The share of rows that intervals hold where their powers are fitted: with this, they hold about 90 % of the rows of
#: groups that they were fitted without, as groups differ.
_HELD = 0.92


@dataclass(frozen=True)
class Generated:
    """One measured generation, and the answers for its calls on a host as fast as the one that measured it, and on the
    one that is assumed where none was probed."""

    row: dict[str, Any]
    answers: GenerationAnswers
    unprobed: GenerationAnswers

    @property
    def part(self) -> str:
        return str(self.answers.devices[0].traits.part)

    def under(self, fitted: GenerationLaw, probed: bool = True) -> GenerationAnswers:
        """The answers under another law of the loop."""
        answers = self.answers if probed else self.unprobed
        return replace(answers, question=replace(answers.question, fitted=fitted))

    def value(self, target: str) -> float:
        found = self.row[TARGETS[target]]
        return np.nan if found is None else float(found)

    @functools.cached_property
    def _calls(self) -> tuple[list[MemoryEstimate], list[MemoryEstimate]]:
        return self.answers.question.memories_of_calls(self.answers.devices)

    @functools.cached_property
    def memory_of_calls(self) -> tuple[float, float, float, float]:
        """Megabytes of the largest call's tensors, of what lives throughout, of what the calls reserve, and of the
        context."""
        (prompt,), (step,) = self._calls
        lasting = throughout_mb(self.answers.question.graph) + step.parts_mb.get("workspace", 0.0)
        reserved = max(prompt.reserved_mb, step.reserved_mb)
        return max(prompt.allocated_mb, step.allocated_mb), lasting, reserved, step.context_mb

    def memory(self, fitted: GenerationLaw) -> MemoryEstimate:
        """Simulated memory under a law."""
        return self.under(fitted).question.memories_from(self.answers.devices, *self._calls)[0]

    def predicted(self, fitted: GenerationLaw, probed: bool = True) -> dict[str, tuple[float, float, float]]:
        """Every quantity with the ends of its interval."""
        answers, device = self.under(fitted, probed), self.answers.devices[0]
        out: dict[str, tuple[float, float, float]] = {}
        for target in ("latency_ms", "energy_j", "device_ms"):
            value, ends = float(getattr(answers.times, target)[0, 0]), answers.spread(target)[0, 0]
            out[target] = value, value * float(ends[0]), value * float(ends[1])
        first, ends = float(answers.first_token_ms[0, 0]), answers.first_token_spread()[0, 0]
        out["first_token_ms"] = first, first * float(ends[0]), first * float(ends[1])
        whole, (low, high) = out["latency_ms"][0], answers.token_spread()[0, 0].tolist()
        more = answers.question.loop.tokens - 1
        each = (whole - first) / more if more else np.nan
        out["token_ms"] = each, each * low, each * high
        mode = answers.question.workload.mode
        memory = with_interval(self.memory(fitted), answers.predictor, mode)
        allocated = memory.allocated_mb
        out["memory_allocated_mb"] = allocated, allocated * memory.spread[0], allocated * memory.spread[1]
        out["memory_mb"] = memory.needed_mb, *needed_interval(memory, device, answers.predictor, mode)
        return out


def measured(store: Store, progress: Progress | None = None) -> list[Generated]:
    """Every whole generation of the store that our protocol measured, with the answers for its calls."""
    rows = store.read("models")
    rows = rows[rows["mode"].eq("generate") & rows["status"].eq("ok") & rows["protocol"].str.startswith("forerun/")]
    if rows.empty:
        raise ForerunError("the store has no whole generations: forerun sweep sweeps/h200_generate.yaml")
    predictor = load_predictor("default")
    lines = rows.to_dict("records")
    out = []
    for row in progress(lines, len(lines)) if progress else lines:
        device = load_device(row["device"])
        chosen = predictor.with_settings(host_slowness=None if device.traits.is_host else _slowness(predictor, row))
        try:
            question = generation(workload_of(json.loads(row["case"])), NOTHING)
        except ForerunError:  # an architecture that cannot be captured
            continue
        out.append(Generated(row, question.ask(chosen, [device]), question.ask(predictor, [device])))
    return out


def _slowness(predictor: Predictor, row: dict[str, Any]) -> float | None:
    """How slow the host was around the row, as its probes say."""
    found = launch_us(row)
    return None if np.isnan(found) else predictor.slowness_of_launch(found)


def launch_us(row: dict[str, Any]) -> float:
    """Microseconds of a tiny launch, by the probes before and after a measured row; NaN where none was timed."""
    extra = json.loads(row["extra"] or "{}")
    probes = [extra.get(name) or {} for name in ("host_probe_before", "host_probe_after")]
    launches = [np.log(probe["launch_us"]) for probe in probes if probe.get("launch_us")]
    return float(np.exp(np.mean(launches))) if launches else np.nan


def fitted(cases: Sequence[Generated]) -> GenerationLaw:
    """The law of these rows, without intervals."""
    parts = sorted({case.part for case in cases})
    law = GenerationLaw(
        {part: _host([case for case in cases if case.part == part]) for part in parts},
        _device([case for case in cases if np.isfinite(case.value("device_ms"))]),
    )
    on_gpu = [case for case in cases if np.isfinite(case.value("memory_allocated_mb"))]
    law = replace(law, held=_held(on_gpu))
    law = replace(law, reserved=_reserved(on_gpu, law), waiting=_waiting(cases, law))
    return replace(law, process_mb=_process(cases, law))


def with_intervals(law: GenerationLaw, scored: pd.DataFrame) -> GenerationLaw:
    """The law with the powers of intervals that hold as many held-out rows as they promise."""
    spread: dict[str, dict[str, float]] = {}
    for (part, target), own in scored.groupby(["part", "target"]):
        spread.setdefault(str(part), {})[str(target)] = float(np.quantile(own["power"].dropna(), _HELD))
    return replace(law, spread=spread)


def held_out(cases: Sequence[Generated]) -> pd.DataFrame:
    """A line for each row and quantity, predicted without the row's family and its relatives; `probed` knows the host.
    `power` is that of the single calls' interval that just holds the row, of a host that was not probed."""
    group = pd.Series(_groups([str(case.row["family"]) for case in cases]))
    laws = {name: fitted([c for c, own in zip(cases, group, strict=True) if own != name]) for name in group.unique()}
    sums = [case.predicted(NOTHING) for case in cases]
    lines = []
    for case, name, plain in zip(cases, group, sums, strict=True):
        probed = case.predicted(laws[name])
        for target, (value, low, high) in case.predicted(laws[name], probed=False).items():
            real = case.value(target)
            if not np.isfinite(real) or not np.isfinite(value):
                continue
            off, ends = np.log(real / value), np.log([low / value, high / value])
            lines.append({
                "target": target, "group": name, "part": case.part, "measured": real, "law": value,
                "plain": plain[target][0], "low": low, "high": high, "error": abs(value / real - 1),
                "probed": abs(probed[target][0] / real - 1),
                "power": off / ends[1] if off > 0 else off / ends[0] if ends[0] else np.nan,
                "case_key": case.row["case_key"], **_kind(case),
            })  # fmt: skip
    out = pd.DataFrame(lines)
    out["one_ratio"] = np.nan
    for (target, part, name), own in out.groupby(["target", "part", "group"]):
        rest = out[out["target"].eq(target) & out["part"].eq(part) & out["group"].ne(name)]
        ratio = np.median(rest["measured"] / rest["plain"]) if len(rest) else np.nan
        out.loc[own.index, "one_ratio"] = (own["plain"] * ratio / own["measured"] - 1).abs()
    return out.assign(plain=(out["plain"] / out["measured"] - 1).abs())


def _groups(families: Sequence[str]) -> list[str]:
    """The group of each family: that of its relatives where it has any (`forerun evaluate --groups`), else itself."""
    groups = relatives.groups().to_dict("records")
    known = {family: row["group"] for row in groups for family in row["families"].split(", ")}
    return [str(known.get(family, family)) for family in families]


def section(store: Store, progress: Progress | None = None) -> Section:
    """The table of `forerun evaluate --generations`."""
    cases = measured(store, progress)
    return Section.titled("generations", "Whole generations, families held out", table(held_out(cases)))


def table(lines: pd.DataFrame) -> pd.DataFrame:
    """The errors by quantity and device, then those of the time by kind of generation."""
    lines = lines.assign(inside=_inside(lines))
    out = []
    for part, on_part in lines.groupby("part", sort=False):
        for target in TARGETS:
            if len(own := on_part[on_part["target"] == target]):
                out.append(_line(f"{target}, {part}", own))
        whole = on_part[on_part["target"] == "latency_ms"]
        for column in ("decoding", "prompt", "cache", "reads"):
            for name, own in whole.groupby(column):
                if whole[column].nunique() > 1:
                    out.append(_line(f"latency_ms, {part}, {column} {name}", own))
    return pd.DataFrame(out)


def _kind(case: Generated) -> dict[str, str]:
    loop = case.answers.question.loop
    return {
        "decoding": loop.decoding, "prompt": "padded" if loop.padded else "full",
        "cache": "static" if loop.static else "dynamic", "reads": "encoder" if loop.encodes else "decoder alone",
    }  # fmt: skip


def _line(name: str, own: pd.DataFrame) -> dict[str, Any]:
    again = own.groupby("case_key")["measured"]
    spread = (again.max() / again.min() - 1)[again.size() > 1]
    return {
        "what": name, "n": len(own), "mape": own["error"].mean(), "host probed": own["probed"].mean(),
        "one ratio": own["one_ratio"].mean(),
        "without the loop": own["plain"].mean(), "interval_coverage": own["inside"].mean(),
        "repeats differ by": spread.mean() if len(spread) else np.nan,
    }  # fmt: skip


def _inside(lines: pd.DataFrame) -> pd.Series:
    """Whether a row lies in the interval whose power was fitted to the other groups."""
    inside = lines["measured"].between(lines["low"], lines["high"])
    for (target, part, name), own in lines.groupby(["target", "part", "group"]):
        rest = lines[lines["target"].eq(target) & lines["part"].eq(part) & lines["group"].ne(name)]["power"].dropna()
        if len(rest):
            inside[own.index] = own["power"] <= np.quantile(rest, _HELD)
    return inside


def _host(cases: Sequence[Generated]) -> dict[str, float]:
    """The costs of the host with the least relative error of whole times and of times to the first token."""
    counts, left, whole = [], [], []
    for case in cases:
        answers, loop = case.under(NOTHING), case.answers.question.loop
        slow = 1.0 if answers.devices[0].traits.is_host else answers.predictor.assumed_slowness
        for target, plain, own in (
            ("latency_ms", answers.times.latency_ms, loop), ("first_token_ms", answers.first_token_ms, _first(loop)),
        ):  # fmt: skip
            counts.append(slow * own.counts() / 1e3)
            left.append(case.value(target) - float(plain[0, 0]))
            whole.append(case.value(target))
    return _costs(np.array(counts), np.array(left), np.array(whole))


def _first(loop: Loop) -> Loop:
    return replace(loop, tokens=1)


def _device(cases: Sequence[Generated]) -> dict[str, float]:
    """The costs of the loop's small kernels, from what device times exceed those of the calls and of moved bytes."""
    if not cases:
        return {}
    real = np.array([case.value("device_ms") for case in cases])
    plain = np.array([float(case.under(NOTHING).times.device_ms[0, 0]) for case in cases])
    return _costs(np.array([case.answers.question.loop.counts() / 1e3 for case in cases]), real - plain, real)


def _costs(counts: np.ndarray, left: np.ndarray, whole: np.ndarray) -> dict[str, float]:
    """The non-negative cost of each count with the least error of `left`, relative to the whole that it is part of."""
    with needed("fitting the law of generations", "evaluate"):
        from scipy.optimize import nnls

    weight = 1 / whole
    for _ in range(20):  # absolute errors by their squares, weighted anew
        found, _ = nnls(counts * weight[:, None], left * weight)
        off = np.abs(counts @ found - left) / whole
        weight = 1 / whole / np.sqrt(np.maximum(off, 0.02))
    return dict(zip(COUNTED, found.tolist(), strict=True))


def _held(cases: Sequence[Generated]) -> dict[str, float]:
    """Bytes of a logit while a token is chosen, by decoding: those with the least error of memory of tensors."""

    def error(own: Sequence[Generated], each: float) -> float:
        law = replace(NOTHING, held=dict.fromkeys(DECODINGS, each))
        found = [law.allocated_mb(case.answers.question.loop, *case.memory_of_calls[:2]) for case in own]
        return _mean_error(found, own, "memory_allocated_mb")

    out = {}
    for decoding in DECODINGS:
        own = [case for case in cases if case.answers.question.loop.decoding == decoding]
        if own:
            out[decoding] = min(map(float, range(0, 81, 2)), key=functools.partial(error, own))
    return out


def _reserved(cases: Sequence[Generated], law: GenerationLaw) -> float:
    """How much more the allocator keeps, as a share of the cache: that with the least error of memory needed."""

    def error(share: float) -> float:
        found = []
        for case in cases:
            loop, (calls, throughout, reserved, context) = case.answers.question.loop, case.memory_of_calls
            allocated = law.allocated_mb(loop, calls, throughout)
            found.append(replace(law, reserved=share).reserved_mb(loop, reserved, allocated) + context)
        return _mean_error(found, cases, "memory_mb")

    return min([n / 20 for n in range(0, 61)], key=error) if cases else 0.0


def _process(cases: Sequence[Generated], law: GenerationLaw) -> dict[str, float]:
    """What the loop's own code takes a process whose memory is the device's: the median of what measurements exceed."""
    found: dict[str, list[float]] = {}
    for case in cases:
        if case.answers.devices[0].traits.is_host and np.isfinite(case.value("memory_mb")):
            found.setdefault(case.part, []).append(case.value("memory_mb") - case.memory(law).needed_mb)
    return {part: max(0.0, float(np.median(left))) for part, left in found.items()}


def _waiting(cases: Sequence[Generated], law: GenerationLaw) -> float:
    """The power of a device while the host does the loop's work, as a share of its waiting power."""
    known = [case for case in cases if np.isfinite(case.value("energy_j"))]

    def error(share: float) -> float:
        found = [float(case.under(replace(law, waiting=share)).times.energy_j[0, 0]) for case in known]
        return _mean_error(found, known, "energy_j")

    return min([n / 20 for n in range(0, 61)], key=error) if known else 1.0


def _mean_error(found: Sequence[float], cases: Sequence[Generated], target: str) -> float:
    return float(np.mean([abs(one / case.value(target) - 1) for one, case in zip(found, cases, strict=True)]))
