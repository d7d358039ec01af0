"""Devices: the catalogue is consistent, names match exactly, a user's YAML works or its errors are reported."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forerun.device import aliases, all_devices, device_ids, load_device
from forerun.device.fields import DATASHEET, DTYPES, PEAKS, QUANTITIES, number_problem
from forerun.device.kinds import BUILT_IN
from forerun.device.loading import _shipped
from forerun.device.mig import profiles, slice_device
from forerun.device.reading import CATALOG, key
from forerun.errors import ForerunError

PROMISED = """
v100-16gb v100-32gb v100-pcie-16gb p4 p40 p100-sxm2-16gb k80 t4 a10 a10g a30 a40 a100-pcie-40gb a100-pcie-80gb
a100-sxm4-40gb a100-sxm4-80gb l4 l40 l40s h100-pcie h100-sxm h100-nvl h20 h200 b200 gb200 b300 gb300 rtx3090 rtx3090ti
rtx4090 rtx5090 gtx1080ti rtx2080ti rtx-a6000 rtx-6000-ada rtx-pro-6000-server rtx-pro-6000-max-q mi100 mi210 mi250x
mi300a mi300x mi325x mi350x mi355x tpu-v2 tpu-v3 tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7 inferentia1 inferentia2
trainium1 trainium2 trainium3 gaudi1 gaudi2 gaudi3 apple-m1 apple-m1-max apple-m4-max xeon-8480 epyc-9654 graviton2
gtx1080 rtx2080 rtx3060 rtx3070 rtx3080 rtx4060 rtx4070 rtx4080 rtx5070 rtx5080 jetson-agx-orin-64gb
"""

GOOD = {
    "name": "My chip", "kind": "gpu", "fp32_tflops": 30, "fp16_tflops": 120, "memory_gb": 24, "bandwidth_gbs": 900,
    "tdp_w": 250,
}  # fmt: skip


# --- the catalogue -------------------------------------------------------------------------------------------------


def test_promised_devices_are_there() -> None:
    assert set(PROMISED.split()) <= set(device_ids())
    assert {d.kind for d in all_devices()} == set(BUILT_IN)


def test_every_name_leads_to_one_device() -> None:
    """Loading fails on a name used twice; ids and aliases load what they name, however they are written."""
    assert not set(aliases()) & set(device_ids())
    for name, device_id in aliases().items():
        assert load_device(name).id == device_id
    for device in all_devices():
        assert load_device(device.id) is device
        assert load_device(device.name) is device


@pytest.mark.parametrize(
    ("name", "device_id"),
    [
        ("a100", "a100-sxm4-40gb"), ("h100", "h100-sxm"), ("v100", "v100-16gb"), ("NVIDIA H200", "h200"),
        ("A100-SXM4-40GB", "a100-sxm4-40gb"), ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"), ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"), ("nvidia geforce rtx 4090", "rtx4090"), ("RTX_4090", "rtx4090"),
        ("GeForce GTX 1080 Ti", "gtx1080ti"), ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"), (" H200 ", "h200"),
    ],
)  # fmt: skip
def test_names_that_tools_print(name: str, device_id: str) -> None:
    assert load_device(name).id == device_id


@pytest.mark.parametrize(
    "name", ["h10", "rtx", "laptop rtx4090", "NVIDIA GeForce RTX 4090 Laptop GPU", "h100x", "100", "", "../h100"]
)
def test_a_near_miss_is_never_a_match(name: str) -> None:
    with pytest.raises(ForerunError):
        load_device(name)


def test_a_near_miss_gets_suggestions() -> None:
    with pytest.raises(ForerunError, match=r"unknown device 'h10'\. Did you mean .*h100"):
        load_device("h10")
    with pytest.raises(ForerunError, match="rtx4090"):
        load_device("rtx409O")


def test_every_field_has_a_source_and_a_date() -> None:
    for path in (CATALOG / "devices").glob("*.yaml"):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        for name, source in content["sources"].items():
            assert {"title", "date"} <= set(source), f"{path.name}: {name}"
        for device_id, entry in content["devices"].items():
            assert entry["datasheet"], device_id
            for field, cell in entry["datasheet"].items():
                assert field in DATASHEET
                assert cell["source"] in content["sources"], f"{device_id}: {field}"
    for device in all_devices():
        named = {field for field in DATASHEET if not device.missing(field)}
        assert named | set(device.calibrated) == set(device.provenance)
        assert all(line.rpartition(", ")[2][:2] in ("19", "20") for line in device.provenance.values())


def test_no_field_is_zero_and_all_are_in_range() -> None:
    for device in all_devices():
        assert device.kind in BUILT_IN
        for field in QUANTITIES:
            value = device.peak_tflops.get(field.partition("_")[0]) if field in PEAKS else getattr(device, field)
            assert value is None or number_problem(field, value, device.kind) is None, f"{device.id}: {field} {value}"


def test_physics_of_the_catalogue() -> None:
    """What cannot be otherwise: a slip of a digit or of a column in the data breaks one of these."""
    with_tensor_cores = {"volta", "turing", "ampere", "ada", "hopper", "blackwell", "cdna1", "cdna2", "cdna3"}
    for device in all_devices():
        peak = device.peak_tflops
        if {"fp16", "fp32"} <= set(peak) and device.architecture in with_tensor_cores:
            assert peak["fp16"] >= peak["fp32"], device.id
        if {"tf32", "fp32"} <= set(peak):
            assert peak["tf32"] >= peak["fp32"] * 0.98, device.id
        for low, high in (("fp64", "fp32"), ("tf32", "fp16"), ("fp16", "fp8"), ("bf16", "fp8"), ("fp8", "fp4")):
            if {low, high} <= set(peak) and device.architecture not in ("pascal", "maxwell", "kepler"):
                assert peak[low] <= peak[high] * 1.001, f"{device.id}: {low} {high}"
        if device.kind in ("gpu", "tpu") and device.bandwidth_gbs is not None:
            assert device.bandwidth_gbs > 100, device.id
        if device.kind == "gpu" and device.memory_gb is not None:
            assert device.memory_gb >= 4, device.id
        if device.vendor == "NVIDIA":
            assert device.compute_capability is not None, device.id
        # NVIDIA: fp32 = SMs x cores per SM x 2 (multiply and add) x clock; an SM has 64 or 128 cores.
        if device.vendor == "NVIDIA" and not device.missing("sm_count", "boost_clock_mhz", "fp32_tflops"):
            cores = peak["fp32"] * 1e6 / ((device.sm_count or 0) * (device.boost_clock_mhz or 0) * 2)
            assert min(abs(cores / 64 - 1), abs(cores / 128 - 1)) < 0.03, f"{device.id}: {cores:.1f} cores per SM"


def test_what_a_chip_has_no_units_for() -> None:
    volta = load_device("v100")
    assert volta.supports("fp16") is True
    assert volta.supports("bf16") is False
    assert volta.supports("tf32") is False
    assert volta.supports("int8") is None
    assert load_device("h200").supports("fp8") is True
    with pytest.raises(ForerunError, match=r"unknown dtype 'float16'"):
        volta.supports("float16")


def test_peak_is_what_a_framework_reaches() -> None:
    pascal = load_device("gtx1080")
    assert pascal.peak_tflops["fp16"] < 1
    assert pascal.peak("fp16") == pascal.peak_tflops["fp32"] > 8
    assert load_device("v100").peak("bf16") == load_device("v100").peak_tflops["fp32"]
    assert load_device("h200").peak("fp16") == 989
    assert load_device("h200").peak("fp4") is None
    assert load_device("apple-m1").peak("fp16") is None  # not known, so not assumed
    for device in all_devices():
        for dtype in DTYPES:
            if dtype == "tf32" and device.kind == "gpu" and not device.is_nvidia:  # PyTorch computes in fp32 there
                continue
            assert (device.peak(dtype) or 0) >= device.peak_tflops.get(dtype, 0)


def test_missing_names_what_is_unknown() -> None:
    cpu = load_device("epyc-9654")
    assert cpu.missing("tdp_w", "memory_gb", "fp16_tflops") == ["memory_gb", "fp16_tflops"]
    assert cpu.memory_mb is None
    with pytest.raises(ForerunError, match="did you mean bandwidth_gbs"):
        cpu.missing("bandwidth")


#: MiB that nvidia-smi shows, and the GiB that PyTorch calls total_memory where a listing of it was found.
SHOWN = {
    "t4": (15360, 14.56), "l4": (23034, 22.03), "a10": (23028, None), "l40s": (46068, 44.43),
    "h100-sxm": (81559, 79.18), "h200": (143771, 139.80), "a100": (40960, 39.49), "b200": (183359, 178.35),
    "rtx4090": (24564, 23.52),
}  # fmt: skip
UNSTATED: dict[str, Any] = {"driver_memory_mb": None, "usable_memory_mb": None}
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("by_rule", [False, True])
def test_memory_is_what_the_driver_reports_stated_or_by_rule(name: str, by_rule: bool) -> None:
    device = load_device(name)
    if by_rule:
        device = dataclasses.replace(device, **UNSTATED)
    shown, torch_gib = SHOWN[name]
    assert device.memory_mb == pytest.approx(shown, rel=0.005 if by_rule else 1e-9)
    assert device.usable_mb is not None and device.usable_mb < shown
    if torch_gib is not None:
        assert device.usable_mb == pytest.approx(torch_gib * 1024, rel=0.005)


def test_the_rules_agree_with_every_stated_size() -> None:
    """The deviations that device/capacity.py names. Below is safe; above would promise memory that is not there."""
    compared = 0
    for device in all_devices():
        by_rule = dataclasses.replace(device, **UNSTATED)
        if device.driver_memory_mb is not None:
            compared += 1
            assert by_rule.memory_mb == pytest.approx(device.driver_memory_mb, rel=0.007), device.id
        if device.usable_memory_mb is not None:
            compared += 1
            part = dataclasses.replace(device, usable_memory_mb=None)
            assert part.usable_mb is not None
            least, most = (-0.025, 0.004) if device.kind != "soc" else (-0.017, 0.017)
            assert least < part.usable_mb / device.usable_memory_mb - 1 < most, device.id
    assert compared > 90


def test_usable_memory_is_part_of_what_there_is() -> None:
    for device in all_devices():
        if device.memory_gb is None:
            assert device.memory_mb is None and device.usable_mb is None and not device.capacity_sources
            continue
        assert device.memory_mb is not None and device.usable_mb is not None
        assert 0.6 * device.memory_mb < device.usable_mb <= device.memory_mb <= device.memory_gb * 1024
        assert all(device.capacity_sources[name] for name in ("memory_mb", "usable_mb"))
    assert load_device("apple-m1").usable_mb == pytest.approx(16384 * 2 / 3)  # Metal's working set
    assert load_device("apple-m2-ultra").usable_mb == pytest.approx(192 * 1024 * 3 / 4)
    assert load_device("xeon-emr-2vcpu").usable_mb == pytest.approx(23.5 * 1024)


def test_a_user_states_the_memory_or_leaves_it_to_the_rule() -> None:
    plain = load_device(GOOD)
    assert plain.memory_mb is not None and plain.usable_mb is not None
    assert 23 * 1024 < plain.usable_mb < plain.memory_mb < 24 * 1024
    with_ecc = load_device({**GOOD, "architecture": "ada", "inline_ecc": True})
    assert with_ecc.memory_mb == pytest.approx(23034, rel=0.005)  # as an L4
    stated = load_device({**GOOD, "driver_memory_mb": 24000, "usable_memory_mb": {"value": 23500, "source": "torch"}})
    assert (stated.memory_mb, stated.usable_mb) == (24000, 23500)
    assert stated.capacity_sources == {"memory_mb": "given by the user", "usable_mb": "torch"}
    assert "by rule" in plain.capacity_sources["usable_mb"]


def test_what_is_stated_of_a_base_does_not_hold_for_another_size() -> None:
    larger = load_device({"base": "t4", "memory_gb": 32})
    assert larger.memory_mb == pytest.approx(32 * 1024 * 15 / 16)  # still a T4 with its ECC
    assert larger.usable_mb is not None and larger.usable_mb > 29_000
    smaller = load_device({"base": "t4", "driver_memory_mb": 8000})
    assert smaller.usable_mb is not None and smaller.usable_mb < 8000
    assert load_device({"base": "t4", "tdp_w": 60}).usable_mb == load_device("t4").usable_mb


def test_the_command_shows_memory_and_where_it_comes_from(run_forerun: Command) -> None:
    shown = run_forerun("devices", "h200", COLUMNS="200").stdout
    assert "143,771" in shown and "143,155" in shown and "measured by forerun on an H200" in shown
    result = json.loads(run_forerun("devices", "m60", "--json").stdout)
    assert result["memory_mb"] == 7680 and result["usable_mb"] < 7300
    assert result["provenance"]["usable_mb"].startswith("by rule")


def test_a_device_travels() -> None:
    device = load_device("h200")
    assert json.loads(json.dumps(device.to_dict()))["peak_tflops"]["fp16"] == 989
    assert pickle.loads(pickle.dumps(device)) == device
    assert {device: 1}[load_device("NVIDIA H200")] == 1
    assert load_device(device) is device


def test_loading_is_quick_and_import_is_light() -> None:
    _shipped.cache_clear()
    start = time.process_time()  # not of the clock, which a busy machine stretches
    all_devices()
    assert time.process_time() - start < 1.0  # 0.08 s on the machine this was written on
    code = "import sys, forerun.device; print([m for m in ('torch', 'pandas', 'duckdb') if m in sys.modules])"
    env = {**os.environ, "PYTHONPATH": str(CATALOG.parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == "[]"


# --- a user's own device -------------------------------------------------------------------------------------------


def write(folder: Path, text: str, name: str = "my_chip.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_flat_file_is_enough(tmp_path: Path) -> None:
    path = write(tmp_path, yaml.safe_dump(GOOD))
    for spec in (path, str(path)):
        device = load_device(spec)
        assert (device.id, device.name, device.memory_gb) == ("my_chip", "My chip", 24)
        assert device.peak_tflops == {"fp32": 30, "fp16": 120}
        assert device.provenance["tdp_w"] == "given by the user"


def test_a_mapping_is_enough() -> None:
    device = load_device({**GOOD, "release_date": "2025-01", "calibrated": {"context_mb": 400}, "unsupported": ["fp8"]})
    assert device.calibrated == {"context_mb": 400}
    assert device.supports("fp8") is False
    assert device.release_date == "2025-01"


def test_values_with_a_source(tmp_path: Path) -> None:
    text = """
    name: My chip
    memory_gb: {value: 24, source: the box, date: 2026-01-02}
    bandwidth_gbs: 900
    datasheet:
      fp32_tflops: {value: 30, source: a slide}
    """
    device = load_device(write(tmp_path, text))
    assert device.provenance["memory_gb"] == "the box, 2026-01-02"
    assert device.provenance["fp32_tflops"] == "a slide"


def test_catalogue_form_with_one_device(tmp_path: Path) -> None:
    text = """
    sources: {mine: {title: My lab, date: 2026-05}}
    devices:
      chip-one:
        name: Chip One
        datasheet:
          fp32_tflops: {value: 30, source: mine}
          memory_gb: {value: 24, source: mine}
          bandwidth_gbs: {value: 900, source: mine}
    """
    device = load_device(write(tmp_path, text))
    assert device.id == "chip-one"
    assert device.provenance["memory_gb"] == "My lab, 2026-05"


def test_starting_from_a_catalogued_device() -> None:
    device = load_device({"base": "a100", "id": "a100-capped", "tdp_w": 250})
    assert (device.id, device.tdp_w, device.memory_gb) == ("a100-capped", 250, 40)
    assert device.peak_tflops == load_device("a100").peak_tflops
    assert device.provenance["tdp_w"] == "given by the user"
    with pytest.raises(ForerunError, match="base: unknown device 'a10O'"):
        load_device({"base": "a10O", "tdp_w": 250})
    with pytest.raises(ForerunError, match=r"base: must be the name of a catalogued device, got 'other\.yaml'"):
        load_device({"base": "other.yaml"})


def test_every_catalogue_entry_is_also_a_valid_user_entry() -> None:
    """What we ask of users we keep ourselves: the same reader, the same checks."""
    for device in all_devices():
        if device.peak_tflops and not device.missing("memory_gb", "bandwidth_gbs"):
            flat = {name: getattr(device, name) for name in QUANTITIES if name not in PEAKS}
            flat |= {name: device.peak_tflops.get(name.partition("_")[0]) for name in PEAKS}
            assert load_device({"name": device.name, "kind": device.kind, **flat}).peak_tflops == device.peak_tflops


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memory_gb": "24 GB"}, "memory_gb must be a positive number of gigabytes, got '24 GB'"),
        ({"memory_gb": -1}, "memory_gb must be a positive number of gigabytes, got -1"),
        ({"memory_gb": True}, "memory_gb must be a positive number"),
        ({"memory_gb": [24]}, "memory_gb must be a positive number"),
        ({"memory_gb": float("nan")}, "memory_gb must be a positive number"),
        ({"memory_gb": 24576}, "memory_gb: 24576 looks like MB; expected 0.25 to 4000 gigabytes"),
        ({"bandwidth_gbs": 0.9}, "bandwidth_gbs: 0.9 looks like TB/s; expected 10 to 100000 gigabytes per second"),
        ({"boost_clock_mhz": 1.98}, "boost_clock_mhz: 1.98 looks like GHz"),
        ({"bandwidth": 900}, "bandwidth is not a field (did you mean bandwidth_gbs?)"),
        ({"driver_memory_mb": 24}, "driver_memory_mb: 24 looks like GB; expected 100 to 5e+06 megabytes"),
        ({"driver_memory_mb": 49152}, "driver_memory_mb 49152 is more than memory_gb says"),
        (
            {"driver_memory_mb": 20000, "usable_memory_mb": 21000},
            "usable_memory_mb 21000 is more than driver_memory_mb says",
        ),
        ({"inline_ecc": "yes"}, "inline_ecc must be true or false, got 'yes'"),
        ({"vram": 24}, "vram is not a field (did you mean memory_gb?)"),
        ({"colour": "green"}, "colour is not a field"),
        ({"memory_gb": None}, "memory_gb is missing"),
        ({"kind": "toaster"}, "kind must be one of gpu, cpu, tpu, asic, soc, got 'toaster'"),
        ({"name": 7}, "name must be text, got 7"),
        ({"name": "x" * 10_000}, "name has 10,000 letters, and at most 1,000 are read"),
        ({f"k{number}": 1 for number in range(50_000)}, "fields, and a device has at most 200"),
        ({"calibrated": {f"k{number}": "x" for number in range(50_000)}}, "has 50,000 fields"),
        ({"unsupported": ["fp12" * 40] * 9_000}, "unknown; known are"),
        ({"unsupported": ["fp12"]}, "unsupported: fp12 unknown"),
        ({"unsupported": ["fp16"]}, "fp16 has a peak and is also listed as unsupported"),
        ({"aliases": "chip"}, "aliases must be a list of names"),
        ({"idle_w": 300}, "idle_w 300 must be below tdp_w 250"),
        ({"release_date": "soon"}, "release_date must be a date"),
        ({"tdp_w": {"watts": 3}}, "tdp_w must be a number or {value, source, date}"),
        ({"datasheet": {"tdp_w": 3}}, "tdp_w is given twice"),
        ({"datasheet": 3}, "datasheet must be a mapping"),
        ({"calibrated": {"idle_w": "low"}}, "calibrated idle_w must be a number"),
        ({"compute_capability": "sm90"}, "compute_capability must be a number"),
    ],
)
def test_one_message_per_wrong_field(change: dict[str, object], message: str) -> None:
    with pytest.raises(ForerunError) as error:
        load_device({**GOOD, **change})
    assert message in str(error.value)
    assert str(error.value).count("; ") <= 1  # one problem, and no other ("; expected" belongs to it)


def test_of_many_wrong_fields_the_first_are_named() -> None:
    with pytest.raises(ForerunError, match=r"k11 must be a number, got 'x'; and 138 more$"):
        load_device({**GOOD, "calibrated": {f"k{number}": "x" for number in range(150)}})


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    text = "name: My chip\nmemory_gb: 24 GB\nbandwidth: 900\ntdp_w: -5\n"
    with pytest.raises(ForerunError) as error:
        load_device(write(tmp_path, text))
    assert str(error.value) == (
        "my_chip.yaml: bandwidth is not a field (did you mean bandwidth_gbs?); "
        "memory_gb must be a positive number of gigabytes, got '24 GB'; "
        "tdp_w must be a positive number of watts, got -5; "
        "bandwidth_gbs is missing; "
        "a peak is missing (at least one of fp32_tflops, fp16_tflops, bf16_tflops, ...)"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a device is a mapping of fields"),
        ("- 1\n- 2\n", "a device is a mapping of fields"),
        ("name: [unclosed", "not valid YAML"),
        ("a: !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("devices: {a: {name: A}, b: {name: B}}", "one device per file, got 2"),
        ("devices: {a: 3}", "a must be a mapping of fields"),
        ("release_date: 2024-99-99", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_device(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ForerunError, match=r"my_chip\.yaml: ") as error:
        load_device(write(tmp_path, text))
    assert message in str(error.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ForerunError, match="no such file"):
        load_device(tmp_path / "absent.yaml")
    with pytest.raises(ForerunError, match="cannot be read"):
        load_device(tmp_path.parent / tmp_path.name)  # a folder, given as a path
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(ForerunError, match="cannot be read"):
        load_device(tmp_path / "binary.yml")


@pytest.mark.parametrize("spec", [None, 3, 2.5, ["h100"]])
def test_what_is_no_device_at_all(spec: object) -> None:
    with pytest.raises(ForerunError, match="a device is a name"):
        load_device(spec)  # type: ignore[arg-type]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
known_fields = st.sampled_from(
    [*DATASHEET, "name", "kind", "aliases", "unsupported", "datasheet", "calibrated", "base"]
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no reason to fail
@given(st.dictionaries(known_fields | st.text(max_size=8), anything, max_size=6))
def test_any_mapping_gives_a_device_or_a_clear_error(content: dict[str, object]) -> None:
    try:
        device = load_device({**GOOD, **content})
    except ForerunError:
        return
    again = json.loads(json.dumps(device.to_dict()))
    numbers = [again["memory_gb"], again["bandwidth_gbs"], *again["peak_tflops"].values()]
    assert len(numbers) >= 3 and all(n > 0 for n in numbers)
    assert not set(again["unsupported"]) & set(again["peak_tflops"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=30))
def test_any_text_is_a_known_name_or_a_clear_error(name: str) -> None:
    try:
        device = load_device(name)
    except ForerunError:
        return
    assert key(name) == key(device.id) or key(name) in aliases()


# --- slices --------------------------------------------------------------------------------------------------------

WITH_MIG = ["a30", "a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm4-40gb", "a100-sxm4-80gb", "h100-pcie", "h100-sxm",
            "h200", "b200", "gb200"]  # fmt: skip


@pytest.mark.parametrize("device_id", WITH_MIG)
def test_slices_fit_in_the_whole(device_id: str) -> None:
    full = load_device(device_id)
    result = profiles(full)
    assert len(result) >= 5
    for profile in result:
        assert 0 < profile.sm_fraction <= 1
        assert 0 < profile.memory_fraction <= 1
        assert profile.media == profile.name.endswith("+me")
        assert full.memory_mb is not None
        assert profile.memory_mb <= full.memory_mb * profile.memory_fraction * 1.03
        # as many as fit: never more compute or memory than there is
        assert profile.max_instances * profile.memory_fraction <= 1
        assert profile.max_instances * profile.compute_slices <= (4 if device_id == "a30" else 7)
    assert result[-1].memory_fraction == 1


def test_hopper_slices_have_the_sms_that_nvidia_smi_lists() -> None:
    sms = {p.name: p.sm_count for p in profiles(load_device("h100-sxm"))}
    assert (sms["1g.10gb"], sms["1g.20gb"], sms["3g.40gb"], sms["7g.80gb"]) == (16, 26, 60, 132)


def test_a_slice_is_a_device() -> None:
    full, part = load_device("h200"), load_device("h200/1g.18gb")
    assert part.id == "h200/1g.18gb"
    assert part.peak_tflops["fp16"] == pytest.approx(989 * 16 / 132)
    assert part.bandwidth_gbs == pytest.approx(4800 / 8)
    assert part.l2_cache_mb == pytest.approx(50 / 8)
    assert part.memory_mb == pytest.approx(16 * 1024)
    assert part.tdp_w == pytest.approx(700 * 16 / 132)
    assert part.interconnect_gbs is None
    assert part == slice_device(full, "1g.18gb") == slice_device(load_device("NVIDIA H200"), profiles(full)[0])
    assert "slice 1g.18gb of h200" in part.provenance["fp16_tflops"]


def test_slices_that_do_not_exist() -> None:
    assert profiles(load_device("t4")) == []
    with pytest.raises(ForerunError, match="t4 has no MIG profiles"):
        load_device("t4/1g.5gb")
    with pytest.raises(ForerunError, match=r"unknown MIG profile of h200 '1g.10gb'.*It has 1g.18gb"):
        load_device("h200/1g.10gb")
