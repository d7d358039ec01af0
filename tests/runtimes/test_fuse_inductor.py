"""What torch.compile makes of a graph."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from forerun import Workload, predict
from forerun.device import load_device
from forerun.frontends import load_graph
from forerun.graph.ir import Graph
from forerun.graph.profile import kernels, profile
from forerun.graph.variants import variant
from forerun.predictors.laws.features import op_table
from forerun.runtimes.fuse_inductor import fuse_inductor


def compiled(module: nn.Module, shape: tuple[int, ...], **settings: object) -> Graph:
    return fuse_inductor(load_graph(Workload(module, input_shape=shape, **settings)))


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph.ops]


class Residual(nn.Module):
    """Two branches that are summed: a convolution with a batch norm each."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (nn.Sequential(nn.Conv2d(128, 128, 1, bias=False), nn.BatchNorm2d(128)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.one(x) + self.two(x))


def test_what_lies_between_library_calls_is_one_kernel() -> None:
    """Both batch norms, the sum and the ReLU of a residual block: nothing between them has to be written first."""
    graph = compiled(Residual(), (128, 28, 28), batch=8)
    assert kinds(graph) == ["conv", "conv", "elementwise"] or kinds(graph) == ["conv", "conv", "norm"]
    assert graph.ops[-1].attrs["generated"]
    images = 8 * 128 * 28 * 28 * 4
    assert profile(graph, "fp32").bytes[-1, 0] == pytest.approx(3 * images, rel=0.01)  # two are read, one is written


