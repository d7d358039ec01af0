"""What capture writes down: ops, edges, lifetimes, folding, batch scaling."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from networks import Residual, Transformer
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from forerun.capture import fold as folding
from forerun.capture import meta_results
from forerun.capture.meta_build import on_meta
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.graph.memory import simulate
from forerun.graph.op_names import base_name
from forerun.graph.profile import kernels
from forerun.graph.variants import variant
from forerun.predictors.laws.workspaces import library_workspaces
from forerun.workload import Workload


def graph_of(model: object, **settings: object) -> Graph:
    return load_graph(Workload(model, **settings))  # type: ignore[arg-type]


def test_a_residual_block_is_a_dag_and_not_a_chain() -> None:
    g = graph_of(Residual(), input_shape=(8, 16, 16), batch=2)
    assert [op.kind for op in g.ops] == ["conv", "elementwise", "elementwise", "elementwise"]  # the second: its bias
    assert g.edges() == [(0, 1), (1, 2), (2, 3)]  # the add also reads the input, which no op wrote
    add = g.ops[3]
    producers = sorted(g.tensors[t].producer for t in add.inputs)
    assert producers == [-1, 2]
    assert g.parameters == 8 * 8 * 9 + 8


def test_edges_point_forward_and_views_leave_no_op() -> None:
    g = graph_of(Transformer(layers=2), seq_len=16)
    assert all(a < b for a, b in g.edges())
    assert not {"view", "transpose", "permute"} & {base_name(op.name) for op in g.ops}
    assert sum(op.kind == "attention" for op in g.ops) == 2


def test_flops_by_hand() -> None:
    net = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 16 * 16, 10))
    g = graph_of(net, input_shape=(3, 32, 32), batch=4)
    conv = 4 * 16 * 16 * 16 * 3 * 9  # batch * Cout * H * W * Cin * k * k
    linear = 4 * 4096 * 10
    assert totals(g).macs == conv + linear
    assert totals(g).flops == 2 * (conv + linear) + 2 * 4 * 16 * 16 * 16  # bias and ReLU: one more each per element


@pytest.mark.parametrize(
    ("layer", "shape", "macs"),
    [
        (nn.Conv2d(8, 16, 3, groups=4, padding=1), (8, 10, 10), 16 * 100 * 2 * 9),
        (nn.Conv2d(8, 8, 5, groups=8, padding=2), (8, 10, 10), 8 * 100 * 25),
        (nn.ConvTranspose2d(8, 4, 2, stride=2), (8, 10, 10), 8 * 100 * 4 * 4),
        (nn.Conv3d(2, 4, 3, padding=1), (2, 6, 6, 6), 4 * 216 * 2 * 27),
        (nn.Conv1d(4, 8, 3), (4, 12), 8 * 10 * 4 * 3),
    ],
    ids=["grouped", "depthwise", "transposed", "3d", "1d"],
)
def test_every_kind_of_convolution(layer: nn.Module, shape: tuple[int, ...], macs: int) -> None:
    assert totals(graph_of(layer, input_shape=shape)).macs == macs


def test_training_costs_three_forward_passes_less_the_first_input_gradient() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.Flatten(),
                        nn.Linear(8 * 64, 5))  # fmt: skip
    forward = totals(graph_of(net, input_shape=(3, 8, 8), batch=4)).macs
    step = graph_of(net, input_shape=(3, 8, 8), batch=4, mode="training", optimizer="adamw")
    first = 4 * 8 * 64 * 3 * 9
    assert totals(step).macs == 3 * forward - first
    assert {op.phase for op in step.ops} == {"forward", "backward", "optimizer"}


@pytest.mark.parametrize(("optimizer", "copies"), [("sgd", 0), ("momentum", 1), ("adam", 2), ("adamw", 2)])
def test_optimizer_state_is_in_memory(optimizer: str, copies: int) -> None:
    net = nn.Linear(512, 512, bias=False)
    g = graph_of(net, input_shape=(512,), batch=2, mode="training", optimizer=optimizer)
    state = sum(s.bytes * s.repeat for s in g.storages if s.role == "state")
    assert state == copies * 512 * 512 * 4


def test_amp_runs_matmuls_in_half_and_norms_in_fp32() -> None:
    g = graph_of(Transformer(layers=2), seq_len=16, batch=2, mode="training", amp="bf16")

    def dtypes(kind: str) -> set[str]:
        return {g.tensors[op.inputs[0]].dtype for op in g.ops if op.kind == kind and op.phase == "forward"}

    assert dtypes("matmul") == {"bf16"} and dtypes("attention") == {"bf16"} and dtypes("norm") == {"fp32"}


@pytest.mark.parametrize("settings", [
    {"mode": "inference"},
    {"mode": "training", "optimizer": "adamw"},
    {"mode": "training", "optimizer": "momentum", "amp": "fp16"},
], ids=lambda s: "-".join(s.values()))  # fmt: skip
def test_folding_changes_nothing_but_the_number_of_ops(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Transformer(layers=8)
    folded = graph_of(net, seq_len=24, batch=3, **settings)
    monkeypatch.setattr(folding, "MIN_EQUAL", 10**6)
    whole = graph_of(net, seq_len=24, batch=3, **settings)
    assert len(folded.ops) < len(whole.ops) / 2
    assert folded.parameters == whole.parameters
    assert totals(folded).macs == totals(whole).macs
    assert totals(folded).bytes == pytest.approx(totals(whole).bytes, rel=1e-6)
    assert simulate(folded).allocated_mb == pytest.approx(simulate(whole).allocated_mb, rel=0.01)


def test_cost_of_capture_does_not_grow_with_depth() -> None:
    shallow, deep = (graph_of(Transformer(layers=n, width=32), seq_len=16) for n in (6, 30))
    assert len(shallow.ops) == len(deep.ops)
    # Per block and token: qkv and out (4 * 32 * 32), up and down (8 * 32 * 32); causal scores and mix over 8.5 keys.
    block = 16 * (12 * 32 * 32 + 2 * 32 * 8.5)
    assert totals(deep).macs - totals(shallow).macs == 24 * block


def test_blocks_that_differ_are_not_folded_together() -> None:
    stack = nn.Sequential(*[nn.Linear(16, 16) for _ in range(5)], *[nn.Linear(16, 16, bias=False) for _ in range(5)])
    g = graph_of(stack, input_shape=(16,), batch=2)
    assert sum(op.repeat for op in g.ops if op.kind == "matmul") == 10
    assert sum(op.repeat for op in g.ops if op.name.startswith("aten::addmm")) == 5


def test_a_stack_that_narrows_is_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten equal ReLUs, but each at another image size: none may stand for another."""
    folded = graph_of("cnn:depth=10,filters=8", batch=4, mode="training")
    monkeypatch.setattr(folding, "MIN_EQUAL", 10**6)
    monkeypatch.setenv("FORERUN_CACHE", "/nowhere")
    whole = graph_of("cnn:depth=10,filters=8", batch=4, mode="training")
    assert totals(folded) == totals(whole)
    assert simulate(folded) == simulate(whole)


