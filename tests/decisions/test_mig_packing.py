"""Packing workloads onto MIG slices: valid placements, the best packing, its numbers, and where the plain rule errs."""

from __future__ import annotations

import io
import itertools
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import forerun
from forerun.advice.mig import nominal_mb, threshold_profile
from forerun.advice.packing import (
    Job,
    Packing,
    Placement,
    fewest_gpus,
    first_fit,
    layouts,
    least_cost,
    least_worst,
)
from forerun.device import load_device
from forerun.device.mig import MigProfile, geometry, profiles, with_mig
from forerun.errors import ForerunError

Run = Callable[..., subprocess.CompletedProcess[str]]
SMALL = "cnn:depth=2,filters=4"


def plain_profiles(device: str) -> list[MigProfile]:
    return [p for p in profiles(load_device(device)) if not p.media]


A100 = plain_profiles("a100-sxm4-40gb")


def assert_valid(placements: list[Placement], device: str) -> None:
    """Every slice starts where NVIDIA allows it, no two overlap, and no more compute is given than there is."""
    known, full = {p.name: p for p in profiles(load_device(device))}, geometry(load_device(device))
    assert full is not None
    used = [index for placement in placements for index in placement.memory_slices]
    assert len(used) == len(set(used)) and set(used) <= set(range(full.memory_slices))
    for placement in placements:
        profile = known[placement.profile]
        assert placement.start in profile.starts and placement.size == profile.memory_slices
    assert sum(known[p.profile].compute_slices for p in placements) <= full.compute_slices


# --- the geometry ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", with_mig())
def test_instances_follow_from_placements(device: str) -> None:
    full = load_device(device)
    for profile in profiles(full):
        most = max(sum(p.profile == profile.name for p in layout) for layout in layouts([profile]))
        assert profile.max_instances == (1 if profile.media else most), profile.name
    for layout in layouts(plain_profiles(device)):
        assert_valid(list(layout), device)
        sms = {p.name: p.sm_count for p in profiles(full)}
        assert full.sm_count is not None and sum(sms[p.profile] for p in layout) <= full.sm_count
    result = geometry(full)
    assert result is not None and re.search(r", 20\d\d-\d\d-\d\d$", result.source)
    assert result.assumed == (device == "gb200")


def test_known_layouts_of_an_a100() -> None:
    def counts(layout: tuple[Placement, ...]) -> str:
        return "-".join(sorted((p.profile[0] for p in layout if p.profile != "1g.10gb"), reverse=True))

    results = {counts(layout) for layout in layouts([p for p in A100 if p.name != "1g.10gb"])}
    # Those of NVIDIA's user guide; 4-3 and 3-3 fill a GPU, a 3 beside small ones leaves one compute slice unused.
    assert results == {
        "7", "4-3", "4-2-1", "4-1-1-1", "3-3", "3-2-2", "3-2-1-1", "3-1-1-1-1", "2-2-2-1", "2-2-1-1-1", "2-1-1-1-1-1",
        "1-1-1-1-1-1-1",
    }  # fmt: skip


# --- the search -----------------------------------------------------------------------------------------------------


def costs_of(packing: Packing, jobs: list[Job]) -> list[float]:
    return [jobs[seat.job].costs[seat.placement.profile] for gpu in packing.gpus for seat in gpu]


def assert_whole(packing: Packing, jobs: list[Job], device: str) -> None:
    for gpu in packing.gpus:
        assert gpu
        assert_valid([seat.placement for seat in gpu], device)
    seated = [seat.job for gpu in packing.gpus for seat in gpu]
    assert sorted(seated) == [at for at, job in enumerate(jobs) for _ in range(job.count)]


def some_jobs(names: list[str], most: int) -> st.SearchStrategy[list[Job]]:
    costs = st.dictionaries(st.sampled_from(names), st.floats(0.5, 50), min_size=1)
    return st.lists(st.builds(Job, st.integers(1, 3), costs), min_size=1, max_size=most)


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_every_packing_is_valid_and_complete(data: st.DataObject) -> None:
    device = data.draw(st.sampled_from(["a30", "a100-sxm4-40gb", "h200", "b200"]))
    result = plain_profiles(device)
    jobs, allowed = data.draw(some_jobs([p.name for p in result], 8)), layouts(result)
    fewest = fewest_gpus(jobs, allowed)
    for packing in (
        least_cost(jobs, allowed, gpus=fewest), least_cost(jobs, allowed, gpu_cost=3.0),
        least_worst(jobs, allowed, gpus=fewest), least_worst(jobs, allowed, gpus=fewest + 1),
    ):  # fmt: skip
        assert_whole(packing, jobs, device)
    wanted = [data.draw(st.sampled_from([p.name for p in result])) for _ in range(9)]
    for gpu in first_fit(result, wanted):
        assert_valid([seat.placement for seat in gpu], device)


