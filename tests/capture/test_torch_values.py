"""What a module does by values, which are not known before it runs: it is assumed, and every assumption is a note."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from forerun import predict
from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.workload import Workload

MACS = 4 * 16 * 16  # one linear layer at batch 4


class Net(nn.Module):
    """A linear layer, and what a test does with it."""

    def __init__(self, run: Callable[[nn.Module, torch.Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.run = nn.Linear(16, 16), run

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(self.linear, x)


def graph_of(run: Callable[[Any, torch.Tensor], Any], mode: str = "inference") -> Graph:
    return load_graph(Workload(Net(run), batch=4, input_shape=(16,), mode=mode))


def test_a_loop_over_a_shape_runs_as_often_as_the_shape_says() -> None:
    graph = graph_of(lambda linear, x: torch.stack([linear(x[i]) for i in range(x.shape[0])]))
    assert sum(op.repeat for op in graph.ops if op.kind == "matmul") == 4
    assert totals(graph).macs == MACS and graph.notes == []


def counted(linear: Any, x: torch.Tensor) -> torch.Tensor:
    for _ in range(int((x > 0).sum().item())):
        x = linear(x)
    return x


def test_a_value_that_is_read_is_taken_as_one_and_noted() -> None:
    graph = graph_of(counted)
    assert totals(graph).macs == MACS
    (note,) = graph.notes
    assert note.startswith("values that the model reads from its tensors are assumed to be 1 (test_torch_values.py:")


@pytest.mark.parametrize("condition", [
    lambda x: x.abs().max().item() > 0.5, lambda x: x.sum().item() < 9, lambda x: not (x.sum() > 0),
    lambda x: x.argmax().item() != 0,
], ids=["above", "below", "not", "unequal"])  # fmt: skip
def test_a_loop_that_ends_by_a_value_is_counted_once_and_noted(condition: Callable[[torch.Tensor], bool]) -> None:
    def until(linear: Any, x: torch.Tensor) -> torch.Tensor:
        while condition(x):
            x = linear(x)
        return x

    graph = graph_of(until)
    assert totals(graph).macs == MACS
    (note,) = graph.notes
    assert note.startswith("data-dependent loops are counted once (test_torch_values.py:")


def test_a_loop_that_nothing_ends_is_refused_in_one_sentence() -> None:
    def forever(linear: Any, x: torch.Tensor) -> torch.Tensor:
        while x.sum().item() not in (7.5, 8.5):
            x = linear(x)
        return x

    with pytest.raises(
        ForerunError, match=r"the loop at test_torch_values.py:\d+ depends on a tensor's values"
    ) as caught:
        graph_of(forever)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(
    "run",
    [
        lambda linear, x: linear(x)[x > 0],
        lambda linear, x: linear(x[x[:, 0] > 0]),
        lambda linear, x: torch.masked_select(linear(x), x > 0),
        lambda linear, x: linear(x)[(x[:, 0] > 0).nonzero(as_tuple=True)[0]],
        lambda linear, x: linear(x).sum() + torch.unique(x),
        lambda linear, x: linear(x).sum() + torch.unique(x, return_inverse=True, return_counts=True)[1],
        lambda linear, x: linear(x).sum() + torch.unique(x, dim=0),
        lambda linear, x: linear(x).sum() + torch.unique_consecutive(x),
        lambda linear, x: linear(x).sum() + torch.bincount((x > 0).long().flatten()),
    ],
    ids=["mask", "rows", "masked_select", "nonzero", "unique", "inverse", "unique_dim", "consecutive", "bincount"],
)  # fmt: skip
def test_a_size_that_depends_on_data_is_its_upper_bound(run: Any, mode: str) -> None:
    graph = graph_of(run, mode)
    assert totals(graph).macs == (MACS if mode == "inference" else 2 * MACS)
    assert any("are taken at their upper bound (test_torch_values.py:" in note for note in graph.notes)
    assert graph.scalable


def test_a_mask_selects_all() -> None:
    graph = graph_of(lambda linear, x: linear(x)[x > 0])
    assert graph.tensors[graph.outputs[0]].shape == (4 * 16,)


@pytest.mark.parametrize(
    ("run", "macs"),
    [
        (lambda linear, x: linear(x) if x.sum() > 0 else linear(linear(x)), 2 * MACS),
        (lambda linear, x: linear(x) if torch.equal(x, x) else linear(linear(x)), 2 * MACS),
        (lambda linear, x: linear(x) if torch.allclose(x, x) else linear(linear(x)), 2 * MACS),
    ],
    ids=["comparison", "equal", "allclose"],
)
def test_a_branch_is_taken_as_no_and_noted(run: Any, macs: int) -> None:
    graph = graph_of(run)
    assert totals(graph).macs == macs
    (note,) = graph.notes
    assert "data-dependent conditions are assumed to be False" in note


@pytest.mark.parametrize(
    "run",
    [
        lambda linear, x: linear(x) + torch.from_numpy(np.ones(16, dtype=np.float32)),
        lambda linear, x: linear(x) + torch.zeros(16).cuda(),
        lambda linear, x: linear(x).to("cuda:0") + torch.zeros(16, device="cuda"),
    ],
    ids=["from_numpy", "cuda", "device"],
)
def test_code_that_names_numpy_or_a_gpu_is_captured(run: Any) -> None:
    assert totals(graph_of(run)).macs == MACS


@pytest.mark.parametrize("read", [lambda x: x.detach().cpu().numpy().sum(), lambda x: sum(x[0].tolist())])
def test_values_that_leave_pytorch_are_ones_and_noted(read: Any) -> None:
    graph = graph_of(lambda linear, x: linear(x) * float(read(x)))
    assert totals(graph).macs == MACS and "assumed to be 1" in graph.notes[0]


def test_what_is_assumed_is_in_the_answer() -> None:
    answer = predict(Net(counted), "h200", input_shape=(16,))
    assert any("assumed to be 1" in note for note in answer.notes)
