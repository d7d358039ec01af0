"""Fits the network of device times to operators and whole models at once: a row's time is the sum over its ops."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from forerun.graph.profile import CLASSES, UNITS
from forerun.graph.variants import VARIANTS
from forerun.predictors.cases import Cases
from forerun.predictors.default.kernel_shares import HEAVY_OPS
from forerun.predictors.default.network import (
    FASTER,
    FEED,
    FLOOR_RANGE,
    GROUP_OF,
    GROUPS,
    LEARNED_UNITS,
    ROW_OF_UNIT,
    SHARPNESS,
    SLOWER,
    Network,
    relative_feed,
)  # fmt: skip
from forerun.predictors.laws.features import NUMBERS, OpTable
from forerun.predictors.laws.kernels import BEST_MEMORY, COMPUTE, FLOOR_US, MEMORY

WIDTH = 64
#: One in DOUBLED_SHARE ops of a step is also predicted at twice the batch. Where that takes less time, the fall is a
#: loss of weight FALL_WEIGHT: a call of twice the work never takes less time.
DOUBLED_SHARE, FALL_WEIGHT = 4, 1.0
#: Noise of BLUR standard deviations is added at every step to the features that differ from chip to chip: a dozen chips
#: are too few to learn what lies between them.
BLURRED, BLUR = [NUMBERS.index(name) for name in ("feed", "arithmetic")], 0.4
#: Rows of an operator (at most OPERATOR ops, its hidden ones included) are drawn TURNS times while a model's are drawn
#: once: they cost a step hardly anything.
OPERATOR, TURNS = 3, 4
#: The weight of the times of two parts of a call (ops that multiply or normalise, and all others) relative to the time
#: of the whole call, and the least share of the call that a part must be able to have to count.
PARTS_WEIGHT, LEAST_SHARE = 0.5, 0.1
#: Memory of a GPU that a process of a fit may need.
GPU_BYTES = 2**30


def fit(
    cases: Cases, target_ms: np.ndarray, weight: np.ndarray, *, timing_group: np.ndarray | None = None,
    heavy_share: np.ndarray | None = None, steps: int = 600, seed: int = 0, decay: float = 2e-3,
    batch_ops: int = 6_000, rate: float = 1e-2,
) -> Network:  # fmt: skip
    """The network whose sums come nearest to `target_ms`, in logarithms; `weight` says how much each row counts.

    `timing_group` numbers how rows were timed (0: by our own protocol). Every other group gets a launch floor of its
    own, so that what its way of measuring adds is not learned as a property of the hardware. `heavy_share` [rows, 2] is
    what kernel_shares.py found.
    """
    import torch

    device = _fitting_device()
    generator = torch.Generator().manual_seed(seed)  # the same draws wherever it runs
    torch.manual_seed(seed)

    def put(values: np.ndarray) -> Any:
        return torch.from_numpy(values).to(device, non_blocking=True)

    mean = cases.ops.numbers.mean(axis=0)
    scale = cases.ops.numbers.std(axis=0) + 1e-3
    x = put(np.clip((cases.ops.numbers - mean) / scale, -4, 4).astype(np.float32))
    every = (len(CLASSES), len(UNITS), len(VARIANTS))
    found, kind_of_op = np.unique(
        np.ravel_multi_index((cases.ops.classes, cases.ops.units, cases.ops.variants), every), return_inverse=True
    )
    kinds = np.column_stack(np.unravel_index(found, every))
    law, times = put(_terms(cases.ops)), put(cases.weight.astype(np.float32))
    target = put(np.log(np.maximum(target_ms * 1e3, 1e-3)).astype(np.float32))
    counts = put(weight.astype(np.float32))
    timing = timing_group if timing_group is not None else np.zeros(len(target_ms), dtype=int)
    parts = _parameters(len(NUMBERS), int(timing.max()) + 1, device)
    timing = put(timing)
    heavy = put(HEAVY_OPS[cases.ops.classes].astype(int))
    shares = tuple(put(ends) for ends in _log_shares(heavy_share, len(target_ms)))
    optimizer = torch.optim.AdamW(
        [
            {"params": [parts[k] for k in ("in", "class", "unit", "variant", "middle", "out")], "weight_decay": decay},
            {"params": [parts[k] for k in parts if k not in ("in", "class", "unit", "variant", "middle", "out")],
             "weight_decay": 0.0},
        ],
        lr=rate,
    )  # fmt: skip
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps, pct_start=0.15)
    starts = np.searchsorted(cases.case, np.arange(len(cases.rows) + 1))
    sizes = np.diff(starts)
    draw = _draw(sizes, batch_ops, generator)
    for _ in range(steps):
        chosen = next(draw)
        op_counts = sizes[chosen]
        before = np.cumsum(op_counts) - op_counts
        at = np.repeat(starts[chosen] - before, op_counts) + np.arange(op_counts.sum())
        ops, row = put(at), put(np.repeat(np.arange(len(chosen)), op_counts))
        seen, terms = x.index_select(0, ops), law.index_select(0, ops)
        noise = torch.randn((len(at), len(BLURRED)), generator=generator).to(device)
        seen[:, BLURRED] = (seen[:, BLURRED] + BLUR * noise).clamp(-4, 4)
        us = _op_us(parts, kinds, kind_of_op[at], seen, terms)
        by_part = torch.zeros(2 * len(chosen), device=device).index_add(0, 2 * row + heavy[ops], us * times[ops])
        drawn = torch.randint(len(at), (len(at) // DOUBLED_SHARE,), generator=generator)
        drawn_ops = drawn.to(device)
        uniform = torch.rand((2, len(drawn)), generator=generator).to(device)
        doubled = _twice(seen[drawn_ops], terms[drawn_ops], mean, scale, uniform)
        twice = _op_us(parts, kinds, kind_of_op[at[drawn.numpy()]], *doubled)
        falls = torch.relu(torch.log(us[drawn_ops]) - torch.log(twice)).mean()
        picked = put(chosen)
        where = timing[picked]
        floor = torch.exp(parts["context_floor"][where]) * (where > 0)
        off = _row_loss(by_part.reshape(-1, 2), floor, target[picked], *(ends[picked] for ends in shares))
        loss = (counts[picked] * off).sum() / counts[picked].sum() + FALL_WEIGHT * falls
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    fitted = {k: v.detach().cpu().numpy() for k, v in parts.items()}
    return Network({**fitted, "mean": mean.astype(np.float32), "scale": scale.astype(np.float32)})


def _fitting_device() -> Any:
    """The GPU, where its memory is enough for a process per core; a forked process cannot use the GPU of its parent."""
    import torch

    usable = torch.cuda.is_available() and not torch.cuda._is_in_bad_fork()
    roomy = usable and torch.cuda.get_device_properties(0).total_memory > (os.cpu_count() or 1) * GPU_BYTES
    return torch.device("cuda" if roomy else "cpu")


def _row_loss(by_part: Any, floor: Any, target: Any, least: Any, most: Any) -> Any:
    """[rows]: the loss of whole calls (`by_part`: microseconds of light and of heavy ops, `target`: of the call, in
    logarithms), plus that of parts whose share of the call is outside the measured range."""
    import torch

    error = torch.log((by_part.sum(dim=1) + floor).clamp_min(1e-3)) - target
    part = torch.log(by_part.clamp_min(1e-3)) - target[:, None]
    beyond = torch.relu(part - most) + torch.relu(least - part)
    outside = _loss(torch.where(most > np.log(LEAST_SHARE), beyond, 0.0)).sum(dim=1)
    return _loss(error) + PARTS_WEIGHT * outside


def _log_shares(heavy_share: np.ndarray | None, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """[rows, 2] each: the least and the largest share of the light ops and of the heavy ones, in logarithms."""
    low, high = heavy_share.T if heavy_share is not None else np.full((2, rows), np.nan)
    ends = np.column_stack([1 - high, low]), np.column_stack([1 - low, high])
    least, most = (np.log(np.maximum(end, 1e-3)).astype(np.float32) for end in ends)
    return least, most


def _loss(error: Any) -> Any:
    import torch

    return torch.nn.functional.smooth_l1_loss(error, torch.zeros_like(error), reduction="none", beta=0.1)


def _terms(ops: OpTable) -> np.ndarray:
    """[n, 5]: the terms of the law, in microseconds: arithmetic and its slowdown at the power limit, memory and how
    fast it feeds the multiprocessors, launches."""
    columns = (
        ops.compute_s * 1e6,
        ops.power_slowdown,
        ops.memory_s * 1e6,
        relative_feed(ops.numbers[:, FEED]),
        ops.launches,
    )
    return np.column_stack(columns).astype(np.float32)


def _twice(x: Any, terms: Any, mean: np.ndarray, scale: np.ndarray, draw: Any) -> tuple[Any, Any]:
    """Ops (`x`: their numbers, scaled) at twice the batch: twice the arithmetic, and twice of the bytes that are not
    weights, whose share is drawn; the batch multiplies rows or how often the op runs. `draw`: [2, ops], from 0 to 1."""
    import torch

    grown = 1 + draw[0]
    by_rows, bits = (draw[1] < 0.7).float(), torch.log2(grown)
    blocks, cols = (
        x[:, at] * float(scale[at]) + float(mean[at]) for at in (NUMBERS.index("blocks"), NUMBERS.index("cols"))
    )
    pairs = blocks - cols + 10  # rows for each two that a multiprocessor has at a time, as blocks are 2,048 numbers
    more: dict[str, Any] = {
        **dict.fromkeys(("compute_us", "tiles", "blocks"), 1.0), **dict.fromkeys(("memory_us", "in_cache"), bits),
        **dict.fromkeys(("rows", "square"), by_rows), "count": 1 - by_rows, "intensity": 1 - bits,
        "at_once": bits - (pairs + 1).clamp(0, 1),
    }  # fmt: skip
    out = x.clone()
    for name, by in more.items():
        at = NUMBERS.index(name)
        out[:, at] = (out[:, at] + by / float(scale[at])).clamp(-4, 4)
    compute, power_slowdown, memory, feed, launches = terms.T
    return out, torch.stack([2 * compute, power_slowdown, memory * grown, feed, launches], dim=1)


def _parameters(numbers: int, timing_groups: int, device: Any) -> dict[str, Any]:
    import torch

    def small(*shape: int, by: float) -> Any:
        return torch.randn(shape) * by

    def logs(values: np.ndarray) -> Any:
        return torch.tensor(np.log(values), dtype=torch.float32)

    start = {
        "in": small(len(GROUPS), numbers, WIDTH, by=numbers**-0.5), "class": small(len(CLASSES), WIDTH, by=0.3),
        "unit": small(len(LEARNED_UNITS), WIDTH, by=0.3), "variant": small(len(VARIANTS), WIDTH, by=0.1),
        "middle": small(len(GROUPS), WIDTH, WIDTH, by=WIDTH**-0.5), "middle_bias": small(len(GROUPS), WIDTH, by=0.0),
        "out": small(len(GROUPS), WIDTH, 2, by=0.01), "out_bias": small(len(GROUPS), 2, by=0.0),
        "log_compute": logs(COMPUTE), "log_memory": logs(np.full(len(CLASSES), BEST_MEMORY)),
        "log_intake": logs(MEMORY * 0.7), "log_floor_us": logs(FLOOR_US),
        "context_floor": torch.full((timing_groups,), 0.5),
    }  # fmt: skip
    return {name: torch.nn.Parameter(values.to(device)) for name, values in start.items()}


def _op_us(p: dict[str, Any], kinds: np.ndarray, kind_of_op: np.ndarray, x: Any, terms: Any) -> Any:
    """The law of network.py, in microseconds, differentiable; `kinds` are class, unit and variant of each kind of op,
    `kind_of_op` says which an op is of, and `terms` are those of the law."""
    import torch

    def put(values: np.ndarray) -> Any:
        return torch.from_numpy(values).to(x.device, non_blocking=True)

    tables = put(np.column_stack([kinds[:, 0], ROW_OF_UNIT[kinds[:, 1]], kinds[:, 2]]).T)
    embedded = p["class"][tables[0]] + p["unit"][tables[1]] + p["variant"][tables[2]]
    kind, group = put(kind_of_op), GROUP_OF[kinds[kind_of_op, 0]]
    classes, (compute, power_slowdown, memory, feed, launches) = tables[0][kind], terms.T.contiguous()
    out = torch.empty(len(x), 2, device=x.device)
    for g in range(len(GROUPS)):
        places = put(np.flatnonzero(group == g))
        hidden = torch.relu(torch.addmm(torch.nn.functional.embedding(kind[places], embedded), x[places], p["in"][g]))
        hidden = torch.relu(torch.addmm(p["middle_bias"][g], hidden, p["middle"][g]))
        out = out.index_copy(0, places, torch.addmm(p["out_bias"][g], hidden, p["out"][g]))
    u = torch.where(out[:, 0] > 0, SLOWER * torch.tanh(out[:, 0] / SLOWER), FASTER * torch.tanh(out[:, 0] / FASTER))
    v = FLOOR_RANGE * torch.tanh(out[:, 1] / FLOOR_RANGE)
    c = (compute * power_slowdown * torch.exp(p["log_compute"][classes])).clamp_min(1e-6)
    m = (memory * torch.exp(p["log_memory"][classes])).clamp_min(1e-6)
    i = (memory * feed * torch.exp(p["log_intake"][classes])).clamp_min(1e-6)
    roof = (c**SHARPNESS + m**SHARPNESS + i**SHARPNESS) ** (1 / SHARPNESS)
    return torch.maximum(torch.maximum(compute, memory), roof * torch.exp(u)) + launches * torch.exp(
        p["log_floor_us"][classes] + v
    )


def _draw(sizes: np.ndarray, batch_ops: int, generator: Any) -> Any:
    """Batches of cases with about `batch_ops` ops; all cases are drawn before any is drawn again."""
    import torch

    turns = np.repeat(np.arange(len(sizes)), np.where(sizes <= OPERATOR, TURNS, 1))
    while True:
        order = turns[torch.randperm(len(turns), generator=generator).numpy()]
        ends = np.cumsum(sizes[order])
        first = 0
        while first < len(order):
            done = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, done + batch_ops)))
            yield order[first:last]
            first = last
