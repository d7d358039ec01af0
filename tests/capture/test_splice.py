"""Ops that run though no recording shows them: biases of convolutions, casts of 8-bit weights, groups one by one."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from forerun.capture.layout import copied, strided
from forerun.device import load_device
from forerun.frontends import load_graphs
from forerun.graph.ir import Graph, Op, Storage, Tensor
from forerun.graph.memory import simulate
from forerun.graph.profile import profile
from forerun.graph.splice import without
from forerun.predictors.laws.features import op_table
from forerun.predictors.laws.host import launch_counts, launches
from forerun.runtimes.fuse_inductor import fuse_inductor
from forerun.workload import Workload


def graph_of(model: object, **settings: object) -> tuple[Graph, Graph | None]:
    return load_graphs(Workload(model, **settings))  # type: ignore[arg-type]


def conv(bias: bool, groups: int = 1, out: int = 16, kernel: int = 3) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Conv2d(8, out, kernel, padding=kernel // 2, groups=groups, bias=bias))


def test_a_convolution_with_a_bias_adds_it_in_place_in_a_kernel_of_its_own() -> None:
    with_bias, _ = graph_of(conv(True), input_shape=(8, 32, 32), batch=4)
    plain, _ = graph_of(conv(False), input_shape=(8, 32, 32), batch=4)
    assert [op.kind for op in plain.ops] == ["conv"]
    assert [op.kind for op in with_bias.ops] == ["conv", "elementwise"]
    added = with_bias.ops[1]
    assert with_bias.tensors[added.inputs[0]].producer == 0 and with_bias.tensors[added.outputs[0]].producer == 1
    assert with_bias.tensors[added.inputs[0]].storage == with_bias.tensors[added.outputs[0]].storage
    columns = profile(with_bias, "fp32")
    written = 4 * 16 * 32 * 32 * 4
    assert columns.bytes[1, 0] == 2 * written + 16 * 4
    # In place: no memory but the bias itself.
    assert abs(simulate(with_bias).allocated_mb - simulate(plain).allocated_mb) < 0.01


def test_a_bias_scales_with_the_batch_and_a_depthwise_one_is_part_of_its_kernel() -> None:
    small, scalable = graph_of(conv(True), input_shape=(8, 32, 32), batch=2)
    assert scalable is not None
    many = profile(scalable, "fp32", np.array([2, 64]))
    np.testing.assert_allclose(many.bytes[:, 0], profile(small, "fp32").bytes[:, 0])
    np.testing.assert_allclose(many.bytes[:, 1], profile(scalable.at(64), "fp32").bytes[:, 0])
    depthwise, _ = graph_of(conv(True, groups=8, out=8), input_shape=(8, 32, 32))
    assert [op.kind for op in depthwise.ops] == ["conv"]


def test_cudnn_adds_the_bias_of_a_depthwise_convolution_in_a_kernel_of_its_own() -> None:
    """Where channels come last cuDNN runs it, and not PyTorch's own kernel."""
    last, _ = graph_of(conv(True, groups=8, out=8), input_shape=(8, 32, 32), batch=2, channels_last=True)
    assert [op.kind for op in last.ops if op.kind != "copy"] == ["conv", "elementwise"]


class CutAndTurned(torch.nn.Module):
    """Half the channels of a sequence, normalised where they lie last."""

    def __init__(self, cut: bool, turned: bool) -> None:
        super().__init__()
        self.cut, self.turned = cut, turned
        self.conv, self.norm = torch.nn.Conv1d(8, 16, 3, bias=False), torch.nn.LayerNorm(16 if turned else 30)
        self.more = torch.nn.Conv1d(16, 16, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x[:, :8] if self.cut else x)
        y = self.norm(y.transpose(1, 2)).transpose(1, 2) if self.turned else self.norm(y)
        return self.more(y)


