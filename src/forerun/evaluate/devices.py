"""Devices that were left out: operators and whole models on a GPU of which only the spec sheet is known."""

from __future__ import annotations

import numpy as np
import pandas as pd

from forerun.evaluate.metrics import figures
from forerun.training.cases import Cases
from forerun.training.default import Gathered, contexts, device_ms, fit_networks

#: What NeuSight's authors publish for operators out of distribution: mean error of a class's sum over a model.
NEUSIGHT = {"bmm": 0.138, "linear": 0.139, "elementwise": 0.193, "softmax": 0.139, "layer_norm": 0.567}
UNSEEN = {"neusight": ("l4", "a100-pcie-80gb", "h100-sxm"), "aiconfigurator": ("b200",)}
_ELEMENTWISE = ("add", "add_scalar", "div", "div_scalar", "mul", "scale", "gelu", "relu", "tanh", "pow", "pow_scalar")


def operators_left_out(found: Gathered, tested: Cases, *, seeds: tuple[int, ...], steps: int) -> pd.DataFrame:
    """Operators on each GPU of UNSEEN, by weights that saw no row of that GPU."""
    lines = []
    for dataset, devices in UNSEEN.items():
        for device in devices:
            asked = tested.take(((tested.rows["dataset"] == dataset) & (tested.rows["device"] == device)).to_numpy())
            if asked.rows.empty or found.public is None:
                continue
            own = found.operators.take((found.operators.rows["device"] != device).to_numpy())
            models = found.models.take((found.models.rows["device"] != device).to_numpy())
            public = found.public.take((found.public.rows["device"] != device).to_numpy())
            networks = fit_networks(models, own, public, seeds=seeds, steps=steps)
            said = device_ms(networks, asked)
            shift = _context(networks, public, asked.rows)
            real = asked.rows["device_ms"].to_numpy(dtype=float)
            light = asked.sum(np.maximum(asked.ops.compute_s, asked.ops.memory_s)) * 1e3
            group = asked.rows["op"].where(~asked.rows["op"].isin(_ELEMENTWISE), "elementwise")
            for op in ["all", *sorted(group.unique())]:
                mine = (group == op).to_numpy() if op != "all" else np.ones(len(real), dtype=bool)
                for name, values in (("roofline", light), ("default", said * shift)):
                    lines.append({"data set": dataset, "device": device, "op": op, "predictor": name,
                                  **figures(values[mine], real[mine]),
                                  "NeuSight, published": NEUSIGHT.get(op, float("nan"))})  # fmt: skip
    return pd.DataFrame(lines)


def _context(networks: object, public: Cases, rows: pd.DataFrame) -> np.ndarray:
    """How a set's own way of measuring shifts its times, told by its other devices (median ratio by operator)."""
    said = device_ms(networks, public)  # type: ignore[arg-type]
    ratio = pd.Series(public.rows["device_ms"].to_numpy(dtype=float) / said)
    context = pd.Series(contexts(public.rows))
    by = ratio.groupby([context, public.rows["op"].reset_index(drop=True)]).median()
    keys = zip(contexts(rows), rows["op"], strict=True)
    return np.array([by.get(key, 1.0) for key in keys], dtype=float)
