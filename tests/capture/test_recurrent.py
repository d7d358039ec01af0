"""Recurrent layers over packed sequences and with projected states: one op, as cuDNN runs them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import forerun
from forerun.frontends import load_graph
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.graph.profile import kernels
from forerun.predictors.laws.workspaces import with_reserves
from forerun.workload import Workload

STEPS, INPUTS, HIDDEN = 12, 6, 10
GATES = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}


class Packed(nn.Module):
    """A layer over sequences whose lengths come in one of the ways that models have."""

    def __init__(self, lengths: str, cell: Any = nn.LSTM, **settings: Any) -> None:
        super().__init__()
        self.lengths, self.first = lengths, settings.get("batch_first", False)
        self.layer = cell(INPUTS, HIDDEN, **settings)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        samples, steps = x.shape[:2]
        x = x if self.first else x.transpose(0, 1)
        given: Any = lengths
        if self.lengths == "full":
            given = torch.full((samples,), steps)
        elif self.lengths == "falling":
            given = [steps - i for i in range(samples)]
        elif self.lengths == "host":
            given = lengths.cpu()  # type: ignore[union-attr]
        elif self.lengths == "list":
            given = lengths.tolist()  # type: ignore[union-attr]
        packed = pack_padded_sequence(x, given, batch_first=self.first, enforce_sorted=self.lengths != "list")
        return pad_packed_sequence(self.layer(packed)[0], batch_first=self.first)[0]


class Plain(nn.Module):
    def __init__(self, cell: Any = nn.LSTM, **settings: Any) -> None:
        super().__init__()
        self.layer = cell(INPUTS, HIDDEN, batch_first=True, **settings)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def graph_of(model: nn.Module, lengths: bool = False, **settings: Any) -> Graph:
    shape: Any = {"x": (STEPS, INPUTS), "lengths": ()} if lengths else (STEPS, INPUTS)
    return load_graph(Workload(model, input_shape=shape, **{"batch": 3, **settings}))


def layer_macs(places: int, gates: int, layers: int = 1, ways: int = 1, proj: int = 0) -> int:
    out = proj or HIDDEN
    each = [gates * HIDDEN * (inputs + out) + HIDDEN * proj for inputs in [INPUTS] + [ways * out] * (layers - 1)]
    return places * ways * sum(each)


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "settings", [{}, {"num_layers": 2, "bidirectional": True, "dropout": 0.1}, {"batch_first": True, "bias": False}]
)
def test_packed_sequences_are_one_op_of_the_sum_of_lengths(cell: Any, settings: dict[str, Any]) -> None:
    graph = graph_of(Packed("falling", cell, **settings))
    found = [op for op in graph.ops if op.kind == "rnn"]
    assert len(found) == 1
    assert not [op for op in graph.ops if op.kind in ("matmul", "unknown")]
    layers, ways = settings.get("num_layers", 1), 2 if settings.get("bidirectional") else 1
    places = STEPS + (STEPS - 1) + (STEPS - 2)
    assert totals(graph).macs == layer_macs(places, GATES[cell], layers, ways)
    assert found[0].attrs["steps"] == STEPS
    assert kernels(found[0], graph) == 2 * STEPS * layers * ways  # cuDNN keeps no weights on the chip for these


def test_packed_sequences_of_full_length_cost_what_padded_ones_do() -> None:
    padded, packed = (totals(graph_of(m, mode="training")).macs for m in (Plain(), Packed("full", batch_first=True)))
    assert packed == padded == 3 * layer_macs(3 * STEPS, 4)


@pytest.mark.parametrize("lengths", ["host", "list", "input"])
def test_lengths_that_are_not_known_are_taken_as_full_and_said(lengths: str) -> None:
    graph = graph_of(Packed(lengths, batch_first=True), lengths=True)
    assert totals(graph).macs == layer_macs(3 * STEPS, 4)
    assert [note for note in graph.notes if "packed" in note]
    assert not [note for note in graph_of(Packed("falling")).notes if "packed" in note]


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("settings", [{}, {"num_layers": 2, "bidirectional": True}])
def test_projected_states_are_one_op(mode: str, settings: dict[str, Any]) -> None:
    graph = graph_of(Plain(proj_size=4, **settings), mode=mode)
    found = {op.kind: op for op in graph.ops if op.kind.startswith("rnn")}
    assert set(found) == ({"rnn"} if mode == "inference" else {"rnn", "rnn_backward"})
    layers, ways = settings.get("num_layers", 1), 2 if settings else 1
    forward = layer_macs(3 * STEPS, 4, layers, ways, proj=4)
    assert totals(graph).macs == (forward if mode == "inference" else 3 * forward)
    assert graph.tensors[found["rnn"].outputs[0]].shape == (3, STEPS, ways * 4)
    assert [graph.tensors[t].shape[-1] for t in found["rnn"].outputs[1:]] == [4, HIDDEN]
    assert kernels(found["rnn"], graph) == 3 * STEPS * layers * ways
    if mode == "training":
        kept = with_reserves(graph).storages[-1].bytes
        assert kept == 4 * 3 * STEPS * layers * ways * (HIDDEN * 5 + 4)  # gates, cell and projected state in fp32


def test_half_precision_and_autocast_run_packed_sequences_in_one_op() -> None:
    for settings in ({"dtype": "fp16"}, {"amp": "fp16", "mode": "training"}):
        graph = graph_of(Packed("full", batch_first=True), **settings)
        ops = [op for op in graph.ops if op.kind.startswith("rnn")]
        assert [op.kind for op in ops] == ["rnn", "rnn_backward"][: len(ops)]
        assert graph.tensors[ops[0].inputs[0]].dtype == "fp16"


def test_every_batch_is_served() -> None:
    one = load_graph(Workload(Packed("full", batch_first=True), input_shape=(STEPS, INPUTS), batch=64))
    assert totals(one).macs == layer_macs(64 * STEPS, 4)


def test_cells_in_a_loop_stay_a_loop() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(INPUTS, HIDDEN)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = x.new_zeros(x.shape[0], HIDDEN)
            for step in x.unbind(1):
                state = self.cell(step, state)
            return state

    graph = graph_of(Loop())
    assert sum(op.repeat for op in graph.ops if op.kind == "matmul") == 2 * STEPS
    assert not [op for op in graph.ops if op.kind == "rnn"]


def test_what_was_measured_on_an_h200() -> None:
    # LSTM(32, 64) at batch 8 over 100 steps: packed 0.51 ms on the device; over 200 steps with proj_size=16 1.68 ms.
    class Net(nn.Module):
        def __init__(self, packed: bool, **settings: Any) -> None:
            super().__init__()
            self.packed, self.layer = packed, nn.LSTM(32, 64, batch_first=True, **settings)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not self.packed:
                return self.layer(x)[0]
            lengths = torch.full((x.shape[0],), x.shape[1])
            return self.layer(pack_padded_sequence(x, lengths, batch_first=True))[0].data

    packed = forerun.predict(Net(True), "h200", batch=8, input_shape=(100, 32))
    projected = forerun.predict(Net(False, proj_size=16), "h200", batch=8, input_shape=(200, 32))
    assert 0.25 < packed.device_ms.value < 1.0
    assert 0.8 < projected.device_ms.value < 3.4
