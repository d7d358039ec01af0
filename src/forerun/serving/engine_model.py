"""How long one iteration of a real model takes in a real engine on real devices: the IterationModel of `iteration.py`.

The decode step of the model is captured once, laid out over the devices and fused as the engine does. Its ops are
priced by the default predictor at a grid of token counts, attention over grids of sequences and cache lengths; an
iteration of any load is read between the points:

    ops of a token at (decode + prefill) tokens + logits of (decode + finished) + attention over caches and prompts
    + collectives at (decode + prefill) tokens + what the engine adds (predictors/laws/engines.py)
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from forerun.api.questions import dtype_problem
from forerun.device import Device, load_device
from forerun.errors import ForerunError
from forerun.frontends import load_graphs
from forerun.graph.ir import DTYPE_BYTES, Graph
from forerun.graph.kinds import COLLECTIVES
from forerun.graph.layout import Layout
from forerun.graph.profile import Profile, profile
from forerun.graph.shard import shard
from forerun.predictors.default.predictor import DefaultPredictor
from forerun.predictors.laws import collectives, energy
from forerun.predictors.laws import engines as engine_law
from forerun.predictors.laws.memory import available_mb, context_mb
from forerun.predictors.laws.specs import op_roofline_s
from forerun.predictors.registry import load_predictor
from forerun.runtimes.engine import Engine
from forerun.runtimes.registry import as_run, runtime, runtimes
from forerun.serving.curves import Curve, Surface
from forerun.serving.iteration import Load
from forerun.serving.pieces import Attention, attentions, decode_graph, prefill_graph, roles
from forerun.workload import PUBLISHED, Workload

#: Cached tokens of the captured step: primes, which no other size of a model equals; beyond sliding windows where the
#: model takes so many.
LENGTHS = (4099, 2039, 1013, 509)
#: Grids: tokens of an iteration, sequences, tokens in the cache of one, tokens of a prompt.
_TOKENS = np.unique(np.round(2 ** np.arange(0, 14.5, 0.5)).astype(int))
_SEQUENCES = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
_CACHED = np.array([16, 64, 256, 1024, 4096, 16384, 65536])
_PROMPT = np.array([1, 16, 64, 256, 1024, 2048, 4096, 8192, 16384, 32768])
#: A state that is updated token by token in decode is updated for so many at once in a prompt.
_STATE_CHUNK = 64
#: Megabytes that an engine keeps for CUDA graphs and for the buffers of its collectives.
_GRAPHS_MB = 512
#: Bytes of activations of one prompt token, in hidden sizes, that are held at once.
_HELD = 4

#: What an iteration is made of. Of matmuls, experts and attention in decode, the roofline and what comes on top of it,
#: which kernels that follow each other in a graph pay in part.
PARTS = (
    "gemm", "gemm_excess", "moe", "moe_excess", "moe_int4", "moe_int4_excess", "moe_mxfp4", "moe_mxfp4_excess", "other",
    "head", "state", "attention", "attention_excess", "latent", "latent_excess", "prefill_attention", "collectives",
)  # fmt: skip


@dataclass(frozen=True)
class EngineModel:
    """One replica of a model in an engine."""

    name: str
    engine: str
    device: Device
    devices: int
    kv_tokens: int
    block: int
    max_tokens: int
    max_sequences: int
    request_ms: float
    weights_bytes: float  # on one device
    active_parameters: float  # that one token meets, on all devices
    kinds: tuple[Attention, ...]
    launches: float  # of one iteration
    #: Milliseconds of parts that go with tokens, and with sequences whose logits are wanted.
    by_tokens: Mapping[str, Curve]
    head: Curve
    state: Curve
    context: Curve  # beside attention, of one sequence, over its cached tokens
    decode_attention: tuple[Surface, ...]
    decode_least: tuple[Surface, ...]  # by the roofline
    prefill_attention: tuple[Curve, ...]
    #: Joules on one device: by token, logit, cached token read and pair.
    joules: Mapping[str, Curve | float]
    watts: Mapping[str, float]  # of one device while it waits and works, and its limit
    law: engine_law.EngineLaw = field(repr=False)
    parameters: float = 0.0  # of the whole model
    dtype: str = ""  # as tables name it
    factor: float = 1.0  # a draw of what is uncertain

    @property
    def law_name(self) -> str:
        return engine_law.law_name(self.engine, self.device)

    @property
    def unseen(self) -> bool:
        """Whether no engine was measured on this card."""
        return self.device.id not in self.law.cards

    def parts_ms(self, load: Load) -> dict[str, np.ndarray]:
        """Milliseconds of every part of an iteration by our operator predictions, on the engine's kernels."""
        return self._parts_ms(*_columns(load))

    def _parts_ms(self, decode: Any, context: Any, prefill: Any, pairs: Any, finished: Any) -> dict[str, Any]:
        """The same of arrays, or of plain numbers."""
        tokens, each = decode + prefill, context / np.maximum(decode, 1.0)
        out = dict.fromkeys(PARTS, 0.0 * decode)
        out |= {name: curve(tokens) for name, curve in self.by_tokens.items()}
        out["head"] = self.head(decode + finished)
        out["state"] = self.state(decode + prefill / _STATE_CHUNK) + decode * self.context(each)
        for one, over_cache, least, over_prompt in zip(
            self.kinds, self.decode_attention, self.decode_least, self.prefill_attention, strict=True
        ):
            seen = each if one.window is None else np.minimum(each, one.window)
            name, bound = "latent" if one.expanded else "attention", least(decode, seen)
            out[name] = out[name] + bound
            out[f"{name}_excess"] = out[f"{name}_excess"] + np.maximum(over_cache(decode, seen) - bound, 0.0)
            among = pairs if one.window is None else np.minimum(pairs, prefill * one.window)
            out["prefill_attention"] = out["prefill_attention"] + over_prompt(among)
        return out

    def latency_ms(self, load: Load) -> np.ndarray:
        """Wall time of the iteration, scheduler included."""
        return self._times_ms(load)[1]

    def joules_by_cause(self, load: Load) -> dict[str, np.ndarray]:
        """Energy of all devices by what causes it: time, kernels at work, arithmetic and bytes."""
        return self._joules_in(load, *self._times_ms(load))

    def energy_j(self, load: Load) -> np.ndarray:
        """Energy of all devices of the replica, never over their power limit."""
        busy_ms, wall_ms = self._times_ms(load)
        most = self.devices * self.watts["limit_w"] * wall_ms / 1e3
        known = self.law.energy
        by_cause = self._joules_in(load, busy_ms, wall_ms)
        return np.asarray(np.minimum(sum(known.get(name, 1.0) * joules for name, joules in by_cause.items()), most))

    def _times_ms(self, load: Load) -> tuple[np.ndarray, np.ndarray]:
        """Of the kernels, and of the whole iteration."""
        columns: tuple[Any, ...] = _columns(load)
        shape = columns[0].shape
        if columns[0].size == 1:  # a single iteration is read by plain arithmetic, which is much faster
            columns = tuple(column.item() for column in columns)
        decode, _, prefill, _, finished = columns
        known = self.law.factors(self.law_name)
        busy = sum(known.get(name, 1.0) * ms for name, ms in self._parts_ms(*columns).items())
        beside = self.law.overhead(self.law_name).ms(decode + finished, prefill, self.launches)
        return np.reshape(busy * self.factor, shape), np.reshape((busy + beside) * self.factor, shape)

    def _joules_in(self, load: Load, busy_ms: np.ndarray, wall_ms: np.ndarray) -> dict[str, np.ndarray]:
        decode, context, prefill, pairs, finished = _columns(load)
        busy_s, seconds = busy_ms / 1e3, wall_ms / 1e3
        work = (
            self._joules("token", decode + prefill) + self._joules("head", decode + finished)
            + self._joules("context", context) + self._joules("pairs", pairs)
        )  # fmt: skip
        waiting, working = (self.watts[name] for name in ("waiting_w", "working_w"))
        each = {"waiting": waiting * seconds, "working": working * np.minimum(busy_s, seconds), "work": work}
        return {name: self.devices * joules for name, joules in each.items()}

    def drawn(self, rng: np.random.Generator) -> EngineModel:
        """One draw of what is uncertain: all iterations of a model on a card are off by one factor."""
        low, high = self.law.interval(self.device.id in self.law.cards)
        middle, deviation = (np.log(high) + np.log(low)) / 2, (np.log(high) - np.log(low)) / 2 / 1.645
        return replace(self, factor=self.factor * float(np.exp(rng.normal(middle, deviation))))

    def _joules(self, name: str, size: np.ndarray) -> np.ndarray:
        by = self.joules[name]
        return by(size) if isinstance(by, Curve) else by * size


