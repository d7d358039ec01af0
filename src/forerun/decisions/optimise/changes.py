"""What a performance engineer would try, as changes of a workload's settings: the registry.

A proposer looks at a case and yields changes, each with the case that it leads to, or says why it has none. What is
changed in the network itself is in `graph_changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from forerun.decisions.optimise.goals import Goal
from forerun.device import Device
from forerun.graph.ir import Graph
from forerun.graph.quantise import linear_share
from forerun.prediction import Prediction
from forerun.predictors.host import REPLAYED
from forerun.questions import Captures
from forerun.workload import Workload

#: A change of a graph, by the name it goes under in a case.
GraphChange = tuple[str, Callable[[Graph], Graph]]


@dataclass(frozen=True)
class Case:
    """A workload on a device, with what is changed in its graph once it is captured."""

    workload: Workload
    device: Device
    graph_changes: tuple[GraphChange, ...] = ()
    captures: Captures = field(default_factory=Captures, compare=False)

    def asked(self) -> Workload:
        """The workload that is predicted: its model is a graph where that is changed, or where the model is no name."""
        if self.graph_changes:
            return replace(self.workload, model=self.graph)
        return self.captures.workload(self.workload)

    @property
    def graph(self) -> Graph:
        """The graph that is predicted: the one that serves other batches, too, where there is such a one."""
        model = self.workload.model
        graph = model if isinstance(model, Graph) else self.captures.graph(self.workload)
        for _, change in self.graph_changes:
            graph = change(graph)
        return graph

    @property
    def key(self) -> tuple[Any, ...]:
        settings = tuple(str(value) for value in self.workload.to_dict().values())
        return (*settings, self.device.id, *(name for name, _ in self.graph_changes))


@dataclass(frozen=True)
class Change:
    """One thing to try: the case that it leads to, the code that does it, and what it may cost in other ways."""

    name: str
    kind: str  # whose measured errors its gain has: predictors/gain_errors.py
    case: Case
    code: str  # Python that does it, or a command
    risk: str = ""
    where: str = "settings"  # settings | network
    shared_by: int = 1  # calls that run side by side on one device: slices of a GPU


@dataclass(frozen=True)
class LeftOut:
    """A change that was not tried, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Asked:
    """What proposers look at: the case as it is now, its prediction, and what is to become better."""

    case: Case
    prediction: Prediction
    goal: Goal

    @property
    def workload(self) -> Workload:
        return self.case.workload

    @property
    def device(self) -> Device:
        return self.case.device

    def change(self, name: str, kind: str, code: str, risk: str = "", **settings: Any) -> Change:
        """A change of the workload's settings."""
        return Change(name, kind, replace(self.case, workload=replace(self.workload, **settings)), code, risk)


Found = Iterator[Change | LeftOut]
_FP32 = ("fp32", "tf32", "fp32-ieee")
_TORCH = {"fp16": "torch.float16", "bf16": "torch.bfloat16"}


def _half(device: Device) -> str:
    """The half precision to try: bf16 has the range of fp32, but not every device has units for it."""
    return "bf16" if device.supports("bf16") else "fp16"


def tf32(asked: Asked) -> Found:
    """Products of fp32 numbers on TF32 units."""
    name, w = "TF32 products", asked.workload
    if w.dtype != "fp32" or w.amp:
        yield LeftOut(name, "the model does not compute in plain fp32")
    elif not asked.device.supports("tf32"):
        yield LeftOut(name, f"{asked.device.id} has no TF32 units")
    else:
        code = 'torch.set_float32_matmul_precision("high")'
        yield asked.change(name, "tf32", code, "products have 10 bits of mantissa", dtype="tf32")


def half_precision(asked: Asked) -> Found:
    """Weights and activations in half precision."""
    w, half = asked.workload, _half(asked.device)
    if w.dtype not in _FP32 or w.amp:
        yield LeftOut("half precision", "the model does not compute in fp32")
    elif w.mode == "training":
        yield LeftOut("half precision", "small updates are lost in half-precision weights: amp keeps them in fp32")
    else:
        risk = "outputs change slightly" + ("; numbers above 65,504 overflow" if half == "fp16" else "")
        yield asked.change(f"{half} weights", "half", f"model.to({_TORCH[half]})", risk, dtype=half)


def autocast(asked: Asked) -> Found:
    """Autocast over fp32 weights."""
    w, half = asked.workload, _half(asked.device)
    if w.dtype not in _FP32 or w.amp:
        yield LeftOut("autocast", "the model does not compute in fp32")
        return
    kind = "cpu" if asked.device.kind == "cpu" else "cuda"
    code = f'with torch.autocast("{kind}", {_TORCH[half]}):'
    scaler = half == "fp16" and w.mode == "training"
    risk = "products are rounded" + ("; needs torch.amp.GradScaler" if scaler else "")
    yield asked.change(f"autocast to {half}", "amp", code, risk, amp=half)


#: Where linear layers hold less of the weights than this, smaller ones of theirs make no difference.
_LINEAR_SHARE = 0.1


