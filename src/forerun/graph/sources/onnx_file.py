"""Front door for ONNX files: any opset from 9 on, from any exporter. Nothing in the file is executed."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

from forerun.graph.ir import Graph
from forerun.graph.sources.door import Door, file_hash, inference_only
from forerun.workload import Workload

#: Bumped when this door would read the same file differently.
DOOR_VERSION = 3


class OnnxDoor(Door):
    """A .onnx file, or an onnx.ModelProto that was read already (which is not cached)."""

    takes = "an ONNX file or onnx.ModelProto"
    runs_modules = False
    priority = 100
    suffixes = (".onnx",)
    max_bytes = 2**31  # the limit of protobuf; larger models keep their weights in files beside it

    def matches(self, model: Any) -> bool:
        live = type(model).__name__ == "ModelProto" and type(model).__module__.startswith("onnx")
        return live or self.claims(model)

    def untrusted(self, model: Any) -> bool:
        return isinstance(model, (str, Path))

    def key(self, model: Any, workload: Workload) -> dict[str, Any] | None:
        if not isinstance(model, (str, Path)) or not Path(model).is_file():
            return None
        onnx = metadata.version("onnx")
        return {
            "door": "onnx", "version": DOOR_VERSION, "onnx": onnx, "sha256": file_hash(Path(model)),
            "batch_in_shape": batch_in_shape(workload),
        }  # fmt: skip

    def title(self, model: Any) -> str | None:
        return Path(model).stem if isinstance(model, (str, Path)) else None

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        from forerun.graph.sources.onnx_build import build
        from forerun.graph.sources.onnx_read import read

        inference_only(workload, "An ONNX file")
        if isinstance(model, (str, Path)):
            return build(read(Path(model)), workload, Path(model).stem)
        return build(model, workload, model.graph.name or "onnx")


def batch_in_shape(workload: Workload) -> list[tuple[str, int]]:
    """Where the given shapes hold the batch itself: only there a shape means different things at different batches."""
    given, batch = workload.input_shape, workload.batch
    shapes = given if isinstance(given, dict) else {"": given or ()}
    return [(name, axis) for name, shape in shapes.items() for axis, size in enumerate(shape) if size == batch != 1]
