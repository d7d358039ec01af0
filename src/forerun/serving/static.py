"""Static batching, which serving engines replaced: a batch runs until its longest answer has ended."""

from __future__ import annotations

from collections import deque

import numpy as np

from forerun.serving.iteration import IterationModel, Load
from forerun.serving.kv_cache import blocks_of
from forerun.serving.log import Log, Times
from forerun.serving.replica import Sequence


class StaticReplica:
    """Waiting requests, padded to the longest prompt, are a batch; a sequence that has ended keeps its place, and the
    next batch begins when the last one has."""

    def __init__(self, model: IterationModel, times: Times) -> None:
        self.model, self.times = model, times
        self.log = Log(model)
        self.waiting: deque[Sequence] = deque()
        self.planned = 0
        self._batch: list[Sequence] = []
        self._ends = np.zeros(0)

    @property
    def outstanding(self) -> int:
        return len(self.waiting) + len(self._batch)

    def add(self, sequence: Sequence, now: float) -> float | None:
        """A request arrives, and changes nothing for a batch that runs."""
        self.waiting.append(sequence)
        return None if self._batch else self.plan(now)

    def plan(self, now: float) -> float | None:
        """Runs the next batch: its end, or None where nothing waits."""
        if not self.waiting:
            return None
        blocks = self.model.kv_tokens // self.model.block
        longest = 0
        while self.waiting and len(self._batch) < self.model.max_sequences:
            s = self.waiting[0]
            longest = max(longest, blocks_of(s.prompt + s.left, self.model.block))
            if self._batch and longest * (len(self._batch) + 1) > blocks:
                break
            self._batch.append(self.waiting.popleft())
        size, prompt = len(self._batch), max(s.prompt for s in self._batch)
        steps = max(s.left for s in self._batch)
        decode, context, prefill, pairs, finished = np.zeros((5, steps))
        prefill[0], pairs[0], finished[0] = size * prompt, size * prompt * (prompt + 1) / 2, size
        decode[1:] = size
        context[1:] = size * (prompt + np.arange(steps - 1))
        load = (decode, context, prefill, pairs, finished)
        durations = np.zeros(steps)
        durations[:] = np.asarray(self.model.latency_ms(Load(*load))) / 1e3  # type: ignore[arg-type]
        self._ends = now + np.cumsum(durations)
        self.log.iterations(load, self._ends, durations)
        left = np.array([s.left for s in self._batch])
        for at in range(1, steps):
            self.log.gap(float(self._ends[at]), float(durations[at]), int((left > at).sum()))
        for s in self._batch:
            self.times.admitted[s.request] = now
            self.times.first[s.request] = self._ends[0]
            self.times.last[s.request] = self._ends[s.left - 1]
        self.log.used(now, size * blocks_of(prompt + steps, self.model.block))
        self.planned += 1
        return float(self._ends[-1])

    def commit(self) -> list[Sequence]:
        """The batch has ended: its sequences."""
        finished, self._batch = self._batch, []
        self.log.used(float(self._ends[-1]), 0)
        return finished