def test_what_a_kernel_cannot_read_as_it_lies_is_copied_first() -> None:
    plain, _ = graph_of(CutAndTurned(False, False), input_shape=(8, 32), batch=4)
    assert [op.kind for op in plain.ops] == ["conv", "norm", "conv"]
    cut, scalable = graph_of(CutAndTurned(True, True), input_shape=(16, 32), batch=4)
    assert [op.kind for op in cut.ops] == ["copy", "conv", "copy", "norm", "copy", "conv"]
    copies = [op for op in cut.ops if op.kind == "copy"]
    assert all(op.attrs == {"strided": True, "implied": True} for op in copies)
    assert not any("copied" in op.attrs or "strided" in op.attrs for op in cut.ops if op.kind != "copy")
    columns = profile(cut, "fp32")
    assert columns.bytes[0, 0] == 2 * 4 * 8 * 32 * 4
    held = cut.storages[cut.tensors[copies[0].outputs[0]].storage]
    assert held.bytes == 4 * 8 * 32 * 4 and held.dies is not None
    assert scalable is not None
    np.testing.assert_allclose(
        profile(scalable, "fp32", np.array([64])).bytes[:, 0], profile(scalable.at(64), "fp32").bytes[:, 0]
    )
    # The op launches them itself: nothing more is called from Python.
    assert launches(launch_counts(columns)) == launches(launch_counts(profile(plain, "fp32")))


def test_a_copy_that_is_implied_leaves_the_hash_of_the_work() -> None:
    whole, _ = graph_of(CutAndTurned(False, True), input_shape=(8, 32), batch=4)
    cut, _ = graph_of(CutAndTurned(True, True), input_shape=(16, 32), batch=4)
    assert whole.work_hash() == cut.work_hash()


def test_a_training_step_copies_gradients_that_lie_in_pieces() -> None:
    graph, _ = graph_of(CutAndTurned(True, True), input_shape=(16, 32), batch=4, mode="training")
    behind = [op for op in graph.ops if op.phase == "backward"]
    after = [now.kind for op, now in itertools.pairwise(behind) if "implied" in op.attrs]
    assert after == ["conv_backward", "copy", "norm_backward", "copy", "conv_backward"]


def test_a_batch_of_one_is_not_cut_along_its_channels() -> None:
    """One image without some of its channels lies in one piece: nothing is copied."""
    one, _ = graph_of(CutAndTurned(True, False), input_shape=(16, 32), batch=1)
    two, scalable = graph_of(CutAndTurned(True, False), input_shape=(16, 32), batch=2)
    assert [op.kind for op in one.ops] == ["conv", "norm", "conv"]
    assert [op.kind for op in two.ops] == ["copy", "conv", "norm", "conv"]
    assert scalable is not None and scalable.min_batch == 2


