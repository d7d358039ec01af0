"""What a module is called with, argument by argument, and the meta tensors that stand for it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Argument(NamedTuple):
    """One argument of a call, without the batch."""

    shape: tuple[int, ...]
    kind: str  # "float": in the dtype of the weights; "token": whole numbers
    values: Any = None  # of one sample, nested lists or one number for all, where what the model does depends on them
    joined: bool = False  # samples are joined along the first axis of the shape, not along an axis of their own


#: What a model is called with, by argument ("" for a positional one).
Arguments = dict[str, Argument]


def tensors(arguments: Arguments, batch: int, dtype: Any) -> dict[str, Any]:
    """The arguments at a batch size, on meta; those with values carry them."""
    import torch

    from forerun.capture.known_values import with_values

    out: dict[str, Any] = {}
    for name, argument in arguments.items():
        kind = torch.int64 if argument.kind == "token" else dtype
        if argument.values is not None:
            one = torch.tensor(argument.values, dtype=kind)
            one = one.expand(argument.shape) if one.dim() == 0 else one.reshape(argument.shape)
            out[name] = with_values(torch.cat([one] * batch) if argument.joined else torch.stack([one] * batch))
            continue
        shape = argument.shape
        whole = (batch * shape[0], *shape[1:]) if argument.joined else (batch, *shape)
        out[name] = torch.empty(whole, device="meta", dtype=kind)
    return out
