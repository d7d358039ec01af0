"""Frontend for programs of torch.export: .pt2 files, and torch.export.ExportedProgram objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from forerun._util.installed import version
from forerun.errors import ForerunError
from forerun.frontends.base import Frontend, file_hash, first_line, inference_or_training
from forerun.graph.ir import Graph
from forerun.workload import Workload


class ExportedFrontend(Frontend):
    """A program that torch.export made. A file is read as JSON: nothing in it is unpickled, no weight is read."""

    takes = "a torch.export program"
    priority = 100
    suffixes = (".pt2",)

    def matches(self, model: Any) -> bool:
        return type(model).__module__.startswith("torch.export") or self.claims(model)

    def untrusted(self, model: Any) -> bool:
        return isinstance(model, (str, Path))

    def key(self, model: Any, workload: Workload) -> dict[str, Any] | None:
        if not isinstance(model, (str, Path)) or not Path(model).is_file():
            return None
        return {"torch": version("torch"), "sha256": file_hash(Path(model))}

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        from forerun.capture.exported_file import read

        inference_or_training(workload, "A program of torch.export")
        if isinstance(model, (str, Path)):
            return _captured(read(Path(model)), workload, Path(model).stem)
        return _captured(_written(model), workload, type(model).__name__)


def _written(exported: Any) -> Any:
    """The program of a live object, as torch.export writes it."""
    import tempfile

    import torch

    from forerun.capture.exported_file import read

    with tempfile.TemporaryDirectory(prefix="forerun-") as folder:
        path = Path(folder) / "program.pt2"
        try:
            torch.export.save(exported, path)
        except Exception as e:
            raise ForerunError(f"the program cannot be written by torch.export.save: {first_line(e)}") from e
        return read(path)


def _captured(program: Any, workload: Workload, name: str) -> list[Graph]:
    from forerun.capture.capture import TORCH_DTYPES
    from forerun.capture.exported_program import ExportedModule, main_dtype
    from forerun.frontends.pytorch.module_graphs import captured

    own = main_dtype(program)
    # fp32 is what is asked for when nothing is: as with ONNX files, it leaves the program as it is.
    dtype = None if workload.weight_dtype == "fp32" else TORCH_DTYPES[workload.weight_dtype]
    notes = []
    if dtype is None and str(own) != "torch.float32":
        notes.append(f"the program is in {str(own).removeprefix('torch.')} and is answered so")
    if workload.mode == "training":
        notes.append("batch norms and dropouts of the program run as in training, whatever mode it was exported in")
    sizes = _Sizes(program, workload, name)
    notes += sizes.notes
    shapes = ", ".join(f"{s.name} {tuple(d.value for d in s.sizes)}" for s in program.inputs)
    try:
        maker = ExportedModule(program, dtype)
    except ForerunError:
        raise
    except Exception as e:  # whatever is wrong in a damaged file
        raise ForerunError(f"{name} is not a program that can be read ({type(e).__name__}: {first_line(e)})") from e

    def make_inputs(batch: int) -> dict[str, Any]:
        symbols = sizes.at(batch)
        return {str(i): maker.empty(spec, symbols) for i, spec in enumerate(program.inputs)}

    graphs = captured(lambda: ExportedModule(program, dtype), make_inputs, workload, name, shapes)
    for graph in graphs:
        graph.notes = notes + graph.notes
    return graphs


class _Sizes:
    """What stands for the symbols of a program: the batch for the first, what is given or its example for others."""

    def __init__(self, program: Any, workload: Workload, name: str) -> None:
        self.name, self.notes = name, list[str]()
        first = next((s for s in program.inputs if s.sizes), None)
        if first is None:
            raise ForerunError(f"{name} takes no tensor: there is nothing to predict")
        self.batch_symbol, self.exported_batch = first.sizes[0].symbol, first.sizes[0].value
        self.symbols: dict[str, int] = {}
        given = workload.input_shape
        shapes = dict(given) if isinstance(given, dict) else {first.name: given} if given else {}
        for spec in program.inputs:
            self._read(spec, shapes.pop(spec.name, None), workload)
        if shapes:
            names = ", ".join(s.name for s in program.inputs)
            raise ForerunError(f"{name} has no input called {next(iter(shapes))!r}; it has {names}")

    def _read(self, spec: Any, shape: tuple[int, ...] | None, workload: Workload) -> None:
        for place, size in enumerate(spec.sizes[1:]):
            wanted = size.value if shape is None or place >= len(shape) else shape[place]
            if size.symbol is None and wanted != size.value:
                raise ForerunError(
                    f"{self.name} was exported for {spec.name} of {[s.value for s in spec.sizes[1:]]} without the "
                    "batch, and takes no other; dynamic_shapes of torch.export make a size free"
                )
            if size.symbol is None or size.symbol == self.batch_symbol:
                continue
            if shape is None and size.symbol not in self.symbols:
                wanted = workload.seq_len or wanted
                if workload.seq_len is None:
                    self.notes.append(f"a size of {spec.name} is free and was taken as {wanted}, as it was exported")
            elif shape is None:
                continue
            self.symbols[size.symbol] = wanted

    def at(self, batch: int) -> dict[str, int]:
        """The value of every symbol at a batch size."""
        if self.batch_symbol is None and batch != self.exported_batch:
            raise ForerunError(
                f"{self.name} was exported for batch {self.exported_batch} and takes no other; dynamic_shapes of "
                "torch.export make the batch free"
            )
        return {**self.symbols, **({self.batch_symbol: batch} if self.batch_symbol else {})}
