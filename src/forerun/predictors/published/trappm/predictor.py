"""Phase 2 of trappm: from measured training steps, one network for each of step time, memory and power."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.errors import ForerunError
from forerun.predictors.published.gnn import features
from forerun.predictors.published.gnn.arrays import GraphArrays
from forerun.predictors.published.gnn.predictor import GraphPredictor, kept_weights

if TYPE_CHECKING:
    from forerun.predictors.published.gnn.networks import Encoder, GraphRegressor

#: Encoders that have a name; all others are files.
SHIPPED, RANDOM, NONE = "shipped", "random", "none"


class TrappmPredictor(GraphPredictor):
    """Two graph layers with a sum over the ops, joined with a frozen encoder's embedding of the graph (`encoder`:
    "shipped", that of the predictor that comes with the package; a file that `encoder.save` wrote; "random", which
    shows the effect of pre-training; "none", a network that learns from measurements alone) and six numbers of the
    call.

    Energy is power times step time. `start` is a folder of a fitted predictor whose networks are fine-tuned, as for
    another device with few measurements.
    """

    name = "trappm"
    modes = ("training",)

    def __init__(
        self, encoder: str = SHIPPED, width: int = 512, learning_rate: float | None = 1e-3, epochs: int = 200,
        batch_size: int = 32, dropout: float = 0.05, start: str | None = None, steps: int | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        self.encoder, self.width, self.learning_rate, self.epochs = encoder, width, learning_rate, epochs
        self.batch_size, self.dropout, self.start, self.steps, self.seed = batch_size, dropout, start, steps, seed

    def learned_targets(self) -> tuple[str, ...]:
        return ("latency_ms", "memory_mb", "power_w")

    def learn_graphs(self, graphs: Sequence[GraphArrays], targets: np.ndarray) -> None:
        import torch

        from forerun.predictors.published.gnn.training import Schedule, train
        from forerun.predictors.published.trappm.encoder import examples_of

        frozen, self.names_ = self._encoder(graphs)
        self.latent_ = frozen.width if frozen else 0
        self.encoder_ = kept_weights(frozen) if frozen else np.zeros(0, dtype=np.float16)
        examples = examples_of(graphs, self.names_, frozen)
        schedule = Schedule(self.epochs, self.learning_rate, self.batch_size, self.steps, self.seed)
        begun = type(self).load(Path(self.start)) if self.start else None
        if begun is not None and begun.width != self.width:
            raise ForerunError(f"{self.start} has networks of width {begun.width}, not {self.width}")
        self.losses_: dict[str, list[float]] = {}
        networks, kept = [], []
        for place, target in enumerate(self.learned_targets()):
            torch.manual_seed(self.seed + place)
            network = self._new_network() if begun is None else begun._fitted()[1][place]
            labelled = examples.with_targets(targets[:, place : place + 1])
            self.losses_[target] = [round(loss, 6) for loss in train(network, labelled, schedule)]
            kept.append(kept_weights(network))
            networks.append(network)
        self.weights_ = np.stack(kept)
        self._networks = frozen, networks

    def logarithms(self, graphs: Sequence[GraphArrays]) -> np.ndarray:
        from forerun.predictors.published.gnn.training import answers
        from forerun.predictors.published.trappm.encoder import examples_of

        frozen, networks = self._fitted()
        examples = examples_of(graphs, self.names_, frozen)
        return np.hstack([answers(network, examples) for network in networks])

    def values_of_graphs(self, graphs: Sequence[GraphArrays]) -> dict[str, np.ndarray]:
        values = super().values_of_graphs(graphs)
        return {**values, "energy_j": values.pop("power_w") * values["latency_ms"] / 1e3}

    def _encoder(self, graphs: Sequence[GraphArrays]) -> tuple[Encoder | None, list[str]]:
        import torch

        from forerun.predictors.published.gnn.networks import Encoder
        from forerun.predictors.published.trappm import encoder

        if self.encoder == NONE:
            return None, features.vocabulary(graphs)
        if self.encoder == RANDOM:
            torch.manual_seed(self.seed)
            return Encoder(features.LONG, width=self.width, layers=encoder.LAYERS), features.vocabulary(graphs)
        if self.encoder != SHIPPED:
            return encoder.load(Path(self.encoder))
        shipped = type(self).shipped()
        return shipped._fitted()[0], shipped.names_

    def _new_network(self) -> GraphRegressor:
        from forerun.predictors.published.gnn.networks import GraphRegressor

        return GraphRegressor(
            "sage", features.LONG, len(features.LONG_STATIC), 1, width=self.width, layers=2, dense=2,
            dropout=self.dropout, pooled="sum", given=self.latent_,
        )  # fmt: skip

    def _fitted(self) -> tuple[Encoder | None, list[Any]]:
        if "_networks" not in vars(self):
            import torch

            from forerun.predictors.published.gnn.networks import Encoder, unflatten
            from forerun.predictors.published.trappm.encoder import LAYERS

            if "weights_" not in vars(self):
                raise ForerunError("the predictor trappm was not fitted: run forerun train trappm --out FOLDER")
            frozen = None
            if self.latent_:
                frozen = Encoder(features.LONG, width=self.latent_, layers=LAYERS)
                unflatten(frozen, torch.from_numpy(self.encoder_.astype(np.float32))).eval()
            networks = [
                unflatten(self._new_network(), torch.from_numpy(row.astype(np.float32))).eval() for row in self.weights_
            ]
            self._networks = frozen, networks
        return self._networks
