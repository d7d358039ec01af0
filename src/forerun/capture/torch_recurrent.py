"""Recurrent layers. cuDNN runs all steps of all layers in one call, padded or packed; on meta they decompose into
thousands of calls, so one op with its own backward represents them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from forerun.capture.assumed import Assumptions
from forerun.capture.known_values import value_of
from forerun.capture.torch_library import defined_once

_GATES = {"lstm": 4, "gru": 3, "rnn": 1}


class _Settings(NamedTuple):
    """The op's arguments besides tensors, in order."""

    cell: str
    hidden: int
    layers: int
    directions: int
    steps: int
    samples: int
    proj: int  # projection size of an LSTM's hidden state; 0: none
    packed: bool

    @property
    def out(self) -> int:
        return self.proj or self.hidden


@defined_once
def _rnn_op(library: Any) -> Any:
    settings = "str cell, int hidden, int layers, int directions, int steps, int samples, int proj, bool packed"
    library.define(f"rnn(Tensor x, Tensor[] weights, {settings}) -> (Tensor, Tensor, Tensor)")
    library.define(f"rnn_backward(Tensor gy, Tensor y, Tensor x, Tensor[] weights, {settings}) -> (Tensor, Tensor[])")

    def forward_meta(x: Any, weights: Any, *given: Any) -> Any:
        s = _Settings(*given)
        state = (s.layers * s.directions, s.samples)
        y = x.new_empty((*x.shape[:-1], s.directions * s.out))
        return y, x.new_empty((*state, s.out)), x.new_empty((*state, s.hidden))

    def backward_meta(gy: Any, y: Any, x: Any, weights: Any, *given: Any) -> Any:
        return torch.empty_like(x), [torch.empty_like(w) for w in weights]

    library.impl("rnn", forward_meta, "Meta")
    library.impl("rnn_backward", backward_meta, "Meta")

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output[0], inputs[0], *inputs[1])
        ctx.settings = inputs[2:]

    def backward(ctx: Any, gy: Any, _gh: Any, _gc: Any) -> Any:
        y, x, *weights = ctx.saved_tensors
        gx, gw = torch.ops.forerun.rnn_backward(gy, y, x, weights, *ctx.settings)
        return gx, gw, *(None for _ in ctx.settings)

    torch.library.register_autograd("forerun::rnn", backward, setup_context=save, lib=library)
    return torch.ops.forerun.rnn


def recurrent(cell: str) -> Any:
    """The replacement of one of PyTorch's functions of recurrent layers."""

    def run(*given: Any) -> Any:
        """(x, initial state, weights, biases?, layers, dropout, training, bidirectional, batch_first), or packed
        (x, batch sizes, initial state, weights, biases?, layers, dropout, training, bidirectional)."""
        if len(given) != 9:
            return None
        packed = isinstance(given[3], (list, tuple))
        x, state, weights = (given[0], *given[2:4]) if packed else given[:3]
        layers, bidirectional = (given[5], given[8]) if packed else (given[4], given[7])
        if isinstance(weights, torch.Tensor) or x.dim() != (2 if packed else 3):
            return None
        first_state = state[0] if isinstance(state, (tuple, list)) else state
        hidden = weights[0].shape[0] // _GATES[cell]
        steps = given[1].shape[0] if packed else x.shape[1 if given[8] else 0]
        proj = first_state.shape[-1] if first_state.shape[-1] != hidden else 0
        settings = _Settings(cell, hidden, layers, 2 if bidirectional else 1, steps, first_state.shape[1], proj, packed)
        y, h, c = _rnn_op()(x, list(weights), *settings)
        return (y, h, c) if cell == "lstm" else (y, h)

    return run


def lengths_on_cpu(assumed: Assumptions, x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> torch.Tensor:
    """The lengths of sequences to pack: their values where known, else full length."""
    values, longest = value_of(lengths), x.shape[1 if batch_first else 0]
    with _disable_current_modes():
        # Lengths that the model read from a tensor are ones, as every unknown value is.
        made_up = values is not None and bool(assumed.values) and longest > 1 and bool((values == 1).all())
        if values is not None and not made_up:
            return values
        assumed.unpadded = True
        return torch.full(tuple(lengths.shape), longest, dtype=torch.int64, device="cpu")
