"""A Keras file or a SavedModel folder to ONNX: `python keras_to_onnx.py IN OUT.onnx FACTS.json [training]`.

With `training`, batch normalization stays as it is; else it is folded into the convolution before it.

What is loaded, and what is refused before anything is loaded:

- A Keras file (.keras is a zip archive, .h5 is HDF5; the content decides, whatever the name) is built by Keras from its
  config, with its weights. A Lambda layer, which is Python code in the file, and a class outside Keras are refused,
  for HDF5 as well, where Keras itself does not look.
- A SavedModel is a TensorFlow graph: TensorFlow reads it and restores its variables, and tf2onnx translates it. No part
  of it is run but the ops that restore variables. One that would run more while it is loaded (lookup tables, assets, an
  initializer), and one with ops that call Python or reach files, is refused.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

OPSET = 18
#: Limits that no model meets: bytes of a config, files in an archive, objects and sizes in a config, bytes of a graph.
MAX_CONFIG, MAX_PARTS, MAX_OBJECTS, MAX_SIZE, MAX_PROTO = 64 * 2**20, 1000, 200_000, 2**33, 2**31
#: Modules whose functions do more than compute: downloads, file access, deserialization.
UNSAFE = ("keras.utils", "keras.src.utils", "keras.saving", "keras.src.saving", "keras.src.legacy.saving")
#: TensorFlow ops that call Python, read or write files, print, or open connections.
REACHES_OUT = re.compile(
    r"(Eager)?PyFunc(Stateless)?|ReadFile|WriteFile|MatchingFiles|ImmutableConst|Print(V2)?|(De|En)codeProto(V2)?"
    r"|GenerateVocabRemapping|LoadAndRemapMatrix|FixedUnigramCandidateSampler|ImportEvent"
    r"|RemoteCall|Collective\w*|Nccl\w*|_?(Host)?(Send|Recv)|FileSystemSetConfiguration"
    r"|\w*Reader(V2)?|\w*Dataset(V\d)?|\w*Summary\w*|Debug\w*|\w*Rpc|\w*TextFile(V2)?|Save(Slices)?|Restore(Slice)?"
)
#: Ops that loading a SavedModel may run: those that put values into variables.
RESTORES = frozenset(
    "NoOp Identity Const Placeholder PlaceholderWithDefault VarHandleOp Variable VariableV2 Assign AssignVariableOp "
    "RestoreV2 Cast Reshape".split()
)


def main(source: Path, target: Path, facts: Path) -> None:
    parameters = convert_saved_model(source, target) if source.is_dir() else convert_keras(source, target)
    facts.write_text(json.dumps({"parameters": parameters}))


def keep_batch_norms() -> None:
    """Makes batch normalization of images one operator, which nothing folds into a convolution. In a SavedModel, which
    is a graph already, it is folded."""
    import keras
    import tensorflow as tf
    from tf2onnx.optimizer import back_to_back_optimizer

    back_to_back_optimizer._func_map.pop(("Conv", "BatchNormalization"), None)
    layer = keras.layers.BatchNormalization
    as_it_is = layer.call

    def call(self: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if len(inputs.shape) != 4 or self.axis not in (-1, 3):
            return as_it_is(self, inputs, training=training, mask=mask)
        mean, spread = self.moving_mean, self.moving_variance
        scale = self.gamma if self.scale else tf.ones_like(spread)
        offset = self.beta if self.center else tf.zeros_like(mean)
        given = (tf.convert_to_tensor(v) for v in (scale, offset, mean, spread))
        return tf.compat.v1.nn.fused_batch_norm(inputs, *given, epsilon=self.epsilon, is_training=False)[0]

    layer.call = call


def true_suffix(source: Path) -> str:
    """The suffix that fits a Keras file's content. Keras goes by the suffix, and a file can be zip and HDF5 in one."""
    return ".keras" if zipfile.is_zipfile(source) else ".h5"


def model_config(source: Path) -> Any:
    """The architecture written in the file, read as JSON."""
    if true_suffix(source) == ".keras":
        with zipfile.ZipFile(source) as archive:
            refuse_bomb(archive, source)
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