def weight_only(asked: Asked) -> Found:
    """Weights of linear layers in 8 or 4 bits."""
    w = asked.workload
    if w.mode == "training":
        yield LeftOut("int8 and int4 weights", "weights of so few bits cannot be trained")
    elif w.dtype not in ("fp16", "bf16"):
        yield LeftOut("int8 and int4 weights", "they follow on half precision")
    elif (share := linear_share(asked.case.graph)) < _LINEAR_SHARE:
        yield LeftOut("int8 and int4 weights", f"linear layers hold {share:.0%} of the weights")
    else:
        for dtype, risk in (("int8", "small loss of accuracy"), ("int4", "loss of accuracy: check it")):
            config = f"Int{dtype[3:]}WeightOnlyConfig()"
            yield asked.change(
                f"{dtype} weights", "weight-only", f"torchao.quantization.quantize_(model, {config})", risk, dtype=dtype
            )


def channels_last(asked: Asked) -> Found:
    """Images with their channels last in memory."""
    w = asked.workload
    if w.channels_last:
        yield LeftOut("channels last", "it is set already")
    elif w.mode in ("prefill", "decode") or w.seq_len is not None:
        yield LeftOut("channels last", "channels_last is a setting of models that take images")
    else:
        code = "model.to(memory_format=torch.channels_last)  # and the images"
        yield asked.change("channels last", "channels-last", code, channels_last=True)


_RUNTIMES = {
    "cudagraph": ("CUDA graph", "torch.cuda.make_graphed_callables(model, (x,))", "shapes are fixed"),
    "compile": ("torch.compile", "model = torch.compile(model)", "the first call compiles; new shapes compile again"),
    "compile-reduce-overhead": (
        "torch.compile with CUDA graphs", 'model = torch.compile(model, mode="reduce-overhead")',
        "the first calls compile; shapes are fixed; inputs are copied",
    ),
}  # fmt: skip


def runtimes(asked: Asked) -> Found:
    """CUDA graphs and compiled code."""
    if asked.workload.runtime != "eager":
        yield LeftOut("another runtime", f"the runtime is {asked.workload.runtime} already")
        return
    for runtime, (name, code, risk) in _RUNTIMES.items():
        if runtime in REPLAYED and asked.device.kind not in ("gpu", "soc"):
            yield LeftOut(name, f"{asked.device.id} is a {asked.device.kind}, which has no CUDA graphs")
        else:
            yield asked.change(name, runtime, code, risk, runtime=runtime)


#: How many times larger a batch is tried.
_TIMES = (2, 4, 8)


def larger_batch(asked: Asked) -> Found:
    """More samples in a call, where the goal is per sample."""
    if not asked.goal.per_item:
        yield LeftOut("larger batch", f"goal {asked.goal.name} is of a call at its batch")
        return
    risk = "a call takes longer" if asked.workload.mode != "training" else "training may need another learning rate"
    for times in _TIMES:
        batch = asked.workload.batch * times
        yield asked.change(f"batch {batch}", "batch", f"batch_size={batch}", risk, batch=batch)


#: Multiples that a length is padded to.
_LENGTHS = (8, 64)


def padding(asked: Asked) -> Found:
    """A sequence as long as the grid of the kernels."""
    length = asked.workload.seq_len
    if length is None or asked.workload.mode == "decode":
        yield LeftOut("padded sequence", "there is no sequence to pad")
        return
    padded = sorted({-(-length // step) * step for step in _LENGTHS} - {length})
    if not padded:
        yield LeftOut("padded sequence", f"{length} tokens are a multiple of {_LENGTHS[-1]} already")
    for to in padded:
        code = f'tokenizer(..., padding="max_length", max_length={to})'
        yield asked.change(f"sequence padded to {to}", "padding", code, "pad tokens are masked", seq_len=to)


def mig_slices(asked: Asked) -> Found:
    """The device cut into the smallest slices that the call fits, each with a call of its own."""
    from forerun.advice.mig import slices

    p, name = asked.prediction, "MIG slices"
    if not asked.goal.per_item or asked.goal.name == "energy":
        yield LeftOut(name, f"slices share a device between calls, which says nothing about goal {asked.goal.name}")
    elif p.mig is None:
        yield LeftOut(name, f"{asked.device.id} has no slice that the call fits")
    else:
        option = next(o for o in p.mig_options if o.profile == p.mig)
        cut = next(device for profile, device in slices(asked.device) if profile.name == p.mig)
        yield Change(
            f"{option.instances} MIG slices {p.mig}", "mig", replace(asked.case, device=cut),
            f"nvidia-smi mig -cgi {','.join([p.mig] * option.instances)} -C",
            "a call takes longer; needs as many calls side by side", shared_by=option.instances,
        )  # fmt: skip


#: Every change of settings, in the order they are listed where they gain equally.
PROPOSERS: tuple[Callable[[Asked], Found], ...] = (
    tf32, half_precision, autocast, weight_only, channels_last, runtimes, larger_batch, padding, mig_slices,
)  # fmt: skip
