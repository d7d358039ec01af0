"""Physics that must hold whatever the case: growth with the batch, the roofline, intervals, JSON round trips."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import forerun
from forerun import Prediction
from forerun.device import all_devices
from forerun.workload import Workload

USABLE = [d for d in all_devices() if d.bandwidth_gbs and d.peak_tflops and d.memory_gb]
MODELS = [
    "resnet18",
    "mobilenetv3_small_100",
    "vit_tiny_patch16_224",
    "cnn:depth=6,filters=16",
    "gpt2",
    "prajjwal1/bert-tiny",
]
devices = st.sampled_from(USABLE)
batches = st.integers(1, 4096)

cases = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "dtype": st.sampled_from(["fp32", "tf32", "fp16", "bf16"]),
        "mode": st.sampled_from(["inference", "training"]),
    }
)


def predict(case: dict[str, str], device: forerun.Device, batch: int) -> Prediction:
    from forerun.api.questions import dtype_problem

    work = Workload(**case, batch=batch)  # type: ignore[arg-type]
    dtype = case["dtype"] if dtype_problem(work, device) is None else "fp32"
    return forerun.predict(**(case | {"dtype": dtype}), device=device, batch=batch)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(cases, devices, batches, batches)
def test_nothing_falls_when_the_batch_grows(case: dict[str, str], device: forerun.Device, a: int, b: int) -> None:
    small, large = (predict(case, device, n) for n in sorted((a, b)))
    assert large.flops >= small.flops and large.bytes >= small.bytes
    assert large.memory_allocated_mb.value >= small.memory_allocated_mb.value
    # What the allocator keeps beside that may fall, where larger blocks happen to fit together better.
    assert large.memory_mb.value >= max(0.8 * small.memory_mb.value, small.memory_allocated_mb.value)
    # An odd batch fits the chip's tiles worse than the round one after it; doubling it gains nothing.
    near = max(a, b) < 2 * min(a, b)
    assert large.device_ms.value >= (0.85 if near else 0.95) * small.device_ms.value
    assert large.latency_ms.value >= (0.85 if near else 0.999) * small.latency_ms.value


@settings(max_examples=60, deadline=None)
@given(cases, devices, batches)
def test_no_prediction_beats_the_device(case: dict[str, str], device: forerun.Device, batch: int) -> None:
    p = predict(case, device, batch)
    seconds = p.latency_ms.value / 1e3
    peak = max(device.peak_tflops.values())
    assert p.flops / seconds / 1e12 <= peak
    assert p.bytes / seconds / 1e9 <= device.bandwidth_gbs  # type: ignore[operator]
    assert 2 * p.macs / (p.latency_ms.low / 1e3) / 1e12 <= peak  # nor does the lucky end of the interval
    if p.power_w is not None and device.tdp_w is not None:
        assert p.power_w.value <= device.tdp_w * 1.0001


@settings(max_examples=40, deadline=None)
@given(cases, devices, batches)
def test_intervals_hold_their_point_and_json_round_trips(
    case: dict[str, str], device: forerun.Device, batch: int
) -> None:
    p = predict(case, device, batch)
    for e in (p.latency_ms, p.device_ms, p.throughput, p.memory_mb, p.memory_allocated_mb, p.energy_j, p.power_w):
        assert e is None or e.low <= e.value <= e.high
    assert Prediction.from_json(p.to_json()) == p


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(MODELS), st.lists(batches, min_size=1, max_size=5))
def test_a_column_of_batches_is_the_batches_one_by_one(model: str, sizes: list[int]) -> None:
    from forerun.frontends import load_graphs
    from forerun.graph.profile import profile

    _, scalable = load_graphs(Workload(model, batch=2))
    assert scalable is not None
    column = profile(scalable, "fp32", np.array([max(s, scalable.min_batch) for s in sizes]))
    for i, size in enumerate(column.batches):
        one = profile(scalable.at(int(size)), "fp32")
        np.testing.assert_allclose(column.flops[:, i], one.flops[:, 0])
        np.testing.assert_allclose(column.bytes[:, i], one.bytes[:, 0])
