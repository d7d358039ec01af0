"""Meters: the registry, one from a package outside the repository, NVML by recorded values, and what a CPU answers."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import entry_points
import pytest
import warm

from forerun.data.store import Store
from forerun.errors import ForerunError
from forerun.measure.core import meters, rows
from forerun.measure.core.meters import base, nvml
from forerun.measure.core.meters.cpu import CpuMeter
from forerun.measure.core.meters.cuda import CudaMeter

ROOT = Path(__file__).parents[2]
MODEL = "cnn:depth=2,filters=4,classes=10"
SPEC = """
name: tiny
blocks:
  - variants: [{family: cnn, source: cnn, draw: {depth: [2], filters: [4]}}]
    settings: [{mode: inference, batch: [1, 2], dtype: fp32}, {mode: training, batch: 2, dtype: fp32, amp: bf16}]
"""
OPERATORS = "{name: ops, kind: op, n: 3, only: {add: 1}, max_numbers: 1000, dtypes: [fp32]}"
VENDOR = '''
"""A device whose clock moves 3 ms between two time stamps, at 100 W."""

import time

from forerun.measure.core.meters import Meter


class FakeTimer:
    now_ms = 0.0

    def record(self):
        FakeTimer.now_ms += 3.0
        self.at_ms = FakeTimer.now_ms

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return end.at_ms - self.at_ms


class FakeProfiler:
    marker = "mark"

    def __init__(self):
        self.found = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def mark(self):
        at = len(self.found)
        self.found += [("mark", at, 1)] + [("add_kernel", at + i, 200_000) for i in range(1, 6)]

    def records(self):
        return self.found or [("conv_kernel", 0, 1_000_000), ("Memcpy DtoD", 1, 2_000_000)]


class FakeGraphs:
    def replay(self, call, restore, ask_first):
        call()
        return {"graph_ms": 2.5}


class VendorMeter(Meter):
    kind = "vendor"
    device = "cpu"
    priority = 100

    @classmethod
    def available(cls):
        return True

    def describe(self):
        return {"kind": self.kind, "name": "Vendor One"}

    def versions(self):
        return {**super().versions(), "vendor_driver": "7.1"}

    def timer(self):
        return FakeTimer()

    def memory(self):
        return {"allocated_mb": 5.0, "reserved_mb": 6.0, "used_mb": 7.0}

    def energy_mj(self):
        return int(time.perf_counter() / 0.02) * 0.02 * 100e3

    def profiler(self):
        return FakeProfiler()

    def graphs(self):
        return FakeGraphs()
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a meter, installed next to forerun: its module and its metadata on the path."""
    site = tmp_path / "site"
    metadata = site / "vendor_meter-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "vendor_meter.py").write_text(VENDOR)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor-meter\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[forerun.meters]\nvendor = vendor_meter:VendorMeter\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT / "src")]))
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def forerun(*words: str) -> subprocess.CompletedProcess[str]:
    return warm.run(["-m", "forerun", *words])


def check_answers(row: dict[str, Any]) -> None:
    assert row["device"] == {"kind": "vendor", "name": "Vendor One"}
    assert row["software"]["vendor_driver"] == "7.1"
    assert row["event_ms"] == dict.fromkeys(("mean", "median", "min", "p90", "p99"), 3.0)
    assert row["memory"] == {"allocated_mb": 5.0, "reserved_mb": 6.0, "used_mb": 7.0}
    assert row["power_w"] == pytest.approx(100, rel=0.2)
    assert row["latency_ms"] > 0


def test_a_meter_of_another_package_measures_a_model(installed: Path) -> None:
    done = forerun("measure", MODEL, "--batch", "2", "--device", "vendor", "--json")
    assert done.returncode == 0, done.stderr
    check_answers(json.loads(done.stdout))
    assert json.loads(done.stdout)["graph_ms"] == 2.5
    (stored,) = Store(shipped=False).read("models").to_dict("records")
    assert (stored["device"], stored["event_ms"], stored["memory_mb"]) == ("vendor-one", 3.0, 7.0)


