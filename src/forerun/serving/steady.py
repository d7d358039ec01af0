"""The steady state of one replica in closed form: token time, throughput and time to first token without simulating.

A decoding sequence meets `others`, which decode beside it. Each of these ends once in so many iterations as its answer
has tokens, and another request takes its place, so that others / tokens prompts begin per iteration. The prompts that
wait when an iteration begins are a Markov chain (backlog.py), which gives the mean iteration; from it follow the rate
of requests, the number of clients and the time to first token. The curve over `others` is inverted for a rate or a
number of clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.serving.backlog import Pieces, stationary, until_computed
from forerun.serving.iteration import IterationModel, Load
from forerun.serving.policies import VLLM, Policy
from forerun.serving.requests import Lengths

#: Points of a curve.
_POINTS = 24
#: Rounds in which the rate and the mean iteration are made to agree.
_ROUNDS = 4
#: Prompts may fill this share of the token budget: beyond, the queue has no end.
_FULL = 0.97
#: Up to this share of prompts in the time between two tokens, the closed form agrees with simulations.
EXACT = 0.4


@dataclass(frozen=True)
class Steady:
    """One replica in its steady state; at a rate beyond its capacity, that of the capacity, and no TTFT."""

    rate: float  # requests per second
    sequences: float  # that decode at the same time
    token_ms: float  # mean gap between tokens, which is the mean TPOT
    ttft_ms: float | None  # None: the queue grows without end
    energy_j: float  # of a request
    busy: float  # share of the time in which an iteration runs
    prompt_share: float  # of the time between two tokens that prompts take
    capacity: float  # requests per second at most
    saturated: bool

    @property
    def exact(self) -> bool:
        """Whether simulations agree within a few per cent: not where iterations that compute long prompts take most of
        the time, because then requests that arrive together stay together."""
        return self.prompt_share <= EXACT and not self.saturated

    def request_ms(self, output: float) -> float | None:
        """Mean time from arrival to the last token."""
        return None if self.ttft_ms is None else self.ttft_ms + (output - 1) * self.token_ms


@dataclass(frozen=True)
class Curve:
    """A replica at each number of decoding sequences that its budgets allow, from few to most."""

    others: np.ndarray
    rate: np.ndarray
    clients: np.ndarray  # in a closed loop
    token_ms: np.ndarray
    ttft_ms: np.ndarray  # without the wait for a place
    energy_j: np.ndarray  # of a request
    busy: np.ndarray
    prompt_share: np.ndarray  # of the time between two tokens
    new: float  # tokens after the first
    spread: float  # of the output lengths

    def at_rate(self, rate: float, cv: float = 1.0) -> Steady:
        """The state at a rate of requests per second, whose gaps have the coefficient of variation `cv`."""
        best = int(self.rate.argmax())
        capacity = float(self.rate[best])
        if rate >= capacity:
            return self._at(float(self.others[best]), None, saturated=True)
        others = float(np.interp(rate, self.rate[: best + 1], self.others[: best + 1]))
        return self._at(others, self._place_ms(rate / capacity, best, cv), saturated=False, rate=rate)

    def at_concurrency(self, clients: float) -> Steady:
        """The state in a closed loop of so many clients; what exceeds the budgets waits for a place."""
        best = int(self.rate.argmax())
        waiting = max(0.0, clients - float(self.clients[best]))
        others = float(np.interp(clients, self.clients[: best + 1], self.others[: best + 1]))
        return self._at(others, waiting / float(self.rate[best]) * 1e3, saturated=False)

    def _at(self, others: float, wait_ms: float | None, *, saturated: bool, rate: float | None = None) -> Steady:
        def at(curve: np.ndarray) -> float:
            return float(np.interp(others, self.others, curve))

        ttft = None if wait_ms is None else at(self.ttft_ms) + wait_ms
        rate, token_ms = at(self.rate) if rate is None else rate, at(self.token_ms)
        sequences = rate * self.new * token_ms / 1e3
        return Steady(rate, sequences, token_ms, ttft, at(self.energy_j), at(self.busy),
                      at(self.prompt_share), float(self.rate.max()), saturated)  # fmt: skip

    def _place_ms(self, load: float, best: int, cv: float) -> float:
        """Wait for a place among the most sequences (Sakasegawa's approximation of many servers)."""
        places = float(self.others[best]) + 1
        service = self.new * float(self.token_ms[best])
        waiting = load ** (np.sqrt(2 * (places + 1)) - 1) / (1 - load)
        return service / places * waiting * (cv**2 + self.spread**2) / 2


def curve(
    model: IterationModel,
    input: Lengths,
    output: Lengths,
    *,
    policy: Policy = VLLM,
    cached: float = 0.0,
    closed: bool = False,
) -> Curve:
    """The curve of a replica for requests of these lengths, of which `cached` prompt tokens are in the prefix cache.

    `closed`: each client sends its next request when it has its answer, so that as many begin as end.
    """
    prompt, new = max(1.0, input.mean - cached), max(output.mean - 1, 1.0)
    others = _others(model, input, output, policy, new)
    chunk = np.maximum(1.0, model.max_tokens - (others + 1 if policy.mixed else 0.0)) + 0.0 * others
    begun = others / new  # prompts per iteration
    possible = begun * prompt <= _FULL * chunk
    possible[0] = True
    others, chunk, begun = others[possible], chunk[possible], begun[possible]
    pieces = Pieces.of(prompt, chunk, begun)
    priced = _Priced(model, policy, pieces, input, cached, _held(input, output, new))
    ms, joules = priced.iterations(others + 1)
    arriving = np.repeat(begun[:, None], pieces.states, axis=1)
    for _ in range(1 if closed else _ROUNDS):
        share, moves = stationary(pieces, arriving)
        token_ms = (share * ms).sum(axis=1)
        if not closed:  # in longer iterations more requests arrive
            arriving = begun[:, None] * ms / token_ms[:, None]
    # A request comes at a random time in an open loop, when iterations end in a closed one.
    met = share if closed else share * ms / token_ms[:, None]
    seen = (met[:, None, :] @ moves)[:, 0, :]
    full_ms, last_ms = priced.prompts(others)
    computed_ms = until_computed(pieces, seen, full_ms, last_ms)
    company = 1 - np.exp(-others - begun)  # whether an iteration runs when a request comes
    if closed:
        wait_ms = np.ceil(max(model.request_ms, 1e-9) / token_ms) * token_ms - model.request_ms
    else:
        wait_ms = priced.residual_ms(share, others + 1) / 2
    ttft_ms = company * wait_ms + computed_ms + model.request_ms
    cycle_ms = ttft_ms + new * token_ms
    clients = 1 + others * cycle_ms / (new * token_ms)
    rate = (clients / cycle_ms if closed else begun / token_ms) * 1e3
    alone_ms = ms[:, 0]
    energy = (share * joules).sum(axis=1) * new / (others + 1) + priced.own_j(others)
    busy = 1 - np.exp(-others - 1) if closed else company
    rising = _rising(rate)
    columns = [others, rate, clients, token_ms, ttft_ms, energy, busy, 1 - alone_ms / token_ms]
    others, rate, clients, token_ms, ttft_ms, energy, busy, share_ms = (column[rising] for column in columns)
    return Curve(others, rate, clients, token_ms, ttft_ms, energy, busy, share_ms, new, output.spread)


def _rising(rate: np.ndarray) -> np.ndarray:
    """Points at which the rate is higher than at all before: beyond its peak, more sequences only wait longer."""
    before = np.concatenate([[-np.inf], np.maximum.accumulate(rate)[:-1]])
    return np.asarray(rate > before)


def _held(input: Lengths, output: Lengths, new: float) -> float:
    """Mean tokens in the cache of a decoding sequence: longer answers are met more often."""
    return input.mean + new * (1 + output.spread**2) / 2


def _others(model: IterationModel, input: Lengths, output: Lengths, policy: Policy, new: float) -> np.ndarray:
    """Points of the curve, up to what the budgets of sequences, cache and tokens allow."""
    held = input.mean + new if policy.reserve else _held(input, output, new)
    most = min(model.max_sequences, model.kv_tokens / (held + model.block / 2))
    if policy.mixed:
        most = min(most, model.max_tokens - 1)
    most = max(most - 1, 0.5)
    return np.unique(np.concatenate([[1e-3, 0.02, 0.1, 0.25], np.geomspace(0.5, most, _POINTS)]))


class _Priced:
    """Times and joules of the iterations at each curve point and state of the backlog."""

    def __init__(
        self, model: IterationModel, policy: Policy, pieces: Pieces, input: Lengths, cached: float, held: float
    ) -> None:
        self.model, self.mixed, self.pieces, self.held = model, policy.mixed, pieces, held
        prompt = max(1.0, input.mean - cached)
        squared = prompt**2 * (1 + input.spread**2)
        self.pairs_of_token = cached + (squared / prompt + 1) / 2
        self.tokens = pieces.served * pieces.tokens[:, None]
        self.ends = pieces.served / pieces.each[:, None]

    def _asked(self, decode: np.ndarray, tokens: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shape = np.broadcast_shapes(decode.shape, tokens.shape)
        columns = (decode, decode * self.held, tokens, tokens * self.pairs_of_token, ends)
        load = Load(*(np.broadcast_to(column, shape).ravel() for column in columns))  # type: ignore[arg-type]
        ms, joules = np.zeros((2, int(np.prod(shape))))
        ms[:], joules[:] = self.model.latency_ms(load), self.model.energy_j(load)
        return ms.reshape(shape), joules.reshape(shape)

    def iterations(self, decode: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Between two tokens of a sequence, in each state: one iteration, or with prompts first, two."""
        some = self.tokens > 0
        if self.mixed:
            return self._asked(decode[:, None], self.tokens, self.ends)
        ms, joules = self._asked(decode[:, None], np.zeros((1, 1)), np.zeros((1, 1)))
        own_ms, own_joules = self._asked(np.zeros((1, 1)), self.tokens, self.ends)
        return ms + some * own_ms, joules + some * own_joules

    def residual_ms(self, share: np.ndarray, decode: np.ndarray) -> np.ndarray:
        """Mean length of the iteration that runs at a random time: long ones run more often."""
        if self.mixed:
            ms, _ = self.iterations(decode)
            return np.asarray((share * ms**2).sum(axis=1) / (share * ms).sum(axis=1))
        ms, _ = self._asked(decode[:, None], np.zeros((1, 1)), np.zeros((1, 1)))
        own_ms = (self.tokens > 0) * self._asked(np.zeros((1, 1)), self.tokens, self.ends)[0]
        return np.asarray((share * (ms**2 + own_ms**2)).sum(axis=1) / (share * (ms + own_ms)).sum(axis=1))

    def prompts(self, decode: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Iterations that compute prompts: those with a full budget, and those of each state."""
        beside = decode[:, None] if self.mixed else np.zeros((1, 1))
        full = (self.pieces.cap * self.pieces.tokens)[:, None]
        full_ms, _ = self._asked(beside, full, full / (self.pieces.tokens * self.pieces.each)[:, None])
        last_ms, _ = self._asked(beside, self.tokens, self.ends)
        return full_ms[:, 0], last_ms

    def own_j(self, decode: np.ndarray) -> np.ndarray:
        """Joules that the prompt of one request adds to the iterations that it is computed in."""
        beside = decode[:, None] if self.mixed else np.zeros((1, 1))
        whole = (self.pieces.tokens * self.pieces.each)[:, None]
        size = self.pieces.each[:, None]
        with_prompt = self._asked(beside, whole / size, 1 / size)[1]
        without = self._asked(beside, np.zeros((1, 1)), np.zeros((1, 1)))[1] if self.mixed else 0.0
        share = 1 / (decode + 1)  # the others' prompts are in the iterations that the request shares
        return (share[:, None] * (with_prompt - without) * size)[:, 0]
