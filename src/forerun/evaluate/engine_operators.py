"""Operators in serving engines as published (aiconfigurator), beside what the default predictor says of the same
operators alone: what an engine's learned efficiency is fitted to.

Every operator becomes the ops that an engine's graph has for it (runtimes/engine.py): attention over a paged cache is
one op, a layer of experts two products of groups with what is done before, between and after them.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd

from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.graph.features import DIMS
from forerun.graph.ir import DTYPE_BYTES, Graph, Op, Storage, Tensor
from forerun.graph.kinds import CONTRACTIONS
from forerun.graph.profile import profile
from forerun.predictors.laws.engines import features
from forerun.predictors.laws.specs import op_roofline_s
from forerun.predictors.registry import load_predictor
from forerun.runtimes.registry import runtimes
from forerun.workload import Workload

SET = "aiconfigurator"
#: Rows of each system, engine, kind and dtype that are read, of up to tens of thousands.
ROWS = 400
#: What an operator of the set is, in the words of the law.
_KINDS = {"linear": "gemm", "moe": "moe"}


class _Made:
    """One graph that holds many operators side by side."""

    def __init__(self) -> None:
        self.graph = Graph("operators", [], [], [], 0, 0)

    def tensor(self, *shape: float, dtype: str) -> int:
        sizes = tuple(max(round(n), 1) for n in shape)
        self.graph.storages.append(Storage(int(math.prod(sizes) * DTYPE_BYTES[dtype]), "activation"))
        self.graph.tensors.append(Tensor(sizes, dtype, len(self.graph.storages) - 1))
        return len(self.graph.tensors) - 1

    def op(self, kind: str, inputs: list[int], output: int, **attrs: Any) -> int:
        self.graph.ops.append(Op(kind, kind, tuple(inputs), (output,), attrs))
        return output

    def gemm(self, one: dict[str, Any], dtype: str) -> None:
        x = self.tensor(one["m"], one["k"], dtype=dtype)
        w = self.tensor(one["k"], one["n"], dtype=dtype)
        unit = {"unit": "fp8"} if dtype == "fp8" else {}
        self.op("matmul", [x, w], self.tensor(one["m"], one["n"], dtype="bf16"), shared_b=True, **unit)

    def attention(self, one: dict[str, Any], dtype: str) -> None:
        heads = one.get("kv_heads") or one["heads"]
        q = self.tensor(one["b"], one["heads"], one["q"], one["d"], dtype=dtype)
        k, v = (self.tensor(one["b"], heads, one["kv"], one["d"], dtype=dtype) for _ in range(2))
        out = self.tensor(one["b"], one["heads"], one["q"], one["d"], dtype=dtype)
        self.op("attention", [q, k, v], out, causal=one["q"] > 1)

    def moe(self, one: dict[str, Any], dtype: str) -> None:
        """Experts that hold `ep`-th of all tokens; three matrices each, as all but few models have."""
        experts, gated = max(one["experts"] // one["ep"], 1), one["matrices"] == 3
        rows = one["tokens"] * one["topk"] / one["ep"]
        x = self.tensor(one["tokens"], one["hidden"], dtype="bf16")
        spread = self.op("elementwise", [x], self.tensor(rows, one["hidden"], dtype=dtype), generated=True)
        unit = {"unit": "fp8"} if dtype == "fp8" else {}
        wide = one["inner"] * (2 if gated else 1)
        up = self.tensor(experts, one["hidden"], wide, dtype=dtype)
        made = self.op("moe_matmul", [spread, up], self.tensor(rows, wide, dtype="bf16"), experts=experts, **unit)
        active = self.op("elementwise", [made], self.tensor(rows, one["inner"], dtype=dtype), generated=True)
        down = self.tensor(experts, one["inner"], one["hidden"], dtype=dtype)
        back = self.op(
            "moe_matmul", [active, down], self.tensor(rows, one["hidden"], dtype="bf16"), experts=experts, **unit
        )
        self.op("elementwise", [back], self.tensor(one["tokens"], one["hidden"], dtype="bf16"), generated=True)


def measured(store: Store, rows: int = ROWS) -> pd.DataFrame:
    """One line an operator: engine, device, kind, dtype, milliseconds measured and predicted alone, and features."""
    found = store.query(
        "select device, op, shape, dtype, runtime, protocol, device_ms, extra from operators "
        f"where dataset = '{SET}' and op in ('linear', 'sdpa', 'moe') and status = 'ok' order by row_id"
    )
    if found.empty:
        raise ForerunError(f"the store has no operators of engines: forerun data import {SET} FOLDER")
    found = found[~found["protocol"].str.contains("gemm_power")]
    found["engine"] = found["runtime"].map(
        {one: run.name for run in runtimes() for one in (run.name, *run.also_called)}
    )
    shapes = found["shape"].map(json.loads)
    found["kind"] = [
        _KINDS.get(op) or ("generation" if one["q"] == 1 else "context")
        for op, one in zip(found["op"], shapes, strict=True)
    ]
    found["sizes"] = [
        {**one, "matrices": 2 if "nongated" in str(extra) else 3}
        for one, extra in zip(shapes, found["extra"], strict=True)
    ]
    of = ["device", "engine", "kind", "dtype"]
    kept = found.groupby(of, group_keys=False)[found.columns.tolist()].apply(
        lambda one: one.sample(min(len(one), rows), random_state=0)
    )
    parts = [_predicted(one.reset_index(drop=True), str(device)) for device, one in kept.groupby("device")]
    return pd.concat(parts, ignore_index=True)


def _predicted(rows: pd.DataFrame, device_id: str) -> pd.DataFrame:
    """The rows of one device with what the default predictor says of each, and the law's features."""
    made, begin = _Made(), []
    for kind, sizes, dtype in zip(rows["kind"], rows["sizes"], rows["dtype"], strict=True):
        begin.append(len(made.graph.ops))
        make = {"gemm": made.gemm, "moe": made.moe}.get(kind, made.attention)
        make(sizes, dtype)
    device = load_device(device_id)
    columns = profile(made.graph, "bf16")
    each = load_predictor("default").op_times_ms(columns, device, Workload(made.graph, dtype="bf16", mode="decode"))
    compute, memory, _ = op_roofline_s(columns, [device])
    heavy = np.array([op.kind in CONTRACTIONS for op in made.graph.ops])
    sums = [np.add.reduceat(one, begin) for one in (each, *(heavy * one[0, :, 0] * 1e3 for one in (compute, memory)))]
    first = np.maximum.reduceat(np.where(heavy, np.arange(len(heavy)), -1), begin)  # the last product of each
    sizes = [columns.sizes[first, 0, DIMS.index(name)] for name in ("rows", "count", "window")]
    own = np.add.reduceat(each * heavy, begin)
    x = features(own, sums[1], sums[2], *sizes)
    named = {f"x{i}": x[:, i] for i in range(x.shape[1])}
    return rows.assign(predicted_ms=sums[0], roofline_ms=np.maximum(sums[1], sums[2]), **named)
