"""Uploads that mean harm: each is refused with a sentence, and the server answers the next request."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper
from test_web import small_onnx
from web_server import Served

QUESTION = {"model": "cnn:depth=2,filters=8", "device": "l4"}


def _zip_bomb() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.onnx", b"\0" * 50_000_000)
    return out.getvalue()


def _external(location: str) -> bytes:
    """A model whose weights claim to lie elsewhere on the server."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, (4, 4), [0.0] * 16)
    weight.ClearField("float_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "64")):
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ("n", 4)) for n in "xy"]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", values[:1], values[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def _huge_dimensions() -> bytes:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ("n", 10**12, 10**12)) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def _claims_a_billion_nodes() -> bytes:
    """A length prefix that promises a graph of a gigabyte, and then ends."""
    return small_onnx()[:4] + b"\x3a\x80\x94\xeb\xdc\x03" + b"\x0a\x00" * 1000


def _deep_subgraphs() -> bytes:
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1,))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [value])
    for _ in range(30):  # protobuf itself reads no deeper than a hundred messages
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph)
        graph = helper.make_graph([node], "g", [], [value])
    x = helper.make_tensor_value_info("c", TensorProto.BOOL, (1,))
    outer = helper.make_graph(list(graph.node), "g", [x], [value])
    return helper.make_model(outer, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def _config(**fields: Any) -> Callable[[], bytes]:
    return lambda: json.dumps({"model_type": "bert", **fields}).encode()


#: File name, content.
HOSTILE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "empty": ("model.onnx", lambda: b""),
    "truncated": ("model.onnx", lambda: small_onnx()[:-40]),
    "cut in the first field": ("model.onnx", lambda: small_onnx()[:3]),
    "noise": ("model.onnx", lambda: bytes(range(8, 256)) * 400),
    "zip bomb": ("model.onnx", _zip_bomb),
    "gzip bomb": ("model.onnx", lambda: b"\x80" + gzip.compress(b"\0" * 20_000_000)),
    "pickle": ("model.onnx", lambda: pickle.dumps({"__reduce__": "os.system"})),
    "pickle by its suffix": ("weights.pt", lambda: pickle.dumps([1, 2])),
    "Python": ("net.py", lambda: b"import os\nos.system('touch /tmp/forerun-was-here')\n"),
    "SavedModel": ("model.keras", lambda: b"PK\x03\x04"),
    "no suffix": ("model", small_onnx),
    "path in the name": ("../../../etc/cron.d/x.sh", small_onnx),
    "HTML": ("model.onnx", lambda: b"<html><script>alert(1)</script></html>"),
    "weights elsewhere, by a path upwards": ("model.onnx", lambda: _external("../../../../etc/passwd")),
    "weights elsewhere, by an absolute path": ("model.onnx", lambda: _external("/proc/self/environ")),
    "dimensions of 10^12": ("model.onnx", _huge_dimensions),
    "a billion nodes claimed": ("model.onnx", _claims_a_billion_nodes),
    "subgraphs 30 deep, without an else": ("model.onnx", _deep_subgraphs),
    "a config of 10^9 layers": ("config.json", _config(num_hidden_layers=10**9)),
    "a config of one huge layer": ("config.json", _config(hidden_size=2**60, num_attention_heads=1)),
    "a config that is a list": ("config.json", lambda: b"[1, 2]"),
    "a config whose type is a list": ("config.json", _config(model_type=["bert"])),
    "JSON of 100,000 brackets": ("config.json", lambda: b"[" * 100_000),
    "a config with remote code": ("config.json", _config(model_type="x", auto_map={"AutoConfig": "evil--x.C"})),
    "YAML bomb": ("gpu.yaml", lambda: b"a: &a [x,x,x,x,x,x,x,x]\n" + b"".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 8)}]\n".encode() for i in range(12))),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_it_is_refused_with_a_sentence_and_the_server_goes_on(served: Served, kind: str) -> None:
    name, make = HOSTILE[kind]
    reply = served.ask("/v1/uploads", raw=make(), X_File_Name=name)
    if reply.status == 201:  # what only reading shows
        field = "device" if name.endswith(".yaml") else "model"
        reply = served.ask("/v1/predict", {**QUESTION, field: reply.body["model"]})
    assert 400 <= reply.status < 500, reply.body
    sentence = reply.body["error"]
    assert 10 < len(sentence) < 600 and "\n" not in sentence and "Traceback" not in sentence
    assert "forerun-serve-" not in sentence, "the server's folders are its own"
    assert served.ask("/v1/predict", QUESTION).status == 200
    assert not Path("/tmp/forerun-was-here").exists()


def test_an_upload_that_is_too_large_leaves_nothing(served: Served) -> None:
    import http.client

    place = served.url.removeprefix("http://")
    connection = http.client.HTTPConnection(place, timeout=60)
    connection.putrequest("POST", "/v1/uploads")
    connection.putheader("X-File-Name", "model.onnx")
    connection.putheader("Content-Length", str(600 * 2**20))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413 and "at most" in json.loads(answer.read())["error"]
    connection.close()
