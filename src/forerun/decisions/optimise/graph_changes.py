"""Changes of the network or of its training step, made on the captured graph, and what else is seen there.

Of these no pairs were measured, so their gains have wide intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from forerun.decisions.optimise.changes import Asked, Change, Found, GraphChange, LeftOut
from forerun.explanation import Explanation
from forerun.graph.checkpointing import checkpointed
from forerun.graph.fused_optimizer import fused_optimizer
from forerun.graph.grid import off_grid, widened
from forerun.graph.ir import Graph
from forerun.graph.sources import find_door

#: Shares of the device time from which on a part of a network is worth a remark.
_DEPTHWISE, _HEAD, _TABLE = 0.1, 0.25, 0.15


def _with(asked: Asked, name: str, kind: str, change: Callable[[Graph], Graph], code: str, risk: str,
          where: str = "settings") -> Change:  # fmt: skip
    """A change of the case's graph."""
    step: GraphChange = (name, change)
    case = replace(asked.case, graph_changes=(*asked.case.graph_changes, step))
    return Change(name, kind, case, code, risk, where)


def _done(asked: Asked, name: str) -> bool:
    return any(done == name for done, _ in asked.case.graph_changes)


def fused(asked: Asked) -> Found:
    """The optimizer in one launch."""
    name, w = "fused optimizer", asked.workload
    if w.mode != "training" or w.optimizer is None:
        yield LeftOut(name, "nothing is trained")
    elif _done(asked, name):
        yield LeftOut(name, "it is fused already")
    elif asked.device.kind != "gpu":
        yield LeftOut(name, f"fused optimizers are priced on GPUs, and {asked.device.id} is a {asked.device.kind}")
    elif fused_optimizer(asked.case.graph, w.optimizer) is None:
        yield LeftOut(name, f"a step of {w.optimizer} is a single launch already")
    else:
        optimizer: str = w.optimizer
        called = {"sgd": "SGD", "momentum": "SGD", "adam": "Adam", "adamw": "AdamW"}[optimizer]
        code = f"torch.optim.{called}(..., fused=True)"
        yield _with(asked, name, "fused-optimizer", lambda graph: fused_optimizer(graph, optimizer) or graph, code, "")


def checkpointing(asked: Asked) -> Found:
    """Activations computed again in the backward pass."""
    name, w = "gradient checkpointing", asked.workload
    if w.mode != "training":
        yield LeftOut(name, "nothing is trained")
        return
    if _done(asked, name):
        yield LeftOut(name, "it is done already")
        return
    found = checkpointed(asked.case.graph)
    if found is None:
        yield LeftOut(name, "the model has no stack of blocks that could be run again")
        return
    code = _checkpointing_code(asked, found[1])
    yield _with(asked, name, "checkpointing", _checkpoint, code, "the forward pass of the blocks runs twice")


def _checkpoint(graph: Graph) -> Graph:
    found = checkpointed(graph)
    return graph if found is None else found[0]


def _checkpointing_code(asked: Asked, stacks: str) -> str:
    """How the library that the model comes from does it."""
    model = asked.workload.model
    door = "" if isinstance(model, Graph) else find_door(model)[0]
    if door == "huggingface":
        return "model.gradient_checkpointing_enable()"
    if door == "vision" and not str(model).startswith("torchvision/"):
        return "model.set_grad_checkpointing()"
    return f"torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)  # blocks of {stacks}"


def on_the_grid(asked: Asked) -> Found:
    """Channel counts rounded up to what matrix units take."""
    name = "channels on the tensor-core grid"
    if _done(asked, name):
        yield LeftOut(name, "they are rounded up already")
        return
    sizes = off_grid(asked.case.graph)
    if not sizes:
        yield LeftOut(name, "no layer in half precision has a channel count off the grid of 8")
        return
    shown = [f"{size} -> {to} ({scope or 'top'})" for size, (to, scope) in sorted(sizes.items(), reverse=True)]
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    plan = {size: to for size, (to, _) in sizes.items()}
    yield _with(
        asked, name, "grid", lambda graph: widened(graph, plan), ", ".join(shown[:3]) + more,
        "the network changes: pad its weights with zeros, or train it so", "network",
    )  # fmt: skip


GRAPH_PROPOSERS: tuple[Callable[[Asked], Found], ...] = (fused, checkpointing, on_the_grid)


@dataclass(frozen=True)
class Finding:
    """Something in the network itself that takes a large share of the device time, and what people do about it."""

    what: str
    share: float
    suggestion: str


def findings(explained: Explanation, training: bool) -> Iterator[Finding]:
    """Depthwise layers that bind on memory, and a head or a table of embeddings that dominates."""
    depthwise = [op for op in explained.ops if op.kernel.startswith("conv_depthwise") and op.bound == "memory"]
    share = sum(op.share for op in depthwise)
    if share >= _DEPTHWISE:
        calls = sum(op.calls for op in depthwise)
        yield Finding(
            f"{calls} depthwise convolutions bind on memory",
            share,
            "matrix units stay idle in them: dense or grouped convolutions of fewer channels, or a fused block",
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
