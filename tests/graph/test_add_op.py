"""Adding a kind of op is a walk through a few files (docs/EXTEND.md, "An op"): a forgotten one is named here."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from forerun.capture import torch_ops
from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.frontends.onnx import (
    control as onnx_control,
)
from forerun.frontends.onnx import (
    fused as onnx_fused,
)
from forerun.frontends.onnx import (
    ops as onnx_ops,
)
from forerun.graph import cost, features, op_names, variants
from forerun.graph import profile as profiles
from forerun.graph.ir import Graph, Op, Storage, Tensor
from forerun.graph.kinds import COLLECTIVES, CONTRACTIONS, KINDS, Kind
from forerun.graph.profile import CLASS_OF_KIND, CLASSES, profile
from forerun.graph.validate import validate
from forerun.workload import Workload

#: Values for the attributes that a kind must have, by their type.
SAMPLES = {int: 2, bool: False, list: [1, 1]}


def missing_from(kind: str) -> str:
    """The first file that a new kind was forgotten in, in the order of the walk; '' when there is none."""
    if kind not in cost.LAWS:
        return f"{kind!r} has no law for its FLOPs and bytes: add one to LAWS in src/forerun/graph/cost.py"
    if kind not in features.SIZES:
        return f"{kind!r} has no law for its sizes: add it to SIZES in src/forerun/graph/features.py"
    if CLASS_OF_KIND.get(kind) not in CLASSES:
        return f"{kind!r} has no kernel class: add it to CLASS_OF_KIND (or CLASSES) in src/forerun/graph/profile.py"
    try:
        from forerun.predictors.laws import kernels  # noqa: F401 - it looks every class up
    except KeyError as missing:
        return f"{missing} has no constants: add it to _KERNELS in src/forerun/predictors/laws/kernels.py"
    if kind not in emitted():
        return (
            f"no frontend gives {kind!r}: add its calls to src/forerun/capture/torch_ops.py, its node types to "
            "src/forerun/frontends/onnx/ops.py"
        )
    return ""


def emitted() -> set[str]:
    """Kinds that the frontends for PyTorch and ONNX give."""
    recorded = {torch_ops.classify(name) for name in (*torch_ops.KIND_OF, "_fused_adam_", "not_listed")}
    sources = [Path(module.__file__).read_text() for module in (onnx_ops, onnx_fused, onnx_control)]
    calls = [n for text in sources for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
    words = {a.value for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "emit" for a in c.args[:1]
             if isinstance(a, ast.Constant)}  # fmt: skip
    # Collectives are put in where a graph is divided among devices (graph/shard.py).
    return recorded | set(onnx_ops.KINDS_OF.values()) | words | COLLECTIVES


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_known_everywhere(kind: str) -> None:
    assert not missing_from(kind), missing_from(kind)


def test_nothing_is_known_of_a_kind_that_is_not_listed() -> None:
    for table, file in (
        (cost.LAWS, "graph/cost.py"), (features.SIZES, "graph/features.py"), (CLASS_OF_KIND, "graph/profile.py"),
    ):  # fmt: skip
        assert set(table) == set(KINDS), f"src/forerun/{file} and src/forerun/graph/kinds.py list other kinds"
    assert set(KINDS) >= CONTRACTIONS
    assert emitted() <= set(KINDS)


def test_the_walk_names_the_next_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind called 'convolve' is added step by step."""
    monkeypatch.setitem(KINDS, "convolve", Kind("x -> y", 1))
    assert "graph/cost.py" in missing_from("convolve")
    monkeypatch.setitem(cost.LAWS, "convolve", cost.LAWS["copy"])
    assert "graph/features.py" in missing_from("convolve")
    monkeypatch.setitem(features.SIZES, "convolve", features.SIZES["copy"])
    assert "graph/profile.py" in missing_from("convolve")
    monkeypatch.setitem(profiles.CLASS_OF_KIND, "convolve", "copy")
    assert "capture/torch_ops.py" in missing_from("convolve")
    monkeypatch.setitem(torch_ops.KIND_OF, "aten_convolve", "convolve")
    assert missing_from("convolve") == ""


