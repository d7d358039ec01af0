"""Every operator of the registry builds and runs on a CPU, is recorded on meta, and can be asked for by a spec."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.measure.core import operator_cases, specs
from forerun.measure.core.meters import meter_for
from forerun.measure.core.operator_cases import FORWARD_ONLY, WEIGHTS
from forerun.measure.core.operator_draws import DRAWS, RARE
from forerun.measure.core.operators import OPERATORS, build, call_of, find
from forerun.measure.core.operators.registry import operator
from forerun.training.operators import graph_of, known

SWEEPS = Path(__file__).parents[2] / "sweeps"
OF_KINDS = [
    SWEEPS / f"h200_operators_{name}.yaml"
    for name in ("kinds", "far", "points", "more", "compiled", "body", "decoding", "hardest", "lookups")
]
DIRECTED = [
    (name, direction)
    for name, one in OPERATORS.items()
    for direction in (("forward", "backward") if one.backward else ("forward",))
]
#: Backward passes that hand on the gradient they are given, or a view of it, and launch nothing.
VIEWS = {(name, "backward") for name in ("add", "cat", "sum", "sum_down", "transpose")}


def examples(name: str, direction: str, dtypes: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {"op": name, "shape": shape, "dtype": dtype, "direction": direction}
        for shape in find(name).examples
        for dtype in dtypes
    ]


@pytest.mark.parametrize(("name", "direction"), DIRECTED)
def test_an_operator_runs_on_a_cpu_in_each_of_its_dtypes(name: str, direction: str) -> None:
    for case in examples(name, direction, find(name).dtypes):
        torch.manual_seed(0)
        result = call_of(case, meter_for("cpu"))()
        if direction == "backward":
            _, inputs = build(case, "cpu")
            assert [g.shape for g in result] == [x.shape for x in inputs], case
            assert [g.dtype for g in result] == [x.dtype for x in inputs], case
            assert any(bool(g.abs().sum() > 0) for g in result), case
            assert all(bool(g.isfinite().all()) for g in result), case
        elif not find(name).is_step:
            assert result.numel() > 0, case
            assert bool(result.isfinite().all()), case


@pytest.mark.parametrize(("name", "direction"), DIRECTED)
def test_a_graph_of_an_operator_is_recorded_on_meta(name: str, direction: str) -> None:
    assert known(name)
    for case in examples(name, direction, find(name).dtypes[:1]):
        graph = graph_of(name, json.dumps(case["shape"]), case["dtype"], direction)
        phase = "optimizer" if find(name).is_step else direction
        assert {op.phase for op in graph.ops} == (set() if (name, direction) in VIEWS else {phase})


def test_forms_of_attention_mean_what_their_names_say() -> None:
    sizes = {"b": 2, "heads": 4, "q": 6, "kv": 6, "d": 8}

    def attended(op: str, **more: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        torch.manual_seed(1)
        call, inputs = build({"op": op, "shape": sizes | more, "dtype": "fp32", "direction": "backward"}, "cpu")
        return call(), inputs

    causal, _ = attended("sdpa", causal=1)
    full, _ = attended("sdpa", causal=0)
    window, _ = attended("sdpa_window", window=6)
    torch.testing.assert_close(window, causal)  # a window over all keys is plain causal attention
    assert not torch.allclose(full, causal)
    _, (q, k, v) = attended("sdpa_gqa", kv_heads=1, causal=0)
    assert (q.shape[1], k.shape[1], v.shape[1]) == (4, 1, 1)
    assert len(attended("sdpa_bias", per_sample=0, per_head=1, learned=1)[1]) == 4
    assert len(attended("sdpa_bias", per_sample=0, per_head=1, learned=0)[1]) == 3


def test_a_name_is_registered_once_and_an_unknown_one_is_named() -> None:
    with pytest.raises(ValueError, match="matmul"):
        operator("matmul", {"m": 1})(lambda a: (lambda: None, []))
    with pytest.raises(ValueError, match="matmull"):
        build({"op": "matmull", "shape": {}, "dtype": "fp32", "direction": "forward"}, "cpu")


@pytest.mark.parametrize("sweep", OF_KINDS, ids=lambda path: path.stem)
def test_a_sweep_of_operators_holds_what_its_labels_draw(sweep: Path) -> None:
    spec = specs.load(str(sweep))
    result = operator_cases.cases(spec)
    assert len(result) == spec["n"]
    assert result == operator_cases.cases(spec)
    families = Counter(case["family"] for case in result)
    assert set(families) == set(spec["only"])
    assert min(families.values()) >= 30
    both = {(case["op"], case["direction"], case["family"] in FORWARD_ONLY) for case in result}
    backward = {op for op, direction, _ in both if direction == "backward"}
    assert {op for op, _, one_way in both if find(op).backward and not one_way} == backward
    for case in result:
        assert set(case["shape"]) - {"last", "dilation", "depth"} <= set().union(*find(case["op"]).examples), case
        assert all(isinstance(size, int) and size >= 0 for size in case["shape"].values())
        assert case["dtype"] in (*find(case["op"]).dtypes, *(("tf32",) if find(case["op"]).tf32 else ()))


def test_every_label_is_in_a_sweep() -> None:
    drawn = {label.removesuffix("_last") for sweep in OF_KINDS for label in specs.load(str(sweep))["only"]}
    assert drawn - {*WEIGHTS} - {*RARE} == {*DRAWS} - {*RARE}


@pytest.mark.parametrize("label", sorted(DRAWS))
def test_each_draw_builds_on_meta_within_its_estimate(label: str) -> None:
    """The estimate of the numbers held covers the inputs and the result."""
    spec = {"name": "x", "kind": "op", "n": 12, "seed": 5, "only": {label: 1}, "dtypes": ["fp32"], "max_numbers": 1e8}
    for case in operator_cases.cases(spec):
        call, inputs = build(case | {"direction": "forward"}, "meta")
        assert sum(x.numel() for x in inputs) <= 2e8, case
        if find(case["op"]).is_step or case["op"] in ("lstm", "gru"):  # on meta these run step by step
            continue
        with torch.no_grad():
            out = call()
        assert math.prod(out.shape) <= 1e8, case


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("h200_operators_dense", "a6989363bc595ddd"),
        ("h200_operators_last", "b718820599928895"),
        ("h200_operators_rare", "4ca81ac957bafea3"),
        ("h200_operators_kinds", "c695c358bf2f659b"),
        ("h200_operators_points", "742573086278a982"),
        ("h200_operators_more", "fdb3bec0e8940ee5"),
        ("h200_operators_compiled", "55832390b24a78e8"),
        ("h200_operators_body", "0ef6966c2ba24ac6"),
        ("h200_operators_decoding", "b8206526b2d50fef"),
        ("h200_operators_hardest", "ff3d85662e8a81c6"),
        ("h200_operators_lookups", "8241faa5f10b1ac9"),
    ],
)
def test_specs_still_draw_the_cases_of_their_rows(name: str, digest: str) -> None:
    result = operator_cases.cases(specs.load(str(SWEEPS / f"{name}.yaml")))
    assert hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()[:16] == digest
