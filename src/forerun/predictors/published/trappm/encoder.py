"""Phase 1: an encoder of ops that learns from graphs alone which ops are connected; no measurement is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from forerun.errors import ForerunError
from forerun.predictors.published.gnn import features
from forerun.predictors.published.gnn.arrays import GraphArrays
from forerun.predictors.published.gnn.batches import Examples
from forerun.predictors.published.gnn.networks import Encoder, edge_loss, flat, readout, unflatten
from forerun.predictors.published.gnn.training import where_it_runs

WIDTH, LAYERS, DROPOUT = 512, 4, 0.5


def examples_of(graphs: Sequence[GraphArrays], names: Sequence[str], encoder: Encoder | None = None) -> Examples:
    """Graphs with the 113 features of each op and the six numbers of each call, and the embedding of an encoder."""
    statics = np.stack([features.static_vector(g, features.LONG_STATIC) for g in graphs])
    out = Examples.of(graphs, [features.long_features(g, names) for g in graphs], statics, both_ways=True)
    return out if encoder is None else out.with_given(_embeddings(encoder, out))


def pretrain(
    graphs: Sequence[GraphArrays], *, width: int = WIDTH, epochs: int = 20, batch_size: int = 32,
    learning_rate: float = 1e-3, seed: int = 0, progress: Callable[[int, float], None] | None = None,
) -> tuple[Encoder, list[str], list[float]]:  # fmt: skip
    """An encoder, the names of operators that it distinguishes, and the loss of every epoch."""
    names = features.vocabulary(graphs)
    torch.manual_seed(seed)
    rng, draws = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    device = where_it_runs()
    examples = examples_of(graphs, names).to(device)
    network = Encoder(features.LONG, width=width, layers=LAYERS, dropout=DROPOUT).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate)
    losses = []
    for epoch in range(epochs):
        network.train()
        total = []
        for batch in examples.batches(batch_size, rng.permutation(len(examples))):
            if not batch.edges.shape[1]:
                continue
            loss = edge_loss(network(batch), batch, draws)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total.append(loss.detach())
        losses.append(float(torch.stack(total).mean()) if total else 0.0)
        if not np.isfinite(losses[-1]):
            raise ForerunError("the loss of the encoder is no longer a number: lower the learning rate")
        if progress:
            progress(epoch + 1, losses[-1])
    return network.cpu().eval(), names, losses


@torch.no_grad()
def _embeddings(network: Encoder, examples: Examples) -> torch.Tensor:
    """[graphs, width]: the sum of the vectors of all ops, on a logarithmic scale."""
    device = where_it_runs()
    network.to(device).eval()
    found = []
    for batch in examples.to(device).batches(128):
        total = readout(network(batch), batch, "sum")
        found.append((torch.sign(total) * torch.log1p(total.abs())).cpu())
    network.cpu()
    return torch.cat(found)


def save(path: Path, network: Encoder, names: Sequence[str]) -> None:
    """Half-precision weights, with the names of the operators in the file's header."""
    from safetensors.numpy import save_file

    width = str(network.graph_layers[0].out_channels)
    save_file(
        {"weights": flat(network).clamp(-65504, 65504).half().numpy()},
        path,
        {"names": "\n".join(names), "width": width},
    )


def load(path: Path) -> tuple[Encoder, list[str]]:
    """What `save` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            names = file.metadata()["names"].split("\n")
            width = int(file.metadata()["width"])
            weights = file.get_tensor("weights")
        network = Encoder(features.LONG, width=width, layers=LAYERS, dropout=DROPOUT)
        unflatten(network, torch.from_numpy(weights.astype(np.float32)))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ForerunError(f"{path} holds no encoder: {str(error)[:200]}") from error
    return network.eval(), names
