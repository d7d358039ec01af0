"""The Keras and Paddle frontends: what they take, what they refuse, and a real conversion where one can run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forerun.errors import ForerunError, MissingPackage
from forerun.frontends.base import Frontend
from forerun.frontends.check import Example, check_frontend
from forerun.frontends.converters import environment as converter_env
from forerun.frontends.converters.keras import KerasFrontend
from forerun.frontends.converters.paddle import PaddleFrontend
from forerun.frontends.converters.scripts import keras_to_onnx
from forerun.graph.ir import Graph
from forerun.workload import Workload


@pytest.fixture
def no_environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which nothing was installed yet."""
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(converter_env, "_here", {}.get)
    return tmp_path


def environment_or_skip(name: str) -> str:
    if converter_env.status(name)["state"] not in ("here", "installed"):
        reason = f"the {name} converter is not installed on this machine (forerun install {name})"
        print(reason)
        pytest.skip(reason)
    return converter_env.python_for(name)


KERAS, PADDLE = KerasFrontend(), PaddleFrontend()


def one(frontend: Frontend, model: Any, **settings: Any) -> Graph:
    (graph,) = frontend.load(model, Workload(model, **settings))
    return graph


def make(python: str, code: str, folder: Path) -> None:
    """Write a model with the framework itself, in the converter's own Python."""
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([python, "-c", code], cwd=folder, check=True, capture_output=True, env=quiet, timeout=300)


# -- what matches ------------------------------------------------------------------------------------------------


def test_matches_by_name_and_content(tmp_path: Path) -> None:
    assert all(KERAS.matches(f"missing{suffix}") for suffix in (".keras", ".h5", ".hdf5"))
    assert not KERAS.matches("resnet50")
    assert not KERAS.matches(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"")
    assert KERAS.matches(tmp_path)
    assert PADDLE.matches("missing.pdmodel")
    config, program = tmp_path / "config.json", tmp_path / "net.json"
    config.write_text('{"model_type": "bert"}')
    program.write_text('{"base_code":{"magic":"pir","trainable":true,"version":4},"program":{}}')
    assert not PADDLE.matches(config)
    assert PADDLE.matches(program)
    assert not PADDLE.matches({"model_type": "bert"})


def test_live_model_is_known_by_its_class() -> None:
    base = type("Model", (), {"__module__": "keras.src.models.model"})
    live = type("Mine", (base,), {"__module__": "__main__"})()
    assert KERAS.matches(live)
    assert KERAS.key(live, Workload(live)) is None
    assert not KERAS.matches(type("Model", (), {})())


# -- when nothing is installed -----------------------------------------------------------------------------------


def test_missing_environment_names_one_command(no_environments: Path) -> None:
    model = no_environments / "net.keras"
    model.write_bytes(b"PK")
    with pytest.raises(MissingPackage, match=r"add it with: forerun install keras$"):
        one(KERAS, model)
    program = no_environments / "net.pdmodel"
    program.write_bytes(b"x")
    program.with_suffix(".pdiparams").write_bytes(b"x")
    with pytest.raises(MissingPackage, match=r"add it with: forerun install paddle$"):
        one(PADDLE, program)
    status = converter_env.status("paddle")
    assert (status["state"], status["command"]) == ("missing", "forerun install paddle")


def test_half_made_environment_does_not_count(no_environments: Path) -> None:
    (converter_env.folder("keras") / "bin").mkdir(parents=True)
    assert converter_env.status("keras")["state"] == "missing"


def test_other_versions_are_outdated(no_environments: Path) -> None:
    python = converter_env._python(converter_env.folder("keras"))
    python.parent.mkdir(parents=True)
    python.write_text("")
    (converter_env.folder("keras") / "forerun.json").write_text('{"fingerprint": "old"}')
    assert converter_env.status("keras")["state"] == "outdated"


def test_failed_installation_is_one_sentence(no_environments: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: Any, say: Any) -> None:
        raise ForerunError("The installation failed: no network")

    monkeypatch.setattr(converter_env, "_step", fail)
    with pytest.raises(ForerunError, match="no network"):
        converter_env.install("paddle")
    assert not list(converter_env.folder("paddle").parent.iterdir())
    with pytest.raises(ForerunError, match=r"nothing called 'padle'.*Did you mean paddle"):
        converter_env.install("padle")