def by_trial(jobs: list[Job], found: list[MigProfile], gpus: int) -> list[list[float]]:
    """The costs of every assignment that fits on `gpus` GPUs, by exhaustive search."""
    known = {p.name: p for p in found}
    single = [job for job in jobs for _ in range(job.count)]

    def placeable(names: tuple[str, ...], taken: list[set[int]]) -> bool:
        if not names:
            return True
        profile = known[names[0]]
        for used in taken:
            for start in profile.starts:
                wanted = set(range(start, start + profile.memory_slices))
                if not used & wanted:
                    used |= wanted
                    if placeable(names[1:], taken):
                        return True
                    used -= wanted
        return False

    return [
        [job.costs[name] for job, name in zip(single, names, strict=True)]
        for names in itertools.product(*(job.costs for job in single))
        if placeable(names, [set() for _ in range(gpus)])
    ]


@settings(deadline=None, max_examples=15)
@given(some_jobs([p.name for p in A100], 2))
def test_packings_are_the_best_there_are(jobs: list[Job]) -> None:
    jobs = [Job(min(job.count, 2), job.costs) for job in jobs]
    allowed = layouts(A100)
    fewest = fewest_gpus(jobs, allowed)
    assert fewest == next(n for n in range(1, 9) if by_trial(jobs, A100, n))
    for gpus in (fewest, fewest + 1):
        tried = by_trial(jobs, A100, gpus)
        cheapest = least_cost(jobs, allowed, gpus=gpus)
        assert len(cheapest.gpus) <= gpus
        assert sum(costs_of(cheapest, jobs)) == pytest.approx(min(map(sum, tried)), rel=1e-6)
        fairest = costs_of(least_worst(jobs, allowed, gpus=gpus), jobs)
        least = min(map(max, tried))
        assert max(fairest) == pytest.approx(least)
        assert sum(fairest) == pytest.approx(min(sum(t) for t in tried if max(t) <= least), rel=1e-3)


def test_the_least_sum_and_the_least_worst_differ() -> None:
    jobs, allowed = [Job(1, {"4g.20gb": 1.0, "3g.20gb": 4.0}), Job(1, {"4g.20gb": 2.5, "3g.20gb": 5.0})], layouts(A100)
    assert sorted(costs_of(least_cost(jobs, allowed, gpus=1), jobs)) == [1.0, 5.0]
    assert sorted(costs_of(least_worst(jobs, allowed, gpus=1), jobs)) == [2.5, 4.0]


def test_a_gpu_that_costs_too_much_is_not_used() -> None:
    jobs, allowed = [Job(2, {"3g.20gb": 4.0, "7g.40gb": 1.0})], layouts(A100)
    assert len(least_cost(jobs, allowed, gpu_cost=1.0).gpus) == 2
    assert len(least_cost(jobs, allowed, gpu_cost=7.0).gpus) == 1


# --- the memory-threshold rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory_mb", "profile"),
    [(2_865, "1g.5gb"), (5_952, "2g.10gb"), (26_439, "7g.40gb"), (15_000, "3g.20gb"), (41_000, None)],
)
def test_published_thresholds(memory_mb: float, profile: str | None) -> None:
    assert threshold_profile(memory_mb, profiles(load_device("a100-sxm4-40gb"))) == profile


def test_the_rule_is_wrong_between_nominal_and_usable_memory() -> None:
    result = forerun.pack_mig(["resnet50:batch=300,count=4"], "a100-sxm4-40gb")
    memory = forerun.predict("resnet50", "a100-sxm4-40gb", batch=300, measured=False).memory_mb
    small = A100[0]
    assert memory is not None and small.memory_mb < memory.value < nominal_mb(small)
    assert {p.on_slice.profile for p in result.rule.placed} == {"1g.5gb"}
    assert len(result.rule.problems) == 4 and "does not fit" in result.rule.problems[0]
    assert result.totals.gpus == 1 and not any(p.problems for p in result.placed)
    assert {p.on_slice.profile for p in result.placed} <= {"1g.10gb", "2g.10gb"}


