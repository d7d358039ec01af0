"""Captured graphs on disk: found again, rebuilt when damaged, safe under two processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.frontends.settings import FamilyFrontend
from forerun.graph import cache
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
    monkeypatch.setattr(FamilyFrontend, "load", lambda *_: pytest.fail("captured again"))
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


def test_graphs_belong_to_the_code_that_captured_them(empty_cache: Path, tmp_path: Path) -> None:
    """A copy of the package: a comment leaves its graphs valid, another line of code does not."""
    copy, source = tmp_path / "copy" / "forerun", Path(cache.__file__).parents[1]
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("shipped", "__pycache__"))
    code = f"from forerun.frontends import load_graph as g; from forerun.workload import Workload as W; g(W({CASE!r}))"

    def kept() -> int:
        env = {**os.environ, "FORERUN_CACHE": str(empty_cache), "PYTHONPATH": str(copy.parent)}
        subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=120)
        return len(files(empty_cache))

    assert kept() == 1
    fold = copy / "capture" / "fold.py"
    text = fold.read_text()
    fold.write_text(text.replace('"""', '"""Said otherwise. ', 1) + "\n# a remark\n")
    assert kept() == 1
    fold.write_text(text + "\nMORE = 1\n")
    assert kept() == 2
    fold.write_text(text)
    assert kept() == 2


def test_the_oldest_graphs_go_when_there_are_too_many(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = empty_cache / "graphs-v15"  # graphs of a forerun that numbered its versions by hand
    older.mkdir()
    (older / "0.json.z").write_bytes(b"0")
    for batch, depth in enumerate((2, 3, 4, 5), 1):
        load_graph(Workload(f"cnn:depth={depth},filters=4"))
        (newest,) = set(files(empty_cache / "graphs")) - {path for path, _ in _used(empty_cache)[: batch - 1]}
        os.utime(newest, (1e9 + batch * 86_400, 1e9 + batch * 86_400))
    assert not older.exists() and len(_used(empty_cache)) == 4
    load_graph(Workload("cnn:depth=2,filters=4"))  # it is used, so it is not the oldest any more
    sizes = [path.stat().st_size for path, _ in _used(empty_cache)]
    monkeypatch.setenv("FORERUN_CACHE_MB", str(3 * max(sizes) / 2**20))
    before = [path for path, _ in _used(empty_cache)]
    load_graph(Workload("cnn:depth=6,filters=4"))
    left = files(empty_cache)
    assert before[0] not in left and before[-1] in left and len(left) < 5
    assert sum(path.stat().st_size for path in left) <= 3 * max(sizes)


def _used(folder: Path) -> list[tuple[Path, float]]:
    """The kept graphs, those that were not used for longest first."""
    return sorted(((path, path.stat().st_mtime) for path in files(folder)), key=lambda pair: pair[1])


def test_a_limit_that_is_not_a_number_is_one_sentence(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_CACHE_MB", "plenty")
    with pytest.raises(ForerunError, match="FORERUN_CACHE_MB must be a number of megabytes above 0, got 'plenty'"):
        load_graph(Workload(CASE))


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
