"""Asks the frontend for ONNX files for every model of ONNX's own conformance suite. Nightly, not in CI.

    python benchmarks/onnx_conformance.py
    python benchmarks/onnx_conformance.py --only 'lstm|loop'

Every model is one that ONNX's reference runs, with inputs and results. Prints the models that are refused, by sentence,
and those whose result has another shape than the reference gives though no size had to be assumed. Exits with 1 where
less than 97 % are answered or any shape is wrong. Tensors without elements are left out: there is nothing to time.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from forerun.errors import ForerunError
from forerun.frontends.onnx.file import OnnxFrontend
from forerun.graph.ir import Graph
from forerun.graph.validate import validate
from forerun.workload import Workload

ANSWERED = 0.97
#: Notes of graphs in which a size was assumed.
_ASSUMED = re.compile(r"assumed|unknown|not known|depends? on the data|upper bound|end early|changing sizes")


def cases() -> Iterator[tuple[str, onnx.ModelProto, list[Any], list[Any]]]:
    """(name, model, inputs, results) of every model of the suite that has them."""
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases(None):
        if case.model is not None and case.data_sets:
            yield case.name, case.model, list(case.data_sets[0][0]), list(case.data_sets[0][1])
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for path in sorted(data.glob("*/*/model.onnx")):
        sets = sorted(path.parent.glob("test_data_set_*"))
        found = [
            [_tensor(file) for file in sorted(folder.glob(f"{kind}_*.pb"))]
            for folder in sets[:1]
            for kind in ("input", "output")
        ]
        yield path.parent.name, onnx.load(str(path)), *(found or [[], []])


def _tensor(path: Path) -> Any:
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def given_shapes(proto: onnx.ModelProto, inputs: list[Any]) -> dict[str, tuple[int, ...]] | None:
    """The shapes of the reference's inputs, for those that the file leaves open."""
    weights = {tensor.name for tensor in proto.graph.initializer}
    infos = [info for info in proto.graph.input if info.name not in weights]
    shapes = {}
    for info, value in zip(infos, inputs, strict=False):
        kind = info.type.tensor_type
        open_axes = not kind.HasField("shape") or any(not dim.HasField("dim_value") for dim in kind.shape.dim)
        if isinstance(value, np.ndarray) and info.type.HasField("tensor_type") and open_axes:
            shapes[info.name] = tuple(value.shape)
    return shapes or None


def asked(proto: onnx.ModelProto, shapes: dict[str, tuple[int, ...]] | None) -> tuple[Graph, int]:
    """The graph at batch 1, or at the batch that the frontend names as the only one."""
    batch = 1
    while True:
        try:
            graphs = OnnxFrontend().load(proto, Workload(proto, batch=batch, input_shape=shapes))
            break
        except ForerunError as error:
            named = re.search(r"ask for batch (\d+)|gives it (\d+), and --batch is 1;", str(error))
            if named is None or batch != 1:
                raise
            batch = int(named[1] or named[2])
    graph = next(graph for graph in graphs if graph.serves(batch)).at(batch)
    validate(graph)
    return graph, batch


def wrong_shapes(proto: onnx.ModelProto, graph: Graph, results: list[Any]) -> str:
    """How the results differ in shape from the reference's; '' where they do not, or where a size was assumed."""
    if any(_ASSUMED.search(note) for note in graph.notes) or len(graph.outputs) != len(results):
        return ""
    fronts = {d.dim_value for i in proto.graph.input for d in i.type.tensor_type.shape.dim[:1] if d.dim_value > 0}
    if fronts - {graph.batch}:
        return ""  # the file's own batch is another one
    ours = [graph.tensors[t].shape for t in graph.outputs]
    theirs = [value.shape for value in results if isinstance(value, np.ndarray)]
    return f"{ours} instead of {theirs}" if len(theirs) == len(ours) and ours != theirs else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression that names must match")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    refused: dict[str, list[str]] = defaultdict(list)
    wrong: dict[str, str] = {}
    total = 0
    for name, proto, inputs, results in cases():
        empty = any(isinstance(value, np.ndarray) and not value.size for value in (*inputs, *results))
        if empty or not re.search(options.only, name) or not proto.graph.node:
            continue
        total += 1
        try:
            graph, _ = asked(proto, given_shapes(proto, inputs))
        except ForerunError as error:
            refused[re.sub(r"'[^']*'|\d+", "*", str(error))].append(f"{name}: {error}")
            continue
        if fault := wrong_shapes(proto, graph, results):
            wrong[name] = fault
    for lines in sorted(refused.values(), key=len, reverse=True):
        print(f"{len(lines)} refused, as {lines[0]}")
    for name, fault in wrong.items():
        print(f"WRONG: {name}: {fault}")
    answered = total - sum(map(len, refused.values()))
    share = answered / max(total, 1)
    print(f"{answered} of {total} models answered ({share:.1%}), {len(wrong)} of another shape")
    return 0 if share >= ANSWERED and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
