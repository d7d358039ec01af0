"""Frontend for ONNX files: any opset from 9 on, from any exporter. Nothing in the file is executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from forerun._util.extras import needed
from forerun._util.installed import version
from forerun.frontends.base import Frontend, file_hash, inference_or_training
from forerun.frontends.onnx.read_as import read_as
from forerun.graph.ir import Graph
from forerun.workload import Workload


class OnnxFrontend(Frontend):
    """A .onnx file, or an onnx.ModelProto that was read already (which is not cached)."""

    takes = "an ONNX file or onnx.ModelProto"
    runs_modules = False
    trains_modules = True
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
        with needed("An ONNX file"):
            onnx = version("onnx")
        return {
            "frontend": "onnx", "onnx": onnx, "sha256": file_hash(Path(model)),
            **read_as(workload),
        }  # fmt: skip

    def title(self, model: Any) -> str | None:
        return Path(model).stem if isinstance(model, (str, Path)) else None

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        with needed("An ONNX file"):
            from forerun.frontends.onnx.build import build
            from forerun.frontends.onnx.read import read
        inference_or_training(workload, "An ONNX file")
        if isinstance(model, (str, Path)):
            return build(read(Path(model)), workload, Path(model).stem)
        return build(model, workload, model.graph.name or "onnx")
