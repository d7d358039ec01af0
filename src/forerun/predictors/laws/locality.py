"""Bytes that each level of a GPU's memory moves for an op, by a law of tiles; shown in reports, read by no prediction.

The memory and the caches of an op without reuse (an element by element one, a norm, a copy) move every byte once. A
matmul or a convolution, of m x n outputs that sum over k, is computed in square tiles of outputs that stay in registers
while rows and columns of the operands stream by. A level below a tile of t outputs each way delivers

    m n k (1/min(t, m) + 1/min(t, n)) numbers, and the result once:

- L1 to a warp: 8 warps share the accumulators of a multiprocessor, 2**12 fp32 each, t = 64.
- L2 to a multiprocessor: half its 65,536 registers hold accumulators, 2**15, t = 181 (tiles of 128 x 256).
- Memory to L2: every byte once while the operands fit in L2; else all multiprocessors together are one tile,
  t = 181 sqrt(multiprocessors), whose k is without the window of a convolution, since neighbours share its pixels.

Attention streams keys and values past a tile of 128 queries, and keeps its scores in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.device import Device
from forerun.graph.features import DIMS
from forerun.graph.profile import CLASSES, UNITS, Profile

WARP_TILE, SM_TILE, QUERIES = 64.0, 181.0, 128.0
#: Bytes of a number as the units read it.
_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1, "vector": 4}
_ATTENTION = [CLASSES.index(name) for name in ("attention", "attention_backward")]


@dataclass(frozen=True)
class Moved:
    """Bytes of one launch of every op, [ops], by the level that delivers them."""

    memory: np.ndarray
    l2: np.ndarray
    l1: np.ndarray


def moved(columns: Profile, device: Device) -> Moved | None:
    """The bytes of a profile's first batch size; None where the device has no such levels or they are not known."""
    if not device.traits.is_board or device.sm_count is None or device.l2_cache_mb is None:
        return None
    once, flops = columns.bytes[:, 0], columns.flops[:, 0]
    rows, cols, window = (np.maximum(columns.sizes[:, 0, DIMS.index(name)], 1.0) for name in ("rows", "cols", "window"))
    each = np.array([_BYTES[name] for name in UNITS])[columns.units]
    contraction = (columns.units != UNITS.index("vector")) & (flops > 0)
    attention = np.isin(columns.classes, _ATTENTION)

    def streamed(tile: float, inner: np.ndarray | float = 1.0) -> np.ndarray:
        by_tile = 1 / np.minimum(tile, rows) + 1 / np.minimum(tile, cols)
        by_tile = np.where(attention, 1 / np.minimum(min(tile, QUERIES), rows), by_tile)
        return np.where(contraction, flops / 2 / inner * each * by_tile, 0.0)

    whole = streamed(SM_TILE * float(np.sqrt(device.sm_count)), np.where(attention, 1.0, window))
    memory = np.where(once <= device.l2_cache_mb * 2**20, once, np.maximum(once, whole))
    l2 = np.maximum(memory, streamed(SM_TILE))
    return Moved(memory, l2, np.maximum(l2, streamed(WARP_TILE)))
