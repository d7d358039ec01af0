"""`forerun measure machine`: the arithmetic on a device of known speed, the kept file, the table, the device file."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import entry_points
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from forerun import cli, load_device, predict
from forerun.device.mig import slice_device
from forerun.measure.core import meters
from forerun.measure.core.ceilings import bandwidth
from forerun.measure.core.ceilings.effort import Effort

MODEL = "cnn:depth=2,filters=4,classes=10"
#: What the paper device reaches: TFLOP/s by dtype of its inputs, GB/s by how much is touched, and a kernel's own time.
RATES = {
    torch.float32: 50.0,
    torch.float16: 500.0,
    torch.bfloat16: 450.0,
    torch.int8: 900.0,
    torch.float8_e4m3fn: 900.0,
}
TF32, BEST, CACHE_MB, CACHE_GBS, MEMORY_GBS, KERNEL_US = 250.0, 8192, 32, 6000.0, 4000.0, 2.0
THROTTLED, BURST_MS, POWER_W = 0.8, 30.0, 100.0
NO_GRAPHS = "a CPU has no graph capture"
Words = Callable[..., tuple[int, str, str]]


class PaperTime(TorchDispatchMode):
    """Runs nothing, and adds up what the operators would take on the paper device."""

    ms, tf32 = 0.0, False

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = op.__name__.split(".")[0]
        if name in ("mm", "_int_mm", "_scaled_mm"):
            (m, k), n = args[0].shape, args[1].shape[1]
            if args[0].dtype == torch.float64:
                raise RuntimeError("no units for fp64\nand a second line")
            rate = TF32 if self.tf32 else RATES[args[0].dtype]
            PaperTime.ms += 2 * m * n * k / (rate if m == n == k == BEST else rate / 2) / 1e9
        elif name in ("copy_", "mul", "sum", "add_", "add"):
            touched = 4 * args[0].numel() * (1 if name == "sum" else 2)
            rate = CACHE_GBS if touched <= CACHE_MB * 2**20 else MEMORY_GBS
            PaperTime.ms += KERNEL_US / 1e3 + touched / rate / 1e6
        elif name in ("ones", "rand", "randn", "randint", "_to_copy"):
            size = next(a for a in args if isinstance(a, (list, torch.Tensor)))
            shape = size.shape if isinstance(size, torch.Tensor) else size
            return torch.empty(shape, dtype=(kwargs or {}).get("dtype"), device="meta")
        else:
            return op(*args, **(kwargs or {}))
        return args[0]


class PaperGpu(meters.Meter):
    """A device of which everything is known: its tensors have shapes and no memory, its time is computed."""

    kind = "paper"
    device = "meta"
    priority = 100
    prefers_half = True
    name = "Paper One"

    @classmethod
    def available(cls) -> bool:
        return True

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "sms": 100, "capability": "9.0", "power_limit_w": 300.0}

    def total_mb(self) -> float:
        return 80 * 1024.0

    def why_no_matmul(self, dtype: str) -> str | None:
        return None

    @contextmanager
    def tf32(self, on: bool) -> Iterator[None]:
        PaperTime.tf32 = on
        yield
        PaperTime.tf32 = False

    def loop_ms(self, call: Callable[[], Any], times: int) -> float:
        before = PaperTime.ms
        call()
        whole = times * (PaperTime.ms - before)
        return whole if whole < BURST_MS else whole / THROTTLED

    def graphs(self) -> Any:
        return self

    def replay(self, call: Callable[[], Any], restore: Any, ask_first: bool) -> dict[str, Any]:
        return {"graph_ms": self.loop_ms(call, 1)}

    def energy_mj(self) -> float:
        return int(time.perf_counter() / 0.005) * 0.005 * 1e3 * POWER_W


class PaperH200(PaperGpu):
    """The same under a name that the catalogue has."""

    name = "NVIDIA H200"


@contextmanager
def machine_with(meter: str, folder: Path) -> Iterator[None]:
    """A machine that has this device, and a store of its own; how busy it is cuts no measuring short."""
    result = [EntryPoint("paper", f"test_machine:{meter}", "forerun.meters")]
    with pytest.MonkeyPatch.context() as patch, entry_points.installed(meters.METERS, *result, alone=True):
        patch.setattr(Effort, "left_s", 1.0)
        patch.setenv("FORERUN_STORE", str(folder))
        patch.setenv("COLUMNS", "160")
        yield


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Words:
    """Runs a command in this process: exit code, output, errors."""

    def words(*given: str) -> tuple[int, str, str]:
        code = cli.run(list(given))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return words


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was measured of the paper device, as it is kept."""
    folder = tmp_path_factory.mktemp("store")
    with machine_with("PaperGpu", folder), PaperTime():
        assert cli.run(["measure", "machine", "--budget", "5s"]) == 0
    (stored,) = (folder / "ceilings").iterdir()
    assert stored.name == "paper-one.json"
    result: dict[str, Any] = json.loads(stored.read_text())
    return result


