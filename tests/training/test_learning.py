"""What the default predictor is made of: op features, the network, host and energy fits, conformal intervals."""

from __future__ import annotations

import dataclasses
import json
import math
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.data.importers import importers
from forerun.data.splits import hold_out
from forerun.data.store import Store
from forerun.device import load_device
from forerun.frontends import load_graph, load_graphs
from forerun.graph.cost import Shapes
from forerun.graph.features import DIMS, dims
from forerun.graph.profile import UNITS, profile
from forerun.graph.variants import variant
from forerun.measure.cases import case_of
from forerun.predictors.default import DefaultPredictor, fit_device, fit_energy
from forerun.predictors.default.kernel_shares import HEAVY_OPS, heavy_share
from forerun.predictors.default.network import GROUP_OF, GROUPS, Ensemble
from forerun.predictors.laws.conformal import NEW_FAMILY, calibrate, device_deviation
from forerun.predictors.laws.features import NUMBERS, op_table
from forerun.predictors.laws.host import COUNTED, launch_counts, smooth_max
from forerun.predictors.laws.specs import power_slowdown
from forerun.training import operators
from forerun.training.cases import model_cases, operator_cases
from forerun.training.gather import gather, sample
from forerun.workload import Workload


def sizes(op: str, shape: dict[str, int], dtype: str = "fp16", direction: str = "forward") -> dict[str, float]:
    graph = operators.graph_of(op, json.dumps(shape), dtype, direction)
    heaviest = int(np.argmax(profile(graph, dtype).flops[:, 0]))
    return dict(zip(DIMS, dims(graph, Shapes(graph), 1)[heaviest, 0], strict=True))


def test_ops_are_described_by_their_sizes() -> None:
    linear = sizes("linear", {"m": 30, "n": 40, "k": 50})
    assert (linear["rows"], linear["cols"], linear["inner"], linear["count"]) == (30, 40, 50, 1)
    bmm = sizes("bmm", {"b": 6, "m": 3, "n": 4, "k": 5})
    assert (bmm["rows"], bmm["cols"], bmm["inner"], bmm["count"]) == (3, 4, 5, 6)
    conv = sizes("conv2d", {"b": 2, "cin": 16, "cout": 32, "h": 10, "w": 10, "r": 3, "stride": 2, "groups": 4})
    assert (conv["rows"], conv["cols"], conv["inner"], conv["count"]) == (2 * 5 * 5, 8, 4 * 9, 4)
    assert (conv["window"], conv["stride"], conv["image"]) == (9, 4, 5 * 5)
    assert linear["image"] == bmm["image"] == 1
    attention = sizes("sdpa", {"b": 2, "heads": 3, "q": 7, "kv": 9, "d": 64, "causal": 0})
    assert (attention["rows"], attention["cols"], attention["inner"], attention["count"]) == (7, 9, 64, 6)
    norm = sizes("group_norm", {"b": 2, "c": 32, "h": 5, "w": 5, "groups": 4})
    assert (norm["rows"], norm["cols"]) == (2 * 4, 32 * 25 / 4)
    grouped = sizes("sdpa", {"b": 2, "heads": 8, "q": 1, "kv": 9, "d": 64, "causal": 0, "kv_heads": 2})
    assert grouped["window"] == 4


def test_backward_passes_are_their_own_ops() -> None:
    graph = operators.graph_of("linear", json.dumps({"m": 8, "n": 16, "k": 32}), "fp16", "backward")
    kinds = [op.kind for op in graph.ops]
    assert kinds.count("matmul") == 2
    assert all(op.phase == "backward" for op in graph.ops)
    forward = operators.graph_of("linear", json.dumps({"m": 8, "n": 16, "k": 32}), "fp16", "forward")
    assert [op.kind for op in forward.ops] == ["matmul"]


def test_rare_operators_are_recorded_as_models_run_them() -> None:
    packed = operators.graph_of("matmul", json.dumps({"m": 8, "n": 64, "k": 128}), "int4", "forward")
    assert [packed.tensors[t].dtype for t in packed.ops[0].inputs] == ["bf16", "int4"]
    head = {"b": 3, "cin": 8, "cout": 16, "h": 7, "w": 7, "r": 7, "stride": 1, "groups": 1, "padding": 0}
    assert sizes("conv2d", head)["rows"] == 3  # a window as large as its image is one place
    lstm = operators.graph_of(
        "lstm", json.dumps({"b": 2, "length": 5, "cin": 4, "hidden": 6, "both": 1}), "fp32", "forward"
    )
    (cell,) = [op for op in lstm.ops if op.kind == "rnn"]
    assert (cell.attrs["steps"], cell.attrs["directions"]) == (5, 2)
    resized = operators.graph_of("bicubic", json.dumps({"b": 1, "c": 3, "h": 8, "w": 8, "to": 16}), "fp32", "forward")
    assert variant(resized.ops[0], resized) == "resize:bicubic"


