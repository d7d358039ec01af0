"""Hostile inputs at every entrance: each ends in one sentence and exit code 2, within seconds and two gigabytes."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile
import pytest

from forerun._util import limits
from forerun.capture import torch_compat
from forerun.cli import run
from forerun.errors import ForerunError, MissingPackage
from forerun.graph import cache

Run = Callable[..., subprocess.CompletedProcess[str]]
SECONDS, MEGABYTES = 20, 2048


def processor_seconds() -> float:
    """Of this process and its children; a busy machine does not change it much."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with a cache, a store and a home of its own, and no converter."""
    for name in ("CACHE", "STORE", "HOME"):
        monkeypatch.setenv(f"FORERUN_{name}", str(tmp_path / name.lower()))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_hostile_input_is_one_sentence(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In this process, since the frontends protect it: children that read a file inherit what is imported here."""
    import torch  # noqa: F401
    import transformers  # noqa: F401

    torch_compat.prepare()
    inputs = alone / "inputs"
    inputs.mkdir()
    corpus = hostile.corpus(inputs)
    assert len(corpus) >= 100
    before, faults = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    of_other_tests = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    for name, words in corpus.items():
        began = processor_seconds()
        code = run(words)
        took = processor_seconds() - began
        out, err = capsys.readouterr()
        one_line = err.startswith("forerun: ") and len(err) < 1500 and err[:-1].isprintable() and err[-1] == "\n"
        if code != 2 or out or not one_line or took > SECONDS:
            faults.append(f"{name}: exit code {code} after {took:.0f} s: {err[:300]!r} {out[:100]!r}")
    assert not faults, "\n".join(faults)
    assert not list(alone.rglob("owned*")), "a file's own code or SQL was run"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert grown < MEGABYTES * 1024 and largest <= max((MEGABYTES + 1024) * 1024, of_other_tests)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("device laughs", "expands to more than 100,000 values"),
        ("device brackets", "nested too deeply"),
        ("config layers", "'num_hidden_layers' is 1000000000"),
        ("onnx huge-input", "more than any machine holds"),
        ("query copy inside", "the query failed: Permission Error"),
    ],
)
def test_a_sample_in_a_process_of_its_own(start_forerun: Run, alone: Path, name: str, message: str) -> None:
    inputs = alone / "inputs"
    inputs.mkdir()
    done = start_forerun(*hostile.corpus(inputs)[name])
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""


def test_names_that_would_be_markup_are_printed_as_they_are(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from onnx import helper

    path = alone / "[bold] :x: net.onnx"
    path.write_bytes(hostile._onnx([helper.make_node("[/red]:x:\x1b[31m", ["x"], ["y"], domain="own")]))
    (alone / "[b] :x:.yaml").write_text(hostile.GOOD_CHIP.replace("chip", '"[/i] :x:"'))
    assert run(["explain", str(path), "--device", str(alone / "[b] :x:.yaml")]) == 0
    out = capsys.readouterr().out
    assert "[bold] :x: net on [b] :x:" in out and "own.[/red]:x:" in out and "\x1b" not in out
    assert run(["predict", str(path), "--device", str(alone / "[b] :x:.yaml")]) == 0
    assert "[bold] :x: net on [b] :x:" in capsys.readouterr().out
    assert run(["devices", str(alone / "[b] :x:.yaml")]) == 0
    assert "[/i] :x:" in capsys.readouterr().out


def test_a_cache_file_of_another_schema_is_written_again(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "cnn:depth=2,filters=8", "--device", "h200"]) == 0
    first = capsys.readouterr().out
    (kept,) = cache.folder().glob("*.json.z")
    whole = json.loads(zlib.decompress(kept.read_bytes()))
    wrong_sizes = json.loads(json.dumps(whole))
    wrong_sizes[0]["tensors"] = [[1]]
    others: list[Any] = [{"graphs": 1}, [1], [[]], "text", None, [{}], [{**whole[0], "ops": {}}], wrong_sizes]
    for other in others:
        kept.write_bytes(zlib.compress(json.dumps(other).encode()))
        assert run(["predict", "cnn:depth=2,filters=8", "--device", "h200"]) == 0, other
        assert capsys.readouterr().out == first
    kept.write_bytes(b"no zlib")
    assert run(["predict", "cnn:depth=2,filters=8", "--device", "h200"]) == 0


# -- the limits themselves ---------------------------------------------------------------------------------------


def too_much(megabytes: int) -> int:
    return len([bytearray(2**20) for _ in range(megabytes)])


def never_ends() -> None:
    while True:
        pass


def waits() -> None:
    time.sleep(60)


def crashes() -> None:
    faulthandler.disable()  # pytest's, which would print where
    os.kill(os.getpid(), signal.SIGSEGV)


def fails(kind: str) -> None:
    if kind == "missing":
        raise MissingPackage("this", "that", "pip install that")
    raise ForerunError("a sentence") if kind == "sentence" else RuntimeError("first line\nsecond line")


def echo(value: Any) -> Any:
    print("noise that is no answer")
    return value


SMALL = limits.Limits(cpu_s=1, wall_s=20, memory_mb=200)


@pytest.mark.parametrize("thread", [False, True], ids=["forked", "fresh interpreter"])
def test_what_ends_a_child_is_one_sentence(thread: bool) -> None:
    def ask(work: Any, *arguments: Any, allowed: limits.Limits = SMALL) -> Any:
        found: list[Any] = []

        def call() -> None:
            try:
                found.append(limits.run(work, *arguments, what="net.onnx", limits=allowed))
            except ForerunError as error:
                found.append(error)

        if thread:
            import threading

            worker = threading.Thread(target=call)
            worker.start()
            worker.join()
        else:
            call()
        return found[0]

    assert ask(echo, {"a": [1, None, "ü"]}) == {"a": [1, None, "ü"]}
    assert "200 MB of memory are the limit" in str(ask(too_much, 1000))
    assert "1 s of processor time are the limit" in str(ask(never_ends))
    assert "0 s are the limit" in str(ask(waits, allowed=limits.Limits(wall_s=0.4)))
    assert "crashes the library that reads it" in str(ask(crashes))
    assert str(ask(fails, "sentence")) == "a sentence"
    assert str(ask(fails, "other")) == "net.onnx cannot be read: RuntimeError: first line"
    missing = ask(fails, "missing")
    assert isinstance(missing, MissingPackage) and missing.command == "pip install that"


# -- output that cannot be written, or not in full ---------------------------------------------------------------


def shell(line: str, folder: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    command = f'{sys.executable} -c "from forerun.cli import main; main()" {line}'
    known = {**os.environ, **env}
    return subprocess.run(["sh", "-c", command], capture_output=True, cwd=folder, env=known, timeout=120)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_sentence(alone: Path) -> None:
    for line in ("devices > /dev/full", "devices --json > /dev/full"):
        done = shell(line, alone)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
        assert b"the output cannot be written: No space left on device" in done.stderr
    done = shell("data export /dev/full", alone)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1


def test_a_closed_output_is_no_error(alone: Path) -> None:
    assert shell("devices >&-", alone).returncode == 0


def test_an_ascii_terminal_gets_ascii(alone: Path) -> None:
    done = shell(
        "predict cnn:depth=2,filters=8 --device t4", alone, LANG="C", LC_ALL="C", PYTHONIOENCODING="ascii"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and b"..." in done.stdout and b"\\u" not in done.stdout
    done = shell("predict caf\u00e9\udcff.onnx --device t4", alone, LANG="C", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert done.returncode == 2 and done.stderr.isascii() and done.stderr.count(b"\n") == 1


# -- errors for programs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "resnet51", "--device", "h200"],
        ["predict", "resnet18", "--device", "h200", "--batch", "x"],
        ["predict", "resnet18"],
        ["compare", "resnet18", "--devices", ","],
        ["explain", "missing.onnx", "--device", "h200"],
        ["devices", "h20000"],
        ["models", "no-such-model-anywhere"],
        ["measure", "missing.onnx"],
        ["verify", "resnet51", "--device", "h20000"],
        ["sweep", "missing.yaml"],
        ["train", "no-such-predictor"],
        ["evaluate", "no-such-predictor"],
        ["data", "query", "select"],
        ["data", "import", "no-such-set", "."],
        ["data", "ls", "--colour"],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_with_json_an_error_is_json(alone: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert run([*words, "--json"]) == 2
    out, err = capsys.readouterr()
    assert isinstance(json.loads(out)["error"], str) and json.loads(out).keys() == {"error"}
    assert err == ""


def test_an_invalid_config_is_explained_in_full(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (alone / "config.json").write_text('{"model_type": "llama", "num_hidden_layers": "many"}')
    assert run(["predict", "config.json", "--device", "h200"]) == 2
    assert "num_hidden_layers" in (err := capsys.readouterr().err) and "many" in err and err.count("\n") == 1


def test_numbers_and_dtypes_as_people_write_them(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (alone / "chip.yaml").write_text(hostile.GOOD_CHIP.replace("900", "9e2"))
    words = ["predict", "cnn:depth=2,filters=8", "--device", "chip.yaml", "--json"]
    assert run([*words, "--batch", "9e2", "--dtype", "FP32"]) == 0
    written = json.loads(capsys.readouterr().out)
    (alone / "chip.yaml").write_text(hostile.GOOD_CHIP)
    assert run([*words, "--batch", "900"]) == 0
    assert json.loads(capsys.readouterr().out) == written


def test_the_catalogue_fits_80_columns(run_forerun: Run) -> None:
    lines = run_forerun("devices", COLUMNS="80").stdout.splitlines()
    assert len(lines) > 150 and max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