def test_the_rule_takes_a_second_gpu_where_slices_with_more_memory_do() -> None:
    result = forerun.pack_mig(["resnet50:batch=334,count=4"], "a100-sxm4-40gb")
    assert {p.on_slice.profile for p in result.rule.placed} == {"2g.10gb"}
    assert result.rule.totals.gpus == 2 and result.rule.problems == []
    assert result.totals.gpus == 1 and "1g.10gb" in {p.on_slice.profile for p in result.placed}


def test_the_rule_does_not_look_at_latency_or_rates() -> None:
    slow = forerun.pack_mig(["resnet50:batch=8,max-latency=15ms"], "a100-sxm4-40gb")
    assert "over the limit of 15 ms" in slow.rule.problems[0]
    assert slow.placed[0].on_slice.latency_ms.value <= 15
    busy = forerun.pack_mig(["resnet50:batch=8,rate=60"], "a100-sxm4-40gb", goal="energy")
    assert "sustains" in busy.rule.problems[0]
    assert 60 * busy.placed[0].on_slice.latency_ms.value <= 1000


# --- pack_mig -------------------------------------------------------------------------------------------------------


def test_numbers_are_those_of_predict_on_the_slice() -> None:
    result = forerun.pack_mig(["resnet50:batch=8", "bert-base-uncased:batch=16,seq=128"], "h200", confidence=0.8)
    for placed in result.placed:
        request = {k: v for k, v in placed.settings.items() if v is not None}
        request |= {"measured": False, "confidence": 0.8}
        same = forerun.predict(device=f"h200/{placed.on_slice.profile}", **request)
        full = forerun.predict(device="h200", **request)
        pairs: list[tuple[Any, Any]] = [(placed.whole_gpu_ms, full.latency_ms)]
        pairs += [
            (getattr(placed.on_slice, name), getattr(same, name))
            for name in ("latency_ms", "memory_mb", "throughput", "energy_j")
        ]
        for mine, other in pairs:
            assert (mine.value, mine.low, mine.high) == pytest.approx((other.value, other.low, other.high), rel=1e-5)
            assert mine.unit == other.unit
        assert placed.on_slice.fits and same.fit is not None and placed.on_slice.surely_fits == same.fit.sure


def test_goals_differ_as_they_say() -> None:
    request = ["resnet50:batch=8,count=2", "bert-base-uncased:batch=16,seq=128"]
    by = {goal: forerun.pack_mig(request, "a100-sxm4-40gb", goal=goal) for goal in ("gpus", "energy", "latency")}
    assert {result.totals.gpus for result in by.values()} == {1}
    energies = {goal: result.totals.energy_j.value for goal, result in by.items() if result.totals.energy_j}
    assert energies["energy"] == min(energies.values()) < energies["gpus"]
    assert by["latency"].totals.worst_slowdown == min(result.totals.worst_slowdown for result in by.values())
    assert by["gpus"].totals.mean_slowdown == min(result.totals.mean_slowdown for result in by.values())
    more = forerun.pack_mig(request, "a100-sxm4-40gb", goal="latency", gpus=3)
    assert more.totals.gpus == 3 and more.totals.worst_slowdown < by["latency"].totals.worst_slowdown


def test_power_at_the_rates_asked_counts_gpus_that_wait() -> None:
    result = forerun.pack_mig(["resnet50:batch=8,count=2,rate=0.001"], "h200", goal="energy")
    assert result.totals.gpus == 1 and result.totals.power_w is not None
    assert result.totals.power_w.value == pytest.approx(119, rel=0.01)  # what an H200 is taken to draw while waiting
    busy = forerun.pack_mig(["resnet50:batch=8,count=2,rate=40"], "h200", goal="energy").totals.power_w
    assert busy is not None and busy.low < busy.value < busy.high and busy.value > 120


