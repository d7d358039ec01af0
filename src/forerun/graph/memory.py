"""Peak memory by simulation: storages live and die along the graph, then the caching allocator rounds and splits.

Folded blocks are unfolded as far as memory needs it: a block that stands for r equal ones is walked twice (its first
and its last turn) with a jump between them, where the r - 2 turns in between only make and free what outlives a turn.
Memory moves by the same amount at every turn, so no turn in between can be higher than both ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from forerun.graph.allocator import ALIGN, MB, CachingAllocator
from forerun.graph.ir import Graph, GraphKey

#: Bytes that libraries take while an op runs: {op: bytes at each batch size}.
Workspaces = Callable[[Graph, np.ndarray], dict[int, np.ndarray]]


@dataclass(frozen=True)
class Memory:
    """Peaks of one call in MB, and what the peak is made of."""

    allocated_mb: float
    reserved_mb: float
    by_role_mb: dict[str, float]
    fits: bool = True  # within the limit that was given


#: A number of blocks of a storage allocated (+1) or freed (-1): (sign, storage, blocks).
Event = tuple[int, int, int]


class Walk:
    """The events of a call in their order, as tuples and as columns; compared by identity."""

    def __init__(self, events: tuple[Event, ...]) -> None:
        self.events = events
        signs, self.storages, counts = np.array(events, dtype=np.int64).reshape(-1, 3).T
        self.blocks = signs * counts  # allocated; freed where negative
        # For the allocator: (blocks, storage).
        self.steps = tuple(zip(self.blocks.tolist(), self.storages.tolist(), strict=True))


def events(graph: Graph, working: Iterable[int] = ()) -> tuple[Event, ...]:
    """Every coming and going of memory in the order of one call, folded blocks walked as described above.

    Ops that are `working` take a piece of memory while they run and give it back: storages behind the graph's own, in
    the same order.
    """
    return _walk_of(graph, working).events


def _walk_of(graph: Graph, working: Iterable[int]) -> Walk:
    lives = tuple((s.born, s.dies, s.repeat) for s in graph.storages)
    return _ordered(_Ops(graph), lives, tuple(working))


class _Ops:
    """The operators of a graph as the key of a cache: those of the same graph at another batch size are the same."""

    __slots__ = ("graph",)

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Ops) and self.graph.ops is other.graph.ops

    def __hash__(self) -> int:
        return id(self.graph.ops)


@functools.lru_cache(maxsize=32)
def _ordered(ops: _Ops, lives: tuple[tuple[int, int | None, int], ...], working: tuple[int, ...]) -> Walk:
    """The walk of any graph with these operators, whose storages live so."""
    return _known(tuple((-gone, storage, blocks) for _, _, _, gone, storage, blocks in _placed(ops.graph, working)))


@functools.lru_cache(maxsize=32)
def _known(events: tuple[Event, ...]) -> Walk:
    """One walk for all graphs with the same events: fp16 and bf16, fp32 and tf32."""
    return Walk(events)


def _placed(graph: Graph, working: Iterable[int] = ()) -> list[tuple[int, int, int, int, int, int]]:
    """The events in their order, each with its place in the walk."""
    first, last, jump = _timeline(graph)
    # Step of the walk, at a jump the turn and the op within it; -sign, since at one position what an op makes exists
    # beside what it takes: come first, then go; storage; blocks.
    out: list[tuple[int, int, int, int, int, int]] = []

    def at(position: int, sign: int, storage: int, count: int = 1) -> None:
        out.append((position, 0, 0, -sign, storage, count))

    def every_turn(op: int, sign: int, storage: int, turns: int) -> None:
        at(first[op], sign, storage)
        out.extend((jump[op], turn, op, -sign, storage, 1) for turn in range(turns - 2))
        at(last[op], sign, storage)

    for i, s in enumerate(graph.storages):
        born = s.born if 0 <= s.born < len(graph.ops) else None
        dies = s.dies if s.dies is not None and 0 <= s.dies < len(graph.ops) else None
        if born is None:
            at(0, 1, i, s.repeat)
            if s.dies is not None and s.dies < 0:  # gone before the first op: the gradients of the step before
                at(0, -1, i, s.repeat)
        elif s.repeat <= 2 or born not in jump:
            at(first[born], 1, i, s.repeat)
        elif dies is not None and graph.ops[dies].phase == graph.ops[born].phase:
            # Gone before the next turn needs its own: one at a time, at the first turn and at the last.
            at(first[born], 1, i)
            at(first[dies] if jump.get(dies) == jump[born] else jump[born], -1, i)
            at(last[born], 1, i)
            at(last[dies], -1, i)
            continue
        else:
            every_turn(born, 1, i, s.repeat)
        if dies is not None and s.repeat > 2 and dies in jump:
            every_turn(dies, -1, i, s.repeat)
        elif dies is not None:
            at(last[dies], -1, i, s.repeat)
    for extra, op in enumerate(working, len(graph.storages)):
        for position in sorted({first[op], last[op]}):
            at(position, 1, extra)
            at(position, -1, extra)
    out.sort()
    return out


def _timeline(graph: Graph) -> tuple[list[int], list[int], dict[int, int]]:
    """Positions of every op at its first and last turn, and of the jump between them for ops of folded blocks."""
    first, last = [0] * len(graph.ops), [0] * len(graph.ops)
    jump: dict[int, int] = {}
    position = 1
    i = 0
    for (repeat, _), run in groupby(graph.ops, key=lambda op: (op.repeat, op.phase)):
        size = len(list(run))
        if repeat > 2:
            for k in range(size):
                first[i + k], last[i + k], jump[i + k] = position + k, position + size + 1 + k, position + size
            position += 2 * size + 1
        else:
            for k in range(size):
                first[i + k] = last[i + k] = position + k
            position += size
        i += size
    return first, last, jump


def sizes(graph: Graph, batches: np.ndarray | None = None) -> np.ndarray:
    """Rounded bytes of every storage (rows) at every batch size (columns)."""
    base = np.array([s.bytes for s in graph.storages], dtype=np.float64)[:, None]
    if batches is not None:
        step = np.asarray(batches, dtype=np.float64)[None, :] - graph.batch
        slope, square = (
            np.array([getattr(s, name) for s in graph.storages], dtype=np.float64)[:, None]
            for name in ("per_sample", "per_sample2")
        )
        base = base + slope * step + square * step * step
    return np.ceil(base / ALIGN) * ALIGN


def peak_allocated_mb(graph: Graph, batches: np.ndarray, workspaces: Workspaces | None = None) -> np.ndarray:
    """Peak of live tensors and workspaces at each batch size, all at once."""
    needed = workspaces(graph, batches) if workspaces else {}
    walk = _walk_of(graph, needed)
    if not walk.steps:
        return np.zeros(len(batches))
    size = _with(sizes(graph, batches), needed)
    return np.cumsum(walk.blocks[:, None] * size[walk.storages], axis=0).max(axis=0) / MB


def lasting_mb(graph: Graph, made: Collection[str] = ()) -> float:
    """Tensors that are there before the call and after it: weights, inputs, caches, the state of an optimizer; and of
    those that the call leaves, the ones of the roles in `made`."""
    lasting = [s.repeat if s.dies is None and (s.born < 0 or s.role in made) else 0 for s in graph.storages]
    return float(sizes(graph)[:, 0] @ lasting) / MB


def _with(size: np.ndarray, needed: dict[int, np.ndarray]) -> np.ndarray:
    if not needed:
        return size
    return np.concatenate([size, np.ceil(np.stack(list(needed.values())) / ALIGN) * ALIGN])


def simulate(graph: Graph, limit_mb: float | None = None, workspaces: Workspaces | None = None) -> Memory:
    """Peak allocated and reserved memory of one call at the graph's own batch size.

    `workspaces` says what libraries take while an op runs. Under a limit the allocator gives free segments back before
    it goes over, as PyTorch does before it fails.
    """
    walk, size, roles = _walk(GraphKey(graph), workspaces)
    return _replayed(walk, size, roles, None if limit_mb is None else int(limit_mb * MB))


def runs_within(
    graph: Graph, batches: np.ndarray, limit_mb: float, workspaces: Workspaces | None = None
) -> Callable[[int], bool]:
    """Says whether `simulate` fits under a limit at any of these batch sizes: sizes are computed for all of them at
    once, and the allocator is replayed for those that are asked about, up to the first miss."""
    needed = workspaces(graph, batches) if workspaces else {}
    walk = _walk_of(graph, needed)
    size = dict(zip(batches.tolist(), _with(sizes(graph, batches), needed).astype(int).T.tolist(), strict=True))

    def runs(batch: int) -> bool:
        return _replay(walk, size[batch], int(limit_mb * MB), to_the_end=False).fits

    return runs


@dataclass(frozen=True)
class LiveMemory:
    """What is live while a call runs, step by step of the walk: MB by role, and the op of each step (-1: none)."""

    by_role_mb: dict[str, np.ndarray]
    ops: np.ndarray

    @property
    def total_mb(self) -> np.ndarray:
        total: np.ndarray = sum(self.by_role_mb.values(), np.zeros(len(self.ops)))
        return total


def live_memory(graph: Graph, workspaces: Workspaces | None = None) -> LiveMemory:
    """The most that is live at each step of a call; the highest of them is what `simulate` calls allocated.

    A folded block has the steps of its first and of its last turn, with one step for all that lie between.
    """
    needed = workspaces(graph, np.array([graph.batch])) if workspaces else {}
    size = _with(sizes(graph), needed)[:, 0]
    roles = [s.role for s in graph.storages] + ["workspace"] * len(needed)
    walk = np.array(_placed(graph, needed), dtype=np.int64).reshape(-1, 6)
    position, change = walk[:, 0], -walk[:, 3] * walk[:, 5] * size[walk[:, 4]]
    first, last, _ = _timeline(graph)
    steps = max([0, *last]) + 1
    running = np.cumsum(change)
    # At each step the moment when most is live; at a step where nothing comes or goes, the one before holds.
    moments = np.full(steps, -1)
    for at, step in enumerate(position):
        if moments[step] < 0 or running[at] >= running[moments[step]]:
            moments[step] = at
    before = -1
    for step in range(steps):
        ends = int(np.searchsorted(position, step, side="right")) - 1
        moments[step], before = (moments[step], ends) if moments[step] >= 0 else (before, before)
    by_role = {}
    of_event = np.array(roles)[walk[:, 4]] if len(walk) else np.array([])
    for role in dict.fromkeys(roles):
        live = np.concatenate([np.cumsum(np.where(of_event == role, change, 0.0)), [0.0]]) / MB
        by_role[role] = live[moments]
    ops = np.full(steps, -1)
    ops[first], ops[last] = range(len(first)), range(len(last))
    return LiveMemory(by_role, ops)


@functools.lru_cache(maxsize=32)
def _walk(key: GraphKey, workspaces: Workspaces | None) -> tuple[Walk, tuple[int, ...], tuple[str, ...]]:
    """The walk of a call, and the bytes and role of every storage."""
    graph = key.graph
    needed = workspaces(graph, np.array([graph.batch])) if workspaces else {}
    size = _with(sizes(graph), needed)[:, 0].astype(int).tolist()
    roles = [s.role for s in graph.storages] + ["workspace"] * len(needed)
    return _walk_of(graph, needed), tuple(size), tuple(roles)


def _replay(walk: Walk, size: Sequence[int], limit: int | None, *, to_the_end: bool = True) -> CachingAllocator:
    """The allocator after a call whose storages have these sizes, or else after the first request over the limit."""
    allocator = CachingAllocator(limit)
    allocate, free = allocator.allocate, allocator.free
    live: list[list[int]] = [[] for _ in size]
    for blocks, storage in walk.steps:
        held = live[storage]
        if blocks == 1:
            held.append(allocate(size[storage]))
        elif blocks == -1 and held:
            free(held.pop())
        else:
            allocator.apply(held, size[storage], blocks)
        if not (to_the_end or allocator.fits):
            break
    return allocator


@functools.lru_cache(maxsize=32)  # fp16 and bf16, fp32 and tf32 have the same sizes and walk
def _replayed(walk: Walk, size: tuple[int, ...], roles: tuple[str, ...], limit: int | None) -> Memory:
    """The peaks of a walk over storages of these sizes and roles, under a limit of bytes."""
    allocator = _replay(walk, size, limit)
    change = walk.blocks * np.array(size, dtype=np.int64)[walk.storages]
    now = np.cumsum(change)
    highest = int(now.argmax()) if len(now) else 0
    parts = dict.fromkeys(roles, 0)
    place = {role: at for at, role in enumerate(parts)}
    of_storage = np.array([place[role] for role in roles], dtype=np.int64)
    taken = np.zeros(len(parts), dtype=np.int64)
    np.add.at(taken, of_storage[walk.storages[: highest + 1]], change[: highest + 1])
    parts = dict(zip(parts, taken.tolist(), strict=True))
    ordered = sorted(parts.items(), key=lambda kv: -kv[1])
    peak = sum(parts.values())
    return Memory(peak / MB, allocator.peak_reserved / MB, {k: v / MB for k, v in ordered if v > 0}, allocator.fits)
