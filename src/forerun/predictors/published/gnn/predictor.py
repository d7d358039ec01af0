"""Base class of predictors with a graph network: graphs of cases and questions, targets, weights as arrays."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from forerun._util.parallel import side_by_side
from forerun.device import Device
from forerun.graph.profile import Profile
from forerun.predictors.laws.graph_numbers import of_graph
from forerun.predictors.published.gnn.arrays import STATIC, GraphArrays, arrays
from forerun.predictors.published.whole_model.base import WholeModelPredictor
from forerun.predictors.published.whole_model.devices import of_devices
from forerun.workload import Workload

if TYPE_CHECKING:
    from torch import nn

    from forerun.predictors.cases import Cases, TrainingCases


class GraphPredictor(WholeModelPredictor):
    """Learns from graphs, of one device; of several where it sees numbers of the device (`sees_devices`)."""

    columns = (*STATIC, "op_kinds")
    hold_out = replace(WholeModelPredictor.hold_out, folds=8)

    mean_: np.ndarray  # of the logarithms of each target
    scale_: np.ndarray

    @abc.abstractmethod
    def logarithms(self, graphs: Sequence[GraphArrays]) -> np.ndarray:
        """[graphs, targets]: its predictions, as standardised logarithms."""

    def graphs_on(self, graphs: Sequence[GraphArrays], devices: Sequence[Device]) -> list[GraphArrays]:
        """The graphs with numbers of the device that each runs on, where it sees these."""
        if not self.sees_devices:
            return list(graphs)
        hardware = np.nan_to_num(np.column_stack(list(of_devices(devices).values()))).astype(np.float32)
        return [replace(graph, hardware=line) for graph, line in zip(graphs, hardware, strict=True)]

    def prepare(self, cases: TrainingCases) -> None:
        more = (cases.cpu_models, cases.published_models) if self.sees_devices else ()
        for part in (cases.models, cases.simulated_models, *more):
            if part:
                graphs_of(part.take(self.answers_row(part.rows)))

    def graphs(self, cases: Cases) -> list[GraphArrays]:
        """The graphs of cases as arrays."""
        return self.graphs_on(graphs_of(cases), cases.devices)

    def learn(self, cases: Cases) -> None:
        measured = cases.rows[list(self.learned_targets())].to_numpy(dtype=float)
        self.learn_graphs(self.graphs(cases), self.standardised(measured))

    @abc.abstractmethod
    def learn_graphs(self, graphs: Sequence[GraphArrays], targets: np.ndarray) -> None:
        """Trains on graphs and their standardised targets; sets learned attributes."""

    def standardised(self, measured: np.ndarray) -> np.ndarray:
        """[cases, targets]: standardised logarithms of measurements; sets their mean and scale."""
        with np.errstate(divide="ignore", invalid="ignore"):
            wanted = np.log(measured)
        wanted[~np.isfinite(wanted)] = np.nan
        self.mean_, self.scale_ = np.nanmean(wanted, axis=0), np.nanstd(wanted, axis=0) + 1e-6
        return (wanted - self.mean_) / self.scale_

    def learned_targets(self) -> tuple[str, ...]:
        """The columns that the network learns; `targets` follow from them."""
        return self.targets

    def values_of_graphs(self, graphs: Sequence[GraphArrays]) -> dict[str, np.ndarray]:
        """By target, its prediction for every graph."""
        found = np.exp(self.logarithms(graphs) * self.scale_ + self.mean_)
        return dict(zip(self.learned_targets(), found.T, strict=True))

    def values_of_cases(self, cases: Cases) -> dict[str, np.ndarray]:
        return self.values_of_graphs(self.graphs(cases))

    def values_of_question(
        self, profile: Profile, devices: Sequence[Device], workload: Workload
    ) -> dict[str, np.ndarray]:
        graphs = graphs_at_batches(profile)
        shape = (len(profile.batches), len(devices))
        if self.sees_devices:
            each = [graph for graph in graphs for _ in devices]
            asked = self.values_of_graphs(self.graphs_on(each, list(devices) * len(graphs)))
            return {target: values.reshape(shape) for target, values in asked.items()}
        found = self.values_of_graphs(graphs)
        return {target: np.broadcast_to(values[:, None], shape).copy() for target, values in found.items()}


def graphs_at_batches(columns: Profile) -> list[GraphArrays]:
    """A profile's graph as arrays, at each of its batch sizes."""
    known = of_graph(columns)
    out = []
    for place, batch in enumerate(columns.batches):
        work = {"macs": columns.repeat @ columns.macs[:, place], "bytes": columns.repeat @ columns.bytes[:, place]}
        numbers = known | work | {"batch": float(batch)}
        out.append(arrays(columns, [float(numbers[name]) for name in STATIC], place))
    return out


def graphs_of(cases: Cases) -> list[GraphArrays]:
    """The graphs of cases as arrays, made once (`Cases.made`)."""
    keys = cases.rows["case_key"].tolist()
    first = {key: place for place, key in reversed(list(enumerate(keys))) if key not in cases.made}
    static = cases.rows[list(STATIC)].to_numpy(dtype=float)

    def make(place: int) -> GraphArrays:
        return arrays(cases.profile(place), static[place].tolist())

    cases.made.update(zip(first, side_by_side(make, list(first.values())), strict=True))
    return [cases.made[key] for key in keys]


def kept_weights(network: nn.Module) -> np.ndarray:
    """The weights of a network in FP16, as they are stored; the network itself is rounded to FP16 too."""
    from forerun.predictors.published.gnn.networks import flat, unflatten

    kept = flat(network).clamp(-65504, 65504).half()
    unflatten(network, kept.float())
    return kept.numpy()
