"""Answers to assistants are short: 8 kB, with `detail`, `fields` and `page` for the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp_calls import Calls, data, over_http, over_stdio, refusal
from web_server import Served

import forerun
from forerun.frontends.known_models import known_models
from forerun.web.paging import pages

MODEL = "cnn:depth=2,filters=8"


def test_every_answer_is_short_and_the_rest_can_be_asked_for(served: Served) -> None:
    case = {"model": MODEL, "device": "l4"}
    many = ["t4", "l4", "a10g", "a100", "h100-sxm", "h200", "l40s", "v100-sxm2-16gb", "rtx4090", "rtx3090", "mi300x"]
    calls: Calls = [
        ("predict", case),
        ("explain", case),
        ("optimise", case),
        ("compare", {"model": MODEL, "devices": many}),
        ("recommend", {"model": MODEL, "devices": many}),
        ("devices", {}),
        ("models", {}),
        *((tool, {**case, "detail": "full"}) for tool in ("predict", "explain", "optimise")),
        ("compare", {"model": MODEL, "devices": many, "detail": "full"}),
        ("recommend", {"model": MODEL, "devices": many, "detail": "full", "candidates": True}),
        ("devices", {"detail": "full", "page": 2}),
    ]
    results = [data(result) for result in over_http(served, calls)]
    brief = dict(zip((tool for tool, _ in calls), results[:7], strict=False))
    assert "provenance" in brief["predict"]["more"]["left_out"] and brief["predict"]["latency_ms"]["low"] > 0
    # Before, this answer had more than 100,000 characters.
    assert brief["recommend"]["rows"][0]["device"] in many and len(brief["recommend"]["rows"]) == 6
    assert any(words.startswith("rows: ") for words in brief["recommend"]["more"]["left_out"])
    assert brief["models"]["more"]["pages"] > 3 and brief["devices"]["more"]["pages"] > 1
    assert results[-2]["more"]["pages"] > 10


def test_pages_together_are_the_whole_answer(tmp_path: Path) -> None:
    first = data(over_stdio([("models", {})], tmp_path)[0])
    calls: Calls = [("models", {"page": n}) for n in range(2, first["more"]["pages"] + 1)]
    rest = over_stdio([*calls, ("models", {"page": 1000})], tmp_path)
    full: dict[str, list[Any]] = {}
    for part in (first, *(data(one) for one in rest[:-1])):
        for name, values in part.items():
            if name != "more":
                full[name] = full.get(name, []) + values
    assert full == json.loads(json.dumps(known_models()))
    assert refusal(rest[-1]).startswith("there is no page 1000: the answer has ")


def test_fields_are_picked_from_the_full_answer_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    case = {"model": MODEL, "device": "l4"}
    fields = ["latency_ms", "provenance.libraries", "mig_options.profile"]
    result, full, wrong, bad = over_stdio(
        [
            ("predict", {**case, "device": "a100", "fields": fields}),
            ("predict", {**case, "device": "a100", "detail": "full"}),
            ("predict", {**case, "fields": ["latency"]}),
            ("predict", {**case, "batch": "many"}),
        ],
        tmp_path,
    )
    picked, complete = data(result), data(full)
    expected = forerun.predict(MODEL, "a100").to_dict()
    assert complete == json.loads(json.dumps(expected))
    assert set(picked) == {"latency_ms", "provenance", "mig_options"}
    assert picked["latency_ms"] == complete["latency_ms"]
    assert picked["provenance"] == {"libraries": complete["provenance"]["libraries"]}
    assert picked["mig_options"] == [{"profile": one["profile"]} for one in complete["mig_options"]]
    assert "no field 'latency'. Did you mean latency_ms" in refusal(wrong)
    assert refusal(bad).startswith("batch: ")


WORDS = st.text(max_size=20)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | WORDS
JSON = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=6) | st.dictionaries(st.text(max_size=4), below, max_size=4),
    max_leaves=12,
)


def _leaves(tree: Any) -> Iterator[str]:
    below = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    if not below:
        yield repr(tree)
    for one in below:
        yield from _leaves(one)


@given(st.dictionaries(st.text(max_size=4), JSON, min_size=1, max_size=4), st.integers(1, 12), st.integers(1000, 3000))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_pages_are_short_and_lose_nothing(part: dict[str, Any], times: int, most: int) -> None:
    answer = {"head": 1, **part, "rows": [part] * times, "last": "x"}
    result = pages(answer, most)
    assert all(len(orjson.dumps(page)) <= most for page in result)
    assert [leaf for page in result for leaf in _leaves(page)] == list(_leaves(answer))


def test_a_text_that_is_longer_than_a_page_is_cut() -> None:
    words = "Größe \u0001" * 3000
    result = pages({"a": 1, "rows": [{"words": words, "b": 2}]}, 2000)
    assert all(len(orjson.dumps(page)) <= 2000 for page in result)
    assert "".join(row.get("words", "") for page in result for row in page.get("rows", [])) == words
