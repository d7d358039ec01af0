"""Training and test data of predictors: measured cases as one table, with the operators of each case.

`training.gather` builds these tables from the store. `Cases.rows` has one line per measured row, with the columns of
the store (`data/schema.py`) and the following, which are all that a predictor needs:

| column | what it is |
|---|---|
| `case_key`, `repeat` | which case it is; `repeat` 0 is its first measurement |
| `device` | id of the catalogue |
| `model`, `family`, `mode`, `batch`, `dtype`, `seq_len`, `optimizer`, `amp`, `runtime` | what ran |
| `latency_ms`, `device_ms`, `energy_j`, `memory_mb`, `memory_allocated_mb` | what was measured; NaN where it was not |
| `loop_ms` | time of a call in a loop that does not wait for each call to end; energy is measured over it |
| `roofline_ms` | the least time that the device's peaks allow |
| `flops`, `bytes`, `kernel_launches` | work of one call: operations, bytes moved, kernels launched |
| `macs`, `nodes`, `edges`, `heads` … | further numbers of the graph (predictors/laws/graph_numbers.py) |
| `op_kinds` | the kinds of op in the graph, separated by spaces |
| `block` | the kinds of op in the block that the network repeats (graph/blocks.py): relatives have the same |
| `device_kind` | gpu or cpu |
| `simulated_memory_mb`, `simulated_memory_allocated_mb`, `memory_group` | simulated (predictors/laws/memory.py) |
| `simulated` | simulated rows only: the predictor that made the row (training/simulated.py) |
| `copy_ms` | published rows only: part of `latency_ms` that copies inputs to the device |

`latency_ms` of onnxruntime's rows is their median call at the speed of an undisturbed machine (`training/gather.py`).

Held-out predictions that are stored with weights (`evaluate/stored.py`) have these columns without `bytes`,
`kernel_launches` and `simulated_...`, so a predictor that is scored without graphs must use the others only.

Operators (`TrainingCases.operators`, `published_operators`) have `op`, `shape`, `direction` instead of a model, and
`device_ms` alone. `timing_group` names how a published row was timed ("" is our own protocol).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from forerun.device import Device, load_device
from forerun.device.kinds import CPU, GPU
from forerun.frontends import load_graph
from forerun.graph.ir import Graph
from forerun.graph.profile import Profile, profile
from forerun.predictors.laws.features import OpTable
from forerun.runtimes.registry import as_run
from forerun.workload import Workload


def as_asked(workload: Workload, software: Any) -> Graph:
    """The graph of a workload as its runtime runs it, whatever software measured it."""
    return as_run(load_graph(workload), workload.runtime)


@dataclass(frozen=True)
class Cases:
    """Measured rows, and their operators as columns: `case` says which row of `rows` an operator belongs to."""

    rows: pd.DataFrame
    ops: OpTable
    case: np.ndarray  # [n ops]
    weight: np.ndarray  # [n ops] how often the op runs in a call
    launches: np.ndarray  # [rows, host.COUNTED]; no columns for operators
    joules: np.ndarray  # [rows, energy.TERMS] for a call of one second; no columns for operators
    workloads: tuple[Workload, ...] = ()  # of every row; none for operators
    load: Callable[[Workload, Any], Graph] = field(default=as_asked, compare=False)  # the graph that was measured
    #: Cache of what a predictor computes from the graphs, by `case_key`, shared by all parts of a table.
    made: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: np.ndarray) -> Cases:
        """A subset of the cases (a boolean over rows)."""
        place = np.full(len(self.rows), -1)
        place[chosen] = np.arange(int(chosen.sum()))
        ops_chosen = place[self.case] >= 0
        ops = OpTable(**{f.name: getattr(self.ops, f.name)[ops_chosen] for f in fields(OpTable)})
        pairs = zip(self.workloads, chosen, strict=True) if self.workloads else ()
        return replace(
            self, rows=self.rows[chosen].reset_index(drop=True), ops=ops, case=place[self.case[ops_chosen]],
            weight=self.weight[ops_chosen], launches=self.launches[chosen], joules=self.joules[chosen],
            workloads=tuple(workload for workload, is_chosen in pairs if is_chosen),
        )  # fmt: skip

    @property
    def devices(self) -> list[Device]:
        """The device of every row."""
        known = {name: load_device(name) for name in self.rows["device"].unique()}
        return [known[name] for name in self.rows["device"]]

    def without_device(self, device: str) -> Cases:
        return self.take((self.rows["device"] != device).to_numpy())

    @property
    def roofline_ms(self) -> np.ndarray:
        """Per case, the least time that the device's peaks allow."""
        return self.sum(np.maximum(self.ops.compute_s, self.ops.memory_s)) * 1e3

    @property
    def op_kinds(self) -> set[str]:
        """The kinds of op in the graphs of all cases."""
        return {kind for text in self.rows["op_kinds"].unique() for kind in text.split()}

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Per case, the weighted sum over its ops."""
        return np.bincount(self.case, self.weight * values, minlength=len(self.rows))

    def profile(self, place: int) -> Profile:
        """The graph of a case as columns; graphs come from the cache of captured graphs."""
        workload = self.workloads[place]
        return profile(self.load(workload, self.rows["software"].iloc[place]), workload.dtype)

    def profiles(self) -> Iterator[tuple[Profile, Device, Workload]]:
        """Every case as `Predictor.times` takes it."""
        for place, (workload, device) in enumerate(zip(self.workloads, self.rows["device"], strict=True)):
            yield self.profile(place), load_device(device), workload


@dataclass(frozen=True)
class TrainingCases:
    """All training data of the store."""

    models: Cases  # whole models on GPUs under our own protocol
    operators: Cases  # single operators under our own protocol
    published_operators: Cases | None = None  # of other people's data sets
    cpu_models: Cases | None = None  # whole models on CPUs under our own protocol
    published_models: Cases | None = None  # of other people's data sets, on other GPUs
    simulated_models: Cases | None = None  # what another predictor says of other GPUs: learned from, never a truth
    #: Whole models on CPUs under runtimes whose rows are learned by themselves (`Runtime.part`), by the part.
    apart: Mapping[str, Cases] = field(default_factory=dict)

    @property
    def whole_models(self) -> dict[str, Cases]:
        """Whole models under our own protocol where there are any: PyTorch's on GPUs and CPUs, and those apart."""
        found = {GPU.part: self.models, CPU.part: self.cpu_models, **self.apart}
        return {kind: part for kind, part in found.items() if part}

    @property
    def parts(self) -> dict[str, Cases]:
        """The parts that have rows, by their name in documents."""
        named = {
            "models": self.models, "operators": self.operators, "published operators": self.published_operators,
            "published models": self.published_models, "CPU models": self.cpu_models,
            "simulated models": self.simulated_models,
            **{f"{part} models": cases for part, cases in self.apart.items()},
        }  # fmt: skip
        return {name: part for name, part in named.items() if part is not None and len(part)}

    def with_part(self, part: str, cases: Cases) -> TrainingCases:
        """With other whole models in the place of a part of them."""
        if part in (GPU.part, CPU.part):
            return replace(self, models=cases) if part == GPU.part else replace(self, cpu_models=cases)
        return replace(self, apart={**self.apart, part: cases})

    def without_device(self, device: str) -> TrainingCases:
        """Everything but the rows of one device."""
        parts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "apart"}
        kept: Any = {name: part and part.without_device(device) for name, part in parts.items()}
        return TrainingCases(**kept, apart={name: part.without_device(device) for name, part in self.apart.items()})


def join(parts: Sequence[Cases]) -> Cases:
    """Several tables as one, without the columns that only whole models have; with what was made of their graphs."""
    starts = np.cumsum([0, *(len(p.rows) for p in parts)])
    ops = OpTable(**{f.name: np.concatenate([getattr(p.ops, f.name) for p in parts]) for f in fields(OpTable)})
    case = np.concatenate([p.case + start for p, start in zip(parts, starts[:-1], strict=True)])
    rows = pd.concat([p.rows for p in parts], ignore_index=True)
    none = np.zeros((len(rows), 0))
    made = {key: value for p in parts for key, value in p.made.items()}
    every = tuple(workload for p in parts for workload in p.workloads)
    workloads = every if len(every) == len(rows) else ()
    weight = np.concatenate([p.weight for p in parts])
    return Cases(rows, ops, case, weight, none, none, workloads, parts[0].load, made)
