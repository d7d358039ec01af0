"""Fits the energy of waiting, arithmetic and bytes, as multiples of the energy at the power limit and full rate."""

from __future__ import annotations

import numpy as np

STEPS = 1500  # at most


def fit(terms: np.ndarray, seconds: np.ndarray, limit_w: np.ndarray, energy_j: np.ndarray, start: np.ndarray,
        steps: int = STEPS) -> np.ndarray:  # fmt: skip
    """Positive factors on `terms` [rows, factors] (in joules at full rate; the first is the power limit x seconds)."""
    import torch

    log_factor = torch.nn.Parameter(torch.tensor(np.log(start), dtype=torch.float32))
    first = log_factor.detach().clone()
    x, s, limit, y = (torch.tensor(v, dtype=torch.float32) for v in (terms, seconds, limit_w, energy_j))
    optimizer = torch.optim.Adam([log_factor], lr=0.02)
    for _ in range(steps):
        predicted = torch.minimum(x @ torch.exp(log_factor), limit * s)
        error = torch.log(predicted.clamp_min(1e-9)) - torch.log(y)
        loss = torch.nn.functional.smooth_l1_loss(error, torch.zeros_like(error), beta=0.1)
        loss = loss + 0.001 * ((log_factor - first) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.exp(log_factor).detach().numpy().astype(float)
