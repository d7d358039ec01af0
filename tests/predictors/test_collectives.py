"""The law of collectives: what physics and topology demand of it, and data-parallel steps that use it."""

from __future__ import annotations

import pytest

from forerun.advice.data_parallel import scaled, scaling, worth_adding
from forerun.device import load_device
from forerun.device.cloud import load_instance
from forerun.errors import ForerunError
from forerun.prediction import Estimate
from forerun.predictors.laws.collectives import SHARES, collective

GB = 2.0**30
DEVICES = ("a100-sxm4-80gb", "h100-sxm", "h200", "b200", "mi300x", "t4", "rtx4090")


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("op", SHARES)
def test_more_bytes_and_more_devices_take_longer(name: str, op: str) -> None:
    device = load_device(name)
    times = [collective(op, 2.0**power, device, 4) for power in range(8, 34)]
    assert [one.ms for one in times] == sorted(one.ms for one in times)
    assert all(one.low_ms <= one.ms <= one.high_ms for one in times)
    if op != "send_recv":
        assert collective(op, 1024, device, 2).ms < collective(op, 1024, device, 8).ms


def test_published_times_are_met() -> None:
    """NCCL and one-shot all-reduces as aiconfigurator publishes them, which the constants are fitted to."""
    h100, a100 = load_device("h100-sxm"), load_device("a100-sxm4-80gb")
    for device, count, kernel, size, us in (
        (h100, 8, "nccl", 2**29, 2388), (h100, 8, "nccl", 512, 15.6), (a100, 4, "nccl", 2**26, 559),
        (h100, 8, "vllm-graph", 8192, 5.0), (a100, 8, "sglang-graph", 2048, 5.8),
    ):  # fmt: skip
        made = collective("all_reduce", size, device, count, kernel)
        assert made.ms * 1e3 == pytest.approx(us, rel=0.15 if size > 2**16 else 0.25)
        assert made.low_ms * 1e3 < us < made.high_ms * 1e3 and not made.extrapolated


def test_between_machines_it_takes_longer_and_is_marked() -> None:
    h100 = load_device("h100-sxm")
    inside, outside = (collective("all_reduce", GB, h100, count) for count in (8, 16))
    assert outside.extrapolated and outside.over == "network" and outside.ms > 1.5 * inside.ms
    slow, fast = (
        collective("all_reduce", GB, load_device("a100-sxm4-40gb"), 16, instance=load_instance(name))
        for name in ("p4d.24xlarge", "Standard_ND96asr_v4")
    )
    assert slow.ms > 1.5 * fast.ms
    times = [collective("all_reduce", 1024, h100, count).ms for count in (16, 64, 1024)]
    assert times[0] < times[1] < times[2]


@pytest.mark.parametrize(
    ("op", "count", "sent"),
    [("all_reduce", 16, 2**30 / 8), ("all_gather", 16, 2**30 / 16), ("all_to_all", 16, 2**29), ("send_recv", 16, 2**30),
     ("all_reduce", 9, 2**30)],
)  # fmt: skip
def test_no_device_sends_faster_than_its_adapter(op: str, count: int, sent: float) -> None:
    """Two DGX H100, 50 GB/s for each GPU: bytes that the busiest one must send to the other machine. The ninth of nine
    is alone in its machine."""
    made = collective(op, GB, load_device("h100-sxm"), count)
    assert made.low_ms >= sent / 50e6 and made.ms > made.low_ms


@pytest.mark.parametrize(
    ("device", "count", "op", "known"),
    [("h100-sxm", 8, "all_reduce", True), ("mi300x", 8, "all_reduce", False), ("tpu-v5e", 8, "all_reduce", False),
     ("v100-16gb", 8, "all_reduce", False), ("gb200", 72, "all_reduce", False), ("t4", 4, "all_reduce", True)],
)  # fmt: skip
def test_what_was_not_measured_is_marked_and_wide(device: str, count: int, op: str, known: bool) -> None:
    made = collective(op, GB, load_device(device), count)
    assert made.extrapolated is not known
    if not known:
        assert made.high_ms == pytest.approx(2 * made.ms) and made.low_ms <= made.ms


def test_eight_of_a_mesh_are_worth_it_though_the_second_alone_is_not() -> None:
    steps = scaling(Estimate(100.0, 90.0, 110.0, "ms"), 5000.0, load_device("mi300x"), range(1, 9))
    assert steps[1].efficiency < 0.75 < 0.95 < steps[7].efficiency
    assert worth_adding(steps, 32) == 8


def test_one_device_sends_nothing_and_unknown_collectives_are_refused() -> None:
    device = load_device("h100-sxm")
    assert collective("all_reduce", GB, device, 1).ms == 0
    with pytest.raises(ForerunError, match="unknown collective 'broadcast': choose from all_reduce"):
        collective("broadcast", GB, device, 2)
    with pytest.raises(ForerunError, match="unknown kernel 'own': choose from nccl"):
        collective("all_reduce", GB, device, 2, "own")
    for size, count in ((GB, 0), (GB, -4), (GB, 2.5), (-1.0, 2), (float("nan"), 2)):
        with pytest.raises(ForerunError, match="takes a number of bytes and of devices"):
            collective("all_reduce", size, device, count)  # type: ignore[arg-type]


def test_a_step_hides_all_but_the_last_bucket() -> None:
    device = load_device("a100-sxm4-40gb")
    step = Estimate(100.0, 90.0, 110.0, "ms")
    small, large, huge = (scaled(step, size, device, 8) for size in (100.0, 5000.0, 200_000.0))
    assert step.value < small.step_ms.value < 1.01 * step.value  # four buckets, of which one is exposed
    assert small.efficiency > large.efficiency > huge.efficiency
    assert huge.step_ms.value > huge.all_reduce_ms
    for one in (small, large, huge):
        assert one.step_ms.low < one.step_ms.value < one.step_ms.high
        assert one.step_ms.low >= step.low
