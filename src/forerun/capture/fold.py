"""Folds repeated blocks: a stack of equal layers is captured as its first, one middle and its last layer.

The middle one represents all the others, so capturing a model of 126 layers costs what one of three layers costs.
Blocks are equal when everything that decides their work is equal: class, hyper-parameters, parameter shapes. Models
that mix kinds of layers (sliding and full attention, dense and expert layers) are folded kind by kind. Whether a folded
model represents the whole one is checked by counting the calls of both: see `foldable`.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Collection
from typing import Any

import torch
from torch import nn

#: Fewer equal blocks than this are not worth folding: three remain anyway.
MIN_EQUAL = 6

#: Attributes that only give a block's index. Where they change the work after all, counting the calls shows it.
_PLACE = frozenset("layer_idx layer_id layer_index layer_number block_idx drop_prob".split())
_INTERNAL = frozenset(vars(nn.Module()))
_PLAIN = (bool, int, float, str, tuple, list, dict, type(None))


def fold(model: nn.Module, stacks: Collection[str] | None = None) -> dict[str, int]:
    """Shortens every stack of equal blocks in place; returns {scope of a middle block: the number of blocks it
    represents}.

    With `stacks`, only those of these scopes.
    """
    repeats: dict[str, int] = {}
    _fold_inside(model, "", repeats, stacks)
    return repeats


def folded_stacks(repeats: dict[str, int]) -> frozenset[str]:
    """The scopes of the stacks that were shortened."""
    return frozenset(block.rpartition(".")[0] for block in repeats)


def _fold_inside(module: nn.Module, scope: str, repeats: dict[str, int], stacks: Collection[str] | None) -> None:
    wanted = stacks is None or scope in stacks
    if wanted and isinstance(module, (nn.ModuleList, nn.Sequential)) and len(module) >= MIN_EQUAL:
        _fold_stack(module, scope, repeats)
    for name, child in module.named_children():
        _fold_inside(child, f"{scope}.{name}" if scope else name, repeats, stacks)


def _fold_stack(stack: Any, scope: str, repeats: dict[str, int]) -> None:
    children = list(stack)
    if len({id(c) for c in children}) != len(children):
        return  # one module used several times: its parameters are shared, there is nothing to fold
    groups: dict[str, list[int]] = defaultdict(list)
    for i, child in enumerate(children):
        groups[signature(child)].append(i)
    keep: dict[int, int] = {}
    for members in groups.values():
        middle = members[1:-1] if len(members) >= MIN_EQUAL else []
        for i in members:
            if i not in middle[1:]:
                keep[i] = len(middle) if middle and i == middle[0] else 1
    if len(keep) == len(children):
        return
    stack._modules = OrderedDict((str(n), children[i]) for n, i in enumerate(sorted(keep)))
    for n, i in enumerate(sorted(keep)):
        if keep[i] > 1:
            repeats[f"{scope}.{n}" if scope else str(n)] = keep[i]


def signature(module: nn.Module) -> str:
    """A hash of everything that determines the work of a block."""
    facts: list[Any] = []
    for name, m in module.named_modules():
        facts.append((name, type(m).__module__, type(m).__qualname__, m.training))
        facts.extend(
            (k, repr(v) if isinstance(v, _PLAIN) else getattr(v, "__qualname__", type(v).__qualname__))
            for k, v in sorted(vars(m).items()) if k not in _PLACE and k not in _INTERNAL
        )  # fmt: skip
    for name, t in [*module.named_parameters(), *module.named_buffers()]:
        facts.append((name, tuple(t.shape), str(t.dtype), t.requires_grad))
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def folded_size(model: nn.Module, repeats: dict[str, int]) -> int:
    """Bytes of the parameters that the folded model represents: must equal those of the whole one."""
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
    attributes = (v for m in model.modules() for v in vars(m).values() if isinstance(v, torch.Tensor))
    for b in (*model.buffers(), *attributes):
        memo.setdefault(id(b), torch.empty_like(b.detach(), device="meta"))
    return copy.deepcopy(model, memo)
