"""Gradient checkpointing: blocks keep only their input, and their forward pass runs again in the backward pass.

Applied to a captured training graph. The ops of a block's forward pass are put once more before the first op of its
backward pass; what they put out dies in the first run after its last use there, and lives in the second run from there
to where it died before. A block's output stays, since it is the input of the next one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from forerun.graph.ir import Graph, Op, Storage, Tensor
from forerun.graph.memory import peak_allocated_mb

#: Fewer blocks than this in a row are no stack.
MIN_BLOCKS = 2


@dataclass(frozen=True)
class Block:
    """One block of a stack: its place in the model, and where its forward and its backward pass begin and end."""

    scope: str
    first: int
    last: int
    backward: int  # the first op of its backward pass
    again: int  # the last op that the second run needs: PyTorch stops once all that is saved is there again


def checkpointed(graph: Graph) -> tuple[Graph, str] | None:
    """The graph with every block of its stacks checkpointed, and which these are; None where there is no stack.

    Of stacks within stacks (stages of blocks), those are taken that leave the lower peak.
    """
    candidates = [(blocks, _with_copies(graph, blocks)) for depth in (1, 2) if (blocks := _blocks(graph, depth))]
    if not candidates:
        return None
    now = np.array([graph.batch])
    blocks, best = min(candidates, key=lambda pair: float(peak_allocated_mb(pair[1], now)[0]))
    stacks = sorted({block.scope.rpartition(".")[0] for block in blocks})
    shown = ", ".join(stacks[:4]) + (", …" if len(stacks) > 4 else "")
    note = f"gradient checkpointing: the forward pass of every block of {shown} runs again in the backward pass"
    return replace(best, notes=[*best.notes, note]), shown


def _blocks(graph: Graph, depth: int) -> list[Block]:
    """The blocks of all stacks at a depth: scopes whose `depth`-th number is their place in the stack."""
    forward: dict[str, list[int]] = defaultdict(list)
    backward: dict[str, list[int]] = defaultdict(list)
    for i, op in enumerate(graph.ops):
        scope = _block_scope(op.scope, depth)
        if scope and op.phase == "forward":
            forward[scope].append(i)
        elif scope and op.phase == "backward":
            backward[scope].append(i)
    stacks: dict[str, list[Block]] = defaultdict(list)
    for scope, ops in forward.items():
        first, last = ops[0], ops[-1]
        read = [graph.tensors[t].producer for i in backward.get(scope, ()) for t in graph.ops[i].inputs]
        saved = [i for i in read if first <= i <= last]
        if saved:
            stacks[scope.rpartition(".")[0]].append(Block(scope, first, last, backward[scope][0], max(saved)))
    ordered = sorted((b for s in stacks.values() if len(s) >= MIN_BLOCKS for b in s), key=lambda b: b.first)
    separate = [b for at, b in enumerate(ordered) if at == 0 or b.first > ordered[at - 1].last]
    return (
        separate if len(separate) == len(ordered) else []
    )  # blocks that run into one another cannot be run again alone


def _block_scope(scope: str, depth: int) -> str:
    words = scope.split(".")
    numbers = [at for at, word in enumerate(words) if word.isdecimal()]
    return ".".join(words[: numbers[depth - 1] + 1]) if len(numbers) >= depth and numbers[depth - 1] else ""


def _with_copies(graph: Graph, blocks: list[Block]) -> Graph:
    """The graph with the forward ops of each block once more before its backward pass."""
    at = {b.backward: b for b in blocks}
    place: list[int] = []  # of every op of the graph in the new one
    copy_of: dict[int, int] = {}  # op of a block's forward pass -> where it runs again
    order: list[tuple[int, bool]] = []
    for i in range(len(graph.ops)):
        if i in at:
            for j in range(at[i].first, at[i].again + 1):
                copy_of[j] = len(order)
                order.append((j, True))
        place.append(len(order))
        order.append((i, False))
    tensors, storages = list(graph.tensors), list(graph.storages)
    again: dict[int, int] = {}  # tensor -> the one that the second run puts out
    outlive: set[int] = set()  # storages that outlive the first run
    for block in blocks:
        outlive |= _run_again(graph, block, place, copy_of, tensors, storages, again)
    lost = {t: new for t, new in again.items() if graph.tensors[t].storage not in outlive}
    for t, tensor in enumerate(graph.tensors):
        tensors[t] = replace(tensor, producer=place[tensor.producer] if tensor.producer >= 0 else -1)
    untouched = {s for s in range(len(graph.storages)) if storages[s] is graph.storages[s]}
    for s in untouched:
        storages[s] = _moved(graph.storages[s], place)
    block_of = {i: block for block in blocks for i in range(block.first, block.again + 1)}
    ops = []
    for i, is_copy in order:
        op = graph.ops[i]
        if is_copy:
            inside = range(block_of[i].first, block_of[i].again + 1)
            copies = {t: again[t] for t in (*op.inputs, *op.outputs) if graph.tensors[t].producer in inside}
            ops.append(
                replace(_reading(op, copies), outputs=tuple(copies.get(t, t) for t in op.outputs), phase="backward")
            )
        else:  # the backward pass reads what the second run put out
            ops.append(_reading(op, lost) if op.phase == "backward" else op)
    return replace(graph, ops=ops, tensors=tensors, storages=storages, facts=_facts(graph, copy_of))


def _run_again(
    graph: Graph, block: Block, place: list[int], copy_of: dict[int, int], tensors: list[Tensor],
    storages: list[Storage], again: dict[int, int],
) -> set[int]:  # fmt: skip
    """Gives one block's second run tensors and storages of its own, and lets those of the first run die early; returns
    the block's output, which stays."""
    inside, second = range(block.first, block.last + 1), range(block.first, block.again + 1)
    last_use: dict[int, int] = {}
    for i in inside:
        for t in (*graph.ops[i].inputs, *graph.ops[i].outputs):
            last_use[graph.tensors[t].storage] = i
    behind = [op for op in graph.ops[block.last + 1 :] if op.phase == "forward"]
    shown = {graph.tensors[t].storage for op in behind for t in op.inputs} | {
        graph.tensors[t].storage for t in graph.outputs
    }
    new_storage: dict[int, int] = {}
    for s, used in last_use.items():
        old, life = graph.storages[s], _moved(graph.storages[s], place)
        if old.born not in inside:
            if old.born >= 0 and old.dies is not None:  # an input of the block: kept for the second run
                known = storages[s] if storages[s] is not old else life
                storages[s] = replace(known, dies=max(known.dies or 0, copy_of[min(used, block.again)]))
            continue
        if s in shown:
            keep = life.dies if life.dies is None else max(life.dies, copy_of[block.first])
            storages[s] = replace(life, dies=keep)
        else:
            storages[s] = replace(life, dies=place[used])
        if old.born not in second:
            continue
        saved = s not in shown and (old.dies is None or old.dies >= block.backward)
        new_storage[s] = len(storages)
        dies_again = life.dies if saved else copy_of[min(used, block.again)]
        storages.append(replace(old, born=copy_of[old.born], dies=dies_again))
    for t, tensor in enumerate(graph.tensors):
        if tensor.producer in second:
            again[t] = len(tensors)
            where = new_storage.get(tensor.storage, tensor.storage)
            tensors.append(replace(tensor, storage=where, producer=copy_of[tensor.producer]))
    return shown