def one_op(like: str, /, **changes: object) -> Graph:
    """A graph of one op of a kind with exactly what the kind asks for."""
    spec = KINDS[like]
    attrs = {name: SAMPLES[t] if isinstance(t, type) else t[0] for name, t in spec.attrs.items()}
    count = spec.inputs + spec.outputs
    tensors = [Tensor((2, 4, 8, 8), "fp32", i, 0 if i >= spec.inputs else -1) for i in range(count)]
    storages = [Storage(4 * 2 * 4 * 8 * 8, "activation", 0 if i >= spec.inputs else -1) for i in range(count)]
    op = Op(like, f"acme::{like}", tuple(range(spec.inputs)), tuple(range(spec.inputs, count)), attrs)
    for name, value in changes.items():
        setattr(op, name, value)
    return Graph("one", [op], tensors, storages, 0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_kind_asks_for_is_enough_for_every_law(kind: str) -> None:
    """An op that passes validation never breaks a law later."""
    graph = one_op(kind)
    validate(graph)
    columns = profile(graph, "fp32")
    assert columns.classes.tolist() == [CLASSES.index(profiles.kernel_class(graph.ops[0], graph))]
    for values in (columns.flops, columns.bytes, columns.sizes):
        assert np.isfinite(values).all() and (values >= 0).all()


@pytest.mark.parametrize("kind", [k for k, spec in KINDS.items() if spec.attrs])
def test_a_missing_or_wrong_attribute_is_an_error_where_the_graph_enters(kind: str) -> None:
    for name, expected in KINDS[kind].attrs.items():
        attrs = one_op(kind).ops[0].attrs
        without = one_op(kind, attrs={k: v for k, v in attrs.items() if k != name})
        with pytest.raises(ForerunError, match=rf"op 0 \(acme::{kind}\) lacks the attribute '{name}'"):
            load_graph(Workload(without))
        wrong = "two" if isinstance(expected, type) else 3
        with pytest.raises(ForerunError, match=rf"has {name}={wrong!r}, which must be"):
            load_graph(Workload(one_op(kind, attrs={**attrs, name: wrong})))


@pytest.mark.parametrize("kind", [k for k, spec in KINDS.items() if spec.inputs])
def test_too_few_inputs_are_an_error_where_the_graph_enters(kind: str) -> None:
    with pytest.raises(ForerunError, match=f"{kind} needs at least {KINDS[kind].inputs} ->"):
        load_graph(Workload(one_op(kind, inputs=())))


def test_an_unlisted_kind_is_an_error_and_unknown_is_not() -> None:
    with pytest.raises(ForerunError, match=r"has the kind 'matmull'.*Did you mean matmul"):
        load_graph(Workload(one_op("copy", kind="matmull")))
    with pytest.raises(ForerunError, match=r"has the kind 'frobnicate'.*An op of no listed kind is 'unknown'"):
        load_graph(Workload(one_op("copy", kind="frobnicate")))
    graph = load_graph(Workload(one_op("copy", kind="unknown")))
    assert graph.notes == ["no cost law for acme::copy: its bytes are counted, its FLOPs are not"]
    assert load_graph(Workload(graph)).notes == graph.notes  # not once more


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: setattr(g.tensors[0], "dtype", "float32"), "tensor 0 has the dtype 'float32'"),
        (lambda g: setattr(g.tensors[0], "storage", 9), "tensor 0 lies in storage 9, and there are 2"),
        (lambda g: setattr(g.tensors[0], "shape", (2, -1)), "tensor 0 has a negative size"),
        (lambda g: setattr(g.tensors[0], "per_sample", (1,)), "4 dimensions and says how 1 grow"),
        (lambda g: setattr(g.tensors[1], "producer", 5), "tensor 1 is written by op 5, and there are 1"),
        (lambda g: setattr(g.tensors[0], "producer", 0), "reads tensor 0 before op 0 writes it"),
        (lambda g: setattr(g.storages[1], "role", "weights"), "storage 1 has the role 'weights'"),
        (lambda g: setattr(g.storages[1], "bytes", -8), "storage 1 has -8 bytes"),
        (lambda g: setattr(g.storages[1], "born", 4), "storage 1 is made by op 4"),
        (lambda g: setattr(g.ops[0], "phase", "later"), "has the phase 'later'"),
        (lambda g: setattr(g.ops[0], "repeat", -1), "is repeated -1 times"),
        (lambda g: setattr(g.ops[0], "outputs", (7,)), "uses tensor 7, and there are 2"),
        (lambda g: setattr(g, "outputs", (7,)), "an output is no tensor of it"),
        (lambda g: setattr(g, "min_batch", 0), "min_batch"),
    ],
)  # fmt: skip
def test_a_graph_that_is_none_is_refused_in_one_sentence(change: object, message: str) -> None:
    graph = one_op("softmax")
    validate(graph)
    change(graph)  # type: ignore[operator]
    with pytest.raises(ForerunError) as caught:
        validate(graph)
    assert message in str(caught.value) and "\n" not in str(caught.value)


# -- names -------------------------------------------------------------------------------------------------------


def elementwise(name: str, inputs: int = 1) -> str:
    graph = one_op("elementwise", name=name, inputs=(0,) * inputs)
    return variants.variant(graph.ops[0], graph)


@pytest.mark.parametrize(
    "name", ["aten::gelu", "aten::silu_", "aten::pow.Tensor_Scalar", "aten::exp", "Tanh", "BiasGelu"]
)
def test_heavy_ops_are_known_by_their_whole_name(name: str) -> None:
    assert elementwise(name) == "elementwise:heavy"


@pytest.mark.parametrize(
    "name", ["aten::logical_and", "aten::logical_not", "aten::isin.Tensor_Tensor", "aten::isinf", "IsInf", "And"]
)
def test_a_heavy_name_within_another_makes_nothing_heavy(name: str) -> None:
    assert elementwise(name) == ""
    assert elementwise(name, inputs=2) == "elementwise:binary"


def test_names_are_matched_whole_for_every_variant() -> None:
    def variant(kind: str, name: str) -> str:
        graph = one_op(kind, name=name)
        return variants.variant(graph.ops[0], graph)

    assert elementwise("aten::add_.Tensor", 2) == "elementwise:inplace"
    assert elementwise("aten::__and__.Tensor", 2) == "elementwise:binary"
    assert variant("pool", "AveragePool") == "pool:avg" and variant("pool", "GlobalAveragePool") == "pool:adaptive"
    assert variant("pool", "aten::max_pool2d_with_indices") == "pool:max"
    assert variant("norm_backward", "aten::native_group_norm_backward") == "norm_backward:group"
    assert variant("resize", "aten::upsample_nearest2d") == "resize:nearest"


def test_a_padding_that_replicates_is_no_concatenation() -> None:
    """'replication' holds the word 'cat'."""
    assert op_names.COPIES["replication_pad2d"] == "pad"


def test_every_name_in_the_tables_is_one_that_a_frontend_gives() -> None:
    nodes = {*onnx_ops.KINDS_OF, *onnx_ops.HANDLERS, *onnx_control.SEQUENCES}
    tables = (op_names.HEAVY, op_names.NORM_TYPES, op_names.COPIES, op_names.POOLS, op_names.RESIZES)
    listed = {name for table in tables for name in table}
    assert listed - set(torch_ops.KIND_OF) - nodes == set()
