"""Programs that PyTorch runs on a GPU and not on meta tensors: its transformers' fast path, attention without one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from forerun.frontends import load_graph
from forerun.graph.ir import Graph
from forerun.graph.profile import profile
from forerun.workload import Workload

ENCODER = "torch_transformer:design=0,width=768,heads=12,depth=2"


def _launches(graph: Graph) -> float:
    columns = profile(graph, "bf16")
    return float(columns.kernels @ columns.repeat)


def test_an_encoder_in_inference_launches_what_was_measured() -> None:
    # On an H200 the profiler saw 22 kernels, two of them fills of memory.
    graph = load_graph(Workload(ENCODER, batch=16, dtype="bf16"))
    assert 19 <= _launches(graph) <= 23
    assert not [op for op in graph.ops if op.kind == "copy"]
    assert {op.name for op in graph.ops} >= {"aten::_addmm_activation", "forerun::attention"}


@pytest.mark.parametrize("workload", [Workload(ENCODER, batch=16, mode="training"), Workload(ENCODER, amp="bf16")])
def test_training_and_autocast_take_the_long_way(workload: Workload) -> None:
    names = {op.name for op in load_graph(workload).ops}
    assert "aten::_addmm_activation" not in names
    assert "aten::relu" in names


def test_attention_with_weights_is_two_products_and_one_softmax_a_layer() -> None:
    graph = load_graph(Workload("torch_transformer:design=2,width=256,depth=6", batch=64, dtype="bf16"))
    count = {kind: sum(op.repeat for op in graph.ops if op.kind == kind) for kind in ("matmul", "softmax", "attention")}
    assert count == {"matmul": 4 * 6 + 1, "softmax": 6, "attention": 0}


class Biased(nn.Module):
    """Attention with a bias that is looked up from a table by head, as it lies in memory or copied into order."""

    def __init__(self, copied: bool) -> None:
        super().__init__()
        self.table, self.copied = nn.Parameter(torch.zeros(32, 4)), copied

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        index = torch.arange(64, device=x.device) % 32
        bias = self.table[index[:, None].expand(64, 64)].permute(2, 0, 1)[None]
        q = x.reshape(x.shape[0], 64, 4, 16).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=bias.contiguous() if self.copied else bias)


@pytest.mark.parametrize(("copied", "fused"), [(True, 1), (False, 0)])
def test_a_bias_that_lies_across_its_memory_has_no_fused_kernel(copied: bool, fused: int) -> None:
    graph = load_graph(Workload(Biased(copied), batch=2, dtype="bf16", input_shape=(64, 64)))
    assert sum(op.kind == "attention" for op in graph.ops) == fused
