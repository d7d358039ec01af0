"""The inputs of ONNX files: which axis is the batch, which sizes are asked for, one answer in whatever order."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from onnx import helper
from onnx_files import FLOAT, INT64, ints, kinds, load, macs, model, weight

from forerun.errors import ForerunError
from forerun.frontends import load_graph, load_graphs
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.workload import Workload


def images(*dims: Any) -> Any:
    """A convolution over images of these dimensions."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    return model([node], {"x": (FLOAT, list(dims))}, ["y"], [weight("w", 4, 3, 3, 3)])


def shape_of(graph: Graph) -> tuple[int, ...]:
    return graph.tensors[graph.outputs[0]].shape


@pytest.mark.parametrize(
    "given", [{"x": (1, 3, 48, 320)}, {"x": (6, 3, 48, 320)}, {"x": (3, 48, 320)}, (3, 48, 320), (1, 3, 48, 320)]
)
@pytest.mark.parametrize("dims", [("N", 3, "H", "W"), ("", 3, "", ""), (1, 3, "H", "W"), ("?", 3, "?", "?")])
def test_the_batch_axis_follows_the_batch(given: Any, dims: tuple[Any, ...]) -> None:
    graph = load(images(*dims), batch=6, input_shape=given)
    assert shape_of(graph) == (6, 4, 48, 320)
    assert macs(graph) == 6 * 4 * 48 * 320 * 27


def test_a_batch_in_the_shape_that_is_not_the_batch_is_refused() -> None:
    with pytest.raises(ForerunError, match=r"axis 0 of input 'x' is the batch.*gives it 4, and --batch is 6; give"):
        load(images("N", 3, "H", "W"), batch=6, input_shape={"x": (4, 3, 8, 8)})


def test_one_case_has_one_answer_in_every_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(images("N", 3, "H", "W").SerializeToString())
    asked = [
        (1, {"x": (1, 3, 8, 8)}), (6, {"x": (1, 3, 8, 8)}), (6, {"x": (6, 3, 8, 8)}), (3, (3, 8, 8)),
        (1, {"x": (6, 3, 8, 8)}),
    ]  # fmt: skip
    seen: dict[int, set[str]] = {}
    for number, order in enumerate(itertools.permutations(range(len(asked)))):
        if number % 5:
            continue
        monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / str(number)))
        for case in (*order, *order):  # cold, then warm
            batch, shape = asked[case]
            try:
                graph, scalable = load_graphs(Workload(str(path), batch=batch, input_shape=shape))
                assert scalable is not None
                answer = graph.content_hash() + scalable.at(7).content_hash() + str(graph.notes)
            except ForerunError as error:
                answer = str(error)
            seen.setdefault(case, set()).add(answer)
    assert [len(answers) for _, answers in sorted(seen.items())] == [1] * len(asked)
    assert all("is the batch" in answer for answer in seen[4])
    assert seen[1] == seen[2]


