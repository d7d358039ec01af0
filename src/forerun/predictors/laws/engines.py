"""Serving engines: how fast their operators run against our own predictions, and what an iteration costs beside them.

    time of an operator  = our prediction x exp(weights . features), by engine, kind and dtype
    time of an iteration = operators + launches x kernel_us + iteration_us + sequences x sequence_us

Features are dimensionless, so that a card needs no rows of its own: how long the operator takes (in microseconds, which
are launches), how far it is bound by arithmetic or by memory, how far from its roofline it is predicted, and how many
tokens it works on. Weights are held to those of all engines together, and these to none. Constants are fitted by
`benchmarks/fit_engines.py` (evaluate/engine_operators.py, evaluate/serving.py).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from forerun.device import Device
from forerun.graph.features import DIMS
from forerun.graph.profile import CLASSES, UNITS, Profile
from forerun.predictors.laws.features import OpTable
from forerun.runtimes.registry import ran_by

FILE = Path(__file__).parents[1] / "shipped" / "engines.json"
#: What an operator of an engine is.
KINDS = ("gemm", "moe", "context", "generation")
#: Where no errors are known.
_UNKNOWN = (0.5, 2.0)
_CLASSES = {"matmul": "gemm", "expert_matmul": "moe", "attention": "context"}
#: The parts of an iteration that kinds of operator are, and those of them that have a factor beyond the roofline.
_PARTS = {"gemm": "gemm", "moe": "moe", "generation": "attention", "context": "prefill_attention"}
_SPLIT = ("gemm", "moe", "attention")
#: Knots of the features, in doublings: microseconds, arithmetic over memory, rows of each problem (tokens of a matmul,
#: of an expert, queries), problems (experts, heads of all sequences), query heads that share a head of keys.
_KNOTS = (
    (1.0, 3.0, 5.0, 7.0, 9.0, 11.0), (-6.0, -3.0, -1.0, 1.0, 3.0), (0.0, 3.0, 6.0, 9.0, 12.0),
    (0.0, 3.0, 6.0, 9.0, 12.0), (0.0, 2.0, 4.0),
)  # fmt: skip


def features(predicted_ms: Any, compute_ms: Any, memory_ms: Any, rows: Any, count: Any, shared: Any) -> np.ndarray:
    """[..., features] of operators."""
    predicted, compute, memory = (np.maximum(one, 1e-9) for one in (predicted_ms, compute_ms, memory_ms))
    scales = (predicted * 1e3, compute / memory, *(np.maximum(one, 1.0) for one in (rows, count, shared)))
    hats = [_hats(np.log2(scale), knots) for scale, knots in zip(scales, _KNOTS, strict=True)]
    apart = np.clip(np.log(predicted / np.maximum(compute, memory)), 0.0, 4.0)
    return np.concatenate([np.ones((*apart.shape, 1)), *hats, apart[..., None]], axis=-1)


def _hats(values: np.ndarray, knots: tuple[float, ...]) -> np.ndarray:
    """[..., knots] weights of a value between its two neighbours; those at the ends go on beyond."""
    places = np.interp(values, knots, np.arange(len(knots)))
    return np.maximum(1 - np.abs(places[..., None] - np.arange(len(knots))), 0.0)


def fit_weights(x: np.ndarray, log_ratio: np.ndarray, weight: np.ndarray, hold: float) -> np.ndarray:
    """Weights of one kind of operator: least squares, held to zero by `hold` observations."""
    scaled = x * weight[:, None]
    return np.linalg.solve(scaled.T @ x + hold * np.eye(x.shape[1]), scaled.T @ log_ratio)


@dataclass(frozen=True)
class Overhead:
    """What an iteration of an engine costs beside its operators."""

    iteration_us: float = 500.0  # scheduling, sampling, reading back tokens
    sequence_us: float = 5.0  # of each sequence
    kernel_us: float = 0.0  # between two kernels of a CUDA graph
    prefill_us: float = 0.0  # once more where prompts are among what is computed, which is no replayed graph
    request_ms: float = 20.0  # of a request outside iterations

    def ms(self, sequences: Any, prefill: Any, launches: Any) -> Any:
        mixed = np.asarray(prefill) > 0
        us = self.iteration_us + self.sequence_us * sequences + self.kernel_us * launches + self.prefill_us * mixed
        return us / 1e3


@dataclass(frozen=True)
class EngineLaw:
    """All fitted constants."""

    weights: Mapping[str, np.ndarray]  # "kind/dtype" of all engines, "engine/kind/dtype" beside them
    overheads: Mapping[str, Overhead]
    #: By engine, factors on the parts of an iteration that runs of whole models show.
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    #: Factors on the energy of an iteration, by what causes it.
    energy: Mapping[str, float] = field(default_factory=dict)
    #: Cards that runs of whole models were published of.
    cards: tuple[str, ...] = ()
    #: Factors of 90 % intervals: of an iteration's time, where the card was seen and where not, of TTFT, of energy.
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def factor(self, engine: str, kind: str, dtype: str, x: np.ndarray) -> np.ndarray:
        """Times longer than we predict that an engine's operators of these features take."""
        known = [self.weights[key] for key in _keys(engine, kind, dtype, self.weights) if key in self.weights]
        return np.exp(np.clip(sum((x @ one for one in known), np.zeros(x.shape[:-1])), -2.0, 2.0))

    def overhead(self, name: str) -> Overhead:
        """Of an engine by its `law_name`; those of all engines where it has no runs."""
        return self.overheads.get(name, self.overheads.get("", Overhead()))

    def interval(self, seen: bool) -> tuple[float, float]:
        """Factors of the 90 % interval of a time, on cards that runs were published of and on others."""
        return self.intervals.get("seen card" if seen else "unseen card", _UNKNOWN)

    @property
    def ttft_interval(self) -> tuple[float, float]:
        """Factors of the 90 % interval of a time to the first token."""
        return self.intervals.get("ttft", _UNKNOWN)

    @property
    def energy_interval(self) -> tuple[float, float]:
        """Factors of the 90 % interval of an energy."""
        return self.intervals.get("energy", _UNKNOWN)

    def factors(self, name: str) -> Mapping[str, float]:
        """Factors on the parts of an iteration, likewise."""
        return self.parts.get(name, self.parts.get("", {}))

    def to_json(self) -> dict[str, Any]:
        return {
            "weights": {key: one.tolist() for key, one in sorted(self.weights.items())},
            "overheads": {key: vars(one) for key, one in sorted(self.overheads.items())},
            "parts": {key: dict(one) for key, one in sorted(self.parts.items())},
            "energy": dict(self.energy),
            "cards": list(self.cards),
            "intervals": {key: list(one) for key, one in sorted(self.intervals.items())},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> EngineLaw:
        return cls(
            {key: np.array(one) for key, one in content["weights"].items()},
            {key: Overhead(**one) for key, one in content["overheads"].items()},
            content["parts"], content["energy"], tuple(content["cards"]),
            {key: (float(low), float(high)) for key, (low, high) in content["intervals"].items()},
        )  # fmt: skip


def in_engine(seconds: np.ndarray, profile: Profile, table: OpTable, *, in_graph: bool = True) -> np.ndarray:
    """Times of ops, [devices, ops, batch sizes], as the engine that the graph was made for runs them, and `in_graph`
    one after another as iterations of whole models show; the times themselves where it was made for no engine. Never
    below the roofline."""
    run = ran_by(profile.graph)
    if not run.engine:
        return seconds
    law, out = shipped(), seconds.copy()
    compute, memory = table.compute_s.reshape(seconds.shape), table.memory_s.reshape(seconds.shape)
    slowed, least = compute * table.power_slowdown.reshape(seconds.shape), np.maximum(compute, memory)
    sizes = [profile.sizes[..., DIMS.index(name)] for name in ("rows", "count", "window")]
    parts = law.factors(run.name)
    for op, (kind, dtype) in enumerate(_named(profile)):
        if kind:
            numbers = (np.broadcast_to(size[op], seconds[:, op].shape) for size in sizes)
            x = features(seconds[:, op] * 1e3, slowed[:, op] * 1e3, memory[:, op] * 1e3, *numbers)
            out[:, op] *= law.factor(run.name, kind, dtype, x)
        if in_graph:
            name = _PARTS.get(kind, "other")
            beyond = np.maximum(out[:, op] - least[:, op], 0.0)
            bound, excess = (parts.get(one, 1.0) for one in (name, f"{name}_excess" if name in _SPLIT else name))
            out[:, op] = np.minimum(out[:, op], least[:, op]) * bound + beyond * excess
    return np.maximum(out, least)


def latency_ms(profile: Profile, devices: Sequence[Device], engine: str, device_ms: np.ndarray) -> np.ndarray:
    """One call as an iteration of an engine, over [batch sizes, devices]: a decode step, or prompts read at once."""
    law, launched = shipped(), float(profile.kernels @ profile.repeat)
    prompt = any(op.kind == "attention" and op.attrs.get("causal") for op in profile.graph.ops)
    beside = [law.overhead(law_name(engine, one)).ms(profile.batches, float(prompt), launched) for one in devices]
    return np.asarray(device_ms + np.stack(beside, axis=-1))


def _named(profile: Profile) -> list[tuple[str, str]]:
    """Kind and dtype of every op; kind "" for what no engine's table has."""
    first = profile.sizes[:, 0, DIMS.index("rows")]
    found = []
    for c, u, rows in zip(profile.classes, profile.units, first, strict=True):
        kind = _CLASSES.get(CLASSES[c], "")
        found.append(("generation" if kind == "context" and rows <= 1 else kind, UNITS[u]))
    return found


def law_name(engine: str, device: Device) -> str:
    """Under what the constants of an engine on a vendor's cards are kept: its kernels are others on each."""
    return engine if device.is_nvidia else f"{engine} on {device.maker or 'others'}"


def _keys(engine: str, kind: str, dtype: str, known: Mapping[str, Any]) -> tuple[str, str]:
    """Under what weights are kept; a dtype that was not measured takes those of half precision."""
    kept = dtype if f"{kind}/{dtype}" in known else "bf16"
    return f"{kind}/{kept}", f"{engine}/{kind}/{kept}"


@functools.cache
def shipped() -> EngineLaw:
    return EngineLaw.from_json(json.loads(FILE.read_text(encoding="utf-8")))