def test_fits_by_the_estimate_and_not_by_its_upper_end() -> None:
    request = {"goal": "energy", "gpus": 1}
    near = forerun.pack_mig(["resnet50:batch=254,count=6", "resnet50:batch=8"], "a100-sxm4-40gb", **request)
    assert any("fits by the estimate, not by its upper end" in p.remarks for p in near.placed)
    with pytest.raises(
        ForerunError, match="number of GPUs is the limiting constraint: these workloads need at least 2 a100-sxm4-40gb"
    ):
        forerun.pack_mig(["resnet50:batch=254,count=6", "resnet50:batch=8"], "a100-sxm4-40gb", sure=True, **request)
    sure = forerun.pack_mig(["resnet50:batch=254"], "a100-sxm4-40gb", sure=True, goal="energy")
    assert sure.placed[0].on_slice.surely_fits and sure.placed[0].remarks == ()


def test_fifty_workloads() -> None:
    request = [f"{SMALL}:batch={n}" for n in range(1, 51)]
    result = forerun.pack_mig(request, "a100-sxm4-40gb")
    assert result.totals.gpus == 8  # seven slices a GPU
    assert sorted(p.workload for p in result.placed) == sorted(["cnn:depth=2,filters=4", *request[1:]])
    for gpu in range(8):
        taken = [Placement(p.on_slice.profile, p.start, p.size) for p in result.placed if p.gpu == gpu]
        assert_valid(taken, "a100-sxm4-40gb")
        free = [Placement(name, start, next(q.memory_slices for q in A100 if q.name == name))
                for on, name, start in result.free if on == gpu]  # fmt: skip
        assert_valid(taken + free, "a100-sxm4-40gb")


@pytest.mark.parametrize(
    ("workload", "device", "sentence"),
    [
        (
            f"{SMALL}:batch=3000000",
            "a100",
            "memory is the limiting constraint: .* MB usable; the largest batch that fits is ",
        ),
        (f"{SMALL}:batch=2,max-latency=1us", "a30", r"latency is the limiting constraint: .*; the least is \d"),
        (f"{SMALL}:rate=1e6", "a30", r"the rate is the limiting constraint: 4g.24gb of a30 sustains"),
        (
            "meta-llama/Llama-3.1-8B:dtype=fp32",
            "a30",
            "memory is the limiting constraint: .*; a100-pcie-40gb, .* would have enough",
        ),
        (f"{SMALL}:bathc=8", "a30", "'bathc' is not a setting of a workload. Did you mean batch"),
        (f"{SMALL}:batch=8,batch=9", "a30", "gives a setting twice"),
        (f"{SMALL}:batch=many", "a30", "batch must be a whole number"),
        (f"{SMALL}:count=0", "a30", "count must be a whole number"),
        (f"{SMALL}:count=5000", "a30", "at most 1,000 workloads are placed at once"),
        (f"{SMALL}:max-latency=soon", "a30", "is not a latency such as 25ms"),
        (f"{SMALL}:trust-remote-code=true", "a30", "not a setting of a workload"),
        (":batch=8", "a30", "has no model"),
        ("resnet51:batch=2", "a30", "Did you mean"),
        (SMALL, "t4", "t4 has no MIG profiles in the catalogue; these have: a30, "),
        (SMALL, "h200/1g.18gb", "is a slice: give the whole GPU, h200"),
    ],
)
def test_what_cannot_be_is_one_sentence(workload: str, device: str, sentence: str) -> None:
    with pytest.raises(ForerunError, match=sentence) as error:
        forerun.pack_mig([workload], device)
    assert "\n" not in str(error.value)


def test_the_largest_batch_named_is_the_nearest_that_fits() -> None:
    with pytest.raises(ForerunError) as error:
        forerun.pack_mig([f"{SMALL}:batch=3000000"], "a30")
    match = re.search(r"the largest batch that fits is ([\d,]+)", str(error.value))
    assert match is not None
    batch = int(match[1].replace(",", ""))
    assert forerun.pack_mig([f"{SMALL}:batch={batch}"], "a30").placed[0].on_slice.profile == "4g.24gb"
    with pytest.raises(ForerunError, match="memory is the limiting constraint"):
        forerun.pack_mig([f"{SMALL}:batch={batch + batch // 100}"], "a30")


# --- how workloads are written, and the command ---------------------------------------------------------------------