def test_a_batch_that_changes_the_structure_has_one_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop over the samples: its turns are not a size that grows, so every batch has a graph of its own."""
    path = tmp_path / "net.onnx"
    body = helper.make_graph(
        [helper.make_node("MatMul", ["h", "w"], ["h2"]), helper.make_node("Identity", ["go"], ["go2"])], "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", INT64, []), ("go", 9, []), ("h", FLOAT, None))],
        [helper.make_tensor_value_info(n, t, None) for n, t in (("go2", 9), ("h2", FLOAT))],
    )  # fmt: skip
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Loop", ["n", "", "x"], ["y"], body=body),
    ]  # fmt: skip
    zero = helper.make_tensor("zero", INT64, [], [0])
    proto = model(nodes, {"x": (FLOAT, ["batch", 4])}, ["y"], [weight("w", 4, 4), zero])
    path.write_bytes(proto.SerializeToString())
    for order in itertools.permutations((1, 2, 5)):
        monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "-".join(map(str, order))))
        for batch in (*order, *order):
            assert macs(load_graph(Workload(str(path), batch=batch))) == batch * batch * 16


def test_a_file_without_a_batch_is_refused_at_another_batch_even_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "net.onnx"
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, ["time", 80])}, ["y"])
    path.write_bytes(proto.SerializeToString())
    for _ in range(2):
        assert shape_of(load_graph(Workload(str(path), seq_len=9))) == (9, 80)
        with pytest.raises(ForerunError, match="no input of this file has a batch axis"):
            load_graph(Workload(str(path), batch=8, seq_len=9))


@pytest.mark.parametrize("name", ["N", "num_samples", "time", "length", "batch"])
def test_an_axis_beside_the_batch_is_asked_for(name: str) -> None:
    node = helper.make_node("Conv", ["u", "w"], ["y"], strides=[4])
    nodes = [helper.make_node("Unsqueeze", ["audio", "axis"], ["u"]), node]
    proto = model(nodes, {"audio": (FLOAT, ["batch", name])}, ["y"], [weight("w", 4, 1, 9), ints("axis", 1)])
    with pytest.raises(ForerunError, match=r"axis 1 \('\w+'\) of input 'audio' is open.*audio=1,SIZE"):
        load(proto, batch=2)
    assert shape_of(load(proto, batch=2, input_shape=(16009,))) == (2, 4, 4001)


@pytest.mark.parametrize("name", ["time", "length", "seq_len", "num_frames"])
def test_a_sequence_in_front_is_no_batch(name: str) -> None:
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, [name, "batch", 8])}, ["y"],
                  [weight("w", 8, 4)])  # fmt: skip
    with pytest.raises(ForerunError, match=rf"axis 0 \('{name}'\) of input 'x' is open.*--seq-len, or.*x=SIZE,1,8"):
        load(proto, batch=3)
    assert shape_of(load(proto, batch=3, seq_len=20)) == (20, 3, 4)
    assert shape_of(load(proto, batch=3, input_shape={"x": (20, 1, 8)})) == (20, 3, 4)


def test_a_recording_without_a_batch_is_asked_for_and_has_no_batch() -> None:
    proto = model([helper.make_node("Relu", ["audio"], ["y"])], {"audio": (FLOAT, ["N"])}, ["y"])
    with pytest.raises(ForerunError, match=r"axis 0 \('N'\) of input 'audio' is open.*audio=SIZE"):
        load(proto)
    fixed = model([helper.make_node("Relu", ["audio"], ["y"])], {"audio": (FLOAT, ["time", 80])}, ["y"])
    with pytest.raises(ForerunError, match="no input of this file has a batch axis: ask for batch 1, not 4"):
        load(fixed, batch=4, seq_len=100)


def test_anonymous_axes_differ() -> None:
    graph = load(images("?", 3, "?", "?"), batch=2, input_shape={"x": (1, 3, 48, 192)})
    assert shape_of(graph) == (2, 4, 48, 192)
    same_word = load(images("dyn", 3, "dyn", "dyn"), batch=2, input_shape={"x": (1, 3, 48, 192)})
    assert shape_of(same_word) == (2, 4, 48, 192)


def test_a_named_axis_has_one_size() -> None:
    inputs = {"a": (FLOAT, ["batch", "points"]), "b": (FLOAT, ["batch", "points"])}
    proto = model([helper.make_node("Add", ["a", "b"], ["y"])], inputs, ["y"])
    assert shape_of(load(proto, batch=2, input_shape={"a": (1, 7)})) == (2, 7)
    with pytest.raises(ForerunError, match=r"axis 'points' cannot be both 7 \(a\) and 9 \(b\)"):
        load(proto, input_shape={"a": (1, 7), "b": (1, 9)})


def recurrent(x: list[Any], state: list[Any]) -> Any:
    """An LSTM with its state as an input, as streaming models have it."""
    nodes = [
        helper.make_node("Gather", ["state", "first"], ["h"]), helper.make_node("Gather", ["state", "second"], ["c"]),
        helper.make_node("Unsqueeze", ["h", "zero"], ["h1"]), helper.make_node("Unsqueeze", ["c", "zero"], ["c1"]),
        helper.make_node("Unsqueeze", ["x", "zero"], ["x1"]),
        helper.make_node("LSTM", ["x1", "w", "r", "", "", "h1", "c1"], ["", "hn", "cn"], hidden_size=6),
        helper.make_node("Concat", ["hn", "cn"], ["state_n"], axis=0),
    ]  # fmt: skip
    scalars = [helper.make_tensor(name, INT64, [], [value]) for name, value in (("first", 0), ("second", 1))]
    weights = [weight("w", 1, 24, 5), weight("r", 1, 24, 6), ints("zero", 0), *scalars]
    return model(nodes, {"x": (FLOAT, x), "state": (FLOAT, state)}, ["state_n"], weights)


@pytest.mark.parametrize(
    ("x", "state", "given"),
    [
        (["batch", 5], [2, "batch", 6], None),
        (["", ""], [2, "", 6], {"x": (1, 5), "state": (2, 1, 6)}),
        (["", ""], ["", "", ""], {"x": (1, 5), "state": (2, 1, 6)}),
        ([1, 5], [2, 1, 6], None),
    ],
)
@pytest.mark.parametrize("batch", [1, 2, 8])
def test_a_state_has_its_layers_in_front(x: list[Any], state: list[Any], given: Any, batch: int) -> None:
    graph = load(recurrent(x, state), batch=batch, input_shape=given)
    assert shape_of(graph) == (2, batch, 6)
    assert macs(graph) == batch * 24 * 11
    assert graph.scalable and graph.min_batch == 1
    assert "rnn" in kinds(graph)


def test_sizes_that_are_sums_and_products() -> None:
    inputs = {"ids": (INT64, ["batch", "seq"]), "mask": (FLOAT, ["batch", "past + seq"]),
              "heads": (FLOAT, ["batch*4", "seq"])}  # fmt: skip
    nodes = [helper.make_node(op, [i], [o]) for op, i, o in (("Relu", "mask", "y"), ("Relu", "heads", "z"))]
    graph = load(model(nodes, inputs, ["y", "z"]), batch=3, seq_len=10)
    assert [graph.tensors[t].shape for t in graph.outputs] == [(3, 10), (12, 10)]


def test_a_copy_of_a_file_has_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))
    for name in ("first", "second", "first"):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(images("N", 3, 8, 8).SerializeToString())
        assert load_graph(Workload(str(path))).name == name


def test_shapes_are_blamed_only_for_what_they_did() -> None:
    """Here the batch is open and a constant spells out 1: no shape of the user's would help at batch 4."""
    nodes = [helper.make_node("Reshape", ["x", "to"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    proto = model(nodes, {"x": (FLOAT, ["batch", 4, "W"])}, ["y"], [ints("to", 1, 24), weight("w", 24, 5)])
    assert shape_of(load(proto, input_shape={"x": (1, 4, 6)})) == (1, 5)
    with pytest.raises(ForerunError, match="runs at batch 1 and not at batch 4, though its batch axis is open"):
        load(proto, batch=4, input_shape={"x": (1, 4, 6)})
    with pytest.raises(ForerunError, match="give the input shape that the file was made for"):
        load(proto, input_shape={"x": (1, 4, 7)})


def test_totals_scale_with_the_batch(tmp_path: Path) -> None:
    proto = images("p2o.DynamicDimension.0", 3, "p2o.DynamicDimension.1", "p2o.DynamicDimension.2")
    one, eight = (totals(load(proto, batch=b, input_shape={"x": (1, 3, 48, 320)})).macs for b in (1, 8))
    assert eight == 8 * one