# -- bad input ---------------------------------------------------------------------------------------------------


def test_missing_files() -> None:
    for frontend, name in ((KERAS, "no.keras"), (KERAS, "no.h5"), (PADDLE, "no.pdmodel")):
        with pytest.raises(ForerunError, match="There is no file"):
            one(frontend, name)
        assert frontend.key(name, Workload(name)) is None


def test_paddle_needs_both_files(tmp_path: Path) -> None:
    program = tmp_path / "net.pdmodel"
    program.write_bytes(b"x")
    with pytest.raises(ForerunError, match=r"there is no net\.pdiparams"):
        one(PADDLE, program)
    program.rename(tmp_path / "net.pdiparams")
    with pytest.raises(ForerunError, match="holds weights only"):
        one(PADDLE, tmp_path)


def test_a_file_is_one_call(tmp_path: Path) -> None:
    for frontend, name in ((KERAS, "net.keras"), (PADDLE, "net.pdmodel")):
        with pytest.raises(ForerunError, match="for inference and training; for decode"):
            one(frontend, tmp_path / name, mode="decode")


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"class_name": "Lambda", "module": "keras.layers", "config": {}}, "Lambda layer"),
        ({"class_name": "Dense", "config": {"activation": {"class_name": "__lambda__"}}}, "Lambda layer"),
        ({"class_name": "TFOpLambda", "config": {}}, "Lambda layer"),
        ({"class_name": "system", "module": "os", "config": {}}, "os.system, which is not part of Keras"),
        ({"class_name": "Mine", "module": None, "registered_name": "Mine"}, "custom class Mine"),
        ({"class_name": "function", "module": "keras.utils", "config": "get_file"}, "which no layer needs"),
    ],
)
def test_code_in_a_keras_file_is_refused(layer: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "net.keras"
    config = {"class_name": "Sequential", "module": "keras", "config": {"layers": [layer]}}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps(config))
    with pytest.raises(ValueError, match=message):
        keras_to_onnx.refuse_code(keras_to_onnx.model_config(path))


def test_the_content_of_a_keras_file_decides_and_not_its_name(tmp_path: Path) -> None:
    """Keras goes by the name, so it gets a name that fits what was looked at; a file can be zip and HDF5 in one."""
    archive, hdf5, both = tmp_path / "net.h5", tmp_path / "net.keras", tmp_path / "both.h5"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("config.json", "{}")
    hdf5.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    both.write_bytes(hdf5.read_bytes() + archive.read_bytes())
    assert [keras_to_onnx.true_suffix(p) for p in (archive, hdf5, both)] == [".keras", ".h5", ".keras"]
    assert keras_to_onnx.model_config(archive) == keras_to_onnx.model_config(both) == {}


def meta_graph(
    *nodes: tuple[str, str, list[str]],
    inside: str = "MatMul",
    objects: tuple[str, ...] = ("user_object",),
    start: str = "",
) -> Any:
    """A SavedModel's MetaGraphDef: nodes of (name, op, inputs), one function, kinds of objects, what is run first."""

    def made(name: str, op: str, inputs: list[str]) -> Any:
        return SimpleNamespace(name=name, op=op, input=inputs)

    function = SimpleNamespace(node_def=[made("inner", inside, [])])
    return SimpleNamespace(
        graph_def=SimpleNamespace(node=[made(*node) for node in nodes], library=SimpleNamespace(function=[function])),
        object_graph_def=SimpleNamespace(nodes=[SimpleNamespace(WhichOneof=lambda _, k=k: k) for k in objects]),
        signature_def={"init": SimpleNamespace(outputs={"__saved_model_init_op": SimpleNamespace(name="NoOp")})},
        collection_def={"saved_model_main_op": SimpleNamespace(node_list=SimpleNamespace(value=[start]))},
        saver_def=SimpleNamespace(restore_op_name="restore_all"),
    )


