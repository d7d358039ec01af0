"""A network as one line of numbers, the features of predictors that see it as a whole.

The same numbers describe a measured row (`of_rows`, from the columns of a table of cases, predictors/cases.py) and a
question (`of_question`), so that a predictor learned from rows predicts questions:

| number | what it is |
|---|---|
| `batch`, `seq_len` | samples of a call; tokens, 0 without any |
| `bits` | of a weight as it is stored: 32, 16, 8 or 4 |
| `inference`, `training`, `prefill`, `decode` | 1 for the mode of the call, else 0 |
| `optimizer_states`, `amp` | tensors that the optimizer keeps per weight; 1 under autocast |
| `nodes`, `edges` | ops and data edges of the graph, folded blocks counted as often as they run |
| `macs`, `bytes` | multiply-accumulates and bytes moved in a call |
| `parameters` | weights of the network |
| `convolutions`, `linears`, `relus`, `attentions` | how many ops of these kinds run forward |
| `filters` | output channels of the first convolution, 0 without any |
| `heads`, `hidden`, `vocabulary`, `token_types`, `positions` | of a language model, read off its graph; 0 without any |

Numbers of the device and of the host are in `devices.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from forerun.device import Device
from forerun.graph.profile import Profile
from forerun.predictors.laws.graph_numbers import GRAPH_NUMBERS, WORK_NUMBERS, of_graph
from forerun.predictors.published.whole_model.devices import DEVICE_NUMBERS, HOST_NUMBERS, of_devices, of_hosts
from forerun.workload import CALL_MODES, Workload

if TYPE_CHECKING:
    import pandas as pd

#: Numbers by name, each over the same lines.
Numbers = dict[str, np.ndarray]

#: Of the question beside its graph.
CALL_NUMBERS = ("batch", "seq_len", "bits", *CALL_MODES, "optimizer_states", "amp")
MODEL_NUMBERS = (*CALL_NUMBERS, *GRAPH_NUMBERS, *WORK_NUMBERS)
ALL_NUMBERS = (*MODEL_NUMBERS, *DEVICE_NUMBERS)
#: These, and those of the host, which are features where they are asked for.
KNOWN_NUMBERS = (*ALL_NUMBERS, *HOST_NUMBERS)

_STATES = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}
_BITS = {"fp64": 64, "fp16": 16, "bf16": 16, "int8": 8, "fp8": 8, "int4": 4}


def of_rows(rows: pd.DataFrame, devices: Sequence[Device]) -> Numbers:
    """The numbers of measured rows; `devices` are those of the rows, in order."""
    out = {name: rows[name].to_numpy(dtype=float) for name in (*GRAPH_NUMBERS, *WORK_NUMBERS)}
    mode = rows["mode"].to_numpy()
    out |= {name: (mode == name).astype(float) for name in CALL_MODES}
    return {
        **out,
        "batch": rows["batch"].to_numpy(dtype=float),
        "seq_len": rows["seq_len"].fillna(0).to_numpy(dtype=float),
        "bits": rows["dtype"].map(lambda name: _BITS.get(name, 32)).to_numpy(dtype=float),
        "optimizer_states": rows["optimizer"].map(lambda name: _STATES.get(name, 0)).to_numpy(dtype=float),
        "amp": rows["amp"].map(lambda name: float(isinstance(name, str) and name != "")).to_numpy(dtype=float),
        **of_devices(devices),
        **of_hosts(devices, rows["host"].tolist() if "host" in rows else None),
    }


def of_question(columns: Profile, devices: Sequence[Device], workload: Workload) -> Numbers:
    """The numbers of a question at every batch size on every device: lines in the order [batch sizes, devices]."""
    graph = of_graph(columns)
    graph |= {
        "seq_len": float(workload.seq_len or columns.graph.facts.get("seq_len") or 0),
        "bits": float(_BITS.get(workload.dtype, 32)),
        "optimizer_states": float(_STATES.get(workload.optimizer or "", 0)),
        "amp": float(workload.amp is not None),
        **{name: float(workload.mode == name) for name in CALL_MODES},
    }
    many, lines = len(devices), len(columns.batches) * len(devices)
    out = {name: np.full(lines, value) for name, value in graph.items()}
    out["batch"] = np.repeat(columns.batches.astype(float), many)
    out["macs"] = np.repeat(columns.repeat @ columns.macs, many)
    out["bytes"] = np.repeat(columns.repeat @ columns.bytes, many)
    fixed = of_devices(devices) | of_hosts(devices)
    return {**out, **{name: np.tile(values, len(columns.batches)) for name, values in fixed.items()}}


def matrix(numbers: Numbers, names: Sequence[str], *, logarithms: bool) -> np.ndarray:
    """[lines, names]; as log(1 + x) for predictors that add up their features (trees do not need it)."""
    out = np.column_stack([numbers[name] for name in names])
    return np.log1p(np.nan_to_num(out)) if logarithms else out
