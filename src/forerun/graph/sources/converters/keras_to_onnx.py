"""A Keras file or a SavedModel folder to ONNX: `python keras_to_onnx.py IN OUT.onnx FACTS.json`.

Code inside a model is never run: a file that holds a Lambda layer or names a class outside Keras is refused before it
is loaded, for the legacy .h5 format as well, where Keras itself does not look.
"""

from __future__ import annotations

import json
import math
import sys
import zipfile
from pathlib import Path
from typing import Any

OPSET = 18
#: Modules whose functions do more than compute: downloads, file access, deserialization.
UNSAFE = ("keras.utils", "keras.src.utils", "keras.saving", "keras.src.saving", "keras.src.legacy.saving")


def main(source: Path, target: Path, facts: Path) -> None:
    parameters = convert_saved_model(source, target) if source.is_dir() else convert_keras(source, target)
    facts.write_text(json.dumps({"parameters": parameters}))


def model_config(source: Path) -> Any:
    """The architecture written in the file, read as JSON."""
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            if "config.json" not in archive.namelist():
                raise ValueError("it holds no config.json")
            return json.loads(archive.read("config.json"))
    import h5py

    try:
        with h5py.File(source, "r") as file:
            config = file.attrs.get("model_config")
    except OSError as error:
        raise ValueError("it is neither a .keras archive nor an HDF5 file, or it is truncated") from error
    if config is None:
        raise ValueError("it holds weights only, no architecture; save the whole model")
    return json.loads(config if isinstance(config, str) else config.decode())


def refuse_code(config: Any) -> None:
    """Raise when the file asks for code of its own."""
    if isinstance(config, list):
        for item in config:
            refuse_code(item)
    if not isinstance(config, dict):
        return
    name, module = config.get("class_name"), config.get("module")
    if name in ("Lambda", "__lambda__", "TFOpLambda", "SlicingOpLambda"):
        raise ValueError("it holds a Lambda layer, which is Python code inside the file and is not run")
    if name and not module and config.get("registered_name"):
        raise ValueError(f"it needs the custom class {name}, whose code is not in the file")
    if isinstance(module, str) and module != "builtins" and "class_name" in config:
        if module != "keras" and not module.startswith("keras."):
            raise ValueError(f"it needs the class {module}.{name}, which is not part of Keras")
        if module.startswith(UNSAFE):
            raise ValueError(f"it asks for {module}.{name}, which no layer needs")
    for item in config.values():
        refuse_code(item)


def convert_keras(source: Path, target: Path) -> int:
    refuse_code(model_config(source))
    import keras
    import tensorflow as tf
    import tf2onnx

    model = keras.saving.load_model(source, compile=False, safe_mode=True)
    if not model.inputs:
        raise ValueError("it was saved before it was built: its inputs have no shape")
    signature = [tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.name) for tensor in model.inputs]
    tf2onnx.convert.from_keras(model, input_signature=signature, opset=OPSET, output_path=str(target))
    return sum(math.prod(w.shape) for w in model.weights if is_parameter(w.path))


def is_parameter(path: str) -> bool:
    """Everything but the running statistics of normalization layers and the state of random generators."""
    return not path.split("/")[-1].startswith(("moving_mean", "moving_variance", "seed_generator", "iterations"))


def convert_saved_model(source: Path, target: Path) -> int | None:
    import tensorflow as tf
    import tf2onnx.convert

    sys.argv = ["tf2onnx", "--saved-model", str(source), "--output", str(target), "--opset", str(OPSET)]
    tf2onnx.convert.main()
    trained = getattr(tf.saved_model.load(str(source)), "trainable_variables", None)
    return sum(math.prod(v.shape) for v in trained) if trained else None


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
    except Exception as error:  # noqa: BLE001 - whatever the converter raises, the caller gets one sentence
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        print(f"FORERUN-ERROR {lines[0] if lines else type(error).__name__}", file=sys.stderr)
        sys.exit(1)
