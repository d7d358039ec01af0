"""The time and the memory of a step of pre-training a language model on many devices. All formulas are here.

One device computes `m` microbatches of its replica; t tokens each, in `pp` stages of layers divided by `tp`:

    linear    = (3 + r) x 2 x weights met x t / (tp pp peak efficiency)         r: 1 where activations are recomputed
    attention = (3.5 + r) x 2 x scores x (length / 2) x t / (tp pp peak attention)     causal: half of all pairs
    other     = passes x layers x width x t x 2 bytes x (2 + r) / 2 / (tp pp bandwidth), and the logits in fp32
    exchange  = all-reduces (tp), all-to-alls of experts (ep), keys of the sequence (cp), weights, gradients (ZeRO)
    step      = (m + (pp - 1) / v) x (compute + exposed exchange of a microbatch) + exposed sum of gradients + optimizer

`exposed` is the share of an exchange that does not hide behind compute, and all that exceeds compute; the bubble of a
pipeline is (pp - 1) / v microbatches, with v runs of layers a stage. `peak` is that at the power limit. The constants
of a framework are fitted to published runs (`evaluate/pretraining.py`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from forerun.device.cloud import Instance
from forerun.device.device import Device
from forerun.errors import ForerunError
from forerun.graph.language_model import LanguageModel
from forerun.graph.layout import Layout
from forerun.graph.profile import UNITS
from forerun.predictors.laws.collectives import collective
from forerun.predictors.laws.memory import available_mb, context_mb
from forerun.predictors.laws.specs import power_slowdown, unit_peak

FILE = Path(__file__).parents[1] / "shipped" / "pretraining.json"
PRECISIONS = ("bf16", "fp8", "fp4")
#: Bytes of a weight: in compute, of its gradient, of what the optimizer (Adam) holds of it in fp32.
WEIGHT, GRADIENT, STATES = 2, 4, 12
_PURE = 2  # each of them, where all are in 16 bits
#: Bytes that a step of the optimizer moves for each weight: gradient, states and weight, read and written.
_OPTIMIZER = 28
#: FLOPs of four bits over those of eight, where a spec sheet has no own figure.
_FP4 = 2.0
#: Megabytes of NCCL's buffers and of what frameworks keep for themselves: assumed.
_BUFFERS_MB = 1024.0


@dataclass(frozen=True)
class Run:
    """How a model is trained: its layout, and what a device computes at once."""

    layout: Layout
    micro_batch: int  # sequences
    micro_batches: int  # in a step, one after another
    seq_len: int
    precision: str = "bf16"
    recomputed: bool = False  # activations, in the backward pass
    interleaved: int = 1  # runs of layers of a stage: virtual stages
    pure: bool = False  # weights, gradients and moments of Adam in 16 bits, none in fp32

    @property
    def sequences(self) -> int:
        """Of all replicas in a step: the global batch."""
        return self.micro_batch * self.micro_batches * self.layout.dp

    @property
    def tokens(self) -> int:
        return self.sequences * self.seq_len


@dataclass(frozen=True)
class Framework:
    """The fitted constants of a framework's kernels and of how it overlaps, and the quantiles of held-out errors."""

    efficiency: Mapping[str, float]  # of linear layers, by precision
    attention: float
    experts: float  # efficiency of expert matmuls, relative to others
    passes: float  # over activations of the model's width, in each layer
    logits: float  # passes over the logits
    exposed: float
    dispatch: float  # time of sending tokens to experts and back, over that of the bare all-to-alls
    errors: tuple[float, float] = (0.5, 2.0)  # factors of the 90 % interval of a step's time

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Framework:
        return cls(**{**content, "errors": tuple(content["errors"])})


@dataclass(frozen=True)
class Work:
    """What a device does for one microbatch and once a step, in seconds at full rate: what the constants multiply."""

    linear: float
    experts: float
    attention: float
    activations: float
    logits: float
    exchange: float  # of a microbatch
    dispatch: float  # of a microbatch's tokens to experts and back
    gradients: float  # exchanged once a step
    optimizer: float
    sends: float
    rounds: float  # microbatches, the bubble of the pipeline included
    bubble: float  # its share of the step's compute


@dataclass(frozen=True)
class Step:
    """The time of a step, and what it is made of, in seconds."""

    seconds: float
    parts: Mapping[str, float] = field(default_factory=dict)


@functools.cache
def framework(name: str) -> Framework:
    """The constants of a framework by name: llm-foundry (FSDP) or megatron."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    if name not in content:
        raise ForerunError(f"no constants are known for the framework {name!r}: choose from {', '.join(content)}")
    return Framework.from_json(content[name])


def peak_tflops(device: Device, precision: str) -> float:
    """What the device's units deliver at its power limit."""
    unit = "fp8" if precision == "fp4" else precision
    peak = unit_peak(device, unit) / float(power_slowdown([device])[UNITS.index(unit), 0])
    if precision != "fp4":
        return peak
    own = device.peak("fp4")
    return peak * (own / unit_peak(device, unit) if own else _FP4)