class Stack(nn.Module):
    """Twelve equal layers, used in a way of one's own."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "heads":
            return torch.cat([layer(x) for layer in self.layers], dim=-1)
        seen = []
        for i, layer in enumerate(self.layers):
            if self.way == "index" and i == 7:
                x = torch.cat([x, x])
            x = nn.functional.gelu(layer(x)) + x if self.way == "between" else layer(x)
            seen.append(x)
        return torch.stack(seen) if self.way == "collect" else x


@pytest.mark.parametrize("way", ["between", "heads", "collect", "index"])
def test_what_happens_around_the_blocks_is_never_lost(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folded = graph_of(Stack(way), input_shape=(32,), batch=4)
    monkeypatch.setattr(folding, "MIN_EQUAL", 10**6)
    whole = graph_of(Stack(way), input_shape=(32,), batch=4)
    assert totals(folded) == totals(whole)
    assert simulate(folded) == simulate(whole)


def test_threads_do_not_see_each_other() -> None:
    import gc
    from concurrent.futures import ThreadPoolExecutor

    net = Transformer(layers=2)
    with ThreadPoolExecutor(3) as pool:
        graphs = list(pool.map(lambda _: graph_of(net, seq_len=16), range(6)))
    assert len({g.content_hash() for g in graphs}) == 1
    assert gc.isenabled()


class Biased(nn.Module):
    """Attention with a bias for every pair of places, looked up in a table: learned, or a buffer."""

    def __init__(self, learned: bool) -> None:
        super().__init__()
        self.mix = nn.Linear(16, 16)
        table = torch.zeros(49, 2)
        self.table = nn.Parameter(table) if learned else nn.Buffer(table)
        self.places = nn.Buffer(torch.zeros(64 * 64, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.mix(x).unflatten(-1, (2, 8)).transpose(1, 2)
        bias = self.table[self.places].view(64, 64, 2).permute(2, 0, 1).contiguous()
        return nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=bias[None])


def test_a_learned_bias_of_attention_has_a_gradient() -> None:
    learned, given = (
        graph_of(Biased(way), input_shape=(64, 16), batch=3, mode="training", optimizer="sgd") for way in (True, False)
    )
    backward = next(op for op in learned.ops if op.kind == "attention_backward")
    assert learned.tensors[backward.outputs[3]].shape == (3, 2, 64, 64)  # of every sample
    assert variant(backward, learned) == "attention_backward:bias"
    summed = next(op for op in learned.ops if op.kind == "reduce" and op.inputs == (backward.outputs[3],))
    assert learned.tensors[summed.outputs[0]].shape == (1, 2, 64, 64)
    into_table = next(op for op in learned.ops if variant(op, learned) == "scatter:sorted")
    assert learned.tensors[into_table.outputs[0]].shape == (49, 2) and kernels(into_table, learned) == 9
    plain = next(op for op in given.ops if op.kind == "attention_backward")
    assert len(plain.outputs) == 3 and variant(plain, given) == "attention_backward:masked"
    assert not any(op.kind == "scatter" for op in given.ops)


def test_the_gradient_of_few_lookups_is_sorted_by_one_block() -> None:
    class Looked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.rows = nn.Parameter(torch.zeros(49, 8)), nn.Buffer(torch.zeros(100, dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.table[self.rows]

    g = graph_of(Looked(), input_shape=(100, 8), batch=2, mode="training", optimizer="sgd")
    assert [kernels(op, g) for op in g.ops if op.kind == "scatter"] == [6]


def test_attention_by_keyword_and_a_tensor_that_is_no_buffer() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.ones(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * self.scale
            return nn.functional.scaled_dot_product_attention(query=x, key=x, value=x)

    assert [op.kind for op in graph_of(Odd(), input_shape=(2, 16, 8)).ops] == ["elementwise", "attention"]


def test_a_model_that_wants_its_own_batch() -> None:
    class Eight(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(8, 4) * 2

    g = graph_of(Eight(), input_shape=(4,), batch=8)
    assert not g.scalable and g.batch == 8


def test_one_layer_used_many_times_is_counted_many_times() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(6):
                x = self.layer(x)
            return x

    g = graph_of(Shared(), input_shape=(16,))
    assert g.parameters == 16 * 17
    assert sum(op.repeat for op in g.ops if op.kind == "matmul") == 6


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_graph_moved_to_another_batch_is_the_graph_captured_there(mode: str) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                        nn.Linear(8, 4))  # fmt: skip
    small = graph_of(net, input_shape=(3, 12, 12), batch=2, mode=mode)
    moved = small.at(7)
    fresh = graph_of(net, input_shape=(3, 12, 12), batch=7, mode=mode)
    assert moved.content_hash() == fresh.content_hash()
    assert totals(moved) == totals(fresh)


def test_a_users_module_is_left_as_it_was() -> None:
    net = Transformer(layers=8)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    net.eval()
    graph_of(net, seq_len=8, mode="training", optimizer="adamw")
    assert not net.training and len(net.blocks) == 8
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.grad is None and p.device.type == "cpu" for p in net.parameters())


def test_the_hash_is_the_same_in_another_process() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests/helpers'); from networks import Residual;"
        "from forerun.frontends import load_graph; from forerun.workload import Workload;"
        "print(load_graph(Workload(Residual(), input_shape=(8, 16, 16))).content_hash())"
    )
    seed = {**os.environ, "PYTHONHASHSEED": "1"}  # this process has another, or none
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=seed)
    assert there.stdout.strip() == graph_of(Residual(), input_shape=(8, 16, 16)).content_hash()


def test_an_unknown_op_counts_its_bytes_and_is_named() -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x)

    g = graph_of(Odd(), input_shape=(1024,))
    assert totals(g).flops == 0 and totals(g).bytes == 2 * 4096
    assert g.notes == ["no cost law for aten::special_bessel_j0: its bytes are counted, its FLOPs are not"]


def test_memory_that_is_only_allocated_is_no_fault() -> None:
    class Empty(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, x.new_empty(x.shape)

    g = graph_of(Empty(), input_shape=(1024,))
    assert [op.kind for op in g.ops] == ["elementwise"] and len(g.outputs) == 2
    assert totals(g).bytes == 2 * 4096


def test_a_model_that_fails_says_so_in_one_sentence() -> None:
    with pytest.raises(ForerunError, match="could not be run on input") as caught:
        graph_of(nn.Linear(8, 8), input_shape=(9,))
    assert "\n" not in str(caught.value)


def test_without_a_shape_the_message_says_what_to_give() -> None:
    with pytest.raises(ForerunError, match="give input_shape"):
        graph_of(nn.Linear(8, 8))


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_an_rms_norm_is_one_kernel_as_on_a_gpu(mode: str) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.RMSNorm(64), nn.Linear(64, 8))
    graph = load_graph(Workload(model, input_shape=(16, 64), batch=2, dtype="fp32", mode=mode))
    norms = [op for op in graph.ops if "rms" in op.name]
    assert [op.kind for op in norms] == ["norm"] + ["norm_backward"] * (mode == "training")
    assert norms[0].attrs["type"] == "rms"
    assert not [op for op in graph.ops if "rsqrt" in op.name]
    assert variant(norms[0], graph) == "norm:rms"


def test_an_rms_norm_with_a_weight_of_another_type_is_computed_step_by_step() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.rms_norm(x, (64,), self.weight.double())

    names = [op.name for op in load_graph(Workload(Mixed(), input_shape=(64,), batch=2)).ops]
    assert "aten::rsqrt" in names and not any("fused" in name for name in names)


class ChannelsLast(nn.Module):
    """A convolution and a resize on images that came out of a transformer's tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, tokens: torch.Tensor) -> object:
        if tokens.dim() == 3 and tokens.shape[1] == 17:
            image = tokens[:, 1:].transpose(1, 2).reshape(-1, 8, 4, 4)
            return self.mix(image), nn.functional.interpolate(image, scale_factor=2, mode="bilinear")
        image = tokens.transpose(1, 2).reshape(-1, 8, 4, 4) if tokens.dim() == 3 else tokens
        return nn.functional.interpolate(self.mix(image), scale_factor=2, mode="bilinear")