def test_a_meter_of_another_package_runs_a_sweep_and_is_chosen_by_its_priority(installed: Path) -> None:
    models, operators, out = installed / "tiny.yaml", installed / "ops.yaml", installed / "rows.jsonl"
    models.write_text(SPEC)
    operators.write_text(OPERATORS)
    done = forerun("sweep", str(models), str(operators), "--out", str(out), "--time-budget", "900s", "--json")
    assert done.returncode == 0, done.stderr
    result = rows.merge(rows.read(out))
    assert {row["status"] for row in result} == {"ok"}, result
    timed = [row for row in result if row["kind"] == "model"]
    assert len(timed) >= 3
    for row in timed:
        check_answers(row)
        assert (row["kernel_ms"], row["kernels"], row["copies"]) == (1.5, 0.5, 0.5)  # two calls were profiled
        assert row["kernel_classes"]["conv"] == [0.5, 0.5]
        trained = row["case"]["mode"] == "training"
        assert row["graph_ms"] == (None if trained else 2.5)
    single = [row for row in result if row["kind"] == "op"]
    assert len(single) >= 3
    for row in single:
        assert (row["method"], row["device_ms"], row["kernel_names"]) == ("profiler", 0.2, ["add_kernel"])
    assert [row["device"]["kind"] for row in rows.read(out) if row["kind"] == "session"] == ["vendor"] * 3


def test_a_wrong_name_is_one_sentence(installed: Path) -> None:
    (installed / "tiny.yaml").write_text(SPEC)
    core = ["-m", "forerun.measure.core", "--spec", str(installed / "tiny.yaml"), "--out"]
    core += [str(installed / "rows.jsonl"), "--device", "vendr"]
    for done in (
        forerun("measure", MODEL, "--device", "vendr"),
        forerun("sweep", str(installed / "tiny.yaml"), "--device", "vendr"),
        warm.run(core),
    ):
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "no meter is called 'vendr'; known: auto, cuda, cpu, vendor. Did you mean vendor?" in done.stderr


@pytest.fixture
def points() -> Iterator[Any]:
    """Sets the entry points that other packages register."""
    with ExitStack() as stack:

        def register(**values: str) -> None:
            stack.close()
            results = [EntryPoint(name, value, "forerun.meters") for name, value in values.items()]
            stack.enter_context(entry_points.installed(meters.METERS, *results, alone=True))

        yield register


def test_built_in_meters_are_found_without_installed_metadata(points: Any) -> None:
    points()
    assert meters.METERS.names() == ["cuda", "cpu"]
    assert meters.METERS.kind("cuda") is CudaMeter
    assert isinstance(meters.meter_for("cpu"), CpuMeter)


def test_the_packaging_registers_the_built_in_meters() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["forerun.meters"] == meters.METERS.built_in


def test_mistakes_of_a_package_are_named(points: Any) -> None:
    points(cpu="other_package:Meter")
    with pytest.raises(ForerunError, match=r"two meters are called cpu: .*CpuMeter and other_package:Meter"):
        meters.meter_for("cpu")
    points(broken="no_such_package:Meter")
    with pytest.raises(ForerunError, match=r"the meter broken \(no_such_package:Meter\) cannot be loaded"):
        meters.meter_for("auto")


def test_a_device_that_is_not_here_is_refused(points: Any) -> None:
    points(absent="forerun.measure.core.meters.base:Meter")
    with pytest.raises(ForerunError, match="the meter absent finds no device on this machine"):
        meters.meter_for("absent")
    assert meters.meter_for("auto").kind != "absent"


def test_a_device_type_without_a_meter_has_no_packed_weights() -> None:
    import torch

    from forerun.measure.core import quantised

    assert meters.class_of_device("cpu") is CpuMeter
    assert meters.class_of_device("xpu") is base.Meter
    with pytest.raises(ValueError, match="no kernel for int4 weights is known on meta"):
        quantised.matmul(torch.empty(2, 128, device="meta"), 64, "int4")


def test_what_a_meter_cannot_read_is_none_with_a_reason() -> None:
    meter = base.Meter()
    assert [meter.timer(), meter.profiler(), meter.graphs(), meter.energy_mj(), meter.allocated_mb()] == [None] * 5
    assert set(meter.memory().values()) == {None}
    assert all([meter.why_no_energy, meter.why_no_kernels, meter.why_no_graph])
    assert not meter.is_broken_by(RuntimeError("CUDA error: unspecified launch failure"))
    with meter.tf32(True):
        pass


