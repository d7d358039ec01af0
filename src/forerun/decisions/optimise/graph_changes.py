"""Changes of the network or of its training step, made on the captured graph, and findings about it.

No pairs were measured for these, so their gains have wide intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from forerun.api.explanation import Explanation
from forerun.decisions.optimise.changes import Asked, Change, Found, GraphChange, LeftOut
from forerun.frontends import find_frontend
from forerun.graph.checkpointing import checkpointed
from forerun.graph.fused_optimizer import fused_optimizer
from forerun.graph.grid import off_grid, widened
from forerun.graph.ir import Graph

#: Shares of the device time above which a part of a network is reported.
_DEPTHWISE, _HEAD, _TABLE = 0.1, 0.25, 0.15
#: The same of the host time of a host-bound call, for Python beyond that of usual models.
_PYTHON = 0.1


def _with(question: Asked, name: str, kind: str, change: Callable[[Graph], Graph], code: str, risk: str,
          where: str = "settings") -> Change:  # fmt: skip
    """A change of the case's graph."""
    step: GraphChange = (name, change)
    case = replace(question.case, graph_changes=(*question.case.graph_changes, step))
    return Change(name, kind, case, code, risk, where)


def _done(question: Asked, name: str) -> bool:
    return any(done == name for done, _ in question.case.graph_changes)


def fused(question: Asked) -> Found:
    """The optimizer as one fused kernel."""
    name, w = "fused optimizer", question.workload
    if w.mode != "training" or w.optimizer is None:
        yield LeftOut(name, "it is not a training step")
    elif _done(question, name):
        yield LeftOut(name, "it is fused already")
    elif not question.device.traits.is_board:
        yield LeftOut(
            name, f"fused optimizers are priced on GPUs, and {question.device.id} is a {question.device.kind}"
        )
    elif fused_optimizer(question.case.graph, w.optimizer) is None:
        yield LeftOut(name, f"a step of {w.optimizer} is a single launch already")
    else:
        optimizer: str = w.optimizer
        called = {"sgd": "SGD", "momentum": "SGD", "adam": "Adam", "adamw": "AdamW"}[optimizer]
        code = f"torch.optim.{called}(..., fused=True)"
        yield _with(
            question, name, "fused-optimizer", lambda graph: fused_optimizer(graph, optimizer) or graph, code, ""
        )


def checkpointing(question: Asked) -> Found:
    """Activations recomputed in the backward pass."""
    name, w = "gradient checkpointing", question.workload
    if w.mode != "training":
        yield LeftOut(name, "it is not a training step")
        return
    if _done(question, name):
        yield LeftOut(name, "it is done already")
        return
    result = checkpointed(question.case.graph)
    if result is None:
        yield LeftOut(name, "the model has no stack of blocks to recompute")
        return
    code = _checkpointing_code(question, result[1])
    yield _with(question, name, "checkpointing", _checkpoint, code, "the forward pass of the blocks runs twice")


def _checkpoint(graph: Graph) -> Graph:
    result = checkpointed(graph)
    return graph if result is None else result[0]


def _checkpointing_code(question: Asked, stacks: str) -> str:
    """How the library that the model comes from does it."""
    model = question.workload.model
    frontend = "" if isinstance(model, Graph) else find_frontend(model)[0]
    if frontend == "huggingface":
        return "model.gradient_checkpointing_enable()"
    if frontend == "vision" and not str(model).startswith("torchvision/"):
        return "model.set_grad_checkpointing()"
    return f"torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)  # blocks of {stacks}"


def on_the_grid(question: Asked) -> Found:
    """Channel counts rounded up to a multiple that tensor cores take."""
    name = "channels on the tensor-core grid"
    if _done(question, name):
        yield LeftOut(name, "they are rounded up already")
        return
    sizes = off_grid(question.case.graph)
    if not sizes:
        yield LeftOut(name, "no layer in half precision has a channel count that is not a multiple of 8")
        return
    shown = [f"{size} -> {to} ({scope or 'top'})" for size, (to, scope) in sorted(sizes.items(), reverse=True)]
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    plan = {size: to for size, (to, _) in sizes.items()}
    yield _with(
        question, name, "grid", lambda graph: widened(graph, plan), ", ".join(shown[:3]) + more,
        "the network changes: pad its weights with zeros, or retrain it", "network",
    )  # fmt: skip


GRAPH_PROPOSERS: tuple[Callable[[Asked], Found], ...] = (fused, checkpointing, on_the_grid)


@dataclass(frozen=True)
class Finding:
    """A part of the network that takes a large share of the device's or the host's time, and the usual remedy."""

    what: str
    share: float
    suggestion: str
    of: str = "device time"


def findings(explained: Explanation, training: bool) -> Iterator[Finding]:
    """Memory-bound depthwise layers, a head or embedding table that dominates, and Python of the model's own."""
    depthwise = [op for op in explained.ops if op.kernel.startswith("conv_depthwise") and op.bound == "memory"]
    share = sum(op.share for op in depthwise)
    if share >= _DEPTHWISE:
        calls = sum(op.calls for op in depthwise)
        yield Finding(
            f"{calls} depthwise convolutions are memory-bound",
            share,
            "tensor cores are idle in them: dense or grouped convolutions of fewer channels, or a fused block",
        )
    heads = [op for op in explained.ops if op.kernel == "matmul" and op.share >= _HEAD and "head" in op.scope]
    for op in heads[:1]:
        yield Finding(
            f"the head ({op.scope}, weight {op.shape.rpartition(' x ')[2]}) dominates",
            op.share,
            "a smaller vocabulary, a factorised head"
            + (", a loss in chunks" if training else ", logits of fewer tokens"),
        )
    tables = [op for op in explained.ops if op.kernel in ("embedding", "scatter") and "embed" in op.scope.lower()]
    share = sum(op.share for op in tables)
    if share >= _TABLE:
        yield Finding(
            f"embeddings ({tables[0].scope}) dominate",
            share,
            "sparse gradients, a smaller table" if training else "a smaller table, or one in half precision",
        )
    host_ms = explained.host_ms + explained.python_ms
    if explained.python_calls is not None and explained.python_ms >= _PYTHON * host_ms > _PYTHON * explained.device_ms:
        yield Finding(
            f"{sum(explained.python_calls):,} calls of Python outside PyTorch, more than usual models make and in no "
            "predicted time",
            explained.python_ms / host_ms,
            "work on settings, names and lists done once, not in every call; CUDA graphs or torch.compile skip it",
            "host time",
        )
