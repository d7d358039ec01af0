"""Folds repeated blocks: a stack of equal layers is captured as its first, one middle and its last layer.

The middle one stands for all the others, so capturing a model of 126 layers costs what one of three layers costs.
Blocks are equal when everything that decides their work is equal: class, hyper-parameters, parameter shapes. Models
that mix kinds of layers (sliding and full attention, dense and expert layers) are folded kind by kind.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

#: Fewer equal blocks than this are not worth folding: three are kept anyway.
MIN_EQUAL = 5

#: What tells blocks apart by place and changes nothing about the work they do.
_PLACE = frozenset("layer_idx layer_id layer_index idx index layer_number block_idx drop_prob layer_num depth".split())


@dataclass
class Folding:
    """What was folded, and what must turn out to be true for it to stand."""

    repeats: dict[str, int] = field(default_factory=dict)  # scope of a kept middle block -> blocks it stands for
    stacks: list[dict[str, str]] = field(default_factory=list)  # per stack: scope of a kept block -> its signature

    def stands(self, calls: Mapping[str, Call]) -> bool:
        """Whether the recorded calls show plain chains of equal work: then any block may stand for its equals.

        Every kept block ran once; all blocks of a stack gave results of one shape, and equal blocks took inputs of one
        shape. A stack that narrows on its way (convolutions with pooling between them) is none.
        """
        for stack in self.stacks:
            ran = {scope: calls.get(scope) for scope in stack}
            if any(call is None or call.times != 1 for call in ran.values()):
                return False
            if len({call.output for call in ran.values() if call is not None}) != 1:
                return False
            inputs: dict[str, set[Any]] = defaultdict(set)
            for scope, call in ran.items():
                inputs[stack[scope]].add(call.input if call is not None else None)
            if any(len(shapes) != 1 for shapes in inputs.values()):
                return False
        return True


@dataclass
class Call:
    """How a module was called: how often, and the shapes of its first input and output."""

    times: int = 0
    input: Any = None
    output: Any = None


def fold(model: nn.Module) -> Folding:
    """Shortens every stack of equal blocks in place."""
    folding = Folding()
    _fold_inside(model, "", folding)
    return folding


def _fold_inside(module: nn.Module, scope: str, folding: Folding) -> None:
    if isinstance(module, (nn.ModuleList, nn.Sequential)) and len(module) >= MIN_EQUAL:
        _fold_stack(module, scope, folding)
    for name, child in module.named_children():
        _fold_inside(child, f"{scope}.{name}" if scope else name, folding)


def _fold_stack(stack: Any, scope: str, folding: Folding) -> None:
    children = list(stack)
    if len({id(c) for c in children}) != len(children):
        return  # one module used several times: its parameters are shared, there is nothing to fold
    signatures = [signature(child) for child in children]
    keep: dict[int, int] = {}
    for kind in dict.fromkeys(signatures):
        members = [i for i, s in enumerate(signatures) if s == kind]
        middle = members[1:-1] if len(members) >= MIN_EQUAL else []
        for i in members:
            if i not in middle[1:]:
                keep[i] = len(middle) if middle and i == middle[0] else 1
    if len(keep) == len(children):
        return
    kept = sorted(keep)
    stack._modules = OrderedDict((str(n), children[i]) for n, i in enumerate(kept))
    scopes = {i: f"{scope}.{n}" if scope else str(n) for n, i in enumerate(kept)}
    folding.stacks.append({scopes[i]: signatures[i] for i in kept})
    folding.repeats |= {scopes[i]: keep[i] for i in kept if keep[i] > 1}


def signature(module: nn.Module) -> str:
    """A hash of all that decides what a block does."""
    facts: list[Any] = []
    for name, m in module.named_modules():
        facts.append((name, type(m).__module__, type(m).__qualname__, m.training))
        facts.extend(
            (k, repr(v)) for k, v in sorted(vars(m).items())
            if not k.startswith("_") and k not in _PLACE and isinstance(v, (bool, int, float, str, tuple, type(None)))
        )  # fmt: skip
    for name, t in [*module.named_parameters(), *module.named_buffers()]:
        facts.append((name, tuple(t.shape), str(t.dtype), t.requires_grad))
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def folded_size(model: nn.Module, repeats: dict[str, int]) -> int:
    """Bytes of the parameters that the folded model stands for: must equal those of the whole one."""
    total = 0
    seen: set[int] = set()
    for name, p in model.named_parameters():
        times = 1
        for scope, count in repeats.items():
            times *= count if name.startswith(scope + ".") else 1
        if id(p) not in seen:
            seen.add(id(p))
            total += times * p.numel() * p.element_size()
    return total


def parameter_bytes(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


def meta_copy(model: nn.Module) -> nn.Module:
    """A copy of a user's module whose tensors are on meta: the original is neither changed nor its weights copied."""
    import copy

    memo: dict[int, Any] = {}
    for p in model.parameters():
        memo[id(p)] = nn.Parameter(torch.empty_like(p, device="meta"), requires_grad=p.requires_grad)
    for b in model.buffers():
        memo[id(b)] = torch.empty_like(b, device="meta")
    return copy.deepcopy(model, memo)