@pytest.fixture
def paper(tmp_path: Path, record: dict[str, Any]) -> Iterator[Path]:
    """The file of ceilings of the paper device, on a machine that has none saved."""
    with machine_with("PaperGpu", tmp_path / "store"):
        (tmp_path / "paper.json").write_text(json.dumps(record))
        yield tmp_path / "paper.json"


@pytest.fixture
def h200(tmp_path: Path, record: dict[str, Any]) -> Iterator[Path]:
    """The same file under the name of a catalogued device."""
    with machine_with("PaperH200", tmp_path / "store"):
        (tmp_path / "h200.json").write_text(json.dumps({**record, "device": PaperH200().describe()}))
        yield tmp_path / "h200.json"


@pytest.mark.parametrize(
    ("dtype", "rate"), [("fp32", 50), ("tf32", TF32), ("fp16", 500), ("bf16", 450), ("fp8", 900), ("int8", 900)]
)
def test_peaks_are_the_rates_of_the_best_shape_in_a_burst_and_for_long(
    record: dict[str, Any], dtype: str, rate: float
) -> None:
    result = record["peaks"][dtype]
    fits = 2 * BEST**3 / rate / 1e12 < 0.25 * 5 / 90  # a longer matmul is not tried in such a short run
    assert result["burst_tflops"] == pytest.approx(rate if fits else rate / 2)
    assert result["tflops"] == pytest.approx(result["burst_tflops"] * THROTTLED)
    assert (result["burst_shape"] == [BEST] * 3) == fits and result["shape"] in [
        one["shape"] for one in result["tried"]
    ]


def test_a_dtype_that_the_device_cannot_do_is_left_out_with_its_reason(record: dict[str, Any]) -> None:
    assert record["peaks"]["fp64"] == {"reason": "no units for fp64"}


def test_memory_and_cache_are_read_off_the_curve(record: dict[str, Any]) -> None:
    band = record["bandwidth"]
    assert band["memory_gbs"] == pytest.approx(MEMORY_GBS, rel=0.01) and band["largest_mb"] == 4096
    assert band["cache_gbs"] == pytest.approx(CACHE_GBS, rel=0.01) and band["cache_mb"] == CACHE_MB
    sizes = [point["touched_mb"] for point in band["curve"] if point["kernel"] == "read"]
    assert sizes == [0.25 * 2**n for n in range(15)]
    small = next(point for point in band["curve"] if point["kernel"] == "copy" and point["touched_mb"] == 32)
    assert small["us"] == pytest.approx(KERNEL_US + 2**25 / CACHE_GBS / 1e3)
    assert small["gbs"] < 0.75 * CACHE_GBS and small["net_gbs"] == pytest.approx(CACHE_GBS, rel=0.001)
    assert band["curve"][0]["net_gbs"] is None  # 256 kB take less than the kernel itself


def test_launches_and_power(record: dict[str, Any]) -> None:
    launch = record["launch"]
    assert launch["kernel_us"] == pytest.approx(KERNEL_US, rel=0.01)
    assert launch["launch_us"] > 0 and launch["synchronised_us"] > 0
    assert record["power"]["idle"]["power_w"] == pytest.approx(POWER_W, rel=0.2)


def test_a_curve_without_a_step_shows_no_cache() -> None:
    results = bandwidth.ceilings([bandwidth.point("copy", 2**n, 2**n / 1e8, 0.0) for n in range(18, 30)])
    assert results["memory_gbs"] == pytest.approx(100) and results["cache_gbs"] is None
    assert "no buffer was faster" in results["cache_reason"]


def test_the_memory_is_the_end_of_the_curve_and_not_its_best_point() -> None:
    rates = [100.0, 400.0, 390.0, 120.0, 90.0, 101.0, 99.0]
    points = [bandwidth.point("copy", 2 ** (20 + n), 2 ** (20 + n) / r / 1e6, 0.0) for n, r in enumerate(rates)]
    result = bandwidth.ceilings(points)
    assert result["memory_gbs"] == pytest.approx(99) and result["cache_gbs"] == pytest.approx(400)
    assert (result["cache_mb"], result["cache_best_mb"]) == (4.0, 2.0)


def test_the_table_shows_datasheet_measured_and_share(h200: Path, run: Words) -> None:
    code, out, _ = run("measure", "machine", "--from", str(h200))
    assert code == 0 and out.startswith("NVIDIA H200 SXM 141GB (h200)")
    rows = {" ".join(line.split()[:2]): line.split()[2:] for line in out.splitlines()}
    assert rows["fp16 TFLOP/s"] == ["989", "500", "51%", "400", "8192", "x", "8192", "x", "8192"]
    assert rows["memory GB/s"][:3] == ["4,800", "3,985", "83%"]  # with the kernel's own time
    assert rows["cache MB,"] == ["at", "least", "50", "32"]
    assert "Omitted: fp64: no units for fp64" in out
    assert f"Saved in {h200.parent / 'store' / 'ceilings' / 'h200.json'}" in out


