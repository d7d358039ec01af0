"""CPUs as devices: peaks from cores and clocks, some of their cores, energy, prices, and who competes with GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import forerun
from forerun import ForerunError, cli
from forerun.device import all_devices, load_device
from forerun.device.cloud import rented_cpus
from forerun.web import operations

CNN, WIDE = "cnn:depth=4,filters=32,classes=10", "cnn:depth=6,filters=128,classes=10"
CPUS = [d for d in all_devices() if d.kind == "cpu"]


@pytest.mark.parametrize("device", [d for d in CPUS if "vcpu" not in d.id], ids=lambda d: d.id)
def test_every_catalogued_cpu_answers_with_energy_and_price(device: forerun.Device) -> None:
    assert {"fp32_tflops", "bandwidth_gbs", "sm_count", "idle_w", "tdp_w"} <= set(device.provenance)
    assert device.idle_w is not None and device.tdp_w is not None and device.idle_w < device.tdp_w
    p = forerun.predict(CNN, device, batch=8)
    assert p.basis == "learned" and p.latency_ms.low < p.latency_ms.value < p.latency_ms.high
    assert p.energy_j is not None and p.cost_usd is not None and p.power_w is not None
    assert device.idle_w <= p.power_w.low <= p.power_w.value <= p.power_w.high <= device.tdp_w * (1 + 1e-9)
    assert p.energy_j.high / p.energy_j.low > p.latency_ms.high / p.latency_ms.low  # nobody measured its power


def test_the_law_of_peaks_is_stated_beside_them() -> None:
    cpu = load_device("epyc-7763")
    assert cpu.peak_tflops["fp32"] == pytest.approx(64 * 2.45 * 32 / 1e3)
    assert cpu.bandwidth_gbs == pytest.approx(8 * 3200 * 8 / 1e3)
    assert "64 cores x 2.45 GHz x 32 operations per cycle" in cpu.provenance["fp32_tflops"]
    amx = load_device("xeon-8480").peak_tflops
    assert amx["bf16"] == 16 * amx["fp32"] and amx["int8"] == 2 * amx["bf16"]


def test_a_cpu_of_ones_own(tmp_path: Path) -> None:
    facts = {"cores": 8, "clock_ghz": 3, "channels": 2, "mts": 3200}
    entry = {"name": "mine", "kind": "cpu", "architecture": "zen4", "memory_gb": 64, "processor": facts, "tdp_w": 65}
    mine = tmp_path / "mine.yaml"
    mine.write_text(yaml.safe_dump(entry))
    assert load_device(mine).peak_tflops["fp32"] == pytest.approx(8 * 3 * 32 / 1e3)
    for wrong in ({"cores": 0}, {"clock_ghz": 3000}, {"core": 8}, {"channels": None}):
        with pytest.raises(ForerunError, match="processor"):
            load_device({**entry, "processor": {**facts, **wrong}})
    with pytest.raises(ForerunError, match="mts belong together"):
        load_device({**entry, "processor": {"cores": 8, "clock_ghz": 3, "mts": 3200}})


def test_fewer_threads_are_slower_and_saturate_memory() -> None:
    whole = load_device("epyc-7763")
    parts = [load_device(f"EPYC 7763 {n} threads") for n in (1, 4, 16, 48)]
    assert [p.sm_count for p in parts] == [1, 4, 16, 48]
    assert load_device("epyc-7763-64-threads") is whole
    assert parts[2].bandwidth_gbs < whole.bandwidth_gbs == parts[3].bandwidth_gbs  # type: ignore[operator]
    assert parts[2].peak_tflops["fp32"] == pytest.approx(whole.peak_tflops["fp32"] / 4)
    times = [forerun.predict(WIDE, d, batch=64).latency_ms.value for d in (*parts, whole)]
    assert times == sorted(times, reverse=True) and times[0] > 10 * times[3]
    assert times[3] / times[4] < 64 / 48  # what one thread launches does not scale


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("epyc-7763-0-threads", "from 1 to 64, the cores of epyc-7763; got 0"),
        ("epyc-7763-65-threads", "from 1 to 64, the cores of epyc-7763; got 65"),
        ("h200-4-threads", "h200 is a GPU: threads are for CPUs"),
        ("xeon-emr-2vcpu-2-threads", "how many cores xeon-emr-2vcpu has is not known"),
        ("epyc-7763--4-threads", "unknown device"),
    ],
)
def test_threads_that_no_cpu_has(name: str, why: str) -> None:
    with pytest.raises(ForerunError, match=why):
        load_device(name)


def test_cpus_of_clouds_compete_with_gpus() -> None:
    rented = {d.id: d for d in rented_cpus()}
    assert {"xeon-8275cl", "epyc-7r13-8-threads", "graviton2-16-threads", "epyc-7763-2-threads"} <= set(rented)
    assert rented["xeon-8275cl"].memory_gb == 96 == rented["xeon-8488c"].memory_gb / 2  # type: ignore[operator]
    wanted = {"vendors": ["intel", "aws", "nvidia"], "clouds": ["aws"], "dtypes": ["fp32"], "batches": [1]}
    found = forerun.recommend(CNN, goal="cost", max_latency_ms=1000, mig=False, **wanted)
    devices = {row.device for row in found.candidates}
    assert {"xeon-8488c-8-threads", "graviton2-16-threads", "t4"} <= devices
    assert not any(name.startswith("epyc") for name in devices)


def test_threads_travel_by_every_door(capsys: pytest.CaptureFixture[str]) -> None:
    part = forerun.predict(CNN, "epyc-7763-8-threads")
    assert forerun.predict(CNN, "epyc-7763", threads=8).latency_ms == part.latency_ms
    assert cli.run(["predict", CNN, "--device", "epyc-7763", "--threads", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["latency_ms"]["value"] == pytest.approx(part.latency_ms.value)
    for threads, device, why in ((0, "epyc-7763", "from 1 to 64"), (-1, "epyc-7763", "got -1"), (2, "t4", "is a GPU")):
        assert cli.run(["predict", CNN, "--device", device, "--threads", str(threads)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and why in error
    frame = forerun.compare(CNN, ["epyc-7763", "graviton2"], threads=4)
    assert set(frame["device"]) == {"epyc-7763-4-threads", "graviton2-4-threads"}
    with pytest.raises(ForerunError, match="give devices, too"):
        forerun.recommend(CNN, threads=4)
    answer = operations.predict({"model": CNN, "device": "epyc-7763", "threads": 8})
    assert answer["latency_ms"]["value"] == pytest.approx(part.latency_ms.value)
