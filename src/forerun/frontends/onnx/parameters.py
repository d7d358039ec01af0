"""How many parameters an ONNX model has: every weight once, however its exporter stored it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.frontends.onnx.trace import Trace

if TYPE_CHECKING:
    import onnx


def count_parameters(trace: Trace) -> int:
    """Elements of every weight that an op reads, tied weights once."""
    return sum(trace.counted.values()) - _tied_elements(trace) + _merged_elements(trace)


def _tied_elements(trace: Trace) -> int:
    """Elements of weights that are the transposed copy of another one: an output layer tied to the embedding."""
    import numpy as np
    from onnx import TensorProto, numpy_helper

    def weights_of(kind: str) -> list[onnx.TensorProto]:
        weights = []
        for name, elements in trace.counted.items():
            tensor = trace.protos.get(name)
            inside = tensor is not None and tensor.data_location != TensorProto.EXTERNAL and tensor.raw_data
            if tensor is not None and inside and len(tensor.dims) == 2 and elements >= 1 << 16:
                weights += [tensor] * any(trace.ops[i].kind == kind for i in trace.readers[name])
        return weights

    tied = 0
    tables = weights_of("embedding")
    for weight in weights_of("matmul") if tables else []:
        for table in tables:
            if list(table.dims) == list(reversed(weight.dims)):
                a, b = numpy_helper.to_array(table), numpy_helper.to_array(weight)
                tied += a.size if np.array_equal(a[:64], b.T[:64]) and np.array_equal(a, b.T) else 0
    return tied


def _merged_elements(trace: Trace) -> int:
    """Elements of vectors that torch.onnx stored once because they are equal (the zero biases of a fresh model).

    A vector that several ops read, in a file where no matrix is shared, was several parameters before the export.
    """
    if not trace.from_torch:
        return 0
    merged = 0
    for name, elements in trace.counted.items():
        tensor, readers = trace.protos.get(name), len(trace.readers.get(name, ()))
        if tensor is None or readers < 2:
            continue
        if len(tensor.dims) > 1:
            if sum(trace.ops[i].kind in ("matmul", "conv") for i in trace.readers[name]) > 1:
                return 0  # layers that share their weights (ALBERT) share their vectors too
            continue
        if trace.is_uniform(tensor) is not False:
            merged += elements * (readers - 1)
    return merged
