"""The predictor dippm: 32 features an op, three graph layers, five numbers of the call, three dense layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from forerun.errors import ForerunError
from forerun.predictors.published.gnn import features
from forerun.predictors.published.gnn.arrays import GraphArrays
from forerun.predictors.published.gnn.predictor import GraphPredictor, kept_weights
from forerun.predictors.published.whole_model.devices import DEVICE_NUMBERS

if TYPE_CHECKING:
    from forerun.predictors.published.gnn.batches import Examples
    from forerun.predictors.published.gnn.networks import GraphRegressor


class DippmPredictor(GraphPredictor):
    """The published settings are the defaults; `learning_rate=None` searches for a rate, as the authors did. With
    `hardware` the numbers of the call have those of the device beside them, and it learns several devices."""

    name = "dippm"
    modes = ("inference",)

    def __init__(
        self, variant: str = "sage", width: int = 512, layers: int = 3, dropout: float = 0.05,
        learning_rate: float | None = 2.754e-5, epochs: int = 500, batch_size: int = 32, steps: int | None = None,
        hardware: bool = False, seed: int = 0,
    ) -> None:  # fmt: skip
        self.variant, self.width, self.layers, self.dropout = variant, width, layers, dropout
        self.learning_rate, self.epochs, self.batch_size = learning_rate, epochs, batch_size
        self.steps, self.hardware, self.seed = steps, hardware, seed
        self.sees_devices = hardware

    def learn_graphs(self, graphs: Sequence[GraphArrays], targets: np.ndarray) -> None:
        import torch

        from forerun.predictors.published.gnn.training import Schedule, train

        torch.manual_seed(self.seed)
        network = self._new_network()
        examples = self._examples(graphs).with_targets(targets)
        schedule = Schedule(self.epochs, self.learning_rate, self.batch_size, self.steps, self.seed)
        self.losses_ = [round(loss, 6) for loss in train(network, examples, schedule)]
        self.weights_ = kept_weights(network)
        self._network = network

    def logarithms(self, graphs: Sequence[GraphArrays]) -> np.ndarray:
        from forerun.predictors.published.gnn.training import answers

        return answers(self._fitted(), self._examples(graphs))

    def _new_network(self) -> GraphRegressor:
        from forerun.predictors.published.gnn.networks import GraphRegressor

        statics = len(features.SHORT_STATIC) + (len(DEVICE_NUMBERS) if self.hardware else 0)
        return GraphRegressor(
            self.variant, features.SHORT, statics, len(self.targets), width=self.width,
            layers=self.layers, dense=3, dropout=self.dropout,
        )  # fmt: skip

    def _examples(self, graphs: Sequence[GraphArrays]) -> Examples:
        from forerun.predictors.published.gnn.batches import Examples

        statics = np.stack([features.static_vector(g, features.SHORT_STATIC) for g in graphs])
        return Examples.of(graphs, [features.short_features(g) for g in graphs], statics)

    def _fitted(self) -> GraphRegressor:
        if "_network" not in vars(self):
            import torch

            from forerun.predictors.published.gnn.networks import unflatten

            if "weights_" not in vars(self):
                raise ForerunError("the predictor dippm was not fitted: run forerun train dippm --out FOLDER")
            network = self._new_network()
            unflatten(network, torch.from_numpy(np.asarray(self.weights_, dtype=np.float32)))
            self._network = network.eval()
        return self._network
