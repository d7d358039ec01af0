"""Chip generations: facts with their sources, found whatever the case of the name, and what follows from them."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from forerun.device import Device, all_devices, load_device
from forerun.device.fields import DTYPES
from forerun.device.generations import find_generation, generation_ids, unlisted_generation
from forerun.device.reading import CATALOG
from forerun.frontends import load_graph
from forerun.graph.profile import UNITS
from forerun.predictors.laws.memory import estimate, workspace_mb
from forerun.predictors.laws.specs import power_slowdown
from forerun.predictors.laws.workspaces import library_workspaces
from forerun.workload import Workload

CONTENT = yaml.safe_load((CATALOG / "generations.yaml").read_text())
CHIP = {
    "name": "chip", "vendor": "NVIDIA", "fp32_tflops": 60, "fp16_tflops": 900, "memory_gb": 80, "bandwidth_gbs": 3000,
    "tdp_w": 350,
}  # fmt: skip


def chip(**fields: object) -> Device:
    return load_device({**CHIP, **fields})


# --- the catalogue -------------------------------------------------------------------------------------------------


def test_every_fact_names_a_source_with_a_date_and_every_source_is_used() -> None:
    groups = [*CONTENT["generations"].values(), CONTENT["unlisted"]]
    groups += [special for g in groups for special in g.get("by_compute_capability", {}).values()]
    used = {fact["source"] for g in groups for fact in g.values() if isinstance(fact, dict) and "source" in fact}
    assert used == set(CONTENT["sources"])
    for name, source in CONTENT["sources"].items():
        assert source["title"] and str(source["date"]).startswith("2026-"), name
        # What was read off measured rows says which, and whether predictions are judged on the same rows or GPU.
        assert ("rows" in source) == ("judged" in source), name
        assert str(source.get("judged", "no")).startswith(("no", "yes")), name


def test_every_device_is_of_a_listed_generation_of_its_vendor() -> None:
    named = {d.architecture for d in all_devices()}
    assert named == set(generation_ids())
    for device in all_devices():
        assert device.generation is not None and device.generation.vendor == device.vendor, device.id
        assert device.generation_note is None
        if device.compute_capability is not None:
            assert find_generation(None, device.compute_capability) == device.generation, device.id


def test_no_device_has_a_peak_that_its_generation_rules_out() -> None:
    for device in all_devices():
        assert device.generation is not None
        assert set(device.generation.unsupported) <= set(DTYPES)
        assert not set(device.peak_tflops) & set(device.generation.unsupported), device.id
        assert device.unsupported == device.generation.unsupported


def test_no_generation_yields_more_per_watt_than_all_its_spec_sheets_list() -> None:
    """A value above every listed peak would never slow anything: a slip of a digit, or in a column."""
    for name, dtype in (("fp32_gflops_per_watt", "fp32"), ("half_gflops_per_watt", "fp16")):
        for generation in {d.generation for d in all_devices()}:
            value = generation and getattr(generation, name)
            if value is None:
                continue
            cards = [d for d in all_devices() if d.generation == generation and d.tdp_w and d.peak(dtype)]
            listed = [(d.peak(dtype) or 0) * 1e3 / (d.tdp_w or 1) for d in cards]
            assert 0.1 * max(listed) < value < max(listed), (generation, name)


# --- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hopper", "Hopper", "HOPPER", " hopper "])
def test_the_case_of_a_name_does_not_matter(name: str) -> None:
    device = chip(architecture=name)
    assert device.generation is not None and device.generation.id == "hopper"
    assert workspace_mb(2, device) == 66.0
    assert power_slowdown([device])[UNITS.index("fp16"), 0] == pytest.approx(900e3 / 350 / 1170)


def test_spaces_dashes_and_aliases() -> None:
    for name in ("Ada Lovelace", "ada-lovelace", "ADA"):
        assert find_generation(name) == find_generation("ada")
    assert find_generation("Apple M1") == find_generation("apple-m1")


@pytest.mark.parametrize("name", ["hop", "hopper2", "grace hopper", "ampere 8.0", "rubin", ""])
def test_a_near_miss_is_never_a_match(name: str) -> None:
    assert find_generation(name) is None


def test_the_a100_and_geforce_ampere_differ() -> None:
    server, desktop = find_generation("ampere", 8.0), find_generation("ampere", 8.6)
    assert server is not None and desktop is not None
    assert (server.fp32_gflops_per_watt, server.half_gflops_per_watt) == (65, 800)
    assert (desktop.fp32_gflops_per_watt, desktop.half_gflops_per_watt) == (81, 400)
    assert "A100" in server.provenance["fp32_gflops_per_watt"]
    assert server.unsupported == desktop.unsupported == ("fp8", "fp4")


def test_without_a_name_the_compute_capability_decides() -> None:
    assert chip(compute_capability=9.0).generation == find_generation("hopper")
    assert chip(compute_capability=99.0 / 10).generation is None
    # A name that is not listed is not overruled by the capability that a base brings along.
    assert load_device({"base": "h100-sxm", "architecture": "rubin"}).generation is None


# --- what follows --------------------------------------------------------------------------------------------------


def test_dtypes_that_a_generation_has_no_units_for() -> None:
    turing = chip(architecture="turing")
    assert turing.supports("bf16") is False and turing.supports("fp16") is True
    assert turing.unsupported == ("tf32", "bf16", "fp8", "fp4")
    assert chip(architecture="turing", bf16_tflops=100).supports("bf16") is True  # the spec sheet overrules
    assert chip(architecture="turing", unsupported=["int4"]).unsupported == ("int4",)
    assert load_device({"base": "h100-sxm", "fp4_tflops": 3000}).supports("fp4") is True
    assert chip(architecture="rubin").unsupported == ()


def test_an_unlisted_generation_is_named_and_assumed() -> None:
    device = chip(architecture="rubin")
    assert device.generation is None and device.is_nvidia
    assert device.generation_note is not None
    assert device.generation_note.startswith("the generation rubin is not in the catalogue: ")
    assert (power_slowdown([device]) == 1).all()
    assert workspace_mb(1, device) == unlisted_generation().cublas_workspace_mb == 16
    assert library_workspaces(device) is not None
    nameless = chip()
    assert nameless.generation_note is not None and "names no generation (architecture)" in nameless.generation_note
    assert chip(kind="cpu").generation_note is None


def test_libraries_reserve_by_generation_however_the_vendor_is_written() -> None:
    graph = load_graph(Workload("bert-base-uncased", seq_len=16))
    hopper, lower, silent, ampere, foreign = (
        estimate(graph, chip(**fields))
        for fields in (
            {"architecture": "hopper"}, {"architecture": "Hopper", "vendor": "nvidia"},
            {"architecture": "hopper", "vendor": None}, {"architecture": "ampere"}, {"vendor": "AMD"},
        )
    )  # fmt: skip
    assert hopper.allocated_mb == lower.allocated_mb == silent.allocated_mb
    assert hopper.allocated_mb - ampere.allocated_mb == pytest.approx(33 - 16)
    assert hopper.allocated_mb - foreign.allocated_mb == pytest.approx(33)


def test_layout_copies_come_with_tensor_cores() -> None:
    graph = load_graph(Workload("resnet18", batch=8))

    def taken(name: str) -> int:
        working = library_workspaces(load_device(name))
        return len(working(graph, np.array([8]))) if working else 0

    assert taken("gtx1080ti") == taken("mi300x") == 0
    assert all(taken(name) > 10 for name in ("v100", "t4", "a100", "l4", "h200", "b200"))


def test_a_small_card_holds_half_of_what_it_lists() -> None:
    t4, v100, h200 = power_slowdown([load_device(d) for d in ("t4", "v100", "h200")]).T
    fp32, half = UNITS.index("fp32"), UNITS.index("fp16")
    assert t4[fp32] == pytest.approx(8.141e3 / 70 / 57, rel=0.01)
    assert v100[fp32] == 1.0
    assert h200[half] == pytest.approx(989e3 / 700 / 1170)
