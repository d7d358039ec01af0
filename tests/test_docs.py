"""The documents are true: every command is described, every example in the README runs."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from forerun.cli.app import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
Run = Callable[..., subprocess.CompletedProcess[str]]

#: Lines of shell blocks that call forerun on what every machine has.
EXAMPLES = [
    line.split("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", README, re.S)
    for line in block.splitlines()
    if line.startswith("forerun ")
]


def test_every_command_is_in_the_readme() -> None:
    for command in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"forerun {command}" in README, command


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