CALL = ("save", "StatefulPartitionedCall", [])
RESTORE = [("restore_all", "NoOp", ["^set"]), ("set", "AssignVariableOp", ["w", "read:0"]), ("w", "VarHandleOp", []),
           ("read", "RestoreV2", [])]  # fmt: skip


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (meta_graph(("NoOp", "NoOp", []), inside="WriteFile"), "op WriteFile, which reaches beyond the model"),
        (meta_graph(("f", "EagerPyFunc", [])), "op EagerPyFunc"),
        (meta_graph(("f", "TextLineDataset", [])), "op TextLineDataset"),
        (meta_graph(("NoOp", "NoOp", []), objects=("user_object", "resource")), "lookup tables or assets"),
        (meta_graph(("NoOp", "NoOp", []), objects=("asset",)), "lookup tables or assets"),
        (meta_graph(("NoOp", "NoOp", ["^save"]), CALL), "would run StatefulPartitionedCall while it is loaded"),
        (meta_graph(("NoOp", "NoOp", []), CALL, start="save"), "would run StatefulPartitionedCall"),
        (meta_graph(*RESTORE, ("x", "Const", []), objects=()), ""),
        (meta_graph(("restore_all", "NoOp", ["^x"]), ("x", "SaveV2", []), objects=()), "would run SaveV2"),
        (meta_graph(("NoOp", "NoOp", []), ("x", "SaveV2", []), CALL), ""),
    ],
)  # fmt: skip
def test_a_saved_model_that_would_run_more_than_its_restoring_is_refused(graph: Any, message: str) -> None:
    if not message:
        keras_to_onnx.refuse_unsafe_graph(graph)
        return
    with pytest.raises(ValueError, match=message):
        keras_to_onnx.refuse_unsafe_graph(graph)


def test_reason_is_the_last_word_of_the_converter() -> None:
    log = "W0000 noise\nTraceback (most recent call last):\n  File ...\nValueError: no such op\n"
    assert converter_env.reason(log, 1) == "ValueError: no such op"
    assert converter_env.reason("noise\nFORERUN-ERROR it is empty.\nmore noise", 1) == "it is empty"
    assert converter_env.reason("", -11) == "the converter was ended by signal 11"
    assert converter_env.reason("", 3) == "the converter ended with code 3"


def test_converter_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "slow.py"
    script.parent.mkdir()
    script.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(converter_env, "__file__", str(tmp_path / "converter_env.py"))
    monkeypatch.setattr(converter_env, "python_for", {"keras": sys.executable}.get)
    with pytest.raises(ForerunError, match=r"Converting net\.keras to ONNX took longer than 0 s"):
        converter_env.convert("keras", "slow.py", [], "net.keras", timeout_s=0.3)


# -- real conversions --------------------------------------------------------------------------------------------