@pytest.mark.parametrize("m", [128, 200, 1024])
def test_an_op_at_twice_the_batch_looks_as_it_would(m: int) -> None:
    """Training shows the network an op at twice the batch without capturing it again."""
    frame = pd.DataFrame([{"op": "linear", "shape": json.dumps({"m": rows, "n": 512, "k": 256}), "dtype": "fp16",
                           "device": "h200", "direction": "forward", "devices": 1, "dataset": "own"}
                          for rows in (m, 2 * m)])  # fmt: skip
    ops = operator_cases(frame).ops
    even = torch.rand((2, 200), generator=torch.Generator().manual_seed(0))
    mean, scale = np.full(len(NUMBERS), 1.0), np.full(len(NUMBERS), 10.0)  # far from where numbers are cut off
    many = torch.from_numpy(np.repeat((ops.numbers[:1] - mean) / scale, 200, axis=0)).float()
    doubled, terms = fit_device._twice(many, torch.ones(200, 5), mean, scale, even)
    seen = dict(zip(NUMBERS, (doubled.numpy() * scale + mean).T, strict=True))
    real = dict(zip(NUMBERS, ops.numbers[1], strict=True))
    for name in ("compute_us", "tiles", "blocks"):
        np.testing.assert_allclose(seen[name], real[name], atol=1e-4)
    np.testing.assert_allclose(seen["in_cache"] - seen["at_once"], real["in_cache"] - real["at_once"], atol=1e-4)
    compute, power_slowdown, memory, feed, launches = terms.T
    assert (compute == 2).all() and (memory >= 1).all() and (memory <= 2).all()
    assert (power_slowdown == 1).all() and (feed == 1).all() and (launches == 1).all()
    rows, moved = NUMBERS.index("rows"), NUMBERS.index("memory_us")
    np.testing.assert_allclose(np.unique(seen["rows"].round(4)), np.unique(ops.numbers[:, rows]), atol=1e-3)
    assert seen["memory_us"].min() < ops.numbers[1, moved] < seen["memory_us"].max()


def test_an_operator_with_its_channels_last_is_seen_as_such() -> None:
    image = {"b": 2, "cin": 8, "cout": 8, "h": 8, "w": 8, "r": 3, "stride": 1, "groups": 8}
    for direction in ("forward", "backward"):
        plain, last = (operators.graph_of("conv2d", json.dumps(image | more), "fp16", direction)
                       for more in ({}, {"last": 1}))  # fmt: skip
        assert [bool(op.attrs.get("strided")) for op in plain.ops] == [False]
        assert [bool(op.attrs.get("strided")) for op in last.ops] == [True]


@pytest.mark.parametrize(
    ("dtype", "direction", "changed", "expected"),
    [
        ("fp16", "forward", {}, "depthwise:cudnn"), ("bf16", "forward", {}, ""), ("fp32", "forward", {}, ""),
        ("fp16", "backward", {}, "depthwise:cudnn"), ("fp16", "forward", {"r": 7}, ""),
        ("fp16", "forward", {"cin": 16, "cout": 16, "groups": 16}, ""), ("fp16", "forward", {"h": 6, "w": 6}, ""),
        ("fp16", "forward", {"stride": 2}, ""),
        ("fp16", "forward", {"stride": 2, "cin": 512, "cout": 512, "groups": 512}, "depthwise:cudnn"),
        ("bf16", "forward", {"last": 1}, "depthwise:last"), ("fp32", "forward", {"last": 1, "r": 7}, "depthwise:last"),
        ("fp32", "backward", {"last": 1, "r": 7}, "depthwise:last:wide"),
        ("fp16", "backward", {"last": 1, "r": 7}, "depthwise:last"),
        ("fp16", "forward", {"last": 1, "r": 9}, "depthwise:last:wide"),
        ("fp16", "forward", {"last": 1, "cout": 128}, "depthwise:last:more"),
        ("fp16", "forward", {"groups": 8}, ""), ("fp16", "forward", {"groups": 1, "cin": 48}, ""),
        ("fp16", "forward", {"groups": 4, "cin": 96, "cout": 96}, "conv:odd_group_width"),
        ("tf32", "backward", {"groups": 4, "cin": 96, "cout": 96, "last": 1}, "conv:odd_group_width"),
    ],
)  # fmt: skip
def test_convolutions_by_group_are_named_by_the_kernel_that_runs_them(
    dtype: str, direction: str, changed: dict[str, int], expected: str
) -> None:
    image = {"b": 4, "cin": 64, "cout": 64, "h": 14, "w": 14, "r": 3, "stride": 1, "groups": 64}
    graph = operators.graph_of("conv2d", json.dumps(image | changed), dtype, direction)
    (op,) = [op for op in graph.ops if op.kind.startswith("conv")]
    assert variant(op, graph) == expected