def _columns(load: Load) -> tuple[np.ndarray, ...]:
    fields = (load.decode, load.context, load.prefill, load.pairs, load.finished)
    return tuple(np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in fields)))


def engine_named(name: str) -> Engine:
    """The runtime of an engine."""
    run = runtime(name)
    if not isinstance(run, Engine):
        able = ", ".join(one.name for one in runtimes() if isinstance(one, Engine))
        raise ForerunError(f"{run.name} does not serve requests: choose an engine from {able}")
    return run


def engine_model(
    model: Any, device: str | Device, engine: str = "vllm", *, dtype: str | None = None, tp: int = 1, ep: int = 1,
    law: engine_law.EngineLaw | None = None, **settings: Any,
) -> EngineModel:  # fmt: skip
    """The iteration model of a language model on `tp` devices; `dtype` None is what its checkpoint is published in."""
    chip = load_device(device)
    run = engine_named(engine)
    wanted = PUBLISHED if dtype is None else dtype
    workload = Workload(model, batch=1, dtype=wanted, mode="decode", seq_len=LENGTHS[0], runtime=run.name, **settings)
    if dtype is None and workload.dtype == "bf16" and chip.supports("bf16") is False and chip.supports("fp16"):
        workload = replace(workload, dtype="fp16")  # as engines do where the card has no units for it
    units = dtype_problem(workload, chip) if workload.dtype == "bf16" else None
    for problem in (run.problem(workload), run.device_problem(chip), units):
        if problem is not None:
            raise ForerunError(problem)
    layout = Layout(tp=tp, ep=ep)
    named = isinstance(model, str) and not settings
    step = (_laid_out_by_name if named else _laid_out)(workload, run.name, layout)
    made = _made(step, workload, chip, run, layout)
    return made if law is None else replace(made, law=law, request_ms=law.overhead(made.law_name).request_ms)


