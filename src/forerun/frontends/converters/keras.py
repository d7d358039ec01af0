"""Frontend for Keras and TensorFlow: .keras, .h5, a SavedModel folder, a live keras.Model; through tf2onnx.

Python code inside a model is never run: `converters/keras_to_onnx.py` says what is loaded and what is refused. Batch
normalization is folded into the convolution before it, as TensorFlow's own graph optimizer does, except for training.
What converts is imported when a model is converted, since every question about any model asks this frontend whether it
takes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import sys
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError
from forerun.frontends.base import Frontend, file_hash, first_line, inference_or_training
from forerun.frontends.onnx.read_as import read_as
from forerun.graph.ir import Graph
from forerun.workload import Workload


class KerasFrontend(Frontend):
    """A Keras file, a SavedModel folder, or a live Keras model (which is not cached)."""

    takes = "a Keras file, SavedModel folder or keras.Model"
    runs_modules = False
    trains_modules = True
    priority = 100
    suffixes = (".keras", ".h5", ".hdf5")

    def matches(self, model: Any) -> bool:
        if isinstance(model, (str, Path)):
            return self.claims(model) or (Path(model) / "saved_model.pb").is_file()
        return _is_live(model)

    def key(self, model: Any, workload: Workload) -> dict[str, Any] | None:
        content = self.content(model)
        return content and {**content, **read_as(workload)}

    def title(self, model: Any) -> str | None:
        return Path(model).stem if isinstance(model, (str, Path)) else None

    def content(self, model: Any) -> dict[str, Any] | None:
        """The content of the file or folder, and the versions of what converts it."""
        if not isinstance(model, (str, Path)):
            return None
        path = Path(model)
        if path.is_file():
            digest = file_hash(path)
        elif path.is_dir():
            # The graph and its variables' index; the values do not matter.
            parts = [p for p in (path / "saved_model.pb", path / "variables" / "variables.index") if p.is_file()]
            digest = hashlib.sha256("".join(map(file_hash, parts)).encode()).hexdigest()
        else:
            return None
        from forerun.frontends.converters.environment import environment

        packages = list(environment("keras").packages)
        return {"frontend": "keras", "packages": packages, "sha256": digest}

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        inference_or_training(workload, "A Keras or TensorFlow model")
        if _is_live(model):
            import tempfile

            with tempfile.TemporaryDirectory(prefix="forerun-") as scratch:
                with contextlib.redirect_stdout(io.StringIO()):
                    saved = _save(model, Path(scratch))
                graphs = _from_path(saved, workload, str(model.name), None)
        else:
            path = Path(model)
            if not path.is_file() and not (path / "saved_model.pb").is_file():
                raise ForerunError(f"There is no file {path}.")
            _refuse(path)
            graphs = _from_path(path, workload, path.stem, self.content(model))
        folds = "which folds batch normalization into the convolution before it"
        kept = "with batch normalization as it is (a SavedModel has it folded) and without dropouts"
        for graph in graphs:
            graph.notes.append(f"Converted by tf2onnx, {kept if workload.mode == 'training' else folds}.")
        return graphs


def _refuse(path: Path) -> None:
    """Refuses an archive that no converter need look at: one that unpacks to gigabytes, or asks for code."""
    import zipfile

    from forerun.frontends.converters.scripts import keras_to_onnx

    if not path.is_file() or keras_to_onnx.true_suffix(path) != ".keras":
        return
    try:
        keras_to_onnx.check(keras_to_onnx.model_config(path))
    except (ValueError, OSError, RuntimeError, RecursionError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise ForerunError(f"{path.name} cannot be converted to ONNX: {first_line(error)}.") from error


def _is_live(model: Any) -> bool:
    return any(
        cls.__name__ == "Model" and cls.__module__.split(".")[0] in ("keras", "tf_keras", "tensorflow")
        for cls in type(model).__mro__
    )


def _save(model: Any, scratch: Path) -> Path:
    """Write a live model down so that another Python can read it."""
    if not model.built:
        raise ForerunError("This Keras model is not built yet; call it once or give it an Input.")
    trouble: Exception | None = None
    # A SavedModel holds the computation itself, so layers of the user's own survive; only TensorFlow writes it.
    ways = [("saved", "export")] if "tensorflow" in sys.modules else []
    for name, method in [*ways, ("model.keras", "save")]:
        try:
            getattr(model, method)(str(scratch / name))
        except (ValueError, TypeError, AttributeError, NotImplementedError, RuntimeError, OSError) as error:
            trouble = error
        else:
            return scratch / name
    reason = first_line(trouble) if trouble else "unknown"
    raise ForerunError(f"This Keras model cannot be saved: {reason}.") from trouble


def _from_path(path: Path, workload: Workload, name: str, content: dict[str, Any] | None) -> list[Graph]:
    from forerun.frontends.converters import converted
    from forerun.frontends.converters import environment as converter_env

    training = workload.mode == "training"

    def run(made: Path, facts: Path) -> None:
        arguments = [str(path.resolve()), str(made), str(facts), *(["training"] if training else [])]
        converter_env.convert("keras", "keras_to_onnx.py", arguments, path.name if content else name)

    onnx, facts = converted.convert_once(content and {**content, **({"training": True} if training else {})}, run)
    return converted.graphs_from(onnx, facts, workload, name, "keras")