def check(config: Any) -> None:
    """Raise when a config asks for code of its own, or for what no machine could build."""
    refuse_giant(config)
    refuse_code(config)


def refuse_bomb(archive: zipfile.ZipFile, source: Path) -> None:
    """Raise when an archive would unpack to far more than it is; Keras itself stores weights uncompressed."""
    parts, packed = archive.infolist(), source.stat().st_size
    unpacked = sum(part.file_size for part in parts)
    if len(parts) > MAX_PARTS:
        raise ValueError(f"it holds {len(parts):,} files, and a Keras archive has three")
    if unpacked > MAX_CONFIG and unpacked > 20 * packed:
        raise ValueError(f"it would unpack to {unpacked:,} bytes from {packed:,}")
    if any(part.filename == "config.json" and part.file_size > MAX_CONFIG for part in parts):
        raise ValueError(f"its config.json has more than {MAX_CONFIG:,} bytes")


def refuse_giant(config: Any) -> None:
    """Raise when a config asks for more layers, or for larger ones, than any model has: Keras would build them all."""
    waiting, objects = [config], 0
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            objects += "class_name" in item
            waiting += [inner for key, inner in item.items() if not str(key).endswith(("_id", "seed"))]
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, (int, float)) and abs(item) > MAX_SIZE and item == item:
            raise ValueError(f"its config holds the size {item:.3g}, which no layer has")
    if objects > MAX_OBJECTS:
        raise ValueError(f"its config lists {objects:,} objects, and {MAX_OBJECTS:,} are the limit")


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


def load_keras(source: Path, config: Any) -> Any:
    """The model in a Keras file whose config was looked at."""
    import keras

    with tempfile.TemporaryDirectory(prefix="forerun-") as scratch:
        # Under a name that fits, Keras reads the config that was looked at, and no other.
        named = Path(scratch) / f"model{true_suffix(source)}"
        try:
            named.symlink_to(source)
        except OSError:  # Windows allows links to few
            shutil.copyfile(source, named)
        try:
            return keras.saving.load_model(named, compile=False, safe_mode=True)
        except (ValueError, TypeError, AttributeError, KeyError):
            # An HDF5 file has the bare names of classes, and Keras takes the operation Add (x + 3) for the layer Add.
            complete = with_modules(config) if named.suffix == ".h5" else config
            if complete == config:
                raise
        return load_complete(source, complete)


def with_modules(config: Any) -> Any:
    """A config of an HDF5 file with the modules of its operations and layers, as a .keras archive has them.

    The config of a layer has the entry `trainable`, that of an operation has not.
    """
    import keras
    from keras.src import models, ops

    if isinstance(config, list):
        return [with_modules(item) for item in config]
    if not isinstance(config, dict):
        return config
    made = {key: with_modules(item) for key, item in config.items()}
    name = made.get("class_name")
    if not isinstance(name, str) or "module" in made or not isinstance(made.get("config"), dict):
        return made
    modules = [m for m in vars(ops).values() if getattr(m, "__name__", "").startswith("keras.src.ops.")]
    operation = next((m for m in modules if is_operation(getattr(m, name, None))), None)
    if operation is not None and "trainable" not in made["config"]:
        made |= {"module": operation.__name__, "registered_name": name}
    elif name in ("Functional", "Sequential", "Model"):
        made |= {"module": getattr(models, name).__module__, "registered_name": name}
    elif hasattr(keras.layers, name):
        made |= {"module": "keras.layers", "registered_name": None}
    return made


def is_operation(thing: Any) -> bool:
    """Whether it is the class of an operation of Keras that is no layer."""
    import keras

    return isinstance(thing, type) and issubclass(thing, keras.Operation) and not issubclass(thing, keras.Layer)


def load_complete(source: Path, config: Any) -> Any:
    """The model of an HDF5 file, built from its completed config as one of a .keras archive is."""
    import h5py
    import keras
    from keras.src.legacy.saving import legacy_h5_format

    refuse_code(config)
    model = keras.saving.deserialize_keras_object(config, safe_mode=True)
    with h5py.File(source, "r") as file:
        legacy_h5_format.load_weights_from_hdf5_group(file["model_weights"], model)
    return model


