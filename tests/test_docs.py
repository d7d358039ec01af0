"""The documents are true: every command and option is described, every example parses, those of the README run."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from forerun.cli.app import app
from forerun.device import all_devices

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS = (ROOT / "docs" / "COMMANDS.md").read_text()
Run = Callable[..., subprocess.CompletedProcess[str]]


def shell_lines(page: str) -> list[str]:
    """Lines of shell blocks that call forerun, without their comments."""
    return [
        line.split("#")[0].strip()
        for block in re.findall(r"```sh\n(.*?)```", page, re.S)
        for line in block.splitlines()
        if line.startswith("forerun ")
    ]


#: Commands that run until they are stopped; tests of their own use them.
SERVERS = ("forerun serve", "forerun mcp")
EXAMPLES = [line for line in shell_lines(README) if not line.startswith(SERVERS)]


def leaves(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that lead to it."""
    command = command or typer.main.get_command(app)
    for name, below in getattr(command, "commands", {}).items():
        yield from leaves(below, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


LEAVES = dict(leaves())
SECTIONS = {
    tuple(title.split()): text for title, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", COMMANDS, re.M | re.S)
}


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    assert {("forerun", *path) for path in LEAVES} == {title for title in SECTIONS if title[0] == "forerun"}
    for command in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"forerun {command}" in README, command


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_option_is_documented_and_every_documented_option_exists(path: tuple[str, ...]) -> None:
    text = SECTIONS[("forerun", *path)]
    own = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))
    shared = set(re.findall(r"`(--[a-z0-9-]+)`", SECTIONS["Settings", "of", "a", "workload"]))
    known = {name: param.opts for param in LEAVES[path].params for name in (*param.opts, *param.secondary_opts)}
    known = {name: opts for name, opts in known.items() if name.startswith("--")}
    documented = own | (shared if "settings of a workload" in " ".join(text.lower().split()) else set())
    # `--no-x` need not be named beside `--x`.
    assert {name for name, opts in known.items() if not documented & {name, *opts}} == set()
    assert own - set(known) == set()


def test_every_command_has_an_example_that_parses() -> None:
    pages = [README, (ROOT / "CONTRIBUTING.md").read_text(), *(p.read_text() for p in (ROOT / "docs").glob("*.md"))]
    seen = set()
    for line in [line for page in pages for line in shell_lines(page)]:
        words = shlex.split(line)[1:]
        path = next(tuple(words[:n]) for n in (2, 1) if tuple(words[:n]) in LEAVES)
        LEAVES[path].make_context(line, words[len(path) :])  # raises on a word that the command does not take
        seen.add(path)
    assert seen == set(LEAVES)


def test_the_parser_behind_these_tests_refuses_what_is_wrong() -> None:
    for words in (["resnet50"], ["resnet50", "-d", "t4", "--divice", "t4"], ["resnet50", "-d", "t4", "-b", "many"]):
        with pytest.raises(Exception, match=r"device|divice|whole number"):
            LEAVES["predict",].make_context("predict", words)


def test_the_readme_counts_the_catalogue() -> None:
    usable = [d for d in all_devices() if d.bandwidth_gbs and d.peak_tflops]
    found = re.search(r"\*\*Any device\*\*: (\d+) in the catalogue .*?, (\d+)\s+of them", README, re.S)
    assert found is not None
    assert (int(found[1]), int(found[2])) == (len(all_devices()), len(usable))


def test_every_make_target_is_real() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"make (\w+)", README)):
        assert f"\n{target}:" in makefile, target


@pytest.mark.parametrize("line", [e for e in EXAMPLES if " install " not in e and "model.onnx" not in e])
def test_shell_examples_run(line: str, run_forerun: Run) -> None:
    words = [str(ROOT / word) if "/" in word and (ROOT / word).is_file() else word for word in shlex.split(line)[1:]]
    done = run_forerun(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_python_examples_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
