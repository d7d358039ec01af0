"""What a simulation writes down: iterations, gaps between tokens, the times of requests, the use of the KV cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.serving.iteration import IterationModel, Load


class Log:
    """What one replica did."""

    def __init__(self, model: IterationModel) -> None:
        self.model = model
        self._loads: list[tuple[np.ndarray, ...]] = []  # decode, context, prefill, pairs, finished
        self._ends: list[np.ndarray] = []
        self._durations: list[np.ndarray] = []
        self._gaps: list[np.ndarray] = []  # rows of when, seconds, how many sequences
        self._kv: list[tuple[float, int]] = []
        self.preemptions = 0

    def iterations(self, load: tuple[np.ndarray, ...], ends: np.ndarray, durations: np.ndarray) -> None:
        """Iterations in a row."""
        self._loads.append(load)
        self._ends.append(ends)
        self._durations.append(durations)

    def gap(self, when: float, seconds: float, count: int) -> None:
        """So many sequences had their next token after so long."""
        if count:
            self._gaps.append(np.array([[when, seconds, count]]))

    def gaps(self, when: np.ndarray, seconds: np.ndarray, count: int) -> None:
        """The same for iterations in a row."""
        self._gaps.append(np.stack([when, seconds, np.full(len(when), float(count))], axis=1))

    def used(self, when: float, blocks: int) -> None:
        """Blocks of the KV cache in use from now on."""
        self._kv.append((when, blocks))

    def written(self) -> Iterations:
        """All of it as arrays."""
        if not self._ends:
            nothing = np.zeros(0)
            empty = Load(*[nothing] * 5)  # type: ignore[arg-type]
            return Iterations(nothing, nothing, empty, nothing, np.zeros((0, 3)), np.zeros((0, 2)))
        load = Load(*(np.concatenate(column) for column in zip(*self._loads, strict=True)))  # type: ignore[arg-type]
        energy = np.zeros(np.shape(load.decode))
        energy[:] = self.model.energy_j(load)
        return Iterations(
            np.concatenate(self._ends), np.concatenate(self._durations), load, energy,
            np.concatenate([np.zeros((0, 3)), *self._gaps]), np.array(self._kv, dtype=float).reshape(-1, 2),
        )  # fmt: skip


@dataclass(frozen=True)
class Iterations:
    """All iterations of one replica: their ends and durations in seconds, loads, joules."""

    ends_s: np.ndarray
    durations_s: np.ndarray
    load: Load
    energy_j: np.ndarray
    gaps: np.ndarray  # when, seconds, sequences
    kv: np.ndarray  # when, blocks in use


@dataclass
class Times:
    """When each request arrived, was admitted, and had its first and last token, in seconds; not a number: never."""

    arrival: np.ndarray
    admitted: np.ndarray
    first: np.ndarray
    last: np.ndarray
    cached: np.ndarray  # prompt tokens that were not computed, because they were in the cache

    @classmethod
    def of(cls, count: int) -> Times:
        def unknown() -> np.ndarray:
            return np.full(count, np.nan)

        return cls(unknown(), unknown(), unknown(), unknown(), np.zeros(count, dtype=np.int64))
