"""The loss of a training step, where neither the user nor the model says more."""

from __future__ import annotations

from typing import Any

import torch

from forerun.capture.nested import tensors_in
from forerun.errors import ForerunError
from forerun.networks.base import training_loss


def default_loss(out: Any) -> torch.Tensor:
    """The model's own loss, or that of our families: what a step costs depends on the model, not on the loss."""
    if getattr(out, "loss", None) is not None:
        return out.loss
    tensors = tensors_in(out)
    if not tensors:
        raise ForerunError(f"the model's output, a {type(out).__name__}, has no tensor to train on")
    if not any(t.is_floating_point() for t in tensors):
        raise ForerunError("no output of the model is in floating point: there is no loss with a gradient to train on")
    return training_loss(tensors)