def test_measured_on_this_machine_through_the_command(h200: Path, run: Words) -> None:
    with PaperTime():
        code, out, err = run("measure", "machine", "--budget", "2s", "--json", "--no-keep")
    result = json.loads(out)
    assert code == 0 and err == "" and result["device_id"] == "h200" and result["saved"] is None
    assert result["calibrated"]["measured_bandwidth_gbs"] == pytest.approx(MEMORY_GBS, rel=0.01)
    assert not (h200.parent / "store").exists()


def test_what_the_user_measured_is_shown_with_its_date_and_moves_no_prediction(h200: Path, run: Words) -> None:
    before, shown = predict(MODEL, "h200").to_dict(), json.loads(run("devices", "h200", "--json")[1])
    assert shown["measured_here"] is None
    assert run("measure", "machine", "--from", str(h200))[0] == 0
    code, out, _ = run("devices", "h200")
    assert code == 0 and "Ceilings, measured on this machine 0 minutes ago (20" in out
    assert "fp16 TFLOP/s                 989       500    51%        400" in out
    assert "Ceilings of h200: measured on this machine" in run("devices")[1]
    here = json.loads(run("devices", "NVIDIA H200", "--json")[1])["measured_here"]
    assert here["values"]["sustained_fp16_tflops"] == 400 and here["measured_at"].startswith("20")
    assert predict(MODEL, "h200").to_dict() == before


def test_a_device_that_the_catalogue_lacks_becomes_a_file_that_predict_takes(paper: Path, run: Words) -> None:
    made = paper.parent / "my_gpu.yaml"
    code, out, _ = run("measure", "machine", "--from", str(paper), "--as-device", str(made))
    assert code == 0 and "Paper One, which the catalogue lacks" in out and f"Device file: {made}" in out
    device = load_device(made)
    assert (device.id, device.name, device.compute_capability) == ("paper-one", "Paper One", 9.0)
    assert device.peak_tflops["fp16"] == 500 and device.peak_tflops["int8"] == 900 and "fp64" not in device.peak_tflops
    assert (device.memory_gb, device.tdp_w, device.l2_cache_mb) == (80, 300, CACHE_MB)
    assert device.bandwidth_gbs == pytest.approx(MEMORY_GBS, rel=0.01)
    assert device.calibrated["sustained_fp16_tflops"] == 400
    assert "measured by forerun on Paper One (torch" in device.provenance["fp16_tflops"]
    code, out, _ = run("predict", MODEL, "--device", str(made), "--json")
    assert code == 0 and json.loads(out)["device"] == "paper-one"


def test_the_yaml_of_a_catalogued_device_gives_the_catalogue_s_predictions(h200: Path, run: Words) -> None:
    code, out, _ = run("measure", "machine", "--from", str(h200), "--yaml")
    assert code == 0 and "      measured_fp16_tflops: {value: 500.0, source: measured-h200}\n" in out
    own = h200.parent / "own.yaml"
    own.write_text(out)
    assert load_device(own).ceilings["measured_fp16_tflops"] == 500
    assert load_device(own).calibrated["context_mb"] == load_device("h200").calibrated["context_mb"]
    assert predict(MODEL, own).to_dict() == predict(MODEL, "h200").to_dict()


def test_ceilings_of_a_whole_device_are_not_those_of_its_slices_or_relatives() -> None:
    full = load_device("h200")
    full = dataclasses.replace(full, calibrated={**full.calibrated, "measured_fp16_tflops": 700.0})
    cut = slice_device(full, "1g.18gb")
    assert not cut.ceilings and cut.calibrated["context_mb"] == full.calibrated["context_mb"]
    assert not load_device({"id": "mine", "base": "h200"}).ceilings


def test_the_catalogue_has_the_ceilings_of_the_h200(run: Words, tmp_path: Path) -> None:
    device = load_device("h200")
    result = device.ceilings
    assert device.bandwidth_gbs is not None and 0.8 < result["measured_bandwidth_gbs"] / device.bandwidth_gbs < 1
    for dtype in ("fp32", "tf32", "fp16", "bf16", "fp8"):
        reached, held = result[f"measured_{dtype}_tflops"], result[f"sustained_{dtype}_tflops"]
        assert held <= reached and 0.5 < reached / device.peak_tflops[dtype] < 1
    with machine_with("PaperH200", tmp_path):
        out = run("devices", "h200")[1]
    assert (
        "Ceilings, measured by forerun on NVIDIA H200 (torch 2.11.0+cu130, CUDA 13.0, driver 580.159.04), 2026" in out
    )
    assert "fp16 TFLOP/s                 989       760    77%        646" in out and "measured_fp16" not in out
    assert "fp64: the datasheet's peak may be that of units other than tensor cores" in out


