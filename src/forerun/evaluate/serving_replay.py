"""Replays a serving run: its requests through transformers' scheduler, each iteration as long as a law says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from forerun.measure.core.serving_cases import Traffic
from forerun.measure.core.serving_metrics import Request, Window, measures

#: Milliseconds of an iteration by its decoding sequences, their cached tokens, prompt tokens, and prompts that end.
IterationMs = Callable[[int, int, int, int], float]
#: Until a client has seen its answer and sent the next request. The engine has begun another iteration by then.
CLIENT_S = 2e-4
#: A prompt is begun only while this share of the blocks is free, unless nothing else is scheduled.
SAFETY = 0.15


@dataclass(eq=False)
class _Running:
    """A request in the engine."""

    request: Request
    left: int  # prompt tokens to compute
    blocks: int = 0
    cached: int = 0


@dataclass
class Replay:
    """One engine that serves the requests of a case."""

    case: dict[str, Any]
    vocab: int
    iteration_ms: IterationMs
    most_sequences: int
    now: float = 0.0
    next_arrival: float = 0.0
    used: int = 0
    requests: list[Request] = field(default_factory=list)
    coming: deque[_Running] = field(default_factory=deque)  # in the order of their arrival
    waiting: deque[_Running] = field(default_factory=deque)
    active: list[_Running] = field(default_factory=list)
    iterations: list[tuple[float, ...]] = field(default_factory=list)

    def until(self, window: Window) -> dict[str, Any]:
        """Serves to the end of the window, and measures in it as a real run is measured."""
        self.traffic = Traffic(self.case, self.vocab)
        if self.traffic.open:
            self.next_arrival = self.traffic.gap_s()
        else:
            for _ in range(int(self.case["concurrency"])):
                self._arrive(0.0, residual=True)
        while self.now < window.end:
            self._let_in()
            self._iterate()
        return measures(self.requests, self.iterations, window)

    def _let_in(self) -> None:
        """What has arrived waits from now on; an idle engine waits for the next arrival."""
        if self.traffic.open:
            while not self.coming or self.coming[-1].request.arrival <= self.now:
                self._arrive(self.next_arrival)
                self.next_arrival += self.traffic.gap_s()
        if not self.active and not self.waiting:
            self.now = max(self.now, self.coming[0].request.arrival)
        while self.coming and self.coming[0].request.arrival <= self.now:
            self.waiting.append(self.coming.popleft())

    def _arrive(self, arrival: float, residual: bool = False) -> None:
        prompt, output = self.traffic.lengths()
        if residual:
            output = self.traffic.residual(output)
        self.traffic.prompt(prompt)  # keeps the draws in the order of the real run
        request = Request(arrival, prompt, output, residual, submitted=arrival)
        self.requests.append(request)
        self.coming.append(_Running(request, prompt))

    def _iterate(self) -> None:
        """One iteration: decoding sequences first, then prompts in their order, as far as tokens and blocks go."""
        engine = self.case["engine"]
        budget, scheduled = int(engine["max_batch_tokens"]), 0
        decode = context = prefill = pairs = 0
        tokens: list[tuple[_Running, int]] = []
        for one in [*(a for a in self.active if not a.left), *(a for a in self.active if a.left), *self.waiting]:
            free = int(engine["num_blocks"]) - self.used
            prompt = bool(one.left)
            if budget <= 0 or scheduled >= self.most_sequences:
                break
            if prompt and scheduled and free < SAFETY * int(engine["num_blocks"]):
                break
            new = min(one.left, budget) if prompt else 1
            wanted = -(-(one.cached + new) // int(engine["block_size"])) - one.blocks
            if wanted > free:
                continue
            self.used, one.blocks = self.used + max(wanted, 0), one.blocks + max(wanted, 0)
            budget, scheduled = budget - new, scheduled + 1
            tokens.append((one, new))
            if prompt:
                prefill, pairs = prefill + new, pairs + new * one.cached + new * (new + 1) // 2
            else:
                decode, context = decode + 1, context + one.cached + 1
        finished = sum(bool(one.left) and one.left == new for one, new in tokens)
        spent_ms = self.iteration_ms(decode, context, prefill, finished)
        load = (decode, context, prefill, pairs, finished, len(self.waiting), self.used)
        self.iterations.append((self.now, 0.0, spent_ms, 0.0, *load))
        self.now += spent_ms / 1e3
        for one, new in tokens:
            self._computed(one, new)

    def _computed(self, one: _Running, new: int) -> None:
        if one in self.waiting:
            self.waiting.remove(one)
            self.active.append(one)
        one.cached += new
        if one.left:
            one.left -= new
            if one.left:
                return
        one.request.token_times.append(self.now)
        if one.request.finished:
            self.active.remove(one)
            self.used -= one.blocks
            if not self.traffic.open:
                self._arrive(self.now + CLIENT_S)
