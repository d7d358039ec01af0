"""Sixteen models of the catalogue and of timm, drawn with a fixed seed; `make capture` does them all."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import capture_all

SAMPLE = random.Random(7).sample(capture_all.cases(), 16)


@pytest.mark.parametrize("case", SAMPLE, ids=lambda c: "-".join(c).replace("/", "_"))
def test_it_is_captured_with_a_law_for_every_op(case: tuple[str, str]) -> None:
    found = capture_all.capture(case)
    assert found["ok"], found.get("why")
    assert found["macs"] > 0  # type: ignore[operator]
    assert found["scalable"]
    assert not [n for n in found["notes"] if "no cost law" in n]  # type: ignore[union-attr]
