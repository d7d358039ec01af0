"""Predictions of one model at many batch sizes and dtypes on many devices, skipping infeasible ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.api.generation import question_of
from forerun.api.predict import predict_many
from forerun.api.questions import Captures, Question, given_model
from forerun.device import Device
from forerun.errors import ForerunError
from forerun.graph.memory import peak_allocated_mb
from forerun.predictors.base import Predictor
from forerun.predictors.laws.memory import available_mb, cublas_handles, room_mb
from forerun.predictors.laws.workspaces import library_workspaces, with_reserves
from forerun.runtimes.cudagraph import CudaGraph
from forerun.runtimes.registry import USUAL

if TYPE_CHECKING:
    import pandas as pd

#: Batch sizes that are tried when none are given.
BATCHES = tuple(2**k for k in range(11))
#: Dtypes that are tried when none are given: those without a loss of accuracy. Training in half precision needs
#: autocast (amp) or a look at the loss; weights of 8 and 4 bits lose accuracy.
DTYPES = {"training": ("fp32", "tf32"), "other": ("fp32", "tf32", "fp16", "bf16")}
#: A call this many times over the limit is not tried at larger batches: latency does not fall with the batch.
_HOPELESS = 1.5


#: What launches kernels without the host, tried where the host keeps a device from a limit of latency.
WITHOUT_HOST = CudaGraph.name


def ask(
    settings: dict[str, Any],
    devices: Sequence[Device],
    *,
    dtypes: Sequence[str],
    batches: Sequence[int],
    max_latency_ms: float | None,
    predictor: str | Path | Predictor,
    confidence: float,
    host: str | float,
) -> tuple[pd.DataFrame, Question]:
    """A row for each dtype, batch and device, as of `predict_many`, and the question at the first of them.

    Where the tensors alone exceed a device, the row has `fits` False, the least memory, and no times. Batches beyond
    one that does not fit, or misses the latency limit by far, are skipped.
    """
    import pandas as pd

    frames: list[pd.DataFrame] = []
    first: Question | None = None
    errors: list[ForerunError] = []
    captures = Captures()
    left = {dtype: list(devices) for dtype in dtypes}
    tensors = _Tensors(batches)
    for place, batch in enumerate(batches):  # all dtypes of a batch in turn: their memory is similar
        for dtype in dtypes:
            try:
                workload = captures.workload(
                    given_model(settings["model"], {**settings, "dtype": dtype, "batch": batch})
                )
                question = question_of(workload)
            except ForerunError as error:
                errors.append(error)
                continue
            first = first or question
            large = tensors.too_large_mb(question, left[dtype], dtype, place)
            if large:
                frames.append(_too_large(workload, large))
            able = [d for d in left[dtype] if d.id not in large]
            if not able:
                continue
            answers = predict_many([workload], able, predictor=predictor, confidence=confidence, host=host)
            frames.append(answers)
            over = answers["fits"].eq(False) | (answers["latency_ms"] > _HOPELESS * (max_latency_ms or np.inf))
            done = {*large, *answers.loc[over, "device"]}  # a larger batch neither fits nor is faster
            left[dtype] = [d for d in left[dtype] if d.id not in done]
    if first is None:
        raise errors[0]
    return pd.concat(frames, ignore_index=True).assign(runtime=settings.get("runtime", USUAL)), first


def _too_large(workload: Any, needed_mb: dict[str, float]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        {"device": list(needed_mb), "batch": workload.batch, "dtype": workload.shown_dtype, "fits": False,
         "memory_mb": list(needed_mb.values()), "error": None}
    )  # fmt: skip


class _Tensors:
    """The memory of live tensors and library workspaces at each batch: a lower bound of the allocator's, and quicker
    to compute."""

    def __init__(self, batches: Sequence[int]) -> None:
        self.batches = np.array(batches)
        self.peaks: dict[tuple[str, Any], np.ndarray] = {}

    def too_large_mb(self, question: Question, devices: Sequence[Device], dtype: str, place: int) -> dict[str, float]:
        """The least memory of a call, for the devices that have less."""
        if question.scalable is None:
            return {}
        handles, out = cublas_handles(question.graph), {}
        for device in devices:
            room, working = room_mb(handles, device), library_workspaces(device)
            if (dtype, working) not in self.peaks:
                scalable = with_reserves(question.scalable)
                self.peaks[dtype, working] = peak_allocated_mb(scalable, self.batches, working)
            peak = float(self.peaks[dtype, working][place])
            if room is not None and peak > room:
                out[device.id] = peak + (available_mb(device) or 0.0) - room
        return out
