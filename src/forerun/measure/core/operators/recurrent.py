"""Recurrent layers over all steps in one call."""

from __future__ import annotations

from typing import Any

import torch

from .registry import Arguments, Built, operator

_SMALL = {"b": 2, "length": 5, "cin": 3, "hidden": 4, "both": 0}
_MORE = _SMALL | {"both": 1, "layers": 2}


def _recurrent(cell: Any, a: Arguments) -> Built:
    """`both`: bidirectional. A measured backward pass includes a copy of cuDNN's reserve, as it runs several times."""
    x = a.new(a["b"], a["length"], a["cin"])
    layer = cell(
        *(a["cin"], a["hidden"], a.get("layers", 1)), batch_first=True, bidirectional=bool(a["both"]),
        device=a.device, dtype=a.dtype,
    )  # fmt: skip
    return lambda: layer(x)[0], [x, *layer.parameters()]


@operator("lstm", _SMALL, _MORE)
def lstm(a: Arguments) -> Built:
    return _recurrent(torch.nn.LSTM, a)


@operator("gru", _SMALL, _MORE)
def gru(a: Arguments) -> Built:
    return _recurrent(torch.nn.GRU, a)
