"""Captured graphs on disk: found again, rebuilt when damaged, safe under two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forerun.graph import cache
from forerun.graph.sources import load_graph
from forerun.graph.sources.families import FamilyDoor
from forerun.workload import Workload

CASE = "cnn:depth=3,filters=4"


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path))
    return tmp_path


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.json.z"))


def test_the_second_time_nothing_is_captured(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_graph(Workload(CASE, batch=4))
    monkeypatch.setattr(FamilyDoor, "load", lambda *_: pytest.fail("captured again"))
    again = load_graph(Workload(CASE, batch=4))
    other = load_graph(Workload(CASE, batch=9))  # one capture serves every batch
    assert again.content_hash() == first.content_hash() != other.content_hash()
    assert again.to_dict() == first.to_dict()
    assert len(files(empty_cache)) == 1


def test_settings_that_change_the_graph_have_entries_of_their_own(empty_cache: Path) -> None:
    for settings in ({}, {"dtype": "fp16"}, {"mode": "training"}, {"mode": "training", "optimizer": "adam"}):
        load_graph(Workload(CASE, **settings))  # type: ignore[arg-type]
    assert len(files(empty_cache)) == 4


@pytest.mark.parametrize("damage", [b"", b"not zlib", None], ids=["empty", "garbage", "truncated"])
def test_a_damaged_entry_is_rebuilt(empty_cache: Path, damage: bytes | None) -> None:
    whole = load_graph(Workload(CASE))
    (entry,) = files(empty_cache)
    good = entry.read_bytes()
    entry.write_bytes(good[: len(good) // 2] if damage is None else damage)
    assert load_graph(Workload(CASE)).content_hash() == whole.content_hash()
    assert files(empty_cache)[0].read_bytes() == good


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("FORERUN_CACHE", str(blocked))
    graph = load_graph(Workload(CASE))
    assert graph.parameters == (3 * 36 + 4) + (4 * 36 + 4) + (4 * 72 + 8) + (8 * 10 + 10)
    assert blocked.read_text() == "in the way"


def test_two_processes_at_once(empty_cache: Path) -> None:
    load_graph(Workload(CASE))
    (entry,) = files(empty_cache)
    code = (
        "from forerun.graph import cache\n"
        f"(g,) = cache.read({entry.name.removesuffix('.json.z')!r})\n"
        "for _ in range(200):\n"
        "    cache.write('shared', [g]); assert cache.read('shared')[0].content_hash() == g.content_hash()\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "FORERUN_CACHE": str(empty_cache)})
        for _ in range(2)
    ]
    assert [p.wait(timeout=120) for p in running] == [0, 0]
    assert not list(empty_cache.rglob("*.part"))
    assert cache.clear() == 2 and not files(empty_cache)
