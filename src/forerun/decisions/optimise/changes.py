"""The registry of changes of a workload's settings that a performance engineer would try.

A proposer looks at a case and yields changes, each with the case that it leads to, or says why it has none. Changes of
the network itself are in `graph_changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from forerun.api.questions import Captures
from forerun.decisions.optimise.goals import Goal
from forerun.device import Device
from forerun.graph.ir import Graph
from forerun.graph.quantise import linear_share
from forerun.prediction import Prediction
from forerun.runtimes import registry
from forerun.workload import Workload

#: A change of a graph, with its name.
GraphChange = tuple[str, Callable[[Graph], Graph]]


@dataclass(frozen=True)
class Case:
    """A workload on a device, with the changes of its graph after capture."""

    workload: Workload
    device: Device
    graph_changes: tuple[GraphChange, ...] = ()
    captures: Captures = field(default_factory=Captures, compare=False)

    def predicted(self) -> Workload:
        """The workload that is predicted: its model is a graph where that is changed, or where the model is not a
        name."""
        if self.graph_changes:
            return replace(self.workload, model=self.graph)
        return self.captures.workload(self.workload)

    @property
    def graph(self) -> Graph:
        """The graph that is predicted: one that scales to other batches where there is one."""
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
    """One change to try: the resulting case, the code that does it, and its risk."""

    name: str
    kind: str  # whose measured errors its gain has: predictors/laws/gain_errors.py
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
    """The input of proposers: the case as it is now, its prediction, and the goal."""

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


def tf32(question: Asked) -> Found:
    """FP32 matmuls on TF32 units."""
    name, w = "TF32 matmuls", question.workload
    if w.dtype != "fp32" or w.amp:
        yield LeftOut(name, "the model does not compute in plain fp32")
    elif not question.device.supports("tf32"):
        yield LeftOut(name, f"{question.device.id} has no TF32 units")
    else:
        code = 'torch.set_float32_matmul_precision("high")'
        yield question.change(name, "tf32", code, "matmul inputs have 10 bits of mantissa", dtype="tf32")


def half_precision(question: Asked) -> Found:
    """Weights and activations in half precision."""
    w, half = question.workload, _half(question.device)
    if w.dtype not in _FP32 or w.amp:
        yield LeftOut("half precision", "the model does not compute in fp32")
    elif w.mode == "training":
        yield LeftOut("half precision", "small updates are lost in half-precision weights: amp keeps them in fp32")
    else:
        risk = "outputs change slightly" + ("; numbers above 65,504 overflow" if half == "fp16" else "")
        yield question.change(f"{half} weights", "half", f"model.to({_TORCH[half]})", risk, dtype=half)


def autocast(question: Asked) -> Found:
    """Autocast over fp32 weights."""
    w, half = question.workload, _half(question.device)
    if w.dtype not in _FP32 or w.amp:
        yield LeftOut("autocast", "the model does not compute in fp32")
        return
    code = f'with torch.autocast("{question.device.traits.torch_device}", {_TORCH[half]}):'
    scaler = half == "fp16" and w.mode == "training"
    risk = "matmuls run in half precision" + ("; needs torch.amp.GradScaler" if scaler else "")
    yield question.change(f"autocast to {half}", "amp", code, risk, amp=half)


#: Below this share of linear weights, quantising them makes no difference.
_LINEAR_SHARE = 0.1


def weight_only(question: Asked) -> Found:
    """Weights of linear layers in 8 or 4 bits."""
    w = question.workload
    if w.mode == "training":
        yield LeftOut("int8 and int4 weights", "weights of 8 or 4 bits cannot be trained")
    elif w.weight_format:
        yield LeftOut("int8 and int4 weights", f"the weights are published in {w.weight_format}")
    elif w.dtype not in ("fp16", "bf16"):
        yield LeftOut("int8 and int4 weights", "these need half precision first")
    elif (share := linear_share(question.case.graph)) < _LINEAR_SHARE:
        yield LeftOut("int8 and int4 weights", f"linear layers hold {share:.0%} of the weights")
    else:
        for dtype, risk in (("int8", "small loss of accuracy"), ("int4", "loss of accuracy: check it")):
            config = f"Int{dtype[3:]}WeightOnlyConfig()"
            yield question.change(
                f"{dtype} weights", "weight-only", f"torchao.quantization.quantize_(model, {config})", risk, dtype=dtype
            )


def channels_last(question: Asked) -> Found:
    """Images with their channels last in memory."""
    w = question.workload
    if w.channels_last:
        yield LeftOut("channels last", "it is set already")
    elif w.mode in ("prefill", "decode") or w.seq_len is not None:
        yield LeftOut("channels last", "channels_last is a setting of models that take images")
    else:
        code = "model.to(memory_format=torch.channels_last)  # and the images"
        yield question.change("channels last", "channels-last", code, channels_last=True)


def runtimes(request: Asked) -> Found:
    """Other runtimes: CUDA graphs, compiled code, and what packages bring."""
    if request.workload.runtime != registry.USUAL:
        yield LeftOut("another runtime", f"the runtime is {request.workload.runtime} already")
        return
    for run in registry.runtimes():
        if run.change is None or not run.measured:
            continue
        if (problem := run.change_problem(request.device)) is not None:
            yield LeftOut(run.change.title, problem)
        else:
            yield request.change(run.change.title, run.name, run.change.code, run.change.risk, runtime=run.name)


#: Factors on the batch that are tried.
_TIMES = (2, 4, 8)


def larger_batch(question: Asked) -> Found:
    """More samples in a call, where the goal is per sample."""
    if not question.goal.per_item:
        yield LeftOut("larger batch", f"the goal {question.goal.name} is for a call at its batch")
        return
    risk = "a call takes longer" if question.workload.mode != "training" else "training may need another learning rate"
    for times in _TIMES:
        batch = question.workload.batch * times
        yield question.change(f"batch {batch}", "batch", f"batch_size={batch}", risk, batch=batch)


#: Multiples to which a length is padded.
_LENGTHS = (8, 64)


def padding(question: Asked) -> Found:
    """A sequence length that is a multiple of the kernels' tile."""
    length = question.workload.seq_len
    if length is None or question.workload.mode == "decode":
        yield LeftOut("padded sequence", "there is no sequence to pad")
        return
    padded = sorted({-(-length // step) * step for step in _LENGTHS} - {length})
    if not padded:
        yield LeftOut("padded sequence", f"{length} tokens are a multiple of {_LENGTHS[-1]} already")
    for to in padded:
        code = f'tokenizer(..., padding="max_length", max_length={to})'
        yield question.change(f"sequence padded to {to}", "padding", code, "pad tokens are masked", seq_len=to)


def mig_slices(question: Asked) -> Found:
    """The device cut into the smallest slices that the call fits, each with a call of its own."""
    from forerun.advice.mig import slices

    p, name = question.prediction, "MIG slices"
    if not question.goal.per_item or question.goal.name == "energy":
        yield LeftOut(
            name, f"slices share a device between calls, which does not apply to the goal {question.goal.name}"
        )
    elif p.mig is None:
        yield LeftOut(name, f"{question.device.id} has no slice that the call fits")
    else:
        option = next(o for o in p.mig_options if o.profile == p.mig)
        cut = next(device for profile, device in slices(question.device) if profile.name == p.mig)
        yield Change(
            f"{option.instances} MIG slices {p.mig}", "mig", replace(question.case, device=cut),
            f"nvidia-smi mig -cgi {','.join([p.mig] * option.instances)} -C",
            "a call takes longer; needs as many calls side by side", shared_by=option.instances,
        )  # fmt: skip


#: Every change of settings, in the order of the list at equal gain.
PROPOSERS: tuple[Callable[[Asked], Found], ...] = (
    tf32, half_precision, autocast, weight_only, channels_last, runtimes, larger_batch, padding, mig_slices,
)  # fmt: skip
