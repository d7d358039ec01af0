"""Devices that were left out: operators and whole models on a GPU of which only the spec sheet is known."""

from __future__ import annotations

import numpy as np
import pandas as pd

from forerun.evaluate.metrics import figures
from forerun.training.cases import Cases
from forerun.training.default import Gathered, contexts, device_ms, fit_networks

#: What NeuSight's authors publish for operators out of distribution (their table perop): not of single rows, but of the
#: sum of a class over a model, which is easier.
NEUSIGHT = "bmm 13.8 %, linear 13.9 %, elementwise 19.3 %, softmax 13.9 %, layer norm 56.7 %"
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
            # How a set measures is told by its other devices: one number per operator, for both predictors.
            shift = _shift(device_ms(networks, public), public, asked.rows)
            bare = public.sum(np.maximum(public.ops.compute_s, public.ops.memory_s)) * 1e3
            plain = _shift(bare, public, asked.rows)
            real = asked.rows["device_ms"].to_numpy(dtype=float)
            light = asked.sum(np.maximum(asked.ops.compute_s, asked.ops.memory_s)) * 1e3
            group = asked.rows["op"].where(~asked.rows["op"].isin(_ELEMENTWISE), "elementwise")
            for op in ["all", *sorted(group.unique())]:
                mine = (group == op).to_numpy() if op != "all" else np.ones(len(real), dtype=bool)
                for name, values in (
                    ("roofline", light),
                    ("one ratio per op", light * plain),
                    ("default", said * shift),
                ):
                    lines.append({"data set": dataset, "device": device, "op": op, "predictor": name,
                                  **figures(values[mine], real[mine])})  # fmt: skip
    return pd.DataFrame(lines)


def _shift(said: np.ndarray, public: Cases, rows: pd.DataFrame) -> np.ndarray:
    """Median ratio of measured to predicted on the devices that were seen, by operator and way of measuring."""
    ratio = pd.Series(public.rows["device_ms"].to_numpy(dtype=float) / said)
    by = ratio.groupby([pd.Series(contexts(public.rows)), public.rows["op"].reset_index(drop=True)]).median()
    return np.array([by.get(key, 1.0) for key in zip(contexts(rows), rows["op"], strict=True)], dtype=float)