def test_colons_and_commas_of_a_models_own_name() -> None:
    request = ["cnn:depth=6,filters=32", "cnn:depth=6,filters=32:batch=8", "resnet18?layers=[1,1,1,1]:batch=2"]
    result = {p.workload: p.settings for p in forerun.pack_mig(request, "a30").placed}
    assert {name: (s["model"], s["batch"]) for name, s in result.items()} == {
        "cnn:depth=6,filters=32": ("cnn:depth=6,filters=32", 1),
        "cnn:depth=6,filters=32:batch=8": ("cnn:depth=6,filters=32", 8),
        "resnet18?layers=[1,1,1,1]:batch=2": ("resnet18?layers=[1,1,1,1]", 2),
    }


def test_settings_mean_the_same_in_text_mappings_and_workloads() -> None:
    request = [
        "resnet18:batch=4,dtype=fp16,channels-last,input-shape=3x64x64",
        {"model": "resnet18", "batch": 4, "dtype": "fp16", "channels_last": True, "input-shape": [3, 64, 64]},
        forerun.Workload("resnet18", 4, "fp16", channels_last=True, input_shape=(3, 64, 64)),
    ]
    result = forerun.pack_mig(request, "a30")
    assert len({p.workload for p in result.placed}) == 1 and len(result.placed) == 3
    limits = forerun.pack_mig([f"{SMALL}:max-latency=0.5s", SMALL], "a30", max_latency_ms=20).placed
    assert {p.max_latency_ms for p in limits} == {500, 20}


def test_command_with_a_file(run_forerun: Run, tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(f"- '{SMALL}:batch=8'\n- {{model: '{SMALL}', batch: 2, max-latency: 1s}}\n")
    done = run_forerun("mig", f"{SMALL}:count=3", "--device", "a100-sxm4-40gb", "--file", "jobs.yaml", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert len(answer["placed"]) == 5 and answer["totals"]["gpus"] == 1
    names = ",".join(f"{p['profile']}:{p['start']}" for p in answer["placed"])
    assert answer["commands"] == [
        "sudo nvidia-smi -i 0 -mig 1", f"sudo nvidia-smi mig -i 0 -cgi {names} -C", "nvidia-smi -L",
    ]  # fmt: skip
    (tmp_path / "jobs.yaml").write_text("- resnet18\n- {model: resnet18, bach: 2}\n")
    done = run_forerun("mig", "--device", "a30", "--file", "jobs.yaml")
    assert done.returncode == 2 and "jobs.yaml: workload 2: 'bach' is not a setting" in done.stderr


@pytest.mark.parametrize("width", [80, 120, 160])
def test_intervals_have_a_heading_and_names_end_where_their_parts_do(width: int) -> None:
    name = "bert-base-uncased:batch=16,seq=128"
    result = forerun.pack_mig([name, f"{SMALL}:batch=8"], "a30")
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(result)
    lines = console.export_text().splitlines()
    table = "\n".join(lines[1 : lines.index("")])
    assert "90 %" in table.partition(name[:4])[0]
    assert max(map(len, lines[1 : lines.index("")])) <= width
    for part in ("uncased:", "batch=16,", "seq=128"):
        assert part in table


@pytest.mark.parametrize("columns", ["80", "160"])
def test_command_prints_tables(run_forerun: Run, columns: str) -> None:
    done = run_forerun("mig", "resnet50:batch=300,count=4", "-d", "a100-sxm4-40gb", COLUMNS=columns)
    assert done.returncode == 0, done.stderr
    assert all(len(line) <= int(columns) for line in done.stdout.splitlines() if "nvidia-smi mig" not in line)
    (command,) = [line for line in done.stdout.splitlines() if "nvidia-smi mig" in line]
    assert command.startswith("  sudo nvidia-smi mig -i 0 -cgi ") and command.endswith(" -C")  # to paste: on one line
    text = " ".join(done.stdout.split())
    for words in (
        "4 workloads on 1 a100-sxm4-40gb", "sudo nvidia-smi mig -i 0 -cgi 2g.10gb:0,", "CUDA_VISIBLE_DEVICES=MIG-",
        "1g.5gb x 4", "does not fit: it needs 5,060 MB and 4,864 MB are usable",
    ):  # fmt: skip
        assert words in text