def work(model: LanguageModel, device: Device, run: Run, instance: Instance | None = None) -> Work:
    """The work of one device of the run; raises where its devices have no link that is known."""
    layout, again = run.layout, int(run.recomputed)
    tp, pp, dp, cp = layout.tp, layout.pp, layout.dp, layout.cp
    tokens = run.micro_batch * run.seq_len / cp
    share, flops = tokens / (tp * pp), peak_tflops(device, run.precision) * 1e12
    if device.bandwidth_gbs is None:
        raise ForerunError(f"the memory bandwidth of {device.id} is not known")
    bandwidth = device.bandwidth_gbs * 1e9

    def ms(op: str, size: float, count: int) -> float:
        return collective(op, size, device, count, instance=instance).ms if count > 1 else 0.0

    hidden, layers = tokens * model.width * 2, model.layers / pp
    # Groups of tensor parallelism are neighbours; experts and context beside them, replicas farthest apart.
    exchange = (4 + 2 * again) * layers * ms("all_reduce", hidden, tp)
    dispatch = 0.0
    if layout.ep > 1:
        dispatch = (4 + 2 * again) * layers * ms("all_to_all", hidden * model.routed / tp, layout.ep)
    if cp > 1:
        exchange += (2 + again) * layers * ms("all_gather", tokens * cp * model.keys / model.layers * 2 / tp, tp * cp)
    held = model.dense_parameters / (tp * pp) + model.expert_parameters / (max(layout.ep, tp) * pp)
    world = tp * cp * dp if dp * cp > 1 else 1
    gather, scatter = ((layers * ms(op, held / layers * WEIGHT, world)) for op in ("all_gather", "reduce_scatter"))
    if layout.zero == 3:
        exchange, gradients = exchange + 2 * gather + scatter, 0.0
    elif layout.zero:
        gradients = gather + scatter
    else:
        gradients = ms("all_reduce", held * WEIGHT, world)
    parts = dp * cp if layout.zero else 1
    m = run.micro_batches
    return Work(
        linear=(3 + again) * 2 * (model.linear + model.vocabulary * model.width) * share / flops,
        experts=(3 + again) * 2 * model.experts * share / flops,
        # Attention stays in 16 bits.
        attention=(3.5 + again) * 2 * model.scores * run.seq_len / 2 * share / (peak_tflops(device, "bf16") * 1e12),
        activations=model.layers * model.width * 2 * (2 + again) / 2 * share / bandwidth,
        logits=model.vocabulary * 4 * share / bandwidth, exchange=exchange / 1e3,
        dispatch=dispatch / 1e3, gradients=gradients / 1e3,
        optimizer=held / parts * _OPTIMIZER / bandwidth, sends=2 * (pp - 1) * ms("send_recv", hidden, pp * tp) / 1e3,
        rounds=m + (pp - 1) / run.interleaved, bubble=(pp - 1) / run.interleaved / (m + (pp - 1) / run.interleaved),
    )  # fmt: skip


def step(done: Work, precision: str, by: Framework) -> Step:
    """The time of a step by a framework's constants."""
    efficiency = by.efficiency[precision]
    compute = (
        done.linear / efficiency + done.experts / (efficiency * by.experts) + done.attention / by.attention
        + by.passes * done.activations + by.logits * done.logits + by.dispatch * done.dispatch
    )  # fmt: skip

    def shown(exchange: float, behind: float) -> float:
        return by.exposed * min(exchange, behind) + max(exchange - behind, 0.0)

    each = shown(done.exchange, compute)
    once = shown(done.gradients, done.rounds * compute)
    total = done.rounds * (compute + each) + once + done.optimizer + done.sends
    parts = {
        "compute": done.rounds * compute * (1 - done.bubble), "bubble": done.rounds * (compute + each) * done.bubble,
        "exchange": done.rounds * each * (1 - done.bubble) + once + done.sends, "optimizer": done.optimizer,
    }  # fmt: skip
    return Step(total, parts)


def memory_mb(model: LanguageModel, device: Device, run: Run) -> dict[str, float]:
    """What a device must hold, by what it is for, in MB: mixed precision with Adam, fused kernels, attention without
    stored scores; tensor parallelism divides the activations between layers along the sequence."""
    layout = run.layout
    tp, pp, replicas = layout.tp, layout.pp, layout.dp * layout.cp
    dense, of_experts = model.dense_parameters / (tp * pp), model.expert_parameters / (max(layout.ep, tp) * pp)
    held = dense + of_experts
    # Experts divided among replicas have fewer copies to divide their states among.
    copies = replicas / (max(layout.ep, tp) / tp)

    def divided(stage: int, size: float) -> float:
        return size * (dense / replicas + of_experts / max(copies, 1)) if layout.zero >= stage else size * held

    layers = model.layers / pp
    gradient, states = (_PURE, 2 * _PURE) if run.pure else (GRADIENT, STATES)
    weights = divided(3, WEIGHT) + (2 * held / layers * WEIGHT if layout.zero == 3 else 0.0)
    tokens = run.micro_batch * run.seq_len / layout.cp
    # Inputs of every matmul and of both norms, 2 bytes each: 28 bytes x width for a plain transformer.
    one_layer = tokens * (2 * (model.linear + model.experts) / model.layers / model.width + 4 * model.width) / tp
    inputs = tokens * 2 * model.width / tp
    flying = min(run.micro_batches, pp)  # microbatches whose backward pass is still to come, in the first stage
    stored = (layers * inputs * flying + one_layer) if run.recomputed else layers * one_layer * flying
    logits = tokens * model.vocabulary / tp * 6 if pp == 1 else 0.0  # in 16 bits, and their gradient in fp32
    parts = {
        "weights": weights, "gradients": divided(2, gradient), "optimizer": divided(1, states),
        "activations": stored + logits,
    }  # fmt: skip
    return {name: size / 2**20 for name, size in parts.items()} | {"context": context_mb(device) + _BUFFERS_MB}


def fits(parts_mb: Mapping[str, float], device: Device) -> bool | None:
    """Whether it fits with the usual margin; None where the device's memory is not known."""
    room = available_mb(device)
    return None if room is None else sum(parts_mb.values()) <= room


def to_json(frameworks: Mapping[str, Framework]) -> dict[str, Any]:
    return {name: asdict(one) for name, one in frameworks.items()}