def test_images_with_their_channels_last_are_known_as_such() -> None:
    tokens = load_graph(Workload(ChannelsLast(), input_shape=(16, 8), batch=2))
    plain = load_graph(Workload(ChannelsLast(), input_shape=(8, 4, 4), batch=2))
    for graph, last in ((tokens, True), (plain, False)):
        found = {op.kind: bool(op.attrs.get("strided")) for op in graph.ops if op.kind in ("conv", "resize")}
        assert found == {"conv": last, "resize": last}
    sliced = load_graph(Workload(ChannelsLast(), input_shape=(17, 8), batch=2))
    assert [op.attrs.get("strided") for op in sliced.ops if op.kind in ("conv", "resize")] == [True, True]
    copies = library_workspaces(load_device("h200"))
    assert copies is not None
    assert not copies(tokens, np.array([2])) and copies(plain, np.array([2]))  # none are needed in that layout


def test_remembered_results_have_the_layout_of_real_ones() -> None:
    """What is remembered of a call on meta tensors is what PyTorch gives; views are never remembered."""
    a = torch.empty((4, 6, 8, 8), device="meta").to(memory_format=torch.channels_last)
    half, weight = a.half(), torch.empty((5, 6, 3, 3), device="meta")
    ops = torch.ops.aten

    def shares(x: torch.Tensor, y: torch.Tensor) -> bool:
        return x.untyped_storage()._cdata == y.untyped_storage()._cdata

    calls = [
        (ops.add.Tensor, (a, a)), (ops.add.Tensor, (half, half)), (ops.add.Tensor, (a, 1)), (ops.add.Tensor, (a, True)),
        (ops.convolution.default, (a, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)),
        (ops.max_pool2d_with_indices.default, (a, [2, 2])), (ops.sum.dim_IntList, (a, [1], True)),
        (ops.native_batch_norm.default, (a, None, None, None, None, True, 0.1, 1e-5)),
        (ops.view.default, (torch.empty(4, 6, device="meta"), [24])), (ops._unsafe_view.default, (weight, [5, 54])),
    ]  # fmt: skip
    for func, args in calls:
        for _ in range(3):
            real, remembered = func(*args), meta_results.run(func, args, {})
            pairs = list(zip(*((x if isinstance(x, tuple) else (x,)) for x in (real, remembered)), strict=True))
            for x, y in pairs:
                assert (x.shape, x.stride(), x.dtype, y.is_meta) == (y.shape, y.stride(), y.dtype, True), func
                assert shares(x, args[0]) == shares(y, args[0]), func