KERAS_NET = """
import keras
from keras import layers as L
x = i = keras.Input((32, 32, 3))
x = L.BatchNormalization()(L.Conv2D(8, 3)(x))
x = L.Dense(10)(L.GlobalAveragePooling2D()(L.ReLU()(x)))
net = keras.Model(i, x)
net.save("net.keras"); net.save("net.h5"); net.export("saved", verbose=False)
keras.Sequential([keras.Input((8,)), L.Lambda(lambda v: v * 2)]).save("lambda.h5")
y = i = keras.Input((32, 32, 3))
y = L.Conv2D(8, 3, bias_initializer="ones")(y)  # tf2onnx leaves a bias of zeros out
y = L.Dense(10, bias_initializer="ones")(L.GlobalAveragePooling2D()(L.ReLU()(y)))
keras.Model(i, y).save("plain.keras")
z = i = keras.Input((32, 32, 3))
z = L.Conv2D(8, 3)(z)
z = (z + 3.0) * (1.0 / 6.0) - z / 2.0  # operations, which are no layers, as in MobileNetV3
keras.Model(i, L.Add()([z, z])).save("operations.h5")
"""
HOSTILE_SAVED_MODELS = """
import os
import tensorflow as tf
def called():
    open("written", "w").write("by Python")
    return 1.0
bodies = {
    "writes": lambda x: tf.io.write_file(os.path.abspath("written"), "by the model"),
    "reads": lambda x: tf.strings.length(tf.io.read_file("/etc/passwd")),
    "python": lambda x: tf.py_function(called, [], tf.float32),
    "numpy": lambda x: tf.numpy_function(called, [], tf.float64),
    "prints": lambda x: tf.print("printed by the model"),
}
class Hostile(tf.Module):
    def __init__(self, body):
        self.w, self.body = tf.Variable(2.0), body
    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def __call__(self, x):
        made = self.body(x)
        if isinstance(made, tf.Tensor):
            x = x + tf.cast(made, tf.float32)
        return {"y": x * self.w}
for name, body in bodies.items():
    tf.saved_model.save(Hostile(body), name)
table = tf.lookup.StaticVocabularyTable(tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([1], tf.int64)), 1)
class Table(tf.Module):
    def __init__(self):
        self.table = table
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, x):
        return {"y": self.table.lookup(x)}
tf.saved_model.save(Table(), "table")
harmless = Hostile(lambda x: None)
tf.saved_model.save(harmless, "harmless")
"""
SEQUENTIALS = """
import keras
from keras import layers as L
one = dict(bias_initializer="ones")  # tf2onnx leaves a bias of zeros out
images = keras.Sequential([keras.Input((32, 32, 3)), L.Conv2D(8, 3, **one), L.ReLU(), L.MaxPooling2D(2),
    L.Conv2D(16, 3, activation="relu", **one), L.GlobalAveragePooling2D(), L.Dropout(0.2), L.Dense(10, **one)])
images.save("images.keras"); images.save("images.h5")
late = keras.Sequential([L.Dense(64, activation="relu", **one), L.Dense(10, **one)])
late.build((None, 100))
late.save("late.h5")
inner = keras.Sequential([L.Conv2D(8, 3, **one), L.ReLU()])
nested = keras.Sequential([keras.Input((16, 16, 3)), inner, L.Flatten(), L.Dense(10, **one)])
nested.save("nested.keras")
keras.Sequential([L.Dense(4)]).save("unbuilt.keras")
"""
PADDLE_NET = """
import paddle
from paddle import nn
net = nn.Sequential(nn.Conv2D(3, 8, 3), nn.BatchNorm2D(8), nn.ReLU(), nn.AdaptiveAvgPool2D(1), nn.Flatten(),
                    nn.Linear(8, 10))
net.eval()
x = [paddle.static.InputSpec([-1, 3, 32, 32], "float32", "x")]
paddle.jit.save(net, "net", input_spec=x)
plain = nn.Sequential(nn.Conv2D(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(8, 10))
plain.eval()
paddle.jit.save(plain, "plain/net", input_spec=x)
"""


def same_network() -> dict[str, Any]:
    """plain.keras and the Paddle network without its batch norm, in PyTorch."""
    from torch import nn

    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    return {"same_as": net, "same_settings": {"input_shape": (3, 32, 32)}}


def test_keras_conversion(tmp_path: Path) -> None:
    make(environment_or_skip("keras"), KERAS_NET, tmp_path)
    (tmp_path / "net.keras").rename(tmp_path / "zip.h5")
    (tmp_path / "net.h5").rename(tmp_path / "hdf5.keras")
    for name in ("zip.h5", "hdf5.keras", "saved"):
        graph = one(KERAS, tmp_path / name, batch=2)
        # 8 * 27 + 8, batch normalization 2 * 8 (moving statistics are not parameters), 8 * 10 + 10
        assert graph.parameters == 224 + 16 + 90
        assert [op.kind for op in graph.ops if op.kind in ("conv", "matmul")] == ["conv", "matmul"]
        assert graph.tensors[graph.outputs[0]].shape == (2, 10)
        assert graph.at(5).tensors[graph.outputs[0]].shape == (5, 10)
    with pytest.raises(ForerunError, match=r"lambda\.h5 cannot be converted to ONNX: it holds a Lambda layer"):
        one(KERAS, tmp_path / "lambda.h5")
    sums = [op.name for op in one(KERAS, tmp_path / "operations.h5").ops]
    assert sum("Add" in name for name in sums) == 2 and any("Mul" in name for name in sums), sums
    (tmp_path / "cut.keras").write_bytes((tmp_path / "plain.keras").read_bytes()[:500])
    with pytest.raises(ForerunError, match="truncated"):
        one(KERAS, tmp_path / "cut.keras")
    assert "same_network" in check_frontend(KERAS, [Example(tmp_path / "plain.keras", **same_network())])
    trains_as_a_network(one(KERAS, tmp_path / "zip.h5", batch=4, mode="training", optimizer="adam"), bias=False)


