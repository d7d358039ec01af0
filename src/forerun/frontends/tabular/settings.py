"""Which workloads a tabular model has: a fit, or a call that predicts a batch of rows."""

from __future__ import annotations

from forerun.errors import ForerunError
from forerun.frontends.tabular.kinds import Tabular
from forerun.workload import Workload

#: Settings of a workload that a tabular model has none of, and their usual values.
_USUAL = {
    "input_shape": None, "seq_len": None, "amp": None, "runtime": "eager", "task": None, "image_size": None,
    "images": None, "channels_last": False, "tp": 1, "pp": 1,
}  # fmt: skip


def check(workload: Workload, model: Tabular) -> None:
    """Raises the sentence of a question that has no answer."""
    if workload.mode not in ("inference", "training"):
        raise ForerunError(f"a tabular model has the modes inference and training, not {workload.mode}")
    for name, usual in _USUAL.items():
        if getattr(workload, name) != usual:
            raise ForerunError(f"{name} is no setting of a tabular model: leave it out")
    if workload.dtype != "fp32":
        raise ForerunError(f"tables of tabular models are in fp32: leave dtype out (it was {workload.dtype})")
    if workload.mode == "training" and workload.optimizer not in (None, "sgd"):
        raise ForerunError(f"a tabular model is fitted by its library: leave optimizer {workload.optimizer} out")
    if workload.mode == "training" and workload.batch not in (1, model.settings.get("rows")):
        raise ForerunError("a fit reads all rows of its table: leave batch out, or give rows= in the name")