def test_calls_that_write_in_place_are_remembered_where_only_values_change() -> None:
    ops = torch.ops.aten
    for _ in range(3):
        x, rows = torch.empty((4, 6), device="meta"), torch.empty(2, dtype=torch.int64, device="meta")
        for func, args in [(ops.add_.Tensor, (x, 1)), (ops.index_add_.default, (x, 0, rows, x[:2]))]:
            assert meta_results.run(func, args, {}) is x and x.shape == (4, 6), func
        assert meta_results.run(ops.unsqueeze_.default, (x, 0), {}).shape == x.shape == (1, 4, 6)
        assert meta_results.run(ops.resize_.default, (x, [2, 2]), {}).shape == x.shape == (2, 2)
        with pytest.raises((RuntimeError, IndexError)):
            meta_results.run(ops.add_.Tensor, (x, rows.expand(3, 2)), {})


def test_what_is_remembered_stays_right_when_the_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meta_results, "_MOST", 2)
    monkeypatch.setattr(meta_results, "_known", {})
    for size in (3, 4, 5, 3, 3):
        x = torch.empty(size, device="meta")
        assert meta_results.run(torch.ops.aten.exp.default, (x,), {}).shape == x.shape
        assert 0 < len(meta_results._known) <= 2  # a long process captures many models, and goes on remembering


