"""The files that hosting services and tools read: they parse, and they name commands and versions that exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_continuous_integration_runs_the_script_of_the_repository() -> None:
    workflow = read(".github/workflows/ci.yml")
    assert ".ci/run" in [step.get("run") for step in steps(workflow)]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    triggers = workflow[True]  # YAML reads the key `on` as true
    assert "pull_request" in triggers and triggers["push"]["branches"] == ["main"]
    (job,) = workflow["jobs"].values()
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert job["strategy"]["matrix"]["python-version"][0] == oldest


@pytest.mark.parametrize("failing", ["nothing", "lint", "gate", "test", "wheel"])
def test_the_script_makes_everything_and_fails_with_whatever_fails(tmp_path: Path, failing: str) -> None:
    """With a `make` that says what it is asked for."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    make = tmp_path / "bin" / "make"
    make.parent.mkdir()
    make.write_text(f'#!/bin/sh\necho "made $1"\n[ "$1" != {failing} ]\n')
    make.chmod(0o755)
    path = os.pathsep.join([str(make.parent), os.environ["PATH"]])
    done = subprocess.run([tmp_path / ".ci" / "run"], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    made = [line.removeprefix("made ") for line in done.stdout.splitlines()]
    assert (done.returncode == 0) == (failing == "nothing")
    assert made[0] == ".venv/.ready" and {"lint", "gate"} <= set(made)
    afterwards = {"nothing": ["test", "wheel"], "test": ["test"], "wheel": ["test", "wheel"]}
    assert [one for one in made if one in ("test", "wheel")] == afterwards.get(failing, [])


def test_a_tag_builds_the_wheel_of_its_version() -> None:
    workflow = read(".github/workflows/release.yml")
    assert workflow[True]["push"]["tags"] == ["v*"]
    commands = "\n".join(step.get("run", "") for step in steps(workflow))
    assert "-m build" in commands and "GITHUB_REF_NAME#v" in commands
    for target in re.findall(r"make (\w+)", commands):
        assert f"\n{target}:" in (ROOT / "Makefile").read_text()
    # The check of the tag greps for this very line.
    assert f'version = "{PROJECT["project"]["version"]}"' in (ROOT / "pyproject.toml").read_text().splitlines()


def test_pre_commit_runs_what_make_lint_runs() -> None:
    hooks = [hook["entry"].split()[:2] for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    lint = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
    wanted = [line.strip().removeprefix("$(BIN)/").split()[:2] for line in lint.splitlines()[1:]]
    assert [words[0] for words in hooks] == [words[0] for words in wanted] == ["ruff", "ruff", "mypy", "lint-imports"]
    installed = " ".join(PROJECT["project"]["optional-dependencies"]["dev"])
    assert all(tool in installed for tool in ("ruff", "mypy", "import-linter"))


@pytest.mark.parametrize("path", [t for t in TEMPLATES if t.name != "config.yml"], ids=lambda p: p.stem)
def test_issue_forms_ask_for_the_doctors_report(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert form["name"] and form["description"]
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids)
    request = {field["id"]: field["attributes"]["label"] for field in form["body"]}
    assert "forerun doctor --json" in request["doctor"]


def test_there_are_issue_forms_and_a_pull_request_template() -> None:
    assert len(TEMPLATES) >= 3
    assert "forerun doctor --json" in (ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md").read_text()


def test_citation_names_the_version_and_the_licence() -> None:
    citation = read("CITATION.cff")
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert citation["authors"] and citation["message"] and citation["title"] == PROJECT["project"]["name"]
    assert citation["version"] == PROJECT["project"]["version"]
    assert citation["license"] == PROJECT["project"]["license"]


def test_the_version_is_the_same_everywhere() -> None:
    import forerun

    assert forerun.__version__ == PROJECT["project"]["version"]


def test_constraints_hold_every_tool_of_make_lint() -> None:
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    assert {"ruff", "mypy", "import-linter"} <= pinned
