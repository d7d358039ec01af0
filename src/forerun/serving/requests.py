"""Requests to a serving engine: when they arrive, how long they are, which prefix they share."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from forerun.errors import ForerunError

#: Tokens of the longest request: positions beyond are no engine's.
LONGEST = 2**24
#: Gaps that vary less than this are all alike.
_METRONOME = 1e-6


@dataclass(frozen=True)
class Lengths:
    """Token counts: a mean, and the spread around it (standard deviation over mean; 0: all alike, else log-normal)."""

    mean: float
    spread: float = 0.0

    def drawn(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Whole numbers of 1 or more."""
        if self.spread == 0:
            return np.full(count, max(1, round(self.mean)), dtype=np.int64)
        sigma = np.sqrt(np.log1p(self.spread**2))
        values = rng.lognormal(np.log(self.mean) - sigma**2 / 2, sigma, count)
        return np.clip(np.rint(values), 1, LONGEST).astype(np.int64)


@dataclass(frozen=True)
class Requests:
    """Requests in the order of their arrival. In a closed loop the arrivals are not known beforehand: each of
    `concurrency` clients sends its next request when it has the answer to its last one."""

    arrivals_s: np.ndarray  # zeros in a closed loop
    inputs: np.ndarray  # prompt tokens
    outputs: np.ndarray  # new tokens
    prefixes: np.ndarray  # the number of the prefix that a request shares with others; -1: none
    prefix_tokens: np.ndarray  # tokens of that prefix
    concurrency: int | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def rate(self) -> float | None:
        """Requests per second between the first arrival and the last; None in a closed loop."""
        span = float(self.arrivals_s[-1] - self.arrivals_s[0]) if len(self) > 1 else 0.0
        return None if self.concurrency or span <= 0 else (len(self) - 1) / span

    def taken(self, which: slice | np.ndarray) -> Requests:
        """Some of the requests, in their order."""
        names = ("arrivals_s", "inputs", "outputs", "prefixes", "prefix_tokens")
        return replace(self, **{name: getattr(self, name)[which] for name in names})

    def within(self, tokens: int) -> Requests:
        """The same with lengths cut to so many tokens of a request: first its prompt, then its answer."""
        outputs = np.minimum(self.outputs, tokens - 1)
        inputs = np.minimum(self.inputs, tokens - outputs)
        return replace(self, inputs=inputs, outputs=outputs, prefix_tokens=np.minimum(self.prefix_tokens, inputs))

    def arriving(
        self, rng: np.random.Generator, *, rate: float | None = None, cv: float = 1.0, concurrency: int | None = None
    ) -> Requests:
        """The same lengths with other arrivals: at a rate, or in a closed loop."""
        return replace(self, arrivals_s=arrivals(rng, len(self), rate, cv), concurrency=concurrency)


def arrivals(rng: np.random.Generator, count: int, rate: float | None, cv: float = 1.0) -> np.ndarray:
    """Seconds of `count` arrivals at a rate per second. `cv` is the coefficient of variation of the gaps: 1 is a
    Poisson process, more is bursty (gamma), 0 is a metronome. The mean gap is as asked, and not as it happens to be
    drawn. Without a rate, all arrive at once."""
    if rate is None:
        return np.zeros(count)
    if cv < _METRONOME:
        return np.arange(count) / rate
    when = np.cumsum(rng.gamma(1 / cv**2, cv**2 / rate, count))
    when -= when[0]
    return when * ((count - 1) / rate / when[-1]) if when[-1] > 0 else when


def drawn(
    count: int,
    input: Lengths,
    output: Lengths,
    *,
    rate: float | None = None,
    concurrency: int | None = None,
    cv: float = 1.0,
    prefix: int = 0,
    seed: int = 0,
) -> Requests:
    """`count` requests with drawn lengths, at a rate per second or in a closed loop. The first `prefix` tokens of every
    prompt are the same."""
    rng = np.random.default_rng(seed)
    inputs, outputs = input.drawn(rng, count), output.drawn(rng, count)
    when = arrivals(rng, count, rate, cv)
    shared = np.full(count, 0 if prefix else -1, dtype=np.int64)
    return Requests(when, inputs, outputs, shared, np.minimum(prefix, inputs), concurrency)


def check_fit(requests: Requests, kv_tokens: int, block: int) -> None:
    """Refuses a request that the KV cache could not hold even alone."""
    tokens = requests.inputs + requests.outputs
    longest = int(np.argmax(tokens))
    # The last new token is never read again, so that it needs no place in the cache.
    if tokens[longest] - 1 > kv_tokens // block * block:
        raise ForerunError(
            f"a request of {requests.inputs[longest]:,} input and {requests.outputs[longest]:,} output tokens does not "
            f"fit the KV cache, which holds {kv_tokens:,} tokens"
        )