def test_building_on_meta_fills_nothing() -> None:
    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(func.name())
            return func(*args, **(kwargs or {}))

    names: list[str] = []
    with on_meta(), Seen():
        layers = nn.Sequential(nn.Linear(8, 8), nn.Conv2d(3, 4, 3), nn.LayerNorm(8), nn.Embedding(4, 8))
    assert all(p.is_meta for p in layers.parameters()) and gc.isenabled()
    assert set(names) <= {"aten::empty.memory_format", "aten::detach"}, names


class Experts(nn.Module):
    """Rows against the weights of their experts, and a call that works in place and saves its input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 16, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ends = torch.arange(4, device=x.device, dtype=torch.int32)
        y = torch._grouped_mm(x, self.weight, offs=ends)
        shares = y * 2
        shares /= shares.sum(-1, keepdim=True)
        return x + shares


def test_experts_are_trained_in_every_folded_block(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(*(Experts() for _ in range(9)))
    folded = graph_of(net, input_shape=(16,), batch=8, mode="training")
    monkeypatch.setattr(folding, "MIN_EQUAL", 10**6)
    whole = graph_of(net, input_shape=(16,), batch=8, mode="training")
    assert len(folded.ops) < len(whole.ops) / 2
    assert totals(folded).macs == totals(whole).macs
    for name in ("forerun::moe_matmul_backward", "aten::div.Tensor", "aten::neg"):
        counts = [sum(op.repeat for op in g.ops if op.name == name) for g in (folded, whole)]
        assert counts[0] == counts[1] > 0, name


def test_the_default_dtype_is_part_of_what_is_remembered() -> None:
    whole = torch.empty(3, dtype=torch.int64, device="meta")
    for dtype in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            assert meta_results.run(torch.ops.aten.div.Tensor, (whole, 2), {}).dtype == dtype
        finally:
            torch.set_default_dtype(torch.float32)