@pytest.mark.parametrize(
    ("dtype", "changed", "launches"),
    [
        ("fp16", {}, 64), ("bf16", {}, 64), ("fp32", {}, 1), ("fp16", {"stride": 1}, 1), ("fp16", {"last": 0}, 1),
        ("fp16", {"cout": 64}, 1), ("fp16", {"groups": 8, "last": 0, "r": 1}, 8), ("fp16", {"groups": 8}, 1),
    ],
)  # fmt: skip
def test_some_groups_are_launched_one_by_one(dtype: str, changed: dict[str, int], launches: int) -> None:
    image = {"b": 4, "cin": 64, "cout": 128, "h": 14, "w": 14, "r": 3, "stride": 2, "groups": 64, "last": 1}
    asked = {name: size for name, size in (image | changed).items() if size}
    graph = operators.graph_of("conv2d", json.dumps(asked), dtype, "forward")
    assert profile(graph, dtype).kernels[[op.kind == "conv" for op in graph.ops]].tolist() == [launches]


class Joined(torch.nn.Module):
    """Pieces of which some grow with the batch, and a sum with a number for each place, whatever the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, 8)
        self.places, self.kept = torch.nn.Parameter(torch.zeros(1, 16, 8)), torch.nn.Parameter(torch.zeros(4, 16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.up(x) + self.places, self.kept], 0)


@pytest.mark.parametrize("captured", [1, 4])
def test_sizes_at_a_batch_are_those_of_the_graph_at_that_batch(captured: int) -> None:
    _, scalable = load_graphs(Workload(Joined(), input_shape=(16, 8), batch=captured))
    assert scalable is not None
    batches = np.array([1, 8, 64])
    many = profile(scalable, "fp32", batches).sizes
    for i, batch in enumerate(batches):
        np.testing.assert_allclose(many[:, i], profile(scalable.at(int(batch)), "fp32").sizes[:, 0])


def test_gradients_of_a_resize_wait_for_each_other_and_a_resize_does_not() -> None:
    image = {"b": 1, "c": 1, "h": 128, "w": 128, "to": 1024, "corners": 0}

    def launches(direction: str) -> float:
        graph = operators.graph_of("resize_bilinear", json.dumps(image), "fp32", direction)
        resizes = [op.kind == "resize" for op in graph.ops]
        return float(op_table(profile(graph, "fp32"), [load_device("h200")]).launches[resizes][0])

    assert launches("forward") == 1
    assert launches("backward") > 10


def test_only_maxima_carry_places() -> None:
    assert sizes("max_place", {"b": 2, "rows": 40, "cols": 3})["flag"] >= 2
    counted = load_graph(Workload(Counted(), input_shape=(16, 8), batch=2))
    flags = [profile(counted, "fp32").sizes[i, 0, DIMS.index("flag")]
             for i, op in enumerate(counted.ops) if op.kind == "reduce"]  # fmt: skip
    assert flags and max(flags) < 2


class Counted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x > 0).sum(1)


def test_a_row_of_softmax_that_fits_no_block_is_swept_again() -> None:
    asked = ((8192, "fp32"), (12288, "fp32"), (12288, "fp16"), (32768, "fp16"))
    assert [sizes("softmax", {"rows": 4, "cols": n}, dtype)["window"] for n, dtype in asked] == [1, 2, 1, 2]


def test_published_operators_are_drawn_long_ones_as_well_as_short_ones() -> None:
    many = pd.DataFrame({"dataset": "neusight", "devices": 1, "device": "t4", "op": "softmax", "dtype": "fp32",
                         "runtime": "eager", "device_ms": [0.01] * 2000 + [100.0] * 20 + [1.0] * 5,
                         "protocol": ["neusight/train"] * 2020 + ["neusight/test"] * 5,
                         "row_id": [f"{n:04}" for n in range(2025)]})  # fmt: skip
    drawn = sample(many)
    assert len(drawn) == importers()["neusight"].operator_rows + 5
    assert set(drawn["timing_group"]) == {"neusight"}
    assert (drawn["device_ms"] == 100.0).sum() == 20
    assert (drawn["protocol"] == "neusight/test").sum() == 5
    assert drawn.index.equals(sample(many).index)


def test_a_weights_gradient_has_no_odd_batch() -> None:
    """Kernels never read along the batch: rows that fill no tile are not taken for rows that do not align."""
    _, scalable = load_graphs(Workload("vit_tiny_patch16_224", mode="training", batch=8))
    assert scalable is not None
    at = profile(scalable, "fp16", np.array([63, 64])).sizes[..., DIMS.index("inner")]
    grows = at[:, 0] != at[:, 1]
    assert grows.any() and (at[grows] % 64 == 0).all()


def test_a_chip_with_gaps_in_its_spec_sheet_is_like_its_sister() -> None:
    columns = profile(load_graph(Workload("resnet18", batch=32)), "fp32")
    networks = DefaultPredictor.shipped().weights.networks["gpu"]
    for name in ("h200", "b200"):
        whole = load_device(name)
        gaps = dataclasses.replace(whole, sm_count=None)
        seconds = [networks.seconds(op_table(columns, [device])).sum() for device in (whole, gaps)]
        assert seconds[1] == pytest.approx(seconds[0], rel=0.25)


def test_norms_of_different_kernels_have_different_variants() -> None:
    graph = load_graph(Workload("resnet18", mode="training", batch=2))
    assert {"norm:batch:train", "norm_backward:batch", "pool:max", "conv:stem"} <= {
        variant(op, graph) for op in graph.ops
    }


@pytest.mark.parametrize(
    ("op", "dtype", "more", "expected"),
    [
        ("batch_norm", "fp32", {}, "norm:batch"), ("batch_norm", "bf16", {}, "norm:batch:native"),
        ("batch_norm", "fp16", {}, "norm:batch:native"), ("batch_norm", "fp16", {"mixed": 1}, "norm:batch"),
        ("batch_norm", "bf16", {"mixed": 1}, "norm:batch:native"),
        ("batch_norm_train", "fp16", {"mixed": 1}, "norm:batch:train"),
        ("batch_norm_train", "fp16", {}, "norm:batch:train:native"),
        ("instance_norm", "fp16", {}, "norm:batch:train:native"), ("instance_norm", "fp32", {}, "norm:batch:train"),
    ],
)  # fmt: skip
def test_batch_norms_are_named_by_who_runs_them(op: str, dtype: str, more: dict[str, int], expected: str) -> None:
    graph = operators.graph_of(op, json.dumps({"b": 2, "c": 4, "h": 5, "w": 5} | more), dtype, "forward")
    assert [variant(op, graph) for op in graph.ops if op.kind == "norm"] == [expected]


def first_sizes(op: str, shape: dict[str, int], dtype: str, kind: str, direction: str = "forward") -> dict[str, float]:
    graph = operators.graph_of(op, json.dumps(shape), dtype, direction)
    (at,) = [i for i, op in enumerate(graph.ops) if op.kind == kind]
    return dict(zip(DIMS, dims(graph, Shapes(graph), 1)[at, 0], strict=True))


def test_running_sums_know_their_axis_and_picked_rows_their_length() -> None:
    along = first_sizes("cumsum", {"rows": 6, "cols": 9}, "fp32", "reduce")
    down = first_sizes("cumsum_down", {"b": 2, "rows": 9, "cols": 3}, "fp32", "reduce")
    assert [(s["rows"], s["cols"], s["flag"]) for s in (along, down)] == [(6, 9, 0), (6, 9, 1)]
    picked = {"rows": 8, "cols": 12, "picked": 5}
    assert [first_sizes("index_select", picked, dtype, "gather")["window"] for dtype in ("fp32", "fp16")] == [4, 2]
    added = first_sizes("index_add", picked, "fp16", "scatter")
    assert (added["rows"], added["cols"], added["flag"]) == (5, 12, 2)
    with torch.device("meta"):
        x, index = torch.empty(7, 4, 16), torch.empty(10, dtype=torch.int64)

    class Pick(torch.nn.Module):
        def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            return torch.index_select(x, 0, index)

    from forerun.capture.capture import record

    graph = record(Pick(), lambda *_: Pick()(x, index), repeats={}, held=lambda: iter(()))
    rows, cols = dims(graph, Shapes(graph), 1)[0, 0, :2]
    assert (rows, cols) == (10, 64)  # both axes behind the picked one lie together


def test_a_gradient_of_resizing_knows_how_many_add_to_one_number() -> None:
    shape = {"b": 2, "c": 3, "h": 4, "w": 4, "to": 16, "corners": 0}
    found = first_sizes("resize_bilinear", shape, "fp32", "resize", "backward")
    assert (found["rows"], found["window"], found["flag"]) == (2 * 3 * 16 * 16, 16, 0)
    assert first_sizes("resize_bilinear", shape, "bf16", "resize", "backward")["flag"] == 2


def test_features_are_finite_on_every_kind_of_device() -> None:
    columns = profile(load_graph(Workload("gpt2", mode="decode", seq_len=64, dtype="fp16")), "fp16")
    for name in ("h200", "p4", "rtx4090", "mi300x", "xeon-emr-2vcpu"):
        table = op_table(columns, [load_device(name)])
        assert table.numbers.shape == (len(columns.classes), len(NUMBERS))
        assert np.isfinite(table.numbers).all()


def test_a_whole_column_of_batches_is_one_table() -> None:
    from forerun.frontends import load_graphs

    scalable = load_graphs(Workload("cnn:depth=3,filters=8"))[1]
    assert scalable is not None
    device = load_device("h200")
    both = op_table(profile(scalable, "fp32", np.array([4, 32])), [device]).numbers
    for i, batch in enumerate((4, 32)):
        alone = op_table(profile(scalable.at(batch), "fp32"), [device]).numbers
        np.testing.assert_allclose(both.reshape(len(alone), 2, -1)[:, i], alone)


def test_launches_are_counted_by_class_and_phase() -> None:
    graph = load_graph(Workload("resnet18", mode="training", batch=2))
    counts = dict(zip(COUNTED, launch_counts(profile(graph, "fp32")), strict=True))
    assert counts["conv"] + counts["conv_pointwise"] == 20
    assert counts["conv_backward:backward"] == 20
    assert counts["norm"] == counts["norm_backward:backward"] == 20
    assert counts["modules"] > 50
    assert counts["call"] == 1
    assert counts["transformers"] == 0


def test_a_bias_is_launched_by_its_convolution_and_hugging_face_takes_its_own_time() -> None:
    def counts(work: Workload) -> dict[str, float]:
        return dict(zip(COUNTED, launch_counts(profile(load_graph(work), "fp32")), strict=True))

    with_biases = load_graph(Workload("cnn:depth=3,filters=8"))
    biases = sum(op.repeat for op in with_biases.ops if "bias" in op.attrs)
    elementwise = sum(op.repeat for op in with_biases.ops if op.kind == "elementwise")
    assert biases == 3
    assert counts(Workload("cnn:depth=3,filters=8"))["elementwise"] == elementwise - biases
    assert counts(Workload("prajjwal1/bert-tiny"))["transformers"] == 1
    config = transformers.BertConfig(num_hidden_layers=1, hidden_size=32, num_attention_heads=2, intermediate_size=64)
    assert counts(Workload(transformers.BertModel(config), seq_len=16))["transformers"] == 1  # as a module, too


def test_half_precision_convolutions_launch_changes_of_layout() -> None:
    for dtype, layouts in (("fp32", 0), ("fp16", 17), ("bf16", 17)):  # of 20 convolutions, 3 are pointwise
        columns = profile(load_graph(Workload("resnet18", dtype=dtype)), dtype)
        assert dict(zip(COUNTED, launch_counts(columns), strict=True))["layouts"] == layouts


def test_a_small_power_limit_slows_arithmetic_and_nothing_else() -> None:
    names = ("t4", "v100-pcie-32gb", "rx7900xtx", "xeon-emr-2vcpu")
    found = dict(zip(names, power_slowdown([load_device(n) for n in names]).T, strict=True))
    fp32, half, vector = (UNITS.index(u) for u in ("fp32", "fp16", "vector"))
    assert 1.5 < found["t4"][fp32] < 2.5 and found["t4"][half] > 2  # 70 W for what needs twice as much
    assert found["v100-pcie-32gb"][fp32] < 1.1
    assert all((s >= 1).all() and s[vector] == 1 for s in found.values())
    assert (found["rx7900xtx"] == 1).all() and (found["xeon-emr-2vcpu"] == 1).all()  # nothing is known of these
    unknown = dataclasses.replace(load_device("t4"), tdp_w=None)
    assert (power_slowdown([unknown]) == 1).all()
    p4 = power_slowdown([load_device("p4")])[:, 0]
    assert p4[half] == p4[fp32] > 1  # its FP16 runs on the fp32 lanes
    listed = load_device("h100-nvl")
    peaks = {name: peak for name, peak in listed.peak_tflops.items() if name != "fp8"}
    nvl = power_slowdown([dataclasses.replace(listed, peak_tflops=peaks)])[:, 0]
    assert nvl[UNITS.index("fp8")] == nvl[half]  # no peak is listed, so it is that of FP16
    roomy, tight = load_device("t4"), dataclasses.replace(load_device("t4"), tdp_w=35.0)
    ratio = power_slowdown([tight])[fp32, 0] / power_slowdown([roomy])[fp32, 0]
    assert ratio == pytest.approx(2.0)
    columns = profile(load_graph(Workload("resnet18", batch=64)), "fp32-ieee")
    a, b = (op_table(columns, [d]) for d in (roomy, tight))
    np.testing.assert_array_equal(a.compute_s, b.compute_s)  # the roofline is what the spec sheet gives
    assert (b.power_slowdown >= a.power_slowdown).all() and (b.power_slowdown > a.power_slowdown).any()


def rows_of(works: list[Workload]) -> pd.DataFrame:
    rows = [{"case": json.dumps(case_of(w)), "case_key": str(i), "device": "h200", "family": f"f{i % 4}", "repeat": 0,
             "mode": w.mode, "dataset": "own", "software": None} for i, w in enumerate(works)]  # fmt: skip
    return pd.DataFrame(rows)


def test_the_network_learns_what_the_roofline_misses() -> None:
    rng = np.random.default_rng(0)
    shapes = [{"m": int(2 ** rng.uniform(4, 12)), "n": int(2 ** rng.uniform(6, 12)), "k": int(2 ** rng.uniform(6, 12))}
              for _ in range(300)]  # fmt: skip
    frame = pd.DataFrame([{"op": "linear", "shape": json.dumps(s, sort_keys=True), "dtype": "fp16", "device": "h200",
                           "direction": "forward", "devices": 1, "dataset": "own"} for s in shapes])  # fmt: skip
    cases = operator_cases(frame)
    least_s = np.maximum(cases.ops.compute_s, cases.ops.memory_s)
    # A chip of our own making: narrow matmuls reach a third of what wide ones do, and each launch takes 4 us.
    narrow = np.array([s["n"] < 512 for s in shapes])
    real_ms = 1e3 * (cases.sum(least_s) * np.where(narrow, 3.9, 1.3) + 4e-6)
    train, test = np.arange(300) < 240, np.arange(300) >= 240
    network = fit_device.fit(cases.take(train), real_ms[train], np.ones(240), steps=500, rate=1e-2)
    asked = cases.take(test)
    error = np.abs(asked.sum(network.seconds(asked.ops)) * 1e3 / real_ms[test] - 1)
    plain = np.abs(cases.sum(least_s)[test] * 1e3 / real_ms[test] - 1)
    assert error.mean() < 0.1 < plain.mean()
    assert (network.seconds(cases.ops) >= least_s).all()


def test_shares_of_kernels_part_what_the_whole_leaves_open() -> None:
    """Of a call with one matmul and one softmax, always as long as each other, the total does not show which of them
    is slow; names of kernels do."""
    asked = [pair for m in range(512, 31_000, 512)
             for pair in (("linear", {"m": m, "n": 512, "k": 512}), ("softmax", {"rows": m, "cols": 512}))]  # fmt: skip
    frame = pd.DataFrame([{"op": op, "shape": json.dumps(shape), "dtype": "fp16", "device": "h200", "devices": 1,
                           "direction": "forward", "dataset": "own"} for op, shape in asked])  # fmt: skip
    single = operator_cases(frame)
    heavy = HEAVY_OPS[single.ops.classes]
    calls = dataclasses.replace(single, rows=single.rows.iloc[::2].reset_index(drop=True), case=single.case // 2)
    least_s = np.maximum(single.ops.compute_s, single.ops.memory_s)
    real_s = np.where(heavy, 4.0, 1.2) * least_s
    whole_ms = calls.sum(real_s) * 1e3
    share = calls.sum(real_s * heavy) * 1e3 / whole_ms
    shares = np.column_stack([share, share])

    def error(**known: np.ndarray) -> float:
        network = fit_device.fit(calls, whole_ms, np.ones(len(whole_ms)), steps=400, **known)
        return float(np.abs(network.seconds(single.ops)[heavy] / real_s[heavy] - 1).mean())

    assert error(heavy_share=shares) < 0.1 < error()


def test_the_share_of_heavy_kernels_is_a_range() -> None:
    extra = {"kernel_classes": {"gemm": [3.0, 2], "norm": [1.0, 1], "elementwise": [4.0, 3], "other": [2.0, 1]}}
    unfolds = extra | {"top_kernels": [["void at::native::im2col_kernel", 1.0, 1]]}
    sums = {"kernel_classes": extra["kernel_classes"] | {"reduce": [2.0, 1], "elementwise": [2.0, 3]}}
    rows = pd.DataFrame({
        "extra": [json.dumps(extra), json.dumps(sums), json.dumps(sums), json.dumps(extra), json.dumps(unfolds), None,
                  "{}"],
        "runtime": [None, "eager", "eager", "compile", "eager", "eager", "eager"],
        "mode": ["inference", "inference", "training", *["inference"] * 4],
    })  # fmt: skip
    found = heavy_share(rows)
    # In training, sums may be gradients of a convolution's bias.
    np.testing.assert_allclose(found[:3], [[0.4, 0.6], [0.4, 0.6], [0.4, 0.8]])
    assert np.isnan(found[3:]).all()
    assert np.isnan(heavy_share(rows[["runtime"]])).all()


def test_the_law_that_is_fitted_is_the_law_that_predicts() -> None:
    image = {"b": 2, "cin": 8, "cout": 8, "h": 8, "w": 8, "r": 3, "stride": 1, "groups": 1}
    asked = [*(("linear", {"m": 64 * i, "n": 512, "k": 256}) for i in range(1, 9)), ("conv2d", image),
             ("softmax", {"rows": 64, "cols": 512})]  # fmt: skip
    frame = pd.DataFrame([{"op": op, "shape": json.dumps(s), "dtype": "fp16", "device": name, "devices": 1,
                           "direction": "forward", "dataset": "own"}
                          for op, s in asked for name in ("t4", "h200")])  # fmt: skip
    ops = operator_cases(frame).ops
    assert {*GROUP_OF[ops.classes]} == {*range(len(GROUPS))}
    network = fit_device.fit(operator_cases(frame), np.linspace(0.01, 0.5, len(frame)), np.ones(len(frame)), steps=5)
    x = np.clip((ops.numbers - network.arrays["mean"]) / network.arrays["scale"], -4, 4)
    law = fit_device._op_us(
        {name: torch.from_numpy(np.array(value)) for name, value in network.arrays.items()},
        np.column_stack([ops.classes, ops.units, ops.variants]),
        np.arange(len(x)),
        *(torch.from_numpy(v) for v in (x.astype(np.float32), fit_device._terms(ops))),
    )
    assert (ops.power_slowdown > 1).any()
    np.testing.assert_allclose(network.seconds(ops) * 1e6, law.numpy(), rtol=1e-4)


def test_a_model_is_the_sum_of_its_ops() -> None:
    works = [Workload("cnn:depth=3,filters=8,classes=10", batch=b) for b in (1, 64)]
    cases = model_cases(rows_of(works))
    assert len(cases.rows) == 2
    ones = cases.sum(np.ones(len(cases.case)))
    assert ones[0] == ones[1] == sum(op.repeat for op in load_graph(works[0]).ops)
    part = cases.take(np.array([False, True]))
    np.testing.assert_allclose(part.sum(part.ops.compute_s), cases.sum(cases.ops.compute_s)[1:])
    assert cases.launches.shape == (2, len(COUNTED))


def test_energy_factors_are_found() -> None:
    rng = np.random.default_rng(1)
    seconds = rng.uniform(0.001, 0.1, 400)
    terms = np.stack([700 * seconds, *(rng.uniform(0, 5, (7, 400)) * seconds)], axis=1)
    true = np.array([0.2, 1.0, 1.2, 2.0, 0.9, 1.0, 3.0, 0.7])
    energy = np.minimum(terms @ true, 700 * seconds)
    found = fit_energy.fit(terms, seconds, np.full(400, 700.0), energy, np.full(8, 0.5))
    predicted = np.minimum(terms @ found, 700 * seconds)
    assert np.abs(predicted / energy - 1).mean() < 0.05


@settings(max_examples=30, deadline=None)
@given(st.integers(60, 400), st.floats(0.05, 1.0), st.sampled_from([0.8, 0.9, 0.95]), st.floats(0.0, 0.6))
def test_intervals_hold_as_often_as_they_claim(n: int, deviation: float, confidence: float, beyond: float) -> None:
    """`beyond` is added out of distribution. The tolerance is four standard deviations of the mean coverage of
    30 calibrations on n scores each."""
    rng = np.random.default_rng(n)
    calibrations, fresh = 30, 1000
    held = []
    for _ in range(calibrations):
        low, high = calibrate(["q/m/s"] * n, rng.normal(0, deviation, n)).factors("q/m/s", confidence, beyond)
        assert low < 1 < high
        errors = np.exp(rng.normal(0, deviation, fresh) + rng.normal(0, beyond, fresh))
        held.append(np.mean((low <= errors) & (errors <= high)))
    tolerance = 4 * math.sqrt(confidence * (1 - confidence) * (1 / (n + 2) + 1 / fresh) / calibrations)
    # Wider than the scores by NEW_FAMILY, and by the one more case on each side that could lie anywhere.
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * math.hypot(NEW_FAMILY * deviation, beyond)
    most = 2 * NormalDist().cdf(reach / math.hypot(deviation, beyond)) - 1 + 2 / n
    assert confidence - tolerance < np.mean(held) < most + tolerance


def test_small_groups_borrow_from_wider_ones_and_what_is_out_of_domain_widens() -> None:
    rng = np.random.default_rng(0)
    groups = ["latency_ms/training/host"] * 10 + ["latency_ms/training/device"] * 100
    made = calibrate(groups, np.concatenate([rng.normal(0, 2, 10), rng.normal(0, 0.1, 100)]))
    assert made.factors("latency_ms/training/host") == made.factors("latency_ms/training")
    assert made.factors("latency_ms/decode/host") == made.factors("latency_ms")
    low, high = made.factors("latency_ms/training/device")
    wide = made.factors("latency_ms/training/device", out_of_distribution=0.3)
    for near, far in zip((low, high), wide, strict=True):  # 1.645: what nine of ten errors stay within
        assert np.log(far) ** 2 == pytest.approx(np.log(near) ** 2 + (0.3 * 1.645) ** 2, rel=1e-3)
    narrow = made.factors("latency_ms/training/device", 0.5)
    assert low < narrow[0] < narrow[1] < high
    assert type(made).from_dict(json.loads(json.dumps(made.to_dict()))).factors("latency_ms") == pytest.approx(
        made.factors("latency_ms"), rel=1e-3
    )


def test_intervals_widen_where_networks_disagree_and_hold_near_and_far() -> None:
    rng = np.random.default_rng(3)
    apart = rng.choice([0.02, 0.2], 4000)
    scores = rng.normal(0, 0.02 + apart)
    made = calibrate(["device_ms/inference/device"] * 4000, scores, apart)
    assert made.widening["device_ms"] > 0
    for distance in (0.02, 0.2):
        low, high = made.factors("device_ms/inference/device", disagreement=distance)
        mine = np.exp(scores[apart == distance])
        assert 0.86 < ((low <= mine) & (mine <= high)).mean() < 0.97
    assert type(made).from_dict(json.loads(json.dumps(made.to_dict()))).widening == made.widening


def test_an_unseen_device_widens_by_what_held_out_devices_need() -> None:
    rng = np.random.default_rng(4)
    group = "latency_ms/inference/device"
    made = calibrate([group] * 500, rng.normal(0, 0.1, 500))
    elsewhere = rng.normal(0, 0.3, 2000)
    found = dataclasses.replace(made, unseen_device=device_deviation(made, [group] * 2000, elsewhere, np.zeros(2000)))
    low, high = np.log(found.factors(group, out_of_distribution=found.deviation(["device"])))
    assert 0.89 < ((low <= elsewhere) & (elsewhere <= high)).mean() < 0.93
    assert device_deviation(made, [group] * 500, rng.normal(0, 0.05, 500), np.zeros(500)) == 0


def test_families_are_held_out_whole_and_once() -> None:
    families = pd.Series(list("aaaabbbccdefg") + [None])
    for folds in (None, 3):
        seen = np.zeros(len(families), dtype=int)
        for train, test in hold_out(families, folds):
            assert not (train & test).any()
            assert not set(families[train].dropna()) & set(families[test].dropna())
            seen += test
        assert (seen == 1).all()


def test_latency_is_near_the_larger_of_host_and_device() -> None:
    a, b = np.array([1.0, 10.0, 5.0]), np.array([10.0, 1.0, 5.0])
    latency = smooth_max(a, b, 4.0)
    assert (latency >= np.maximum(a, b)).all()
    assert latency[:2] == pytest.approx(10 * (1 + 1e-4) ** 0.25)
    assert latency[2] == pytest.approx(5 * 2**0.25)


def test_what_a_published_sets_timing_adds_is_not_learned_as_device_time() -> None:
    shapes = [{"n": 2**i} for i in range(8, 24)]
    frame = pd.DataFrame([{"op": "relu", "shape": json.dumps(s), "dtype": "fp32", "device": "h200",
                           "direction": "forward", "devices": 1, "dataset": "x"} for s in shapes] * 6)  # fmt: skip
    cases = operator_cases(frame)
    timing_group = np.repeat([0, 1], len(frame) // 2)
    measured = (
        cases.roofline_ms * 1.5 + 0.003 + 0.05 * timing_group
    )  # the second half was timed with 50 us around every call
    network = fit_device.fit(cases, measured, np.ones(len(frame)), timing_group=timing_group, steps=500, rate=1e-2)
    own = timing_group == 0
    predicted = cases.sum(network.seconds(cases.ops)) * 1e3
    floors = Ensemble((network,)).floor_us(timing_group)
    assert floors[0] == 0.0 and 30 < floors[-1] < 60
    assert np.abs(predicted[own] / measured[own] - 1).mean() < 0.15


def test_resizing_goes_through_its_images_one_after_another_on_a_gpu() -> None:
    def launches(op: str, shape: dict[str, int], device: str) -> float:
        columns = profile(operators.graph_of(op, json.dumps(shape), "fp32", "forward"), "fp32")
        return float(op_table(columns, [load_device(device)]).launches.max())

    many, few = ({"b": 64, "c": c, "h": 7, "w": 7} for c in (512, 8))
    assert launches("upsample", many, "h200") == pytest.approx(64 * launches("upsample", few, "h200"), rel=0.02)
    assert launches("upsample", many, "xeon-emr-2vcpu") == 1
    assert launches("unfold", {"b": 32, "c": 8, "length": 16, "r": 3}, "t4") == 32
    assert launches("relu", {"n": 4096}, "h200") == 1


def test_rows_of_packages_teach_by_the_graphs_stored_with_them() -> None:
    where = "source = 'python' and model like '%spandrel_dncnn'"
    found = gather(Store(), public=False, where=where, operators_kept=0).models
    assert len(found) >= 3 and found.rows["model"].str.endswith("spandrel_dncnn").all()
    assert (found.rows["roofline_ms"] < found.rows["device_ms"]).all()