def convert_keras(source: Path, target: Path) -> int:
    config = model_config(source)
    check(config)
    import keras
    import tensorflow as tf
    import tf2onnx

    model = load_keras(source, config)
    if not getattr(model, "inputs", None):  # a Sequential without inputs raises instead
        raise ValueError("it was saved before it was built: its inputs have no shape")
    if isinstance(model, keras.Sequential):
        # tf2onnx looks outputs up by the names that a functional model has.
        model = keras.Model(model.inputs, model.outputs, name=model.name)
    signature = [tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.name) for tensor in model.inputs]
    tf2onnx.convert.from_keras(model, input_signature=signature, opset=OPSET, output_path=str(target))
    return sum(math.prod(w.shape) for w in model.weights if is_parameter(w.path))


def is_parameter(path: str) -> bool:
    """Everything but the running statistics of normalization layers and the state of random generators."""
    return not path.split("/")[-1].startswith(("moving_mean", "moving_variance", "seed_generator", "iterations"))


def refuse_unsafe_graph(meta_graph: Any) -> None:
    """Raise when a MetaGraphDef of a SavedModel could do more than compute, or would run more than its restoring."""
    graph, objects = meta_graph.graph_def, meta_graph.object_graph_def.nodes
    for node in (*graph.node, *(n for function in graph.library.function for n in function.node_def)):
        if REACHES_OUT.fullmatch(node.op):
            raise ValueError(f"its graph holds the op {node.op}, which reaches beyond the model and is not run")
    if any(node.WhichOneof("kind") in ("resource", "asset") for node in objects):
        raise ValueError("it holds lookup tables or assets, which would have to be run to be loaded")
    starts = [
        *(info.name for signature in meta_graph.signature_def.values() for name, info in signature.outputs.items()
          if name == "__saved_model_init_op"),
        *(name for key in ("saved_model_main_op", "legacy_init_op") if key in meta_graph.collection_def
          for name in meta_graph.collection_def[key].node_list.value),
        *([] if objects else [meta_graph.saver_def.restore_op_name]),  # without objects, the graph restores itself
    ]  # fmt: skip
    runs = {node.op for node in leading_to(starts, graph.node)} - RESTORES
    if runs:
        raise ValueError(f"it would run {', '.join(sorted(runs))} while it is loaded")


def leading_to(starts: Iterable[str], nodes: Iterable[Any]) -> list[Any]:
    """The nodes of a graph that run when those named in `starts` do."""
    by_name = {node.name: node for node in nodes}
    found: dict[str, Any] = {}
    waiting = [name.lstrip("^").partition(":")[0] for name in starts]
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in found:
            found[name] = by_name[name]
            waiting += [entry.lstrip("^").partition(":")[0] for entry in by_name[name].input]
    return list(found.values())


def convert_saved_model(source: Path, target: Path) -> int | None:
    from tensorflow.core.protobuf import saved_model_pb2

    graph = source / "saved_model.pb"
    if graph.stat().st_size >= MAX_PROTO:
        raise ValueError(f"its saved_model.pb has {graph.stat().st_size:,} bytes, and 2 GB is the limit of its format")
    saved = saved_model_pb2.SavedModel.FromString(graph.read_bytes())
    for meta_graph in saved.meta_graphs:
        refuse_unsafe_graph(meta_graph)
    import tensorflow as tf
    import tf2onnx.convert

    sys.argv = ["tf2onnx", "--saved-model", str(source), "--output", str(target), "--opset", str(OPSET)]
    tf2onnx.convert.main()
    trained = getattr(tf.saved_model.load(str(source)), "trainable_variables", None)
    return sum(math.prod(v.shape) for v in trained) if trained else None


if __name__ == "__main__":
    try:
        if sys.argv[4:] == ["training"]:
            keep_batch_norms()
        main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
    except MemoryError:
        print("FORERUN-ERROR it needs more memory than the converter may use", file=sys.stderr)
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - whatever the converter raises, the caller gets one sentence
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        print(f"FORERUN-ERROR {lines[0] if lines else type(error).__name__}", file=sys.stderr)
        sys.exit(1)