def _moved(storage: Storage, place: list[int]) -> Storage:
    """A storage whose op indices are those of the new graph."""
    return replace(
        storage, born=_at(storage.born, place), dies=None if storage.dies is None else _at(storage.dies, place)
    )


def _at(op: int, place: list[int]) -> int:
    return op if op < 0 else place[op] if op < len(place) else place[-1] + 1


def _reading(op: Op, instead: dict[int, int]) -> Op:
    """An op that reads other tensors in place of some."""
    return replace(op, inputs=tuple(instead.get(t, t) for t in op.inputs))


def _facts(graph: Graph, copied: dict[int, int]) -> dict[str, object]:
    """What the host does beside launching: modules are entered, and views made, once more for what runs again."""
    forward = sum(op.repeat for op in graph.ops if op.phase == "forward")
    share = sum(graph.ops[i].repeat for i in copied) / max(forward, 1)
    of_all = forward / max(sum(op.repeat for op in graph.ops), 1)
    calls = dict(graph.facts.get("host_calls", {}))
    for name, by in (("modules", share), ("views", share * of_all)):
        if name in calls:
            calls[name] = round(calls[name] * (1 + by))
    facts = {**graph.facts, **({"host_calls": calls} if calls else {})}
    if python := graph.facts.get("python_calls"):
        again = [had + round(share * n) for had, n in zip(python["backward"], python["forward"], strict=True)]
        facts["python_calls"] = {**python, "backward": again}
    return facts