@dataclass(frozen=True)
class _Step:
    """The decode step of one device as the engine runs it, and the parameters of the whole model."""

    graph: Graph
    length: int  # of the cache
    parameters: float
    active: float


def _laid_out(workload: Workload, engine: str, layout: Layout) -> _Step:
    whole, length = _captured(workload)
    made = as_run(shard(whole, layout), engine)
    return _Step(made, length, float(whole.parameters), float(whole.active_parameters))


#: A search asks for the same layouts on every device.
_laid_out_by_name = functools.lru_cache(maxsize=64)(_laid_out)


def _captured(workload: Workload) -> tuple[Graph, int]:
    """The decode step against the longest cache that the model takes, and the length of that."""
    refused: ForerunError | None = None
    for length in LENGTHS:
        try:
            one, scalable = load_graphs(replace(workload, seq_len=length))
        except ForerunError as error:
            refused = refused or error
            continue
        return scalable or one, length
    assert refused is not None
    raise refused


def _made(step: _Step, workload: Workload, device: Device, run: Engine, layout: Layout) -> EngineModel:
    graph, length = step.graph, step.length
    if not any(op.kind == "attention" for op in graph.ops):
        raise ForerunError(f"{graph.name} has no attention over a cache, which engines are answered for")
    predictor = load_predictor("default")
    assert isinstance(predictor, DefaultPredictor)
    price = _Prices(predictor, workload, device)
    law, kinds = engine_law.shipped(), tuple(attentions(graph, length))
    alone = replace(graph, ops=[op for op in graph.ops if op.kind not in COLLECTIVES])
    placed = np.array(roles(alone, length))
    kind = np.array([op.kind for op in alone.ops])
    tokens = profile(alone, workload.dtype, _TOKENS)
    ms = price.ms(tokens) * tokens.repeat[:, None]

    def curve(rows: np.ndarray) -> Curve:
        return Curve(_TOKENS, ms[rows].sum(axis=0))

    token, head, state = (placed == role for role in ("token", "head", "state"))
    least = price.least_ms(tokens) * tokens.repeat[:, None]
    packed = np.array([op.kind == "moe_matmul" and alone.tensors[op.inputs[1]].dtype == "int4" for op in alone.ops])
    mxfp4 = (graph.facts.get("weight_format") or {}).get("method") == "mxfp4"
    gemm, moe = token & (kind == "matmul"), token & (kind == "moe_matmul")
    by_tokens = {"other": curve(token & ~gemm & ~moe)}
    for name, rows in (("gemm", gemm), ("moe", moe & ~packed), ("moe_mxfp4" if mxfp4 else "moe_int4", moe & packed)):
        by_tokens[name] = Curve(_TOKENS, least[rows].sum(axis=0))
        by_tokens[f"{name}_excess"] = Curve(_TOKENS, np.maximum(ms[rows] - least[rows], 0.0).sum(axis=0))
    by_tokens["collectives"] = _collectives(graph, device, run)
    context = ms[placed == "context"].sum(axis=0)[:1] / length
    weights = sum(s.bytes * s.repeat for s in graph.storages if s.role in ("parameter", "buffer"))
    overhead = law.overhead(engine_law.law_name(run.name, device))
    caches = [price.over_caches(graph, one) for one in kinds]
    return EngineModel(
        graph.name, run.name, device, layout.devices, _kv_tokens(graph, kinds, weights, device, run),
        run.block, run.max_tokens, run.max_sequences, overhead.request_ms, float(weights), step.active, kinds,
        float(sum(op.repeat for op in graph.ops)), by_tokens, curve(head), curve(state),
        Curve(np.array([1.0, 2.0]), np.maximum(context * np.array([1.0, 2.0]), 0.0)),
        tuple(over for over, _ in caches), tuple(least for _, least in caches),
        tuple(price.over_prompts(graph, one) for one in kinds),
        price.joules(graph, tokens, token | state, head, kinds), price.watts(), law,
        parameters=step.parameters, dtype=workload.shown_dtype,
    )  # fmt: skip