def trains_as_a_network(found: Graph, bias: bool = True) -> None:
    """A training step of net.keras, and of the same network of Paddle, is PyTorch's: batch normalization is not folded
    into the convolution. tf2onnx leaves biases of zeros out."""
    from torch import nn

    from forerun.frontends import load_graph
    from forerun.graph.cost import totals

    head = [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10, bias)]
    network = nn.Sequential(nn.Conv2d(3, 8, 3, bias=bias), nn.BatchNorm2d(8), *head)
    settings = {"batch": 4, "mode": "training", "optimizer": "adam"}
    expected = load_graph(Workload(network, input_shape=(3, 32, 32), **settings))
    assert found.parameters == 224 + 16 + 90
    assert totals(found.at(4)).flops == pytest.approx(totals(expected).flops, rel=0.03)
    kinds = ("conv", "norm", "matmul", "conv_backward", "norm_backward")
    assert [op.kind for op in found.ops if op.kind in kinds] == [op.kind for op in expected.ops if op.kind in kinds]
    assert all(op.attrs["training"] for op in found.ops if op.kind == "norm")


def test_hostile_saved_models_are_refused_and_do_nothing(tmp_path: Path) -> None:
    make(environment_or_skip("keras"), HOSTILE_SAVED_MODELS, tmp_path)
    (tmp_path / "written").unlink(missing_ok=True)  # tracing a function in TensorFlow may call it
    for name, op in {
        "writes": "WriteFile", "reads": "ReadFile", "python": "EagerPyFunc", "numpy": "PyFunc", "prints": "PrintV2",
    }.items():  # fmt: skip
        with pytest.raises(ForerunError, match=rf"{name} cannot be converted to ONNX: its graph holds the op {op}"):
            one(KERAS, tmp_path / name)
    with pytest.raises(ForerunError, match="lookup tables or assets"):
        one(KERAS, tmp_path / "table")
    assert not list(tmp_path.rglob("written"))
    assert [op.name for op in one(KERAS, tmp_path / "harmless").ops] == ["Mul"]


def test_a_keras_sequential_equals_its_layers_in_pytorch(tmp_path: Path) -> None:
    from torch import nn

    from forerun.frontends import load_graph
    from forerun.graph.cost import totals

    make(environment_or_skip("keras"), SEQUENTIALS, tmp_path)
    conv = [nn.Conv2d(3, 8, 3), nn.ReLU()]
    pooled = [nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    networks = {
        "images": (nn.Sequential(*conv, *pooled, nn.Dropout(0.2), nn.Linear(16, 10)), (3, 32, 32)),
        "late": (nn.Sequential(nn.Linear(100, 64), nn.ReLU(), nn.Linear(64, 10)), (100,)),
        "nested": (nn.Sequential(*conv, nn.Flatten(), nn.Linear(8 * 14 * 14, 10)), (3, 16, 16)),
    }
    for name, (network, shape) in networks.items():
        expected = load_graph(Workload(network, batch=4, input_shape=shape))
        for path in tmp_path.glob(f"{name}.*"):
            graph = load_graph(Workload(str(path), batch=4))
            assert graph.parameters == expected.parameters
            assert totals(graph).macs == pytest.approx(totals(expected).macs, rel=0.01)
    with pytest.raises(ForerunError, match="saved before it was built"):
        one(KERAS, tmp_path / "unbuilt.keras")


def test_paddle_conversion(tmp_path: Path) -> None:
    make(environment_or_skip("paddle"), PADDLE_NET, tmp_path)
    assert "same_network" in check_frontend(PADDLE, [Example(tmp_path / "plain" / "net.json", **same_network())])
    for name in ("net.json", "net.pdiparams", ""):
        graph = one(PADDLE, tmp_path / name, batch=2)
        assert graph.parameters == 224 + 16 + 90
        assert [op.kind for op in graph.ops if op.kind in ("conv", "norm", "matmul")] == ["conv", "norm", "matmul"]
        assert graph.tensors[graph.outputs[0]].shape == (2, 10)
    trains_as_a_network(one(PADDLE, tmp_path / "net.json", batch=4, mode="training", optimizer="adam"))
    (tmp_path / "net.json").write_text('{"base_code":{"magic":"pir"},"program":{}}')
    with pytest.raises(ForerunError, match=r"net\.json cannot be converted to ONNX") as caught:
        one(PADDLE, tmp_path / "net.json")
    assert "\n" not in str(caught.value)
