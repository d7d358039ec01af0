"""Requests through the replicas of a serving engine, one iteration at a time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from forerun.errors import ForerunError
from forerun.serving.decode_times import DecodeTimes
from forerun.serving.iteration import IterationModel
from forerun.serving.log import Iterations, Times
from forerun.serving.policies import VLLM, Policy
from forerun.serving.replica import Replica, Sequence
from forerun.serving.requests import Requests, check_fit
from forerun.serving.static import StaticReplica

ROUTERS = ("round-robin", "least-loaded")


@dataclass(frozen=True)
class Disaggregated:
    """Replicas that only compute prompts, in front of those that only decode; caches are sent over a link."""

    model: IterationModel  # of a prefill replica
    replicas: int
    transfer_s: Callable[[int], float]  # seconds to send the cache of a prompt of so many tokens


@dataclass(frozen=True)
class Simulated:
    """What happened to every request and on every replica."""

    requests: Requests
    times: Times
    replicas: tuple[Iterations, ...]  # those that decode, then those that only compute prompts
    models: tuple[IterationModel, ...]
    preemptions: int

    @property
    def devices(self) -> int:
        return sum(model.devices for model in self.models)


class _Pool:
    """Replicas that share requests among them."""

    def __init__(self, replicas: list[Replica | StaticReplica], router: str) -> None:
        self.replicas, self.router = replicas, router
        self._turn = 0

    def choose(self) -> Replica | StaticReplica:
        if self.router == "least-loaded":
            return min(self.replicas, key=lambda replica: replica.outstanding)
        self._turn += 1
        return self.replicas[(self._turn - 1) % len(self.replicas)]


def simulate(
    model: IterationModel,
    requests: Requests,
    *,
    policy: Policy = VLLM,
    replicas: int = 1,
    router: str = "round-robin",
    disaggregated: Disaggregated | None = None,
    share_prefixes: bool = True,
) -> Simulated:
    """Runs all requests to their end. With `disaggregated`, `model` and `replicas` are those that decode."""
    if router not in ROUTERS:
        raise ForerunError(f"router {router!r} is not known: choose from {', '.join(ROUTERS)}")
    for each in (model, *([disaggregated.model] if disaggregated else [])):
        check_fit(requests, each.kv_tokens, each.block)
    return _Simulation(model, requests, policy, replicas, router, disaggregated, share_prefixes).run()


class _Simulation:
    """Events in their order: a request arrives, a cache arrives, a replica's stretch of iterations ends."""

    def __init__(
        self, model: IterationModel, requests: Requests, policy: Policy, replicas: int, router: str,
        disaggregated: Disaggregated | None, share_prefixes: bool,
    ) -> None:  # fmt: skip
        self.requests, self.disaggregated, self.request_s = requests, disaggregated, model.request_ms / 1e3
        self.times = Times.of(len(requests))

        def made(of: IterationModel, count: int) -> list[Replica | StaticReplica]:
            if policy.static:
                return [StaticReplica(of, self.times) for _ in range(count)]
            decode_times = DecodeTimes(of)  # of all replicas, which are alike
            return [Replica(of, policy, self.times, decode_times, share_prefixes) for _ in range(count)]

        self.decode = _Pool(made(model, replicas), router)
        self.prefill = _Pool(made(disaggregated.model, disaggregated.replicas), router) if disaggregated else None
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = itertools.count()  # events at one time are taken in the order in which they were known
        self._sent = 0  # requests of a closed loop so far

    def run(self) -> Simulated:
        concurrency = self.requests.concurrency
        for _ in range(len(self.requests) if concurrency is None else min(concurrency, len(self.requests))):
            self._send(None)
        while self._events:
            when, _, happen = heapq.heappop(self._events)
            happen(when)
        replicas = [*self.decode.replicas, *(self.prefill.replicas if self.prefill else [])]
        return Simulated(
            self.requests, self.times, tuple(r.log.written() for r in replicas), tuple(r.model for r in replicas),
            sum(r.log.preemptions for r in replicas),
        )  # fmt: skip

    def _at(self, when: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), happen))

    def _send(self, now: float | None) -> None:
        """The next request is sent: at the time of its own, or now."""
        request, self._sent = self._sent, self._sent + 1
        when = float(self.requests.arrivals_s[request]) if now is None else now
        self.times.arrival[request] = when
        self._at(when, lambda at: self._arrive(request, at))

    def _arrive(self, request: int, now: float) -> None:
        r = self.requests
        left = int(r.outputs[request])
        s = Sequence(
            request, int(r.inputs[request]), 1 if self.prefill else left, int(r.prefixes[request]),
            int(r.prefix_tokens[request]),
        )  # fmt: skip
        self._join(self.prefill or self.decode, s, now)

    def _join(self, pool: _Pool, s: Sequence, now: float) -> None:
        replica = pool.choose()
        self._expect(replica, replica.add(s, now))

    def _expect(self, replica: Replica | StaticReplica, end: float | None) -> None:
        """A replica's stretch ends then, unless another is planned in the meantime."""
        if end is None:
            return
        planned = replica.planned

        def ended(now: float) -> None:
            if replica.planned != planned:
                return
            finished = replica.commit()
            self._expect(replica, replica.plan(now))
            for s in finished:
                self._finished(s, now)

        self._at(end, ended)

    def _finished(self, s: Sequence, now: float) -> None:
        answer = int(self.requests.outputs[s.request])
        if self.disaggregated is not None and not s.ready and answer > 1 and s.left == 0 and s.until < 0:
            prompt = int(self.requests.inputs[s.request])
            moved = Sequence(s.request, prompt, answer - 1, ready=True, last_s=now)
            arrives = now + self.disaggregated.transfer_s(prompt)
            self._at(arrives, lambda at: self._join(self.decode, moved, at))
        elif self.requests.concurrency is not None and self._sent < len(self.requests):
            self._send(now + self.request_s)


def concurrency_at(times: Times, when: np.ndarray) -> np.ndarray:
    """Requests in the engine, waiting or running, at each of these times."""
    arrived = np.searchsorted(np.sort(times.arrival), when, side="right")
    return arrived - np.searchsorted(np.sort(times.last), when, side="right")