@dataclass(frozen=True)
class _Prices:
    """Times and energies of ops by the default predictor."""

    predictor: DefaultPredictor
    workload: Workload
    device: Device

    def ms(self, columns: Profile) -> np.ndarray:
        """[ops, batch sizes] of one launch."""
        first, _ = columns.distinct_ops
        each = self.predictor.op_times_by_batch_ms(columns.distinct, self.device, self.workload)
        keys = [row.tobytes() for row in _rows(columns)]
        place = {keys[i]: n for n, i in enumerate(first)}
        return each[[place[key] for key in keys]]

    def least_ms(self, columns: Profile) -> np.ndarray:
        """[ops, batch sizes] of one launch by the roofline."""
        compute, memory, _ = op_roofline_s(columns, [self.device])
        return np.maximum(compute, memory)[0] * 1e3

    def over_caches(self, graph: Graph, one: Attention) -> tuple[Surface, Surface]:
        """Attention in decode, and its roofline."""
        columns = profile(decode_graph(graph, one, _CACHED), self.workload.dtype, _SEQUENCES)
        ms = self.predictor.op_times_by_batch_ms(columns, self.device, self.workload)
        first, second = _SEQUENCES.astype(float), _CACHED.astype(float)
        predicted, least = (Surface(first, second, one.layers * each.T) for each in (ms, self.least_ms(columns)))
        return predicted, least

    def over_prompts(self, graph: Graph, one: Attention) -> Curve:
        columns = profile(prefill_graph(graph, one, _PROMPT), self.workload.dtype, np.array([1]))
        ms = self.predictor.op_times_by_batch_ms(columns, self.device, self.workload)[:, 0]
        return Curve(_PROMPT * (_PROMPT + 1) / 2, ms * one.layers)

    def joules(
        self, graph: Graph, tokens: Profile, token: np.ndarray, head: np.ndarray, kinds: Sequence[Attention]
    ) -> dict[str, Curve | float]:  # fmt: skip
        """What arithmetic and bytes cost."""
        factors = energy.factors_of(self.device, self.predictor.weights.joules)

        def work(columns: Profile) -> np.ndarray:
            terms = energy.energy_terms(columns, [self.device])[:, 0]
            return np.nan_to_num(terms[:, 1:-1] @ factors[1:-1])

        cached = [work(profile(decode_graph(graph, one, [1024]), self.workload.dtype)) * one.layers for one in kinds]
        pairs = [work(profile(prefill_graph(graph, one, [2048]), self.workload.dtype)) * one.layers for one in kinds]
        return {
            "token": Curve(tokens.batches, work(tokens.only(token))),
            "head": Curve(tokens.batches, work(tokens.only(head))),
            "context": float(sum(np.sum(one) for one in cached)) / 1024,
            "pairs": float(sum(np.sum(one) for one in pairs)) / (2048 * 2049 / 2),
        }

    def watts(self) -> dict[str, float]:
        """Of one device while it waits and while its kernels work, and its limit."""
        factors = energy.factors_of(self.device, self.predictor.weights.joules)
        limit = self.device.tdp_w or float("nan")
        return {"waiting_w": limit * factors[0], "working_w": limit * factors[-1], "limit_w": limit}