def refused(answer: tuple[int, str, str]) -> str:
    code, out, err = answer
    assert code == 2 and out == "" and err.count("\n") == 1, answer
    return err


def test_files_are_not_overwritten_and_options_belong_to_machine(paper: Path, run: Words) -> None:
    for name, why in (("paper.json", "a device file ends in .yaml"), ("no/a.yaml", "there is no folder")):
        assert why in refused(run("measure", "machine", "--from", str(paper), "--as-device", str(paper.parent / name)))
    there = paper.parent / "there.yaml"
    there.write_text("mine")
    words = ("measure", "machine", "--from", str(paper), "--as-device", str(there))
    assert "exists already" in refused(run(*words)) and there.read_text() == "mine"
    assert "--yaml belongs to forerun measure machine" in refused(run("measure", MODEL, "--yaml"))
    assert "--from belongs" in refused(run("measure", "host", "--from", str(paper)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("{", "is not valid JSON"),
        ("[]", "contains no ceilings"),
        ({"ceilings": 99}, "contains no ceilings of a device, or those of another version"),
        ({"measured_at": "yesterday"}, "is damaged"),
        ({"device": {"name": 3}}, "is damaged"),
        ({"peaks": []}, "contains no ceilings"),
    ],
)
def test_a_broken_file_is_one_sentence(h200: Path, run: Words, record: dict[str, Any], change: Any, why: str) -> None:
    broken = h200.parent / "store" / "ceilings" / "h200.json"
    broken.parent.mkdir(parents=True)
    content = {**record, "device": PaperH200().describe()}
    broken.write_text(change if isinstance(change, str) else json.dumps({**content, **change}))
    assert why in refused(run("measure", "machine", "--from", str(broken)))
    code, out, _ = run("devices", "h200")
    notes = [line for line in out.splitlines() if line.startswith("Note: the saved ceilings cannot be used")]
    assert code == 0 and len(notes) == 1 and "run forerun measure machine" in out and "bandwidth_gbs" in out
    assert why in json.loads(run("devices", "h200", "--json")[1])["measured_here"]["reason"]


@pytest.mark.parametrize("part", ["bandwidth", "launch", "power", "peaks", "software", "host"])
def test_a_record_with_a_part_of_another_shape_shows_the_rest(
    h200: Path, run: Words, record: dict[str, Any], part: str
) -> None:
    wrong: Any = {"fp16": 7, "fp32": {"burst_tflops": "fast", "burst_shape": 4}} if part == "peaks" else ["odd"]
    h200.write_text(json.dumps({**record, "device": PaperH200().describe(), part: wrong}))
    code, out, _ = run("measure", "machine", "--from", str(h200))
    assert (
        code == 0 and ("memory GB/s" in out) == (part != "bandwidth") and ("fp16 TFLOP/s" in out) == (part != "peaks")
    )


def test_the_core_measures_a_cpu_where_only_pytorch_is_installed(tmp_path: Path) -> None:
    script = """
import runpy, sys
try:
    runpy.run_module("forerun.measure.core.ceilings", run_name="__main__")
except SystemExit as end:
    assert not end.code
heavy = {"pandas", "yaml", "rich", "typer", "forerun.device", "forerun.data", "timm", "transformers"}
print("imported:", heavy & set(sys.modules))
"""
    out = tmp_path / "cpu.json"
    words = [sys.executable, "-c", script, "--out", str(out), "--budget", "1", "--device", "cpu"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.endswith("imported: set()\n"), done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["cpu.json"]
    assert result["device"]["kind"] == "cpu" and result["memory_mb"] > 100
    assert all(part.get("burst_tflops", 0) > 0 or part["reason"] for part in result["peaks"].values())
    assert result["peaks"]["tf32"]["reason"]
    assert result["bandwidth"]["memory_gbs"] > 0 and result["bandwidth"]["how"].startswith("many calls")
    launch = result["launch"]
    assert launch["launch_us"] > 0 and (launch["kernel_us"], launch["kernel_reason"]) == (None, NO_GRAPHS)
    assert result["power"]["idle"]["power_w"] or result["power"]["idle"]["energy_reason"]


def test_what_there_is_no_time_for_is_left_out_with_that_reason(tmp_path: Path, run: Words) -> None:
    code, out, _ = run("measure", "machine", "--budget", "0.000001s", "--device", "cpu", "--no-keep", "--json")
    result = json.loads(out)
    assert code == 0 and result["calibrated"] == {}
    assert all(part == {"reason": "no time left within 1e-06 s"} for part in result["peaks"].values())
