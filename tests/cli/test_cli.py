"""The command line as a user meets it: a real process, its output, its exit code."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import forerun
from forerun.device import device_ids

Run = Callable[..., subprocess.CompletedProcess[str]]

CHIP = """
name: My chip
kind: gpu
fp32_tflops: 30
fp16_tflops: 120
memory_gb: 24
bandwidth_gbs: 900
tdp_w: 250
"""


def test_predict_prints_a_table(start_forerun: Run) -> None:
    done = start_forerun("predict", "resnet18", "--device", "a100", "--batch", "8")
    assert done.returncode == 0, done.stderr
    for word in (
        "Latency",
        "Throughput",
        "Memory needed",
        "Energy",
        "Carbon",
        "Cost",
        "MIG",
        "Basis: learned",
        "90 %",
    ):
        assert word in done.stdout


def test_predict_json_with_a_chip_of_ones_own(run_forerun: Run, tmp_path: Path) -> None:
    (tmp_path / "my_chip.yaml").write_text(CHIP)
    done = run_forerun("predict", "cnn:depth=4,filters=8", "--device", "my_chip.yaml", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["latency_ms"]["low"] <= answer["latency_ms"]["value"] <= answer["latency_ms"]["high"]
    assert answer["basis"] == "learned"


def test_compare_explain_devices_models_doctor(run_forerun: Run) -> None:
    done = run_forerun("compare", "resnet18", "--devices", "t4,l4,h100-sxm", "--batch", "32", "--json")
    assert [r["device"] for r in json.loads(done.stdout)] == ["h100-sxm", "l4", "t4"]
    done = run_forerun("explain", "resnet18", "--device", "h200", "--batch", "64")
    assert "convolution" in done.stdout and "bound by" in done.stdout and "By kernel class" in done.stdout
    assert {line.split()[0] for line in run_forerun("devices").stdout.splitlines()[1:]} == set(device_ids())
    shown = run_forerun("devices", "NVIDIA H200").stdout.splitlines()
    (bandwidth,) = [line.split() for line in shown if line.startswith("bandwidth_gbs")]
    assert bandwidth[1] == "4,800" and bandwidth[-1].startswith("2026-")
    (half,) = [line.split() for line in shown if line.startswith("half_gflops_per_watt")]
    assert half[1:3] == ["(hopper)", "1,170"]
    assert "8,030,261,248" in run_forerun("models", "meta-llama/Llama-3.1-8B").stdout
    result = json.loads(run_forerun("models", "swin_tiny", "--json").stdout)
    assert "swin_tiny_patch4_window7_224" in result["vision"]


def test_doctor_reports_versions_device_store_and_weights(run_forerun: Run, tmp_path: Path) -> None:
    health = json.loads(run_forerun("doctor", "--json", FORERUN_STORE=str(tmp_path / "mine")).stdout)
    assert health["forerun"] == forerun.__version__ and health["python"] == platform.python_version()
    versions = {p["name"]: p["installed"] for p in health["packages"]}
    assert versions["torch"] == importlib.metadata.version("torch") and {"keras", "paddle"} <= set(versions)
    missing = [p for p in health["packages"] if p["installed"] is None]
    assert all(p["add"].startswith(("pip install ", "forerun install ")) for p in missing)
    assert health["device"]["kind"] in ("cpu", "cuda") and health["device"]["host"]["cores"] == os.cpu_count()
    assert health["store"]["folder"] == str(tmp_path / "mine") and health["store"]["writable"]
    assert health["store"]["rows"]["forerun-h200/models"] > 5000  # the rows that come with the package
    assert health["weights"]["predictor"] == "default" and health["weights"]["fitted"] >= "2026-11-15"
    shown = run_forerun("doctor").stdout
    for line in (f"forerun {forerun.__version__}, Python", "Device: ", "Store: ", "Weights: default, fitted on 20"):
        assert line in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["predict", "resnet51", "-d", "h200"], "Did you mean"),
        (["predict", "bert-base-uncasd", "-d", "h200"], "Did you mean bert-base-uncased"),
        (["predict", "someone/some-model", "-d", "h200"], "the Hugging Face hub did not provide it"),
        (["predict", "resnet18", "-d", "h20000"], "unknown device 'h20000'"),
        (["predict", "resnet18", "-d", "h200", "--batch", "-1"], "batch must be"),
        (["predict", "resnet18", "-d", "t4", "--dtype", "bf16"], "no bf16 units"),
        (["predict", "gpt2", "-d", "h200", "--seq-len", "4096"], "at most 1,024 tokens"),
        (["predict", "missing.onnx", "-d", "h200"], "no file missing.onnx"),
        (["predict", "broken.onnx", "-d", "h200"], "broken.onnx is not a complete ONNX file"),
        (["predict", "weights.pt", "-d", "h200"], "which forerun does not execute"),
        (["predict", "resnet18", "-d", "bad.yaml"], "memory_gb must be a positive number"),
        (["predict", "config.json", "-d", "h200"], "has no model_type"),
        (["predict", "cnn:depth=0,filters=8", "-d", "h200"], "must be a whole number from 1 to"),
        (["predict", "resnet18", "-d", "h200", "--input-shape", "3;224"], "is not a list of sizes such as 3,224,224"),
        (["install", "caffe"], "choose from keras, paddle"),
    ],
    ids=lambda v: "-".join(v[1:4]) if isinstance(v, list) else "",
)
def test_a_mistake_is_one_line_and_exit_code_2(
    run_forerun: Run, start_forerun: Run, tmp_path: Path, words: list[str], message: str
) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x07this is not a model")
    (tmp_path / "bad.yaml").write_text(CHIP.replace("memory_gb: 24", "memory_gb: 24 GB"))
    (tmp_path / "config.json").write_text("{}")
    before = {p: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    # What the hub might know is asked without it, which its client reads when it is imported.
    done = start_forerun(*words, HF_HUB_OFFLINE="1") if words[1].startswith("someone/") else run_forerun(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    # On a slow machine a line that explains the wait comes before it.
    (mistake,) = [line for line in done.stderr.splitlines() if not line.endswith(" …")]
    assert message in mistake, done.stderr
    assert done.stdout == ""
    assert {p: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before


def test_import_is_light() -> None:
    code = "import sys, forerun; print([m for m in ('torch', 'numpy', 'rich', 'yaml', 'pandas') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_a_known_model_needs_no_torch_the_second_time(run_forerun: Run) -> None:
    first = run_forerun("predict", "resnet18", "-d", "l4", "--json")
    code = (
        "import sys; from forerun.cli import main\n"
        "sys.argv = ['forerun', 'predict', 'resnet18', '-d', 'l4', '--json']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert again.stdout == first.stdout and again.stderr.split()[-1] == "False"


def test_a_typing_mistake_in_an_option_is_exit_code_2(start_forerun: Run) -> None:
    done = start_forerun("predict", "resnet18", "--divice", "t4")
    assert done.returncode == 2 and "No such option: --divice" in done.stderr and "Traceback" not in done.stderr


def test_completion_knows_devices() -> None:
    script = Path(sys.executable).parent / "forerun"
    words = {
        "_FORERUN_COMPLETE": "complete_bash",
        "COMP_WORDS": "forerun predict resnet50 --device h10",
        "COMP_CWORD": "4",
    }
    done = subprocess.run([script], env={**os.environ, **words}, capture_output=True, text=True)
    assert done.stdout.split() == ["h100-nvl", "h100-pcie", "h100-sxm"]


def test_measure_on_this_machine(run_forerun: Run) -> None:
    done = run_forerun("measure", "cnn:depth=2,filters=4", "--batch", "4", "--json")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert 0 < row["wall_ms"]["min"] <= row["latency_ms"] <= row["wall_ms"]["p99"]
    assert row["device"]["name"] and row["software"]["torch"] and row["protocol"] >= 2
    done = run_forerun("measure", "t5-small")
    assert done.returncode == 2 and "seq2seq" in done.stderr
