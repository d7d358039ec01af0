"""Coverage: small models of every kind are answered on every device with the needed specs, and
what is not answered has its reason."""

from __future__ import annotations

import json
import runpy
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from forerun.device import all_devices
from forerun.evaluate.answered import (
    Question,
    answered,
    architectures,
    drawn,
    failures,
    known_devices,
    totals,
)

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

SMALL = [
    Question("timm", "timm/resnet18"),
    Question("torchvision", "torchvision/squeezenet1_1"),
    Question("Hugging Face, encoder", "prajjwal1/bert-tiny"),
    Question("Hugging Face, causal-lm", "gpt2", "decode"),
    Question("families", "cnn:depth=3,filters=8,classes=10"),
]


def test_small_models_are_answered_on_every_device() -> None:
    devices = known_devices()
    assert 100 < len(devices) <= len(all_devices())
    found = answered(SMALL, devices)
    assert failures(found).empty, failures(found).to_string()
    whole = totals(found).set_index("source").loc["all"]
    assert (whole["models"], whole["devices"], whole["share"]) == (len(SMALL), len(devices), 1.0)
    assert whole["cases"] == whole["answered"] == len(SMALL) * len(devices)


def test_what_is_not_answered_is_named() -> None:
    unknown = replace(known_devices()[2], id="no-peaks", peak_tflops={})
    questions = [Question("timm", "timm/no_such_model"), Question("families", "cnn:depth=3,filters=8")]
    found = answered(questions, [*known_devices()[:2], unknown])
    assert list(found["answered"]) == [0, 2]
    wanting = failures(found)
    assert list(wanting["devices"]) == [3, 1]
    assert "no model is called" in wanting["reason"].iloc[0]
    assert wanting["such as"].iloc[1] == unknown.id
    assert "has no known" in wanting["reason"].iloc[1]


def test_an_exception_is_a_reason_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr("forerun.evaluate.answered.predict_many", broken)
    found = answered(SMALL[:1], known_devices()[:3])
    assert found["unanswered"].iloc[0] == {"RuntimeError: first line": [d.id for d in known_devices()[:3]]}


def test_a_sample_is_even_over_the_sources_and_always_the_same() -> None:
    questions = architectures()
    some = drawn(questions, 60)
    assert some == drawn(questions, 60)
    assert len(set(some)) == 60
    assert set(Counter(q.source for q in some).values()) == {10}
    assert sorted(drawn(questions, 10**6), key=repr) == sorted(questions, key=repr)


def test_a_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    # By its path, since a package on PyPI is called coverage too.
    coverage = SimpleNamespace(**runpy.run_path(str(BENCHMARKS / "answer_all.py")))
    path = tmp_path / "lines.jsonl"
    lines = [{"model": "a", "asked": 3, "answered": 3}, {"model": "b", "asked": 3, "answered": 2}]
    assert list(coverage.keeping(iter(lines), 2, path)) == lines
    path.write_text(path.read_text() + json.dumps(lines[0])[:-5])  # stopped while it wrote
    assert set(coverage.kept(path, 3)) == {"a"}  # what had no answer is asked again
    assert not coverage.kept(path, 4)
    assert not coverage.kept(tmp_path / "none.jsonl", 3)
