"""Tables for people: what a terminal and a notebook show of a prediction, a comparison, a verification."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable

import pytest
from rich.console import Console

import forerun
from forerun import Prediction
from forerun.api.verification import verify
from forerun.prediction import Estimate, Fit
from forerun.views.comparison import comparison_view
from forerun.views.device import device_view
from forerun.views.measurement import verification_view
from forerun.views.words import count

PREDICTION = Prediction(
    model="net", device="h200", basis="learned",
    workload={"mode": "inference", "batch": 4, "dtype": "fp16", "runtime": "eager"},
    latency_ms=Estimate(2.0, 1.0, 3.0, "ms"), memory_mb=Estimate(2048, 1024, 4096, "MB"),
    fit=Fit(True, 1024.0, 64), unknown={"energy_j": "no power limit"}, parameters=25_600_000,
    active_parameters=25_600_000, macs=4.09e9, bytes=1e6, confidence=0.8,
)  # fmt: skip


def text(*things: object) -> str:
    console = Console(file=io.StringIO(), width=160, highlight=False)
    for thing in things:
        console.print(thing)
    return console.file.getvalue()  # type: ignore[attr-defined]


def lines(things: Iterable[object]) -> list[str]:
    return text(*things).splitlines()


@pytest.mark.parametrize(("confidence", "heading"), [(0.9, "90 %"), (0.8, "80 %"), (0.55, "55 %"), (0.975, "97.5 %")])
def test_the_heading_names_the_confidence_of_the_prediction(confidence: float, heading: str) -> None:
    p = dataclasses.replace(PREDICTION, confidence=confidence)
    assert f"{heading} interval" in text(p)
    assert f"<th>{heading} interval</th>" in p._repr_html_()
    row = {"latency_ms": 2.5, "memory": {}, "software": {"torch": "2"}, "protocol": 2}
    assert f"{heading} interval" in text(*verification_view(verify(p, row)))


def test_a_prediction_without_a_confidence_of_its_own_is_of_90_percent() -> None:
    assert Prediction.from_dict({"model": "m", "device": "d", "workload": {}, "basis": "learned"}).confidence == 0.9
    assert Prediction.from_json(PREDICTION.to_json()) == PREDICTION


def test_a_table_has_values_intervals_and_reasons() -> None:
    shown = lines([PREDICTION])
    assert shown[0] == "net on h200: inference, batch 4, fp16"
    assert shown[1] == "25.6 M parameters, 4.09 G MACs and 1 MB of memory traffic per call"
    (latency,) = [line.split() for line in shown if line.startswith("Latency")]
    assert latency[1:6] == ["2", "ms", "1", "…", "3"]
    (memory,) = [line for line in shown if line.startswith("Memory needed")]
    assert "2 GB" in memory and "fits, 1 GB to spare; largest batch 64" in memory
    (energy,) = [line for line in shown if line.startswith("Energy")]
    assert "unknown" in energy and "no power limit" in energy


def test_a_verification_marks_what_lies_outside() -> None:
    row = {"latency_ms": 4.0, "memory": {"used_mb": 2000}, "software": {"torch": "2"}, "protocol": 2,
           "energy_reason": "no counter"}  # fmt: skip
    shown = lines(verification_view(verify(PREDICTION, row)))
    (latency,) = [line for line in shown if line.startswith("Latency")]
    assert "-50%" in latency and "OUTSIDE the interval" in latency
    (memory,) = [line for line in shown if line.startswith("Memory needed")]
    assert "+2%" in memory and "inside the interval" in memory
    (energy,) = [line for line in shown if line.startswith("Energy")]
    assert "unknown" in energy and "no counter" in energy


def test_a_comparison_lists_what_cannot_answer_below() -> None:
    frame = forerun.compare("cnn:depth=2,filters=4", ["t4", "l4"], dtype="bf16")
    shown = lines(comparison_view(frame, "title", 160, 0.8))
    assert shown[0] == "title" and "80 % interval" in shown[1]
    assert shown[2].split()[0] == "l4" and "t4 has no bf16 units" in shown[3]


def test_a_device_of_an_unlisted_generation_says_so() -> None:
    chip = forerun.load_device({"name": "c", "architecture": "rubin", "fp32_tflops": 1, "memory_gb": 8,
                                "bandwidth_gbs": 100})  # fmt: skip
    assert "Note: the generation rubin is not in the catalogue" in text(*device_view(chip))
    listed = lines(device_view(forerun.load_device("t4")))
    assert not [line for line in listed if line.startswith("Note")]
    (row,) = [line.split() for line in listed if line.startswith("fp32_gflops_per_watt")]
    assert row[1:3] == ["(turing)", "57"]


def test_counts_in_the_unit_that_fits() -> None:
    assert [count(x) for x in (12, 4.09e9, 25.6e6, 7e3, 1.5e15)] == ["12 ", "4.09 G", "25.6 M", "7 k", "1.5 P"]
