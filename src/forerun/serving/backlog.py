"""How many prompts meet in one iteration: a Markov chain over the prompt tokens that wait when an iteration begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: States of the longest and of the shortest chain.
_MOST, _LEAST = 128, 24


@dataclass(frozen=True)
class Pieces:
    """Prompts cut into equal pieces, of which an iteration computes up to `cap`; arrays have one entry per point."""

    tokens: np.ndarray  # of one piece
    each: np.ndarray  # pieces of a prompt
    cap: np.ndarray  # pieces that fit the token budget
    states: int

    @classmethod
    def of(cls, prompt: float, chunk: np.ndarray, begun: np.ndarray) -> Pieces:
        """`chunk` tokens fit an iteration, `begun` prompts arrive in each, on average."""
        each = np.maximum(1.0, np.ceil(prompt / chunk))
        most = float(np.max(each * (4 + begun + 5 * np.sqrt(begun)), initial=_LEAST))
        return cls(prompt / each, each, chunk * each / prompt, int(min(_MOST, np.ceil(most))))

    @property
    def served(self) -> np.ndarray:
        """Pieces that an iteration computes in each state: points x states."""
        return np.minimum(np.arange(self.states)[None, :], self.cap[:, None])


def stationary(pieces: Pieces, arriving: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How often each state is (points x states), and the chain's matrix; `arriving` is the mean number of prompts that
    arrive during the iteration of each state."""
    points, states = arriving.shape
    moves = _moves(pieces, arriving)
    # The equations of the balance, the last replaced by the sum of one.
    system = np.swapaxes(moves, 1, 2) - np.eye(states)
    system[:, -1, :] = 1.0
    wanted = np.zeros((points, states, 1))
    wanted[:, -1] = 1.0
    share = np.clip(np.linalg.solve(system, wanted)[..., 0], 0.0, None)
    return share / share.sum(axis=1, keepdims=True), moves


def _moves(pieces: Pieces, arriving: np.ndarray) -> np.ndarray:
    """The chance of each next state: points x states x next states. Prompts arrive as a Poisson process."""
    points, states = arriving.shape
    number = np.arange(states, dtype=float)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(number[1:]))])
    mean = np.maximum(arriving, 1e-12)[..., None]
    chance = np.exp(number * np.log(mean) - mean - log_factorial)
    chance[..., -1] += np.maximum(0.0, 1 - chance.sum(axis=-1))
    left = np.arange(states)[None, :] - pieces.served
    whole = np.floor(left)
    part = (left - whole)[..., None]
    target = whole[..., None] + pieces.each[:, None, None] * number
    out = np.zeros(points * states * states)
    row = (np.arange(points * states) * states).reshape(points, states, 1)
    for offset, weight in ((0, 1 - part), (1, part)):
        to = np.minimum(target + offset, states - 1).astype(np.int64) + row
        out += np.bincount(to.ravel(), (chance * weight).ravel(), minlength=out.size)
    return out.reshape(points, states, states)


def until_computed(pieces: Pieces, seen: np.ndarray, full_ms: np.ndarray, last_ms: np.ndarray) -> np.ndarray:
    """Mean time until a prompt is computed that meets the states `seen`: full iterations, then the one it ends in.
    `last_ms` has the time of an iteration with the pieces of each state."""
    ahead = np.arange(pieces.states)[None, :] + pieces.each[:, None]
    cap = pieces.cap[:, None]
    before = np.ceil(ahead / cap - 1e-9) - 1
    rest = np.clip(np.rint(ahead - before * cap), 0, pieces.states - 1).astype(np.int64)
    last = np.take_along_axis(last_ms, rest, axis=1)
    return (seen * (before * full_ms[:, None] + last)).sum(axis=1)
