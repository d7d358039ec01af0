"""Chooses cases to measure: those that tell most about a device in the time that there is.

Greedy: of the candidates that fit into the time left, the next is the one that lowers the mean variance of all
candidates' predictions most for its time. What a case would say depends on the parts that it is made of and not on
what is measured, so all of this is known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from forerun._util.documents import read_yaml
from forerun.api.questions import problem, profiled
from forerun.device import Device
from forerun.errors import ForerunError
from forerun.measure.core import specs
from forerun.predictors.base import Predictor
from forerun.predictors.laws import adaptation as law
from forerun.predictors.laws.adaptation import Calls
from forerun.training.adapting.fitting import prior_for
from forerun.workload import Workload

CANDIDATES = Path(__file__).with_name("candidates.yaml")
BATCHES = (1, 8, 32)
#: Seconds to build a model, and calls that a measurement takes altogether (warm-up, latency, energy, kernels).
_BUILD_S, _CALLS, _LEAST_S = 6.0, 120, 3.0


@dataclass(frozen=True)
class Case:
    """A candidate: a workload, how a sweep says it, and about how long measuring it takes."""

    workload: Workload
    entry: dict[str, Any]
    latency_ms: float

    @property
    def seconds(self) -> float:
        return max(_LEAST_S, _CALLS * self.latency_ms / 1e3)

    def to_dict(self) -> dict[str, Any]:
        w = self.workload
        return {"model": w.model, "mode": w.mode, "batch": w.batch, "dtype": w.dtype, "seconds": round(self.seconds, 1)}


@dataclass(frozen=True)
class Plan:
    cases: tuple[Case, ...]  # the smallest first
    seconds: float
    before: float  # the mean deviation of the candidates' times, in logarithms
    after: float


def plan(
    device: Device, predictor: Predictor, count: int, budget_s: float,
    progress: Callable[..., Iterable[Any]] | None = None,
) -> Plan:  # fmt: skip
    """The cases to measure on a device."""
    cases, calls = _candidates(device, predictor, progress)
    if not cases:
        raise ForerunError(f"no candidate runs on {device.id}: its spec sheet lacks a peak or the memory")
    prior = prior_for(device)
    nothing = np.zeros(len(law.PARTS))
    slopes, shares = calls.slopes(nothing), law.shares_of(calls)
    covariance = slopes @ prior.covariance() @ slopes.T + law.likeness(shares, shares, prior)
    before = float(np.sqrt(np.diag(covariance).mean() + prior.noise**2))
    chosen: list[int] = []
    spent = 0.0
    while len(chosen) < count:
        built = {cases[place].workload.model for place in chosen}
        cost = np.array([case.seconds + _BUILD_S * (case.workload.model not in built) for case in cases])
        own = np.diag(covariance) + prior.noise**2
        gain = (covariance**2).sum(axis=0) / own / len(cases) / np.sqrt(cost)
        gain[chosen] = -1.0
        gain[spent + cost > budget_s] = -1.0
        if len(built) == 1 and len(chosen) == count - 1:  # one model alone cannot be told from the device
            gain[[case.workload.model in built for case in cases]] = -1.0
        best = int(np.argmax(gain))
        if gain[best] <= 0:
            break
        spent += float(cost[best])
        chosen.append(best)
        covariance = covariance - np.outer(covariance[:, best], covariance[best]) / own[best]
    if len({cases[place].workload.model for place in chosen}) < 2:
        raise ForerunError(f"{budget_s:.0f} s are too short for two models on {device.id}: give --time-budget more")
    after = float(np.sqrt(np.maximum(np.diag(covariance), 0).mean() + prior.noise**2))
    ordered = sorted((cases[place] for place in chosen), key=lambda case: case.latency_ms)
    return Plan(tuple(ordered), spent, before, after)


def _candidates(
    device: Device, predictor: Predictor, progress: Callable[..., Iterable[Any]] | None
) -> tuple[list[Case], Calls]:
    entries: list[dict[str, Any]] = read_yaml(CANDIDATES)
    dtypes = ("fp32",) if device.traits.is_host or not device.supports("fp16") else ("fp32", "fp16")
    cases: list[Case] = []
    calls: list[Calls] = []
    for entry in progress(entries, len(entries)) if progress else entries:
        for batch in BATCHES:
            for dtype in dtypes:
                workload = Workload(entry["name"], batch=batch, dtype=dtype)
                if problem(workload, device, predictor) is not None:
                    continue
                question = profiled(workload)
                fits = question.fit(device, question.memories([device])[0])
                found = predictor.calls(question.columns, device, workload)
                if found is None or (fits is not None and not fits.fits):
                    continue
                latency = float(predictor.times(question.columns, [device], workload).latency_ms[0, 0])
                cases.append(Case(workload, entry, latency))
                calls.append(found)
    return cases, law.join_calls(calls) if calls else Calls(np.zeros((0, law.HOST)), np.zeros(0), np.zeros((0, 1)))


def sweep_of(device: Device, chosen: Plan) -> dict[str, Any]:
    """The cases as a sweep, a block for each model in the order of its smallest case."""
    blocks: dict[str, dict[str, Any]] = {}
    for case in chosen.cases:
        entry, w = case.entry, case.workload
        block = blocks.setdefault(str(w.model), {**_models(entry), "settings": []})
        block["settings"].append({"mode": w.mode, "batch": w.batch, "dtype": w.dtype})
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in f"adapt-{device.id}")
    about = f"What tells most about {device.id}, in about {chosen.seconds:.0f} s (forerun adapt --plan)."
    spec = {"name": name, "kind": "model", "about": about, "blocks": list(blocks.values())}
    assert len(specs.cases(spec)) == len(chosen.cases)
    return spec


def _models(entry: dict[str, Any]) -> dict[str, Any]:
    if "draw" in entry:
        return {"variants": [{name: entry[name] for name in ("family", "source", "draw")}]}
    return {"families": {entry["family"]: [entry["name"].removeprefix("timm/")]}}


def as_text(spec: dict[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True, default_flow_style=None))


def write(path: Path, spec: dict[str, Any]) -> None:
    """The sweep file, whole or not at all."""
    if path.suffix not in (".yaml", ".yml"):
        raise ForerunError(f"--out of a plan is a .yaml file, not {path.name}")
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(as_text(spec))
        part.replace(path)
    except OSError as error:
        raise ForerunError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
