"""Frontend for TorchScript files. Such a file is a program that PyTorch runs, so it is opened only when trusted.

PyTorch reads the file with a restricted unpickler and runs its code in an interpreter of its own, without Python.
But operators of PyTorch reach files, and methods of the program run while it is read: that is code, not data.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forerun._util.installed import version
from forerun.errors import ForerunError
from forerun.frontends.base import Frontend, file_hash, first_line, weights_only
from forerun.frontends.pytorch.module_graphs import capture
from forerun.frontends.pytorch.torch_inputs import input_spec
from forerun.graph.ir import Graph
from forerun.workload import Workload, own_dtype

#: Operators that CUDA runs as one kernel, and that the interpreter shows in parts.
_IN_PARTS = {"scaled_dot_product_attention": "attention", "lstm": "LSTM layers", "gru": "GRU layers"}


class TorchScriptFrontend(Frontend):
    """A file of torch.jit.save, given with trust_remote_code."""

    takes = "a TorchScript file with --trust-remote-code"
    priority = 100
    suffixes = (".pt", ".pth", ".ts", ".torchscript")

    def matches(self, model: Any) -> bool:
        return self.claims(model) and is_torchscript(Path(model))

    def untrusted(self, model: Any) -> bool:
        return isinstance(model, (str, Path))

    def key(self, model: Any, workload: Workload) -> dict[str, Any] | None:
        if not Path(model).is_file() or not workload.trust_remote_code:
            return None  # nothing may be answered from the cache that would be refused
        return {"torch": version("torch"), "sha256": file_hash(Path(model))}

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        path = Path(model)
        if not is_torchscript(path):
            raise ForerunError(weights_only(model))
        if not workload.trust_remote_code:
            raise ForerunError(
                f"{path} is TorchScript, a program that must run to be predicted; if you trust who made it, "
                "--trust-remote-code (trust_remote_code=True) runs it, and torch.export files (.pt2) need no trust"
            )
        return capture_script(lambda: _opened(path, str(path)), workload, path.stem)


def is_torchscript(path: Path) -> bool:
    """Whether a file is an archive with code in it; weights alone have none."""
    import zipfile  # only now: a name is no archive

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False
    return any("/code/" in name for name in names) and any(name.endswith("/constants.pkl") for name in names)


def copies_of(module: Any) -> Callable[[], Any]:
    """Makes copies of a live ScriptModule on meta."""
    import torch

    buffer = io.BytesIO()
    torch.jit.save(module, buffer)

    def build() -> Any:
        buffer.seek(0)
        return _opened(buffer, "the TorchScript module")

    return build


def _opened(source: Any, name: str) -> Any:
    import torch

    try:
        return torch.jit.load(source, map_location="meta")
    except Exception as e:
        raise ForerunError(f"{name} cannot be read as TorchScript: {first_line(e)}") from e


def capture_script(open_module: Callable[[], Any], workload: Workload, name: str) -> list[Graph]:
    """The graphs of a TorchScript module, which `open_module` gives afresh on meta."""
    from forerun.capture.capture import TORCH_DTYPES

    first = open_module()
    own = own_dtype(first) or workload.weight_dtype
    # fp32 is what is asked for when nothing is: as with ONNX files, it leaves a file as it is.
    asked = (
        own if workload.weight_dtype == "fp32" and isinstance(workload.model, (str, Path)) else workload.weight_dtype
    )
    notes = [] if asked == workload.weight_dtype else [f"the file is in {own} and is answered so"]
    graph_text = str(first.inlined_graph)
    parts = [words for operator, words in _IN_PARTS.items() if f"aten::{operator}(" in graph_text]
    if parts:
        notes.append(f"TorchScript shows {' and '.join(parts)} in parts: fused kernels are faster and need less memory")
    dtype = TORCH_DTYPES[asked]

    def build() -> Any:
        return open_module() if asked == own else open_module().to(dtype)

    graphs = capture(build, input_spec(first, workload), workload, name)
    for graph in graphs:
        graph.notes = notes + graph.notes
    return graphs