def _rows(columns: Profile) -> np.ndarray:
    flat = columns.sizes.reshape(len(columns.classes), -1)
    parts = [columns.classes, columns.units, columns.variants, columns.kernels, columns.flops, columns.bytes, flat]
    return np.column_stack(parts) + 0.0


def _collectives(graph: Graph, device: Device, run: Engine) -> Curve:
    """Milliseconds of all collectives by tokens: by the engine's own kernel, or by NCCL where that is faster."""
    total = np.zeros(len(_TOKENS))
    for op in (op for op in graph.ops if op.kind in COLLECTIVES):
        shape = graph.tensors[op.inputs[0]]
        kernels = (collectives.NCCL, run.all_reduce) if op.kind == "all_reduce" else (collectives.NCCL,)
        each = DTYPE_BYTES[shape.dtype] * np.prod(shape.shape) / graph.batch
        grows = 1.0 if shape.per_sample and any(shape.per_sample) else 0.0
        for n, tokens in enumerate(_TOKENS):
            size = each * (tokens if grows else graph.batch)
            many = op.attrs["devices"]
            total[n] += op.repeat * min(_collective_ms(op.kind, float(size), device, many, one) for one in kernels)
    return Curve(_TOKENS, total)


@functools.lru_cache(maxsize=4096)
def _collective_ms(kind: str, size: float, device: Device, count: int, kernel: str) -> float:
    return collectives.collective(kind, size, device, count, kernel).ms


def _kv_tokens(graph: Graph, kinds: Sequence[Attention], weights: float, device: Device, run: Engine) -> int:
    """Tokens that the cache holds on the memory that the engine leaves for it. A window's layers hold no more than the
    window, whatever the length, and are left out."""
    available = available_mb(device)
    if available is None:
        return 0
    hidden = max((graph.tensors[t].shape[-1] for t in graph.ops[-1].inputs[:1]), default=0)
    held = (
        run.max_tokens * hidden * _HELD * 2 + run.max_sequences * 4 * graph.tensors[graph.ops[-1].outputs[0]].shape[-1]
    )
    total = (device.memory_mb or available) * 2**20 * run.memory_share
    room = total - weights - held - (context_mb(device) + _GRAPHS_MB) * 2**20
    each = sum(one.cache_bytes for one in kinds if one.window is None) or sum(one.cache_bytes for one in kinds)
    return max(int(room / each), 0)
