"""One replica of a serving engine: continuous batching, chunked prefill, KV blocks with preemption.

Iterations without a prompt, between two events, are planned in one stretch: their loads are arrays, and the model is
asked once for all of them. Every decoding sequence gets one token per iteration, so that its end and its next KV block
are known by the number of the iteration, and no stretch looks at single sequences.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

from forerun.serving.decode_times import DecodeTimes
from forerun.serving.iteration import IterationModel, Load
from forerun.serving.kv_cache import KVCache, blocks_of
from forerun.serving.log import Log, Times
from forerun.serving.policies import Policy

#: A prompt is admitted only while this share of the KV cache stays free for the answers of those that are running.
WATERMARK = 0.01
#: Iterations of the longest stretch, and of one where nothing is known of the ones before.
LONGEST, FIRST = 256, 16


@dataclass(eq=False, slots=True)
class Sequence:
    """A request on a replica."""

    request: int
    prompt: int  # tokens to compute before its next token: the input, after a preemption also the answer so far
    left: int  # tokens of the answer that are still to come
    prefix: int = -1
    prefix_tokens: int = 0
    ready: bool = False  # its prompt was computed elsewhere
    last_s: float = np.nan  # when it had its last token
    done: int = 0  # prompt tokens computed or cached
    hit: int = 0  # blocks of a shared prefix that it uses
    own: int = 0  # blocks of its own
    since: int = 0  # number of its first decode iteration
    until: int = -1  # number of its last one


@dataclass(eq=False, slots=True)
class _Stretch:
    """Iterations to come: the first may compute prompts, the others only decode."""

    start: float
    ends: np.ndarray
    durations: np.ndarray
    load: tuple[np.ndarray, ...]
    chunks: list[tuple[Sequence, int]]
    decodes: bool  # the first iteration decodes as well


class Replica:
    """The state of one replica between iterations."""

    def __init__(
        self,
        model: IterationModel,
        policy: Policy,
        times: Times,
        decode_times: DecodeTimes,
        share_prefixes: bool = True,
    ) -> None:
        self.model, self.policy, self.times, self.decode_times = model, policy, times, decode_times
        self.log = Log(model)
        self.cache = KVCache(model.kv_tokens // model.block, model.block, share_prefixes)
        self.waiting: deque[Sequence] = deque()
        self.prefilling: list[Sequence] = []
        self.decoding: dict[int, Sequence] = {}  # in the order of admission
        self.stretch: _Stretch | None = None
        self.planned = 0  # stretches so far: an end that was planned earlier is out of date
        self._finishing: list[tuple[int, int, Sequence]] = []
        self._step = 0  # number of the next decode iteration
        self._context = 0  # tokens in the caches of decoding sequences
        self._phases = [0] * model.block  # decoding sequences by the iteration, modulo block, that fills a block
        self._groups: list[tuple[float, int]] = []  # when decoding sequences had their last token, and how many
        self._guess = FIRST
        self._watermark = int(WATERMARK * self.cache.blocks)

    @property
    def outstanding(self) -> int:
        """Requests that wait or run."""
        return len(self.waiting) + len(self.prefilling) + len(self.decoding)

    def add(self, sequence: Sequence, now: float) -> float | None:
        """A request arrives: the new end of the stretch where it changes what is planned."""
        self.waiting.append(sequence)
        if self.stretch is None:
            return self.plan(now)
        if len(self.waiting) > 1 or self._blocked(sequence):
            return None  # it waits for an end, as those before it do
        ends = self.stretch.ends
        kept = int(np.searchsorted(ends, now)) + 1  # the running iteration comes to its end first
        if kept >= len(ends):
            return None
        self.stretch.ends = ends[:kept]
        self.planned += 1
        return float(ends[kept - 1])

    def plan(self, now: float) -> float | None:
        """Plans the next stretch; its end, or None where there is nothing to do."""
        self._make_room(now)
        chunks, more = self._schedule(now)
        decodes = bool(self.decoding) and (self.policy.mixed or not chunks)
        if not decodes and not chunks:
            self.stretch = None
            return None
        computed = [s for s, tokens in chunks if s.done + tokens == s.prompt]
        count = self._length(computed, more, decodes)
        load = self._load(count, chunks, computed, decodes)
        durations = self._durations_s(load, bool(chunks))
        self.stretch = _Stretch(now, now + np.cumsum(durations), durations, load, chunks, decodes)
        self.planned += 1
        return float(self.stretch.ends[-1])

    def commit(self) -> list[Sequence]:
        """The stretch has ended: the sequences that are finished."""
        stretch, self.stretch = self.stretch, None
        assert stretch is not None
        count = len(stretch.ends)
        first, end = float(stretch.ends[0]), float(stretch.ends[-1])
        durations = stretch.durations[:count]
        self.log.iterations(tuple(column[:count] for column in stretch.load), stretch.ends, durations)
        finished: list[Sequence] = []
        if stretch.decodes:
            finished += self._decoded(1, first)
        finished += [s for s, tokens in stretch.chunks if self._computed(s, tokens, first)]
        if count > 1:  # nothing has ended before the last iteration
            running = len(self.decoding)
            finished += self._decoded(count - 1, float(stretch.ends[1]), end)
            self.log.gaps(stretch.ends[2:], durations[2:], running)
        for s in finished:
            self.times.last[s.request] = end
        self.log.used(end, self.cache.used)
        self._guess = max(FIRST, 2 * count)
        return finished

    # What is scheduled.

    def _blocked(self, s: Sequence) -> bool:
        """Whether the next request cannot be admitted, however large the token budget."""
        if len(self.decoding) + len(self.prefilling) >= self.model.max_sequences:
            return True
        hit = self.cache.hit(s.prefix, s.prefix_tokens, s.prompt)
        spare = self._watermark if self.decoding or self.prefilling else 0
        if not self.policy.reserve:
            spare += self._phases[self._step % self.cache.block] + (1 if s.ready else 0)
        return self._wanted(s) - hit + spare > self.cache.room_beside(s.prefix, hit)

    def _wanted(self, s: Sequence) -> int:
        """Blocks that a request is admitted with."""
        return blocks_of(s.prompt + (s.left - 1 if self.policy.reserve else 0), self.cache.block)

    def _schedule(self, now: float) -> tuple[list[tuple[Sequence, int]], bool]:
        """The prompts, or parts of them, that the next iteration computes, and whether the one after it has some."""
        budget = self.model.max_tokens - (len(self.decoding) if self.policy.mixed else 0)
        chunks = []
        for s in self.prefilling:
            tokens = min(s.prompt - s.done, budget)
            if tokens > 0:
                chunks.append((s, tokens))
                budget -= tokens
        blocked = False
        while self.waiting and budget > 0:
            s = self.waiting[0]
            if blocked := self._blocked(s):
                break
            hit = self.cache.hit(s.prefix, s.prefix_tokens, s.prompt)
            tokens = s.prompt - hit * self.cache.block
            if not self.policy.chunked and chunks and tokens > budget and not s.ready:
                break
            self.waiting.popleft()
            self._admit(s, hit, now)
            if s.ready:
                self._start(s, s.last_s)
                budget -= 1
                continue
            tokens = min(tokens, budget)
            self.prefilling.append(s)
            chunks.append((s, tokens))
            budget -= tokens
        partial = any(s.done + tokens < s.prompt for s, tokens in chunks) or len(chunks) < len(self.prefilling)
        return chunks, partial or (bool(self.waiting) and not blocked)

    def _admit(self, s: Sequence, hit: int, now: float) -> None:
        if hit:
            self.cache.use(s.prefix)
        s.hit, s.own = hit, self._wanted(s) - hit
        s.done = hit * self.cache.block
        self.cache.take(s.own)
        if np.isnan(self.times.admitted[s.request]):
            self.times.admitted[s.request] = now
            self.times.cached[s.request] = s.done

    def _length(self, computed: list[Sequence], more: bool, decodes: bool) -> int:
        """Iterations until something changes: a prompt to compute, an end, or no free block."""
        if more:
            return 1
        ends = [s.left for s in computed]
        if self._next_end():
            ends.append(self._finishing[0][0] - self._step + (1 if decodes else 2))
        count = min(*ends, self._guess, LONGEST)
        running = len(self.decoding) + len(computed)
        if self.policy.reserve or running * (count // self.cache.block + 1) <= self.cache.room:
            return count
        return self._until_full(count, computed, decodes)

    def _until_full(self, count: int, computed: list[Sequence], decodes: bool) -> int:
        """Iterations that the free blocks are enough for; the first one is."""
        block, room, step = self.cache.block, self.cache.room, self._step
        phases = self._phases
        if decodes:
            room -= phases[step % block]
            step += 1
        if computed:
            phases = phases.copy()
            for s in computed:
                phases[(step - s.prompt) % block] += 1
        for at in range(1, count):
            room -= phases[(step + at - 1) % block]
            if room < 0:
                return at
        return count

    def _next_end(self) -> bool:
        """Whether a sequence is decoding; entries of preempted ones are removed."""
        heap = self._finishing
        while heap and (heap[0][2].until != heap[0][0] or heap[0][2].request not in self.decoding):
            heapq.heappop(heap)
        return bool(heap)

    def _load(
        self, count: int, chunks: list[tuple[Sequence, int]], computed: list[Sequence], decodes: bool
    ) -> tuple[np.ndarray, ...]:
        running, context = len(self.decoding), self._context
        decode, held, prefill, pairs, finished = np.zeros((5, count))
        later, later_context = running + len(computed), context + sum(s.prompt for s in computed)
        if decodes:
            decode[0], held[0] = running, context
            later_context += running
        decode[1:] = later
        held[1:] = later_context + later * np.arange(count - 1)
        if chunks:
            prefill[0] = sum(tokens for _, tokens in chunks)
            pairs[0] = sum(tokens * s.done + tokens * (tokens + 1) / 2 for s, tokens in chunks)
            finished[0] = len(computed)
        return decode, held, prefill, pairs, finished

    def _durations_s(self, load: tuple[np.ndarray, ...], prompts: bool) -> np.ndarray:
        decode, held = load[:2]
        later = 1 if prompts else 0
        out = np.empty(len(decode))
        if prompts:
            out[:1] = self.model.latency_ms(Load(*(column[:1] for column in load)))  # type: ignore[arg-type]
        if len(out) > later:
            out[later:] = self.decode_times.ms(int(decode[-1]), held[later:])
        return out / 1e3

    # What happened.

    def _computed(self, s: Sequence, tokens: int, end: float) -> bool:
        """Tokens of a prompt are computed; whether that ends the request."""
        s.done += tokens
        if s.done < s.prompt:
            return False
        self.prefilling.remove(s)
        kept = self.cache.keep(s.prefix, s.prefix_tokens)
        if kept:
            s.own, s.hit = s.own - kept, kept
        if np.isnan(self.times.first[s.request]):
            self.times.first[s.request] = end
        elif not np.isnan(s.last_s):  # preempted before: its client waited for this token all the while
            self.log.gap(end, end - s.last_s, 1)
        s.left -= 1
        if s.left == 0:
            self._release(s)
            return True
        self._start(s, end)
        return False

    def _start(self, s: Sequence, last_s: float) -> None:
        """A sequence decodes from the next iteration on."""
        s.since, s.until = self._step, self._step + s.left - 1
        self.decoding[s.request] = s
        heapq.heappush(self._finishing, (s.until, s.request, s))
        self._context += s.prompt
        self._phases[(s.since - s.prompt) % self.cache.block] += 1
        self._groups.append((last_s, 1))

    def _decoded(self, count: int, first: float, end: float | None = None) -> list[Sequence]:
        """All decoding sequences have so many tokens more, the first and the last of them at these times: the sequences
        that have ended with it."""
        for when, sequences in self._groups:
            self.log.gap(first, first - when, sequences)
        running, block = len(self.decoding), self.cache.block
        if not self.policy.reserve:
            whole, rest = divmod(count, block)
            taken = whole * running + sum(self._phases[(self._step + at) % block] for at in range(rest))
            if taken:
                self.cache.take(taken)
        self._context += running * count
        self._step += count
        finished = []
        while self._next_end() and self._finishing[0][0] < self._step:
            s = heapq.heappop(self._finishing)[2]
            self._leave(s)
            finished.append(s)
        self._groups = [(first if end is None else end, len(self.decoding))]
        return finished

    def _leave(self, s: Sequence) -> None:
        """A sequence no longer decodes; its blocks are free."""
        del self.decoding[s.request]
        steps = self._step - s.since
        self._context -= s.prompt + steps
        self._phases[(s.since - s.prompt) % self.cache.block] -= 1
        if not self.policy.reserve:
            s.own = blocks_of(s.prompt + steps, self.cache.block) - s.hit
        self._release(s)

    def _release(self, s: Sequence) -> None:
        self.cache.give(s.own)
        if s.hit:
            self.cache.leave(s.prefix)
        s.own = s.hit = 0

    def _make_room(self, now: float) -> None:
        """Preempts the sequences admitted last until the others have room for their next token."""
        while self.decoding and not self.policy.reserve:
            needed = self._phases[self._step % self.cache.block]
            if needed <= self.cache.room:
                return
            self.log.preemptions += 1
            if self.prefilling:
                s = self.prefilling.pop()
                self._release(s)
            else:
                s = self.decoding[next(reversed(self.decoding))]
                steps = self._step - s.since
                self._leave(s)
                s.prompt, s.left, s.until, s.last_s = s.prompt + steps + 1, s.left - steps, -1, now
                self._forget_one()
            s.done, s.ready = 0, False
            self.waiting.appendleft(s)

    def _forget_one(self) -> None:
        """One sequence fewer waits for the gap of its next token."""
        if self._groups:
            when, sequences = self._groups.pop()
            if sequences > 1:
                self._groups.append((when, sequences - 1))