def test_a_kernel_never_spans_a_library_call() -> None:
    """The sum needs the matmul's result, so it cannot share a kernel with the norm before the matmul."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up = nn.LayerNorm(256), nn.Linear(256, 256)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * 2
            return x + self.up(self.norm(x))

    assert kinds(compiled(Block(), (512, 256))) == ["norm", "matmul", "elementwise"]


def test_a_layer_norm_takes_in_the_sum_before_it_and_a_second_one_does_not_join() -> None:
    class Norms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.LayerNorm(256), nn.LayerNorm(256)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(x + 1) * 2) - 1

    assert kinds(compiled(Norms(), (512, 256))) == ["norm", "norm"]


def test_convolutions_run_with_channels_last_and_copy_their_weights() -> None:
    wide = nn.Sequential(nn.Conv2d(128, 128, 3, bias=False), nn.Conv2d(128, 128, 1, bias=False))
    graph = compiled(wide, (128, 28, 28))
    assert kinds(graph) == ["copy", "conv", "conv"]  # the weights of a pointwise convolution lie the same either way
    assert [op.attrs.get("strided") for op in graph.ops if op.kind == "conv"] == [True, True]
    grouped = compiled(nn.Conv2d(128, 128, 3, groups=8, bias=False), (128, 28, 28))
    assert kinds(grouped) == ["conv"] and not grouped.ops[0].attrs.get("strided")


@pytest.mark.parametrize(
    ("settings", "inputs"),
    [
        ({}, [2, 3]),  # pointwise code reads the first matmul and adds its bias; the second one is returned
        ({"dtype": "fp16"}, [3, 3]),
        ({"mode": "training", "optimizer": "sgd"}, [3, 3]),  # GELU's gradient reads the first one, too
    ],
)
def test_products_in_fp32_leave_their_bias_to_pointwise_code(settings: dict[str, str], inputs: list[int]) -> None:
    layers = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    graph = compiled(layers, (32, 64), batch=4, **settings)
    forward = [op for op in graph.ops if op.kind == "matmul" and op.phase == "forward"]
    assert [len(op.inputs) for op in forward] == inputs


class Turned(nn.Module):
    """A layer norm over the result of a matmul, as it is or transposed."""

    def __init__(self, turned: bool) -> None:
        super().__init__()
        self.up, self.norm, self.turned = nn.Linear(64, 32), nn.LayerNorm(32), turned

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(x)
        return self.norm(y.transpose(1, 2) if self.turned else y)


class Batched(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.baddbmm(x, x, x))


@pytest.mark.parametrize(
    ("model", "shape"), [(Turned(False), (32, 64)), (Turned(True), (32, 64)), (Batched(), (32, 32))]
)
def test_other_products_keep_what_they_add(model: nn.Module, shape: tuple[int, ...]) -> None:
    (matmul,) = [op for op in compiled(model, shape, batch=4).ops if op.kind == "matmul"]
    assert len(matmul.inputs) == 3


def test_rows_that_generated_code_looks_up_have_no_block_each() -> None:
    class Picked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(64, 64), nn.Linear(64, 64)
            self.register_buffer("places", torch.arange(500))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(x)[:, self.places])

    eager = load_graph(Workload(Picked(), input_shape=(1000, 64), batch=64))
    h200 = [load_device("h200")]
    (before,), (after,) = (
        op_table(profile(graph, "fp32"), h200).launches[[op.kind == "gather" for op in graph.ops]]
        for graph in (eager, fuse_inductor(eager))
    )
    assert before > 10 * after == 10


def test_gradients_of_lookups_are_added_up_without_a_sort() -> None:
    class Looked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.rows = nn.Parameter(torch.zeros(49, 8)), nn.Buffer(torch.zeros(4096, dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.table[self.rows]

    eager = load_graph(Workload(Looked(), input_shape=(4096, 8), batch=2, mode="training", optimizer="sgd"))
    for graph, way, many in ((eager, "scatter:sorted", 9), (fuse_inductor(eager), "scatter:index", 1)):
        (added,) = [op for op in graph.ops if op.kind == "scatter"]
        assert (variant(added, graph), kernels(added, graph)) == (way, many)


def test_encoders_of_hugging_face_store_their_scores() -> None:
    eager = load_graph(Workload("bert-base-uncased", batch=8, seq_len=128, dtype="fp16"))
    stored = [op for op in fuse_inductor(eager).ops if op.attrs.get("stored_scores")]
    assert stored and all(op.kind == "attention" for op in stored)
    decoder = fuse_inductor(load_graph(Workload("gpt2", batch=1, seq_len=128, dtype="fp16", mode="prefill")))
    assert not any(op.attrs.get("stored_scores") for op in decoder.ops)


def test_every_op_comes_after_what_it_reads() -> None:
    """The second use of the norm could share its kernel, but the matmul between them reads the norm first."""

    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up = nn.LayerNorm(256), nn.Linear(256, 256)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(x)
            matmul = self.up(y)
            return torch.sigmoid(y) * matmul

    graph = compiled(Gate(), (512, 256))
    assert kinds(graph) == ["norm", "matmul", "elementwise"]
    for i, op in enumerate(graph.ops):
        assert all(graph.tensors[t].producer < i for t in op.inputs)


@pytest.mark.parametrize("model", ["resnet18", "swin_tiny_patch4_window7_224"])
def test_compiled_calls_launch_less_and_a_replayed_one_waits_least(model: str) -> None:
    latency = {
        run: predict(model, device="h200", batch=1, dtype="fp16", runtime=run).latency_ms.value
        for run in ("eager", "compile", "compile-reduce-overhead", "cudagraph")
    }
    assert latency["compile-reduce-overhead"] < latency["compile"] < latency["eager"]
    assert latency["cudagraph"] < latency["eager"]


@pytest.mark.parametrize(
    ("model", "settings", "measured_mb"),
    [
        ("resnet18", {"batch": 64, "dtype": "bf16"}, 40.71),
        ("timm/mobilenetv2_050", {"batch": 64}, 44.42),
        ("timm/ghostnet_050", {"batch": 32, "mode": "training", "amp": "bf16", "optimizer": "momentum"}, 48.34),
    ],
)
def test_of_a_replayed_call_pytorch_counts_what_outlasts_it(
    model: str, settings: dict[str, object], measured_mb: float
) -> None:
    """Measured on an H200: weights and inputs, in training the gradients and the optimizer's state too."""
    found = predict(model, device="h200", runtime="compile-reduce-overhead", **settings)
    assert found.memory_allocated_mb.value == pytest.approx(measured_mb, rel=0.01)
    assert found.memory_mb.value > 500 + measured_mb