def test_the_meter_of_the_documentation_overrides_only_what_a_meter_has() -> None:
    text = (ROOT / "docs" / "MEASURE.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.S)
    names: dict[str, Any] = {}
    exec(compile(block, "MEASURE.md", "exec"), names)
    meter = names["XpuMeter"]
    assert issubclass(meter, base.Meter)
    defined = {name for name in vars(meter) if not name.startswith("__")}
    assert {"kind", "device", "priority", "available", "describe", "sync", "memory"} <= defined <= set(dir(base.Meter))
    described = set(re.findall(r"`(\w+)`", text.partition("| method or attribute")[2].partition("`CudaMeter`")[0]))
    offered = {name for name in vars(base.Meter) if not name.startswith("_")}
    assert offered <= described


def test_the_cpu_reads_its_resident_memory() -> None:
    import torch

    meter = meters.meter_for("cpu")
    before = meter.allocated_mb()
    held = torch.ones(32 * 2**20 // 4)  # 32 MB
    after, peak = meter.allocated_mb(), meter.memory()["used_mb"]
    assert before is not None and after is not None and peak is not None
    assert after - before == pytest.approx(32, abs=6)
    assert peak >= after - 1
    assert held.numel() == 8 * 2**20
    assert (meter.energy_mj() is None) == meter.why_no_energy.startswith("RAPL is not readable")


class RecordedNvml:
    """NVML's C functions, answering in their own units; `missing` ones are not in the driver.

    Power, temperature, memory and driver are those of the H200 of the shipped rows.
    """

    NUMBERS: ClassVar = {
        "nvmlDeviceGetTotalEnergyConsumption": 2_771_043_518, "nvmlDeviceGetPowerUsage": 704_807,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000, "nvmlDeviceGetTemperature": 61,
    }  # fmt: skip
    CLOCKS: ClassVar = {nvml.SM_CLOCK: 1980, nvml.MEMORY_CLOCK: 3201}

    def __init__(self, missing: tuple[str, ...] = ()) -> None:
        self.missing = missing
        self.asked: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name in self.missing:
            raise AttributeError(name)
        return lambda *arguments: self.answer(name, *arguments)

    def answer(self, name: str, *arguments: Any) -> int:
        if name.startswith("nvmlDeviceGetHandle"):
            self.asked.append((name, arguments[0]))
        elif name == "nvmlDeviceGetMemoryInfo":
            arguments[1]._obj.used = 1438 * 2**20
        elif name == "nvmlSystemGetDriverVersion":
            arguments[0].value = b"580.159.04"
        elif name == "nvmlDeviceGetClockInfo":
            arguments[2]._obj.value = self.CLOCKS[arguments[1].value]
        elif name in self.NUMBERS:
            arguments[-1]._obj.value = self.NUMBERS[name]
        return 0


def test_nvml_gives_numbers_in_the_units_of_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    library = RecordedNvml()
    monkeypatch.setattr(nvml, "_load", lambda: (library, "recorded"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-1f")
    meter = CudaMeter()
    assert meter.nvml is not None
    assert library.asked == [("nvmlDeviceGetHandleByIndex_v2", 3)]
    assert meter.energy_mj() == 2_771_043_518
    assert meter.used_before_mb == 1438
    assert meter.state() == {
        "sm_clock_mhz": 1980, "memory_clock_mhz": 3201, "temperature_c": 61, "power_now_w": 704.807
    }  # fmt: skip
    assert (meter.nvml.power_limit_w(), meter.nvml.driver()) == (700.0, "580.159.04")
    nvml.Nvml(1)
    assert library.asked[-1] == ("nvmlDeviceGetHandleByUUID", b"GPU-1f")


def test_an_old_driver_leaves_out_energy_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    library = RecordedNvml(missing=("nvmlDeviceGetTotalEnergyConsumption",))
    monkeypatch.setattr(nvml, "_load", lambda: (library, "recorded"))
    meter = CudaMeter()
    assert meter.energy_mj() is None
    assert meter.why_no_energy == "NVML gives no total-energy counter for this GPU"
    assert meter.state()["power_now_w"] == 704.807

    def absent() -> Any:
        raise OSError("libnvidia-ml.so.1 is not on this machine")

    monkeypatch.setattr(nvml, "_load", absent)
    without = CudaMeter()
    assert (without.energy_mj(), without.state()) == (None, {})
    assert without.why_no_energy == "libnvidia-ml.so.1 is not on this machine"


def test_which_errors_break_the_process() -> None:
    meter = CudaMeter()
    assert meter.is_broken_by(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert not meter.is_broken_by(RuntimeError("CUDA error: out of memory"))
    assert not meter.is_broken_by(ValueError("shapes do not match"))


def test_tf32_goes_back_to_pytorch_s_default() -> None:
    import torch

    meter = CudaMeter()
    for on in (True, False):
        with meter.tf32(on):
            assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is on
    assert torch.backends.cuda.matmul.allow_tf32 is False
    assert torch.backends.cudnn.allow_tf32 is True
