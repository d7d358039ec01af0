"""Sums of a class of operators over a model, which NeuSight's authors publish with their predictions of them.

The authors time each call of a model in eager mode by itself, between two events, and add up the times by class. The
calls follow from the model's configuration. Copies aside, the matmuls listed here have the FLOPs, and all other ops the
bytes, of the authors' own roofline, except for BERT's pooler and classifier, a ten-thousandth of its linear layers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from forerun.predictors.base import Predictor
from forerun.runtimes.registry import USUAL
from forerun.training.cases import operator_cases

DATASET = "neusight, sums of a class over a model"
GPUS = ("l4", "a100-pcie-80gb", "h100-sxm")
PREDICTORS = ("roofline", "NeuSight")


@dataclass(frozen=True)
class _Sizes:
    layers: int
    hidden: int
    heads: int
    vocabulary: int


#: Switch is not here: its configuration is not published with the rows.
MODELS = {
    "bert-large-uncased": _Sizes(24, 1024, 16, 30522),
    "gpt2-large": _Sizes(36, 1280, 20, 50257),
    "facebook/opt-1.3b": _Sizes(24, 2048, 32, 50272),
    "neusight/gpt3_xl": _Sizes(24, 3072, 24, 50257),
    "neusight/gpt3_27": _Sizes(32, 2560, 32, 50257),
}


@dataclass(frozen=True)
class _Called:
    summed: str  # the class that it is counted in
    op: str
    shape: dict[str, int]
    count: int
    timed: bool = True  # False: within another call


def measured_sums(models: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The sums that were measured on GPUS, and the operators of each (`sum` is its row) with how often they run."""
    sums: list[dict[str, Any]] = []
    ops: list[dict[str, Any]] = []
    rows = models[(models["dataset"] == "neusight") & models["device"].isin(GPUS) & models["model"].isin(MODELS)]
    for row in rows.to_dict("records"):
        extra = json.loads(row["extra"]) if isinstance(row["extra"], str) else {}
        calls = _calls(row)
        for op, ms in extra.get("op_ms", {}).items():
            where = {"sum": len(sums), "device": row["device"]}
            published = extra.get("neusight_op_ms", {}).get(op, float("nan"))
            sums.append({**where, "dataset": DATASET, "op": op, "device_ms": ms, "NeuSight": published,
                         **{name: row[name] for name in ("model", "mode", "batch")}})  # fmt: skip
            for call in calls:
                if call.summed == op:
                    ops.append({**where, "op": call.op, "shape": json.dumps(call.shape), "count": call.count,
                                "timed": call.timed, "dtype": "fp32", "direction": "forward", "devices": 1,
                                "dataset": "neusight", "runtime": USUAL})  # fmt: skip
    return pd.DataFrame(sums), pd.DataFrame(ops)


def predicted(models: pd.DataFrame, device: str, predictor: Predictor) -> pd.DataFrame:
    """The sums of one GPU with the prediction of each of PREDICTORS and of a fitted predictor."""
    sums, ops = measured_sums(models[models["device"] == device])
    if sums.empty:
        return sums
    # Timing a call adds the same overhead as for a single operator; a call within another was not timed.
    cases = operator_cases(ops.assign(timing_group=np.where(ops["timed"], "neusight", "")))
    predicted_ms = {"roofline": cases.roofline_ms, predictor.name: predictor.predict_operators(cases)}
    each = pd.DataFrame({name: cases.rows["count"] * ms for name, ms in predicted_ms.items()})
    return sums.join(each.groupby(cases.rows["sum"]).sum(), on="sum")


def _calls(row: dict[str, Any]) -> list[_Called]:
    """The forward calls of the four classes in a model."""
    size, family = MODELS[row["model"]], row["family"]
    batch, length = int(row["batch"]), int(row["seq_len"])
    layers, wide, heads = size.layers, size.hidden, size.heads
    tokens, deep = batch * length, wide // heads

    def linear(n: int, k: int, count: int) -> _Called:
        return _Called("linear", "linear", {"m": tokens, "n": n, "k": k}, count)

    def bmm(n: int, k: int) -> _Called:
        return _Called("bmm", "bmm", {"b": batch * heads, "m": length, "n": n, "k": k}, layers)

    def norm(count: int) -> _Called:
        return _Called("layer_norm", "layer_norm", {"rows": tokens, "cols": wide}, count)

    calls = [bmm(length, deep), bmm(deep, length), norm(2 * layers + 1)]
    calls.append(_Called("softmax", "softmax", {"rows": batch * heads * length, "cols": length}, layers))
    if family == "gpt2":  # queries, keys and values in one
        calls += [linear(3 * wide, wide, layers), linear(wide, wide, layers)]
    else:
        calls.append(linear(wide, wide, 4 * layers))
    calls += [linear(4 * wide, wide, layers), linear(wide, 4 * wide, layers)]
    if family != "bert" or row["mode"] == "training":
        calls.append(linear(size.vocabulary, wide, 1))
    if family == "bert" and row["mode"] == "training":  # before the vocabulary
        calls += [linear(wide, wide, 1), norm(1)]
    if family != "opt" and batch > 1:
        # Queries, keys and values come with their heads permuted: of more than one sequence, matmul copies each before
        # it multiplies. OPT makes them contiguous elsewhere.
        shape = {"b": batch, "rows": length, "cols": wide}
        calls.append(_Called("bmm", "transpose", shape, 3 * layers, timed=False))
    return calls
