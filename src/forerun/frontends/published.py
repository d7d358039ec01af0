"""What a checkpoint is published in: the dtype that is answered where none is asked for, and the notes that say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forerun.errors import ForerunError
from forerun.frontends.registry import find_frontend
from forerun.graph.ir import Graph
from forerun.runtimes import registry
from forerun.workload import Workload, ask_for_published_dtypes


def usual_dtype(model: Any, runtime: str) -> str | None:
    """What is answered where no dtype is asked for; None where that is not the checkpoint's to say: a runtime that runs
    files runs an export in fp32."""
    return None if registry.runtime(runtime).runs_files else published_in(model)


def published_in(model: Any) -> str | None:
    """The dtype, and after a space the format of quantised weights; None where no frontend says."""
    if isinstance(model, Graph):
        return None
    try:
        _, frontend = find_frontend(model)
    except ForerunError:  # said when the model is read
        return None
    return frontend.published(model)


def notes(workload: Workload) -> Iterator[str]:
    """Why the answer is in this dtype, where nobody asked for it, and what became of quantised weights."""
    stored, dtype = workload.weight_format, workload.dtype
    if stored:
        yield (
            f"dtype {dtype} with linear weights in {stored}: as the checkpoint is published; --dtype sets another, "
            "for which they are dequantised"
        )
        return
    if workload.published:
        yield f"dtype {dtype}: as the checkpoint is published; --dtype sets another"
    _, _, other = (published_in(workload.model) or "").partition(" ")
    if other and workload.mode == "training":
        yield f"the checkpoint's {other} weights are dequantised to {workload.weight_dtype}, as training needs them"
    elif other:
        yield f"the checkpoint's {other} weights are dequantised: dtype {dtype} was asked for"


ask_for_published_dtypes(usual_dtype)
