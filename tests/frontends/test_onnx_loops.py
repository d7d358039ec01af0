"""Loops, scans and branches of ONNX files: how many turns are counted, and what is stated where it cannot be known."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_files import FLOAT, INT64, check_graph, ints, kinds, load, macs, model, weight

from forerun.errors import ForerunError

BOOL = TensorProto.BOOL


def info(name: str, kind: int, shape: list[Any] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def number(name: str, value: int, kind: int = INT64) -> onnx.TensorProto:
    return helper.make_tensor(name, kind, [], [value])


def recurrence(condition: list[onnx.NodeProto], more: list[str] = []) -> onnx.GraphProto:  # noqa: B006 - never changed
    """A body that multiplies its state by w, with these nodes for the condition `go2`."""
    state = [info("i", INT64, []), info("go", BOOL, []), info("h", FLOAT), *(info(name, INT64, []) for name in more)]
    nodes = [helper.make_node("MatMul", ["h", "w"], ["h2"]), *condition]
    return helper.make_graph(
        nodes, "body", state, [info("go2", BOOL, []), info("h2", FLOAT), *(info(f"{n}2", INT64, []) for n in more)]
    )


def steps_of_x(*loop: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Nodes that read the length of x, and what follows."""
    return [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "one"], ["steps"]), *loop]


GO_ON = helper.make_node("Identity", ["go"], ["go2"])


def test_turns_follow_from_a_shape() -> None:
    nodes = steps_of_x(helper.make_node("Loop", ["steps", "", "h0"], ["y"], body=recurrence([GO_ON])))
    proto = model(nodes, {"x": (FLOAT, ["batch", "seq"]), "h0": (FLOAT, ["batch", 4])}, ["y"],
                  [weight("w", 4, 4), number("one", 1)])  # fmt: skip
    for length in (30, 77):
        graph = load(proto, batch=2, seq_len=length)
        assert macs(graph) == length * 2 * 16
        assert not any("iteration" in note for note in graph.notes)


def test_a_while_loop_over_a_shape_is_counted() -> None:
    """As TensorFlow writes it: no trip count, a counter that is carried, and a condition on it."""
    condition = [
        helper.make_node("Add", ["t", "one"], ["t2"]), helper.make_node("Cast", ["t2"], ["tf"], to=FLOAT),
        helper.make_node("Cast", ["steps"], ["sf"], to=FLOAT), helper.make_node("Less", ["tf", "sf"], ["go2"]),
    ]  # fmt: skip
    nodes = steps_of_x(
        helper.make_node("Less", ["zero", "steps"], ["start"]),
        helper.make_node("Loop", ["", "start", "h0", "zero"], ["y", "last"], body=recurrence(condition, ["t"])),
    )
    proto = model(nodes, {"x": (FLOAT, ["batch", "seq"]), "h0": (FLOAT, ["batch", 4])}, ["y"],
                  [weight("w", 4, 4), number("one", 1), number("zero", 0)])  # fmt: skip
    assert macs(load(proto, batch=3, seq_len=30)) == 30 * 3 * 16


def test_a_condition_on_the_data_is_stated() -> None:
    condition = [helper.make_node("ReduceMax", ["h2"], ["most"], keepdims=0),
                 helper.make_node("Greater", ["most", "limit"], ["go2"])]  # fmt: skip
    limit = numpy_helper.from_array(np.float32(0.5), "limit")
    inputs = {"x": (FLOAT, ["batch", 4])}
    endless = model([helper.make_node("Loop", ["", "", "x"], ["y"], body=recurrence(condition))], inputs, ["y"],
                    [weight("w", 4, 4), limit])  # fmt: skip
    graph = load(endless)
    assert macs(graph) == 16
    assert "a Loop with an unknown number of iterations: one is counted" in graph.notes
    bound = model([helper.make_node("Loop", ["most_turns", "", "x"], ["y"], body=recurrence(condition))], inputs, ["y"],
                  [weight("w", 4, 4), limit, number("most_turns", 12)])  # fmt: skip
    graph = load(bound)
    assert macs(graph) == 12 * 16
    assert "a Loop that the data may end early: all 12 iterations are counted" in graph.notes


def test_a_loop_that_counts_far_is_bounded() -> None:
    """A counter to ten million: evaluating every turn would take minutes, so the turns count as unknown."""
    condition = [helper.make_node("Less", ["i", "far"], ["go2"])]
    proto = model([helper.make_node("Loop", ["", "", "x"], ["y"], body=recurrence(condition))],
                  {"x": (FLOAT, ["batch", 4])}, ["y"], [weight("w", 4, 4), number("far", 10_000_000)])  # fmt: skip
    assert any("unknown number of iterations" in note for note in load(proto).notes)


def test_no_turns() -> None:
    nodes = [helper.make_node("Loop", ["zero", "", "x"], ["l"], body=recurrence([GO_ON])),
             helper.make_node("Relu", ["l"], ["y"])]  # fmt: skip
    graph = load(model(nodes, {"x": (FLOAT, ["batch", 4])}, ["y"], [weight("w", 4, 4), number("zero", 0)]))
    assert kinds(graph) == ["elementwise"]


def test_a_carried_tensor_that_grows() -> None:
    """A cache that every turn makes longer by one: sizes are those of each turn."""
    body = helper.make_graph(
        [helper.make_node("Concat", ["cache", "x"], ["cache2"], axis=1),
         helper.make_node("MatMul", ["cache2", "w"], ["used"]), GO_ON], "body",
        [info("i", INT64, []), info("go", BOOL, []), info("cache", FLOAT)],
        [info("go2", BOOL, []), info("cache2", FLOAT)],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["turns", "", "x"], ["y"], body=body)]
    graph = load(model(nodes, {"x": (FLOAT, ["batch", 1, 4])}, ["y"], [weight("w", 4, 5), number("turns", 10)]))
    assert macs(graph) == sum(range(2, 12)) * 4 * 5
    assert graph.tensors[graph.outputs[0]].shape == (1, 11, 4)