class ThenTokens(torch.nn.Module):
    """A depthwise convolution whose result is read as tokens: its gradient comes back with channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False), torch.nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x).permute(0, 2, 3, 1))


def test_images_and_weights_say_in_which_layout_a_convolution_runs() -> None:
    graph, _ = graph_of(ThenTokens(), input_shape=(64, 8, 8), batch=2, mode="training")
    (back,) = [i for i, op in enumerate(graph.ops) if op.kind == "conv_backward"]
    assert "strided" not in graph.ops[back].attrs  # the gradient is copied to where the image's channels lie
    assert "implied" in graph.ops[back - 1].attrs and graph.ops[back - 1].outputs[0] in graph.ops[back].inputs
    plain, weight = torch.empty(2, 8, 4, 4), torch.empty(16, 8, 3, 3)
    last = weight.to(memory_format=torch.channels_last)
    assert not strided("conv", [plain, weight]) and copied("conv", "convolution", [plain, weight]) == []
    assert strided("conv", [plain, last]) and copied("conv", "convolution", [plain, last]) == [0]


def test_a_compiler_launches_copies_as_it_launches_all_else() -> None:
    graph, _ = graph_of(CutAndTurned(True, True), input_shape=(16, 32), batch=4)
    fused = fuse_inductor(graph)
    assert launches(launch_counts(profile(fused, "fp32"))) == len(fused.ops)


def test_a_cpu_adds_the_bias_within_the_convolution() -> None:
    columns = profile(graph_of(conv(True), input_shape=(8, 32, 32))[0], "fp32")
    gpu, cpu = (op_table(columns, [load_device(name)]) for name in ("h200", "xeon-emr-2vcpu"))
    assert gpu.memory_s[1] > 0 and gpu.launches[1] == 1
    assert cpu.memory_s[1] == 0 and cpu.launches[1] == 0 and cpu.memory_s[0] > 0


def test_some_grouped_convolutions_run_group_by_group_in_half_precision() -> None:
    def launches(dtype: str, **shape: int) -> float:
        return float(profile(graph_of(conv(False, **shape), input_shape=(8, 16, 16), dtype=dtype)[0], dtype).kernels[0])

    assert launches("fp16", groups=4, kernel=1) == 4  # pointwise
    assert launches("fp16", groups=8, out=8, kernel=1) == 1  # depthwise
    assert launches("fp16", groups=4) == 1
    assert launches("fp32", groups=4, kernel=1) == 1


def test_8_and_4_bit_weights_are_cast_before_they_are_used() -> None:
    made = torch.nn.Sequential(torch.nn.Linear(256, 512, bias=False))
    half, _ = graph_of(made, input_shape=(256,), dtype="fp16", batch=40)
    eight, _ = graph_of(made, input_shape=(256,), dtype="int8", batch=40)
    four, _ = graph_of(made, input_shape=(256,), dtype="int4", batch=40)
    few, _ = graph_of(made, input_shape=(256,), dtype="int4", batch=4)
    assert [op.kind for op in eight.ops] == [op.kind for op in four.ops] == ["copy", "matmul"]
    assert [op.kind for op in few.ops] == ["matmul"]  # one kernel of bitsandbytes unpacks and multiplies
    weights = 256 * 512
    assert profile(eight, "int8").bytes[0, 0] == weights + 2 * weights
    assert profile(eight, "int8").bytes[1, 0] == profile(half, "fp16").bytes[0, 0]
    stored = four.storages[four.tensors[four.ops[0].inputs[0]].storage].bytes
    assert weights / 2 < stored < 0.6 * weights  # with a scale for each block of weights
    assert profile(four, "int4").bytes[0, 0] == stored + 2 * weights
    assert profile(four, "int4").bytes[1, 0] == profile(half, "fp16").bytes[0, 0]
    # While the layer runs, the weights in half precision stand beside those in 8 bits.
    assert simulate(eight).allocated_mb - simulate(half).allocated_mb == weights / 2**20


def test_a_compiler_joins_the_bias_with_what_follows_and_the_convolution_still_writes() -> None:
    def compiled(bias: bool) -> float:
        made = torch.nn.Sequential(torch.nn.Conv2d(16, 16, 3, padding=1, bias=bias), torch.nn.GELU())
        graph = fuse_inductor(graph_of(made, input_shape=(16, 32, 32), batch=4)[0])
        assert [op.kind for op in graph.ops] == ["copy", "conv", "elementwise"]
        return float(profile(graph, "fp32").bytes.sum())

    assert compiled(True) - compiled(False) == 2 * 16 * 4  # the bias itself, read by the convolution and by the add


def test_casts_of_a_deep_stack_take_no_more_memory_than_those_of_a_shallow_one() -> None:
    def extra(depth: int) -> float:
        block = [torch.nn.Sequential(torch.nn.Linear(512, 512, bias=False), torch.nn.ReLU()) for _ in range(depth)]
        made = torch.nn.Sequential(*block)
        graph, _ = graph_of(made, input_shape=(512,), dtype="int8", batch=4)
        weights = sum(s.bytes * s.repeat for s in graph.storages if s.role == "parameter") / 2**20
        return simulate(graph).allocated_mb - weights

    assert abs(extra(3) - extra(12)) < 0.05


def test_memory_that_ends_with_an_op_that_is_taken_out_ends_before_it() -> None:
    """Of three ops in a row the middle one goes: what it wrote is there from the start."""
    tensors = [Tensor((4,), "fp32", n, n - 1) for n in range(4)]
    storages = [Storage(16, "input"), Storage(16, "activation", 0, 1), Storage(16, "activation", 1, 2),
                Storage(16, "activation", 2, 3)]  # fmt: skip
    ops = [Op("elementwise", "relu", (n,), (n + 1,)) for n in range(3)]
    left = without(Graph("three", ops, tensors, storages, 0, 0, outputs=(3,)), storages, {1})
    assert left.ops == [ops[0], ops[2]]
    assert [t.producer for t in left.tensors] == [-1, 0, -1, 1]
    assert [(s.born, s.dies) for s in left.storages] == [(-1, None), (0, 0), (-1, 1), (1, 2)]
