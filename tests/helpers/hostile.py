"""Hostile inputs, written by us: small files that describe huge, endless, nested, broken or misleading things.

`corpus(folder)` writes them and returns the commands that meet them. Each must end in one sentence and exit code 2.
"""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

Command = list[str]
GOOD_CHIP = "name: chip\nkind: gpu\nfp32_tflops: 30\nmemory_gb: 24\nbandwidth_gbs: 900\n"


def corpus(folder: Path) -> dict[str, Command]:
    """Every hostile input by name: the words of the command that is given it."""
    return {**devices(folder), **configs(folder), **onnx_files(folder), **keras_files(folder), **sweeps(folder),
            **queries(), **names(folder)}  # fmt: skip


def _laughs(levels: int, times: int) -> str:
    """Nested aliases: times**levels values from a few hundred bytes."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * times)}]" for i in range(1, levels)]
    return "\n".join(lines)


def devices(folder: Path) -> dict[str, Command]:
    """Device sheets in YAML."""
    merged = [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 10)]
    texts: dict[str, str | bytes] = {
        "laughs": _laughs(10, 10),
        "laughs-field": GOOD_CHIP + _laughs(9, 9).replace("a8:", "note:"),
        "quadratic": "a: &a " + "x" * 50_000 + "\nb: [" + ", ".join(["*a"] * 150_000) + "]",
        "merge-keys": "\n".join(["a0: &a0 {k: 1}", *merged]),
        "brackets": "[" * 100_000,
        "braces": "{a: " * 100_000,
        "closed-brackets": "[" * 100_000 + "]" * 100_000,
        "dashes": "- " * 100_000,
        "question-marks": "? " * 50_000,
        "deep-block": "\n".join(" " * i + "a:" for i in range(2000)),
        "inside-itself": "a: &a [*a]",
        "python-call": "memory_gb: !!python/object/apply:os.system ['touch owned']",
        "python-name": "name: !!python/name:os.system",
        "hex-digits": GOOD_CHIP.replace("24", "0x" + "f" * 30_000),
        "digits": GOOD_CHIP.replace("24", "9" * 5000),
        "sexagesimal": GOOD_CHIP.replace("24", "1" + ":59" * 20_000),
        "infinite": GOOD_CHIP.replace("24", ".inf"),
        "not-a-number": GOOD_CHIP.replace("24", ".nan"),
        "negative": GOOD_CHIP.replace("24", "-24"),
        "nul": b"name: a\x00b\n",
        "latin": b"name: caf\xe9\n",
        "utf-16": "name: chip".encode("utf-16"),
        "empty": "",
        "a-list": "- 1\n- 2",
        "markup-field": GOOD_CHIP + '"[/bold] :x:": 1',
        "escape-field": GOOD_CHIP + '"\\e[31mred\\e[2J": 1',
        "long-field": GOOD_CHIP + "x" * 60_000 + ": 1",
        "large-file": "# " + "x" * 2**21,
        "unhashable-key": "? [a, b]\n: 1\n? {c: d}\n: 2",
        "date": "release_date: !!timestamp 99999-99-99",
        "binary": "name: !!binary '###'",
        "two-documents": "name: a\n---\nname: b",
        "own-base": "base: own-base.yaml",
        "nested-value": GOOD_CHIP.replace("24", "{value: {value: {value: 1}}}"),
    }
    found = {f"device {name}": ["devices", _written(folder / f"{name}.yaml", text)] for name, text in texts.items()}
    (folder / "folder.yaml").mkdir()
    os.mkfifo(folder / "pipe.yaml")
    os.symlink("/dev/zero", folder / "endless.yaml")
    os.symlink("loop.yaml", folder / "loop.yaml")
    for name in ("folder", "pipe", "endless", "loop", "missing"):
        found[f"device {name}"] = ["devices", str(folder / f"{name}.yaml")]
    return found


def configs(folder: Path) -> dict[str, Command]:
    """Hugging Face configs in JSON."""
    llama = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4,
             "num_hidden_layers": 2, "vocab_size": 100}  # fmt: skip
    nested: Any = 1
    for _ in range(900):
        nested = [nested]
    texts: dict[str, str | bytes] = {
        "brackets": "[" * 100_000,
        "objects": '{"a":' * 100_000,
        "nested": json.dumps({**llama, "rope_scaling": nested}),
        "list": "[1, 2]",
        "type-list": '{"model_type": ["a"]}',
        "type-object": '{"model_type": {"a": 1}}',
        "type-null": '{"model_type": null}',
        "type-markup": '{"model_type": "[/bold]:x:"}',
        "layers": json.dumps({**llama, "num_hidden_layers": 10**9}),
        "layers-float": '{"model_type": "llama", "num_hidden_layers": 1e9}',
        "layers-digits": '{"model_type": "llama", "num_hidden_layers": ' + "9" * 4000 + "}",
        "layers-text": json.dumps({**llama, "num_hidden_layers": "many"}),
        "layers-negative": json.dumps({**llama, "num_hidden_layers": -3}),
        "depths": json.dumps({"model_type": "swin", "depths": [10**9, 2, 2, 2]}),
        "labels": json.dumps({"model_type": "bert", "num_labels": 10**9}),
        "width": json.dumps({**llama, "hidden_size": 10**15}),
        "no-width": json.dumps({**llama, "hidden_size": 0}),
        "no-heads": json.dumps({**llama, "num_attention_heads": 0}),
        "truncated": '{"model_type": "llama", "hid',
        "utf-16": '{"model_type": "llama"}'.encode("utf-16"),
        "large": '{"model_type": "llama", "a": "' + "x" * 2**24 + '"}',
    }
    found = {}
    for name, text in texts.items():
        (folder / f"hf-{name}").mkdir()
        found[f"config {name}"] = _predict(_written(folder / f"hf-{name}" / "config.json", text))
    (folder / "hf-pipe").mkdir()
    os.mkfifo(folder / "hf-pipe" / "config.json")
    found["config pipe"] = _predict(str(folder / "hf-pipe" / "config.json"))
    os.mkfifo(folder / "program.json")
    found["program pipe"] = _predict(str(folder / "program.json"))
    return found


def onnx_files(folder: Path) -> dict[str, Command]:
    """ONNX files: sizes, recursion, references and bytes that no exporter writes."""
    relu = [helper.make_node("Relu", ["x"], ["y"])]
    whole = _onnx(relu)
    outside = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="/etc/passwd")
    above = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    above.external_data.add(key="location", value="../../secret")
    add = [helper.make_node("Add", ["x", "w"], ["y"])]
    huge = TensorProto(name="w", data_type=1, dims=[10**12, 10**12])
    strange = TensorProto(name="w", data_type=99, dims=[4])
    doubled = [helper.make_node("Concat", [f"s{i}"] * 2, [f"s{i + 1}"], axis=0) for i in range(60)]
    doubled.append(helper.make_node("Cast", ["s60"], ["y"], to=1))
    files: dict[str, bytes] = {
        "empty": b"",
        "text": b"this is no model",
        "truncated": whole[: len(whole) // 2],
        "random": bytes(range(256)) * 40,
        "no-nodes": _onnx([]),
        "no-opset": onnx.ModelProto(graph=onnx.ModelProto.FromString(whole).graph).SerializeToString(),
        "huge-input": _onnx(relu, shape=[1, 10**12]),
        "huge-inputs": _onnx(relu, shape=[10**18] * 20),
        "huge-weight": _onnx([helper.make_node("MatMul", ["x", "w"], ["y"])], [huge]),
        "expand": _onnx([helper.make_node("Expand", ["x", "s"], ["y"])], [_ints("s", [10**12, 3, 8, 8])]),
        "tile": _onnx([helper.make_node("Tile", ["x", "s"], ["y"])], [_ints("s", [10**12, 1, 1, 1])]),
        "pad": _onnx([helper.make_node("Pad", ["x", "s"], ["y"])], [_ints("s", [10**15] * 8)]),
        "resize": _onnx([helper.make_node("Resize", ["x", "", "", "s"], ["y"])], [_ints("s", [1, 3, 10**15, 10**15])]),
        "doubled": _onnx(doubled, [_ints("s0", [1, 2])]),
        "unknown-dtype": _onnx(add, [strange]),
        "outside": _onnx(add, [outside]),
        "above": _onnx(add, [above]),
        "self-call": _functions([["F0"]]),
        "explosion": _functions([["Relu"], *[[f"F{i}"] * 10 for i in range(20)]]),
    }
    found = {f"onnx {n}": _predict(_written(folder / f"{n}.onnx", data)) for n, data in files.items()}
    os.mkfifo(folder / "pipe.onnx")
    (folder / "folder.onnx").mkdir()
    with (folder / "sparse.onnx").open("wb") as file:
        file.truncate(2**40)  # a terabyte that takes no place on the disk
    for name in ("pipe", "folder", "sparse"):
        found[f"onnx {name}"] = _predict(str(folder / f"{name}.onnx"))
    return found


def _onnx(nodes: list[Any], weights: Any = (), shape: Any = (1, 3, 8, 8), functions: Any = ()) -> bytes:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", 1, shape)], [value("y", 1, None)], initializer=list(weights))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, functions=list(functions)).SerializeToString())


def _ints(name: str, values: list[int]) -> Any:
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


def _functions(bodies: list[list[str]]) -> bytes:
    """A model that calls the last of functions F0, F1, ..., each of which calls others in a chain."""
    made = []
    for number, body in enumerate(bodies):
        nodes = [
            helper.make_node(op, ["a" if i == 0 else f"t{i}"], ["b" if i == len(body) - 1 else f"t{i + 1}"],
                             domain="own" if op.startswith("F") else "")
            for i, op in enumerate(body)
        ]  # fmt: skip
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        made.append(helper.make_function("own", f"F{number}", ["a"], ["b"], nodes, opsets))
    last = helper.make_node(f"F{len(bodies) - 1}", ["x"], ["y"], domain="own")
    return _onnx([last], functions=made)


def keras_files(folder: Path) -> dict[str, Command]:
    """Keras archives."""
    layer = {"class_name": "system", "module": "os", "config": {"command": "touch owned"}}
    texts = {
        "bomb": b"{" + b" " * 2**27 + b"}",
        "nested": b'{"a":' * 100_000,
        "code": json.dumps({"class_name": "Sequential", "module": "keras", "config": {"layers": [layer]}}).encode(),
        "giant": json.dumps({"class_name": "Dense", "module": "keras.layers", "config": {"units": 10**15}}).encode(),
        "no-json": b"\x00\xff",
    }
    found = {}
    for name, text in texts.items():
        path = folder / f"{name}.keras"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("config.json", text)
        found[f"keras {name}"] = _predict(str(path))
    with zipfile.ZipFile(folder / "many.keras", "w") as archive:
        for number in range(5000):
            archive.writestr(f"{number}", b"")
    os.mkfifo(folder / "pipe.keras")
    for name in ("many", "pipe"):
        found[f"keras {name}"] = _predict(str(folder / f"{name}.keras"))
    return found


def sweeps(folder: Path) -> dict[str, Command]:
    """Sweep specs."""
    settings = "settings: [{mode: inference, batch: 1, dtype: fp32}]"
    many = ", ".join(f"k{i}: [{', '.join(map(str, range(50)))}]" for i in range(20))
    texts = {
        "laughs": _laughs(10, 10),
        "brackets": "[" * 100_000,
        "product": f"blocks: [{{variants: [{{source: cnn, draw: {{{many}}}}}], {settings}}}]",
        "same-choice": f"blocks: [{{variants: [{{source: cnn, n: 3, draw: {{a: [1, 1], b: [2, 2]}}}}], {settings}}}]",
        "batches": "blocks: [{families: {a: [resnet18]}, settings: [{mode: inference, dtype: fp32, "
        + ", ".join(f"k{i}: [{', '.join(map(str, range(50)))}]" for i in range(9)) + "}]}]",
        "operators": "kind: op\nn: 1000000000000",
        "text": "hello",
    }  # fmt: skip
    return {
        f"sweep {n}": ["sweep", _written(folder / f"sweep-{n}.yaml", text), "--time-budget", "1s", "--no-keep"]
        for n, text in texts.items()
    }


def queries() -> dict[str, Command]:
    """SQL that writes, reads, calls out, never ends, or is none."""
    texts = {
        "copy": "copy (select 1) to 'owned.csv'",
        "copy inside": "with a as (copy (select 1) to 'owned.csv') select * from a",
        "attach": "attach 'owned.db'",
        "export": "export database 'owned'",
        "two": "select 1; select 2",
        "drop": "drop view models",
        "file": "select * from read_text('/etc/passwd')",
        "listing": "select * from glob('/*')",
        "network": "select * from 'http://localhost:1/a.parquet'",
        "extension": "install httpfs",
        "setting": "set enable_external_access = true",
        "variable": "select * from store",
        "sleep": "select pg_sleep(1000)",
        "product": "select count(*) from range(1000000) a, range(1000000) b where a.range * b.range = 7",
        "repeat": "select repeat('x', 4000000000)",
        "empty": "",
        "semicolon": " ; ",
        "comment": "/* nothing */",
        "parentheses": "select " + "(" * 20_000 + "1" + ")" * 20_000,
        "surrogate": "select '\udc80'",
    }
    endless = ("sleep", "product", "repeat")  # stopped by their limit; the others have time on a busy machine
    return {
        f"query {name}": ["data", "query", text, "--time-limit", "3" if name in endless else "60"]
        for name, text in texts.items()
    }


def names(folder: Path) -> dict[str, Command]:
    """Models that are no files: names of great length, with stray bytes, with absurd settings."""
    given = {
        "empty": "",
        "long": "a" * 5000,
        "nul": "resnet\x0050",
        "markup": "[/bold]:x:",
        "escape": "\x1b[2Jresnet",
        "stray byte": "model\udcff.onnx",
        "parent": "../../../../etc/passwd",
        "depth": "cnn:depth=1000000000000,filters=8",
        "depth digits": "cnn:depth=" + "9" * 5000,
        "nested setting": "resnet18?layers=" + "[" * 100_000,
        "many layers": "resnet18?layers=[1000000000,2,2,2]",
        "wide": "resnet18?base_width=99999999999999999999",
        "weights": "evil.pkl",
    }
    found = {f"name {name}": _predict(text) for name, text in given.items()}
    found["shape"] = [*_predict("cnn:depth=2,filters=8"), "--input-shape", "9" * 5000]
    found["batch"] = [*_predict("cnn:depth=2,filters=8"), "--batch", "9" * 20]
    found["output"] = ["data", "export", "/dev/full/rows.csv"]
    (folder / "predictor").mkdir()
    _written(folder / "predictor" / "predictor.json", "[" * 100_000)
    found["predictor"] = [*_predict("cnn:depth=2,filters=8"), "--predictor", str(folder / "predictor")]
    return found


def _predict(model: str) -> Command:
    return ["predict", model, "--device", "h200"]


def _written(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)