def test_collected_results_are_as_many_as_turns() -> None:
    body = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["row"], axis=0), helper.make_node("MatMul", ["row", "w"], ["out"]),
         GO_ON], "body", [info("i", INT64, []), info("go", BOOL, [])], [info("go2", BOOL, []), info("out", FLOAT)],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["turns", ""], ["y"], body=body)]
    graph = load(model(nodes, {"x": (FLOAT, [7, "batch", 4])}, ["y"], [weight("w", 4, 5), number("turns", 7)]), batch=3)
    assert graph.tensors[graph.outputs[0]].shape == (7, 3, 5)
    assert macs(graph) == 7 * 3 * 20


def test_scan_counts_its_turns_and_stacks_on_its_axis() -> None:
    body = helper.make_graph(
        [helper.make_node("MatMul", ["h", "w"], ["m"]), helper.make_node("Add", ["m", "step"], ["h2"]),
         helper.make_node("Identity", ["h2"], ["out"])], "body",
        [info("h", FLOAT), info("step", FLOAT)], [info("h2", FLOAT), info("out", FLOAT)],
    )  # fmt: skip
    node = helper.make_node("Scan", ["h0", "x"], ["last", "y"], body=body, num_scan_inputs=1, scan_input_axes=[1],
                            scan_output_axes=[1])  # fmt: skip
    proto = model([node], {"h0": (FLOAT, ["batch", 4]), "x": (FLOAT, ["batch", "seq", 4])}, ["y"], [weight("w", 4, 4)])
    graph = load(proto, batch=2, seq_len=40)
    assert macs(graph) == 40 * 2 * 16
    assert graph.tensors[graph.outputs[0]].shape == (2, 40, 4)


def test_nodes_in_any_order() -> None:
    nodes = [
        helper.make_node("MatMul", ["b", "w2"], ["y"]), helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["x", "w"], ["a"]),
    ]  # fmt: skip
    weights = [weight("w", 4, 8), weight("w2", 8, 3)]
    graph = load(model(nodes, {"x": (FLOAT, ["batch", 4])}, ["y"], weights), batch=2)
    assert kinds(graph) == ["matmul", "elementwise", "matmul"]
    check_graph(graph)
    circle = [helper.make_node("Relu", ["b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    with pytest.raises(ForerunError, match="depends on its own output"):
        load(model(circle, {"x": (FLOAT, ["batch", 4])}, ["b"]))


def test_a_short_time_fourier_transform_is_one_sided_by_default() -> None:
    nodes = [
        helper.make_node("STFT", ["x", "step", "window"], ["f"]),
        helper.make_node("ReduceSumSquare", ["f"], ["p"], axes=[-1], keepdims=0),
        helper.make_node("MatMul", ["p", "mel"], ["y"]),
    ]
    weights = [number("step", 160), weight("window", 400), weight("mel", 201, 80)]
    graph = load(model(nodes, {"x": (FLOAT, ["batch", "L"])}, ["y"], weights), batch=2, input_shape=(16000,))
    assert kinds(graph) == ["fft", "reduce", "matmul"]
    assert graph.tensors[graph.outputs[0]].shape == (2, 98, 80)
    nodes[0] = helper.make_node("STFT", ["x", "step", "", "length"], ["f"])  # a vector of one number for a number
    weights = [ints("step", 160), ints("length", 400), weight("mel", 201, 80)]
    assert load(model(nodes, {"x": (FLOAT, ["batch", 16000])}, ["y"], weights), batch=2).notes[1:] == []


def test_sizes_from_the_data_are_assumed_and_noted() -> None:
    """The expanded AffineGrid of ONNX: an image whose sizes are values of an input."""
    nodes = [
        helper.make_node("ConstantOfShape", ["size"], ["zeros"]),
        helper.make_node("Transpose", ["zeros"], ["t"], perm=[2, 0, 1]), helper.make_node("Relu", ["t"], ["y"]),
    ]  # fmt: skip
    graph = load(model(nodes, {"size": (INT64, [3])}, ["y"]), batch=3)
    assert any("sizes that ConstantOfShape computes from the data are unknown" in note for note in graph.notes)


def test_loops_in_loops_end() -> None:
    """A hostile file: each of five nested loops grows what it carries over a million turns."""
    inner: onnx.GraphProto | None = None
    for depth in range(5):
        grown = helper.make_node("Concat", [f"c{depth}", f"c{depth}"], [f"d{depth}"], axis=0)
        more = (
            [] if inner is None else [helper.make_node("Loop", ["turns", "", f"c{depth}"], [f"o{depth}"], body=inner)]
        )
        inner = helper.make_graph(
            [grown, *more, helper.make_node("Identity", [f"go{depth}"], [f"stop{depth}"])], f"body{depth}",
            [info(f"i{depth}", INT64, []), info(f"go{depth}", BOOL, []), info(f"c{depth}", FLOAT)],
            [info(f"stop{depth}", BOOL, []), info(f"d{depth}", FLOAT)],
        )  # fmt: skip
    node = helper.make_node("Loop", ["turns", "", "x"], ["y"], body=inner)
    with pytest.raises(ForerunError, match="is repeated 1e\\+12 times"):
        load(model([node], {"x": (FLOAT, ["batch", 4])}, ["y"], [number("turns", 1_000_000)]))
