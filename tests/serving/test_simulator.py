"""The simulator of a serving engine, on an engine whose iterations are a formula."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from analytic_engine import AnalyticEngine

from forerun.errors import ForerunError
from forerun.serving.iteration import Load
from forerun.serving.kv_cache import KVCache
from forerun.serving.latency_model import LatencyModel
from forerun.serving.log import Times
from forerun.serving.metrics import Limits, measured, steady_window, timeline, whole_window
from forerun.serving.pipeline import Pipelined
from forerun.serving.policies import POLICIES, STATIC, VLLM
from forerun.serving.requests import Lengths, Requests, arrivals, drawn
from forerun.serving.simulator import Disaggregated, Simulated, simulate
from forerun.serving.steady import curve

FEW = Lengths(200, 0.5), Lengths(40, 0.5)


def test_energy_of_a_pipeline_is_that_of_the_batches_in_flight_and_of_waiting() -> None:
    engine = AnalyticEngine()  # 500 W while a batch is computed
    four = Pipelined.of(engine, 4, 400_000, 0.0, waiting_w=100.0)
    for load, busy in ((Load(1, 100), 1), (Load(2, 200), 2), (Load(64, 6400), 4), (Load(0, 0, 100, 5050, 1), 1)):
        watts = float(four.energy_j(load) / four.latency_ms(load)) * 1e3
        assert watts == pytest.approx(busy * 500 + (4 - busy) * 100)


def requests_at(when: list[float], inputs: list[int], outputs: list[int], **more: object) -> Requests:
    count = len(when)
    none = np.full(count, -1), np.zeros(count, dtype=int)
    return replace(Requests(np.array(when), np.array(inputs), np.array(outputs), *none), **more)


def test_a_single_request_takes_its_prompt_and_then_its_tokens() -> None:
    engine = AnalyticEngine()
    s = simulate(engine, requests_at([2.0], [100], [5]))
    prompt = float(engine.latency_ms(Load(0, 0, 100, 100 * 101 / 2, 1)))
    tokens = [float(engine.latency_ms(Load(1, 100 + at))) for at in range(4)]
    assert (s.times.first - s.times.arrival)[0] * 1e3 == pytest.approx(prompt)
    assert (s.times.last - s.times.arrival)[0] * 1e3 == pytest.approx(prompt + sum(tokens))
    assert s.replicas[0].gaps[:, 1] * 1e3 == pytest.approx(tokens, rel=1e-4)


def test_a_long_prompt_is_computed_in_chunks_of_the_token_budget() -> None:
    s = simulate(AnalyticEngine(max_tokens=512), requests_at([0.0], [1200], [1]))
    assert s.replicas[0].load.prefill.tolist() == [512, 512, 176]
    assert s.replicas[0].load.pairs.sum() == 1200 * 1201 / 2  # as many as in one go


def test_lengths_are_cut_to_the_context() -> None:
    cut = requests_at([0.0, 0.0, 0.0], [10, 900, 400], [20, 50, 5000]).within(1000)
    assert cut.inputs.tolist() == [10, 900, 1] and cut.outputs.tolist() == [20, 50, 999]


def test_a_request_that_arrives_while_others_decode_joins_the_next_iteration() -> None:
    engine = AnalyticEngine()
    s = simulate(engine, requests_at([0.0, 0.1], [100, 100], [1000, 2]))
    load = s.replicas[0].load
    joined = int(np.argmax((load.prefill > 0) & (load.decode > 0)))
    assert load.decode[joined] == 1 and load.decode[joined + 1] == 2
    ends = s.replicas[0].ends_s
    assert ends[joined - 2] < 0.1 <= ends[joined - 1]


@pytest.mark.parametrize("policy", [*POLICIES.values(), STATIC], ids=lambda policy: policy.name)
@pytest.mark.parametrize("load", [{"rate": 20.0}, {"concurrency": 40}], ids=["open", "closed"])
def test_every_policy_gives_every_request_all_its_tokens(policy, load) -> None:
    asked = drawn(300, *FEW, **load)
    s = simulate(AnalyticEngine(kv_tokens=8000), asked, policy=policy)
    times = s.times
    assert (times.arrival <= times.admitted).all() and (times.admitted < times.first).all()
    assert (times.first <= times.last).all()
    assert s.replicas[0].gaps[:, 2].sum() == (asked.outputs - 1).sum()
    gaps = s.replicas[0].gaps
    assert (gaps[:, 1] > 0).all()
    # What clients waited between tokens is what passed between their first and last ones.
    assert (gaps[:, 1] * gaps[:, 2]).sum() == pytest.approx((times.last - times.first).sum())
    assert (np.diff(s.replicas[0].ends_s) > 0).all()


def test_the_kv_cache_is_never_overfull_and_full_ones_preempt() -> None:
    asked = drawn(200, Lengths(100), Lengths(300), concurrency=64)
    small = simulate(AnalyticEngine(kv_tokens=6400), asked)
    large = simulate(AnalyticEngine(kv_tokens=64_000), asked)
    assert small.preemptions > 0 and large.preemptions == 0
    assert small.replicas[0].kv[:, 1].max() <= 400
    assert small.times.last.max() > large.times.last.max()
    reserved = simulate(AnalyticEngine(kv_tokens=6400), asked, policy=POLICIES["tensorrt-llm"])
    assert reserved.preemptions == 0


def test_a_shared_prefix_is_computed_once() -> None:
    asked = drawn(100, Lengths(1000), Lengths(20), rate=5.0, prefix=800)
    with_cache, without = (simulate(AnalyticEngine(), asked, share_prefixes=share) for share in (True, False))
    assert with_cache.replicas[0].load.prefill.sum() < 0.3 * without.replicas[0].load.prefill.sum()
    assert (with_cache.times.cached[10:] == 800).all() and without.times.cached.sum() == 0
    first = [float((s.times.first - s.times.arrival).mean()) for s in (with_cache, without)]
    assert first[0] < first[1]


def test_an_unused_prefix_leaves_when_its_room_is_needed() -> None:
    prefixed = requests_at(
        [0.0, 10.0], [400, 500], [2, 2], prefixes=np.array([0, -1]), prefix_tokens=np.array([400, 0])
    )
    s = simulate(AnalyticEngine(kv_tokens=528), prefixed)
    assert not np.isnan(s.times.last).any()


def test_many_cached_prefixes_leave_quickly() -> None:
    cache = KVCache(20_000, 16)
    for prefix in range(20_000):
        cache.take(1)
        cache.keep(prefix, 16)
        cache.leave(prefix)
    began = time.process_time()
    for _ in range(20_000):
        cache.take(1)
    assert cache.room == 0 and time.process_time() - began < 2


def test_static_batching_is_slower_than_continuous_batching() -> None:
    asked = drawn(400, Lengths(200, 0.8), Lengths(100, 0.8), rate=25.0)
    static, continuous = (simulate(AnalyticEngine(), asked, policy=policy) for policy in (STATIC, VLLM))
    waited = [float((s.times.first - s.times.arrival).mean()) for s in (static, continuous)]
    assert waited[0] > 5 * waited[1]


def test_apart_from_prompts_decoding_has_even_gaps() -> None:
    engine, asked = AnalyticEngine(), drawn(300, Lengths(2000), Lengths(100), rate=6.0)
    apart = simulate(engine, asked, disaggregated=Disaggregated(engine, 1, lambda tokens: tokens * 1e-6))
    together = simulate(engine, asked, replicas=2)
    gaps = [np.concatenate([r.gaps for r in s.replicas])[:, 1] for s in (apart, together)]
    assert np.quantile(gaps[0], 0.99) < np.quantile(gaps[1], 0.99)
    assert sum(r.gaps[:, 2].sum() for r in apart.replicas) == (asked.outputs - 1).sum()
    assert apart.devices == together.devices == 2
    assert apart.replicas[0].load.prefill.sum() == 0 and apart.replicas[1].load.decode.sum() == 0


def test_more_replicas_share_the_load() -> None:
    asked = drawn(400, *FEW, rate=60.0)
    one, four = (simulate(AnalyticEngine(), asked, replicas=count) for count in (1, 4))
    assert (four.times.last - four.times.arrival).mean() < (one.times.last - one.times.arrival).mean()
    for router in ("round-robin", "least-loaded"):
        s = simulate(AnalyticEngine(), asked, replicas=4, router=router)
        busy = [float(r.load.finished.sum()) for r in s.replicas]
        assert max(busy) - min(busy) <= (1 if router == "round-robin" else 100)
    with pytest.raises(ForerunError, match="router 'any' is not known"):
        simulate(AnalyticEngine(), asked, router="any")


def test_a_closed_loop_never_has_more_requests_than_clients() -> None:
    s = simulate(AnalyticEngine(request_ms=3.0), drawn(200, *FEW, concurrency=7))
    when = np.linspace(0, s.times.last.max(), 500)
    here = (s.times.arrival[:, None] <= when).sum(axis=0) - (s.times.last[:, None] <= when).sum(axis=0)
    assert here.max() == 7


def test_what_does_not_fit_the_cache_is_refused() -> None:
    with pytest.raises(
        ForerunError, match="900 input and 200 output tokens does not fit the KV cache, which holds 1,000"
    ):
        simulate(AnalyticEngine(kv_tokens=1000), requests_at([0.0], [900], [200]))


def test_ten_thousand_requests_take_seconds() -> None:
    asked = drawn(10_000, Lengths(1024, 0.5), Lengths(256, 0.5), rate=8.0)
    began = time.process_time()
    s = simulate(AnalyticEngine(), asked)
    assert time.process_time() - began < 10
    assert len(s.replicas[0].ends_s) > 100_000  # iterations, none of them left out


def test_drawn_loads_are_as_asked_and_repeat() -> None:
    rng = np.random.default_rng(0)
    when = arrivals(rng, 5000, 4.0, 3.0)
    gaps = np.diff(when)
    assert gaps.mean() == pytest.approx(0.25) and gaps.std() / gaps.mean() == pytest.approx(3.0, rel=0.15)
    assert np.ptp(np.diff(arrivals(rng, 10, 4.0, 0.0))) < 1e-12
    lengths = Lengths(500, 0.6).drawn(rng, 20_000)
    assert lengths.mean() == pytest.approx(500, rel=0.03) and lengths.std() / lengths.mean() == pytest.approx(
        0.6, rel=0.05
    )
    again = [drawn(50, *FEW, rate=3.0, seed=4) for _ in range(2)]
    assert (again[0].inputs == again[1].inputs).all() and (again[0].arrivals_s == again[1].arrivals_s).all()


@pytest.mark.parametrize("rate", [1e3, 1e5, 1e12])
def test_an_engine_that_is_asked_too_much_gives_what_it_can(rate) -> None:
    asked = drawn(300, *FEW, rate=rate)
    s, at_once = (simulate(AnalyticEngine(), each) for each in (asked, replace(asked, arrivals_s=np.zeros(300))))
    numbers = measured(s, steady_window(s), Limits())
    most = asked.outputs.sum() / at_once.times.last.max()
    assert numbers["throughput"] == pytest.approx(most, rel=0.3)
    assert numbers["requests_per_s"] * asked.outputs.mean() == pytest.approx(numbers["throughput"], rel=0.1)
    assert numbers["energy_per_token_j"] > 0


def test_metrics_are_what_their_definitions_say() -> None:
    s = by_hand()
    numbers = measured(s, whole_window(s), Limits(ttft_ms=150, itl_ms=60), idle_w=0)
    assert numbers["ttft_ms.mean"] == pytest.approx(200) and numbers["ttft_ms.p50"] == pytest.approx(100)
    assert numbers["tpot_ms.mean"] == pytest.approx(50) and numbers["e2e_ms.p99"] == pytest.approx(400)
    assert numbers["goodput"] == pytest.approx(1 / whole_window(s).end_s) and numbers["good_share"] == 0.5


def by_hand() -> Simulated:
    """Two requests: first tokens after 100 and 300 ms, then two gaps of 50 ms."""
    s = simulate(AnalyticEngine(), requests_at([0.0, 0.0], [10, 10], [3, 3]))
    times = Times(np.zeros(2), np.zeros(2), np.array([0.1, 0.3]), np.array([0.2, 0.4]), np.zeros(2, dtype=int))
    return replace(s, times=times)


def test_throughput_and_energy_add_up() -> None:
    asked = drawn(500, Lengths(300, 0.3), Lengths(60, 0.3), concurrency=16)
    s = simulate(AnalyticEngine(), asked)
    numbers = measured(s, whole_window(s), Limits())
    seconds = s.times.last.max()
    assert numbers["throughput"] == pytest.approx(asked.outputs.sum() / seconds, rel=0.01)
    assert numbers["power_w"] == pytest.approx(500, rel=0.02)  # a closed loop keeps it busy
    assert numbers["energy_per_token_j"] == pytest.approx(500 * seconds / asked.outputs.sum(), rel=0.01)
    over_time = timeline(s)
    assert max(over_time["running"]) <= 16 and 0 < max(over_time["kv_use"]) < 1


GRID = [
    (policy, engine, lengths, load)
    for policy in ("vllm", "sglang")
    for engine in (AnalyticEngine(), AnalyticEngine(max_tokens=8192, request_ms=2.0), AnalyticEngine(max_tokens=512))
    for lengths in ((1024, 256), (128, 512))
    for load in (0.2, 0.7, 1, 8, 64)
]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "engine", "lengths", "load"), GRID,
    ids=lambda x: x if isinstance(x, str) else str(getattr(x, "max_tokens", x)),
)  # fmt: skip
def test_the_closed_form_agrees_with_simulations(policy, engine, lengths, load) -> None:
    prompt, answer = (Lengths(mean, 0.4) for mean in lengths)
    closed = load >= 1
    form = curve(engine, prompt, answer, policy=POLICIES[policy], closed=closed)
    rate = None if closed else load * float(form.rate.max())
    steady = form.at_concurrency(load) if closed else form.at_rate(rate)
    assert steady.exact
    asked = drawn(1500, prompt, answer, rate=rate, concurrency=int(load) if closed else None, seed=1)
    s = simulate(engine, asked, policy=POLICIES[policy])
    numbers = measured(s, steady_window(s), Limits())
    mean = asked.outputs.mean()
    assert steady.token_ms == pytest.approx(numbers["itl_ms.mean"], rel=0.05)
    assert steady.rate * mean == pytest.approx(numbers["throughput"], rel=0.05)
    if prompt.mean < engine.max_tokens:  # queues of prompts in pieces are a rougher approximation
        assert steady.ttft_ms == pytest.approx(numbers["ttft_ms.mean"], rel=0.15)


def test_beyond_its_capacity_a_queue_grows_without_end() -> None:
    form = curve(AnalyticEngine(), Lengths(1024), Lengths(256))
    beyond = form.at_rate(1.2 * float(form.rate.max()))
    assert beyond.saturated and beyond.ttft_ms is None and beyond.request_ms(256) is None
    assert beyond.rate == pytest.approx(form.rate.max())


class ScheduledRequest:
    """As SGLang's simulator has it."""

    def __init__(self, extend_length: int, past_kv_length: int) -> None:
        self.extend_length, self.past_kv_length = extend_length, past_kv_length


class ScheduledBatch:
    def __init__(self, *reqs: ScheduledRequest) -> None:
        self.reqs = list(reqs)


def test_other_simulators_can_ask_for_the_time_of_a_batch() -> None:
    engine = AnalyticEngine()
    asked = LatencyModel(engine)
    batch = ScheduledBatch(ScheduledRequest(1, 700), ScheduledRequest(1, 300), ScheduledRequest(200, 100))
    expected = float(engine.latency_ms(Load(2, 1000, 200, 200 * 100 + 200 * 201 / 2, 1))) / 1e3
    assert asked.predict_infer_time(batch) == pytest.approx(expected)
    assert asked.predict([(1, 700), {"new": 1, "cached": 300}, (200, 100)]) == pytest.approx(expected)
    with pytest.raises(ValueError, match="1 or more new tokens"):
        asked.predict([(0, 5)])
    with pytest.raises(ValueError, match="states its new tokens"):
        asked.predict([{"length": 3}])
