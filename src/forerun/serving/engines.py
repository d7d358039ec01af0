"""A model in an engine on some layout of a device: its iteration model, and what physics allows at best."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from forerun._util.readable import pretty
from forerun.device import Device
from forerun.device.cloud import Instance
from forerun.device.links import link
from forerun.errors import ForerunError
from forerun.predictors.laws.collectives import collective
from forerun.serving.engine_model import EngineModel, engine_model
from forerun.serving.metrics import Limits
from forerun.serving.pipeline import Pipelined
from forerun.workload import PUBLISHED

#: Numbers of devices that tensor parallelism is tried with.
TENSOR_PARALLEL = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Replica:
    """One replica of a model in an engine."""

    model: EngineModel | Pipelined
    one_stage: EngineModel  # the same without pipeline stages
    device: Device
    tp: int
    ep: int
    pp: int

    def with_budgets(self, max_tokens: int | None, max_sequences: int | None) -> Replica:
        """The same with other budgets of an iteration."""
        budgets = {"max_tokens": max_tokens, "max_sequences": max_sequences}
        given = {name: value for name, value in budgets.items() if value is not None}
        return replace(self, model=replace(self.model, **given)) if given else self  # type: ignore[arg-type]

    def transfer_s(self, tokens: int, count: int, instance: Instance | None = None) -> float:
        """Seconds to send the cache of a prompt to another replica, each device its own part, among `count` devices."""
        size = tokens * self.cache_bytes
        return collective("send_recv", size, self.device, count, instance=instance).ms / 1e3

    @property
    def dtype(self) -> str:
        return self.one_stage.dtype

    @property
    def has_experts(self) -> bool:
        """Whether a token meets only some of the weights."""
        return self.one_stage.active_parameters < self.one_stage.parameters

    @property
    def devices(self) -> int:
        return self.tp * self.pp

    @property
    def where(self) -> str:
        """'4 x h100-sxm'."""
        return f"{self.devices} x {self.device.id}" if self.devices > 1 else self.device.id

    @property
    def idle_w(self) -> float:
        """Watts of a device between iterations."""
        waiting = self.one_stage.watts["waiting_w"]
        return self.device.idle_w or (waiting if waiting == waiting else 0.0)

    @property
    def cache_bytes(self) -> float:
        """Of one token in the cache of one device."""
        return float(sum(one.cache_bytes for one in self.one_stage.kinds)) / self.pp

    @property
    def weights_bytes(self) -> float:
        """On one device."""
        return self.one_stage.weights_bytes / self.pp

    @property
    def least_itl_ms(self) -> float | None:
        """The weights that a token meets, read once: no gap between tokens is shorter."""
        if self.device.bandwidth_gbs is None:
            return None
        met = self.one_stage.weights_bytes * self.one_stage.active_parameters / max(self.one_stage.parameters, 1)
        return met / self.device.bandwidth_gbs / 1e6

    def least_ttft_ms(self, tokens: float) -> float | None:
        """The matmuls of a prompt at the peak of the devices: no first token comes earlier."""
        # An engine that stores 8 or 4 bits may compute in the fastest of its dtypes.
        own = () if self.dtype == PUBLISHED else (self.dtype,)
        peaks = [self.device.peak(dtype) for dtype in {*own, "bf16", "fp16", *_FASTER.get(self.dtype, ())}]
        known = [peak for peak in peaks if peak]
        return 2 * self.one_stage.active_parameters * tokens / (max(known) * 1e9 * self.tp) if known else None


_FASTER = {"int4": ("int8", "fp8", "fp4"), PUBLISHED: ("int8", "fp8", "fp4"), "fp8": ("int8",), "int8": ("fp8",)}


@functools.lru_cache(maxsize=512)
def replica(
    model: str, device: Device, engine: str, dtype: str | None, tp: int = 1, ep: int = 1, pp: int = 1
) -> Replica:  # fmt: skip
    """A model by its name; the same question is asked many times in a search."""
    return replica_of(model, device, engine, dtype, tp, ep, pp)


def replica_of(
    model: Any, device: Device, engine: str, dtype: str | None, tp: int = 1, ep: int = 1, pp: int = 1
) -> Replica:  # fmt: skip
    """A replica of a model on `tp x pp` devices; an error in one sentence where the devices are not linked."""
    if tp * pp > 1:
        link(device, tp * pp)
    made = _one_stage(model, device, engine, dtype, tp, ep)
    staged: EngineModel | Pipelined = made
    if pp > 1:
        room = _room_bytes(model, made, device, engine, dtype, tp)
        cache = float(sum(one.cache_bytes for one in made.kinds))
        tokens = max(0, int((room - made.weights_bytes / pp) / (cache / pp)))
        # One token's hidden state; a few kilobytes, whatever the model. The next stage may be in another machine.
        send = collective("send_recv", 16384, device, tp * pp).ms
        staged = Pipelined.of(made, pp, tokens, send, made.devices * made.watts["waiting_w"])
    return Replica(staged, made, device, tp, ep, pp)


def _one_stage(model: Any, device: Device, engine: str, dtype: str | None, tp: int, ep: int) -> EngineModel:
    if isinstance(model, str):
        return _named(model, device, engine, dtype, tp, ep)
    return engine_model(model, device, engine, dtype=dtype, tp=tp, ep=ep)


@functools.lru_cache(maxsize=256)
def _named(model: str, device: Device, engine: str, dtype: str | None, tp: int, ep: int) -> EngineModel:
    return engine_model(model, device, engine, dtype=dtype, tp=tp, ep=ep)


def _room_bytes(model: Any, made: EngineModel, device: Device, engine: str, dtype: str | None, tp: int) -> float:
    """Bytes of one device for weights and cache, from the fewest devices in one stage that have some left."""
    while made.kv_tokens == 0 and tp < TENSOR_PARALLEL[-1] * 4:
        tp *= 2
        try:
            made = _one_stage(model, device, engine, dtype, tp, 1)
        except ForerunError:
            break
    cache = float(sum(one.cache_bytes for one in made.kinds))
    return made.weights_bytes + made.kv_tokens * cache if made.kv_tokens else 0.0


def smallest(
    model: Any, device: Device, engine: str, dtype: str | None, tokens: int, most: int | None
) -> tuple[Replica, list[str]]:
    """The replica on the fewest devices whose cache holds a request of so many tokens, and why fewer are not enough."""
    reasons: list[str] = []
    for tp in TENSOR_PARALLEL:
        if most is not None and tp > most:
            break
        try:
            found = (replica if isinstance(model, str) else replica_of)(model, device, engine, dtype, tp)
        except ForerunError as error:
            if tp == 1:
                raise
            reasons.insert(0, str(error))
            continue
        if found.model.kv_tokens >= tokens:
            return found, reasons
        reasons.append(no_room(found, tokens))
    raise ForerunError(reasons[-1] if reasons else f"no layout of {device.id} holds the model")


def no_room(found: Replica, tokens: int) -> str:
    """Why a replica does not hold a request."""
    devices = found.where
    weights = pretty(found.weights_bytes / 2**30)
    held = "the dtype of its checkpoint" if found.dtype == PUBLISHED else found.dtype
    if found.model.kv_tokens == 0:
        return (
            f"{found.model.name} in {held} does not fit {devices}: {weights} GB of weights on each device leave "
            "no room for a KV cache"
        )
    return (
        f"{devices} leave room for {found.model.kv_tokens:,} tokens of KV cache beside {found.model.name} in "
        f"{held}, and one request has {tokens:,}"
    )


def check_limits(found: Replica, limits: Limits, prompt: float) -> None:
    """Refuses limits that no software meets on these devices."""
    for problem in impossible(found, limits, prompt):
        raise ForerunError(problem)


def impossible(found: Replica, limits: Limits, prompt: float) -> Iterator[str]:
    """Limits below what physics allows, each with the bound."""
    bounds = (
        ("max_itl", limits.itl_ms, found.least_itl_ms, "reading the weights once takes"),
        ("max_ttft", limits.ttft_ms, found.least_ttft_ms(prompt), f"{prompt:,.0f} prompt tokens at the peak take"),
    )
    for name, limit, bound, words in bounds:
        if limit is not None and bound is not None and limit < bound:
            yield (
                f"{name} of {pretty(limit)} ms is below the bound of physics for {found.model.name} in {found.dtype} "
                f"on {found.where}: {words} {pretty(bound)} ms"
            )
