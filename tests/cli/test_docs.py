"""The documents are true: every command and option is described, every example parses, and those of README and of the
pages by task run."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx_files
import pytest
import typer
import warm
import yaml

from forerun.cli import run
from forerun.cli.app import app
from forerun.data.importers import importers
from forerun.device import all_devices
from forerun.device.carbon import grid_ids
from forerun.device.cloud import all_instances

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = (ROOT / "docs" / "COMMANDS.md").read_text()
#: README and the pages by task, whose examples run. Those of COMMANDS.md are parsed.
TASKS = ("PREDICT", "CHOOSE", "SERVING", "BUDGET", "MEASURE", "TRAIN", "SERVE", "EXTEND")
PAGES = {"README.md": README} | {f"docs/{name}.md": (ROOT / "docs" / f"{name}.md").read_text() for name in TASKS}
GUIDE = "\n".join(PAGES.values())
Run = Callable[..., subprocess.CompletedProcess[str]]


def shell_lines(page: str) -> list[tuple[str, str]]:
    """Lines of shell blocks that call forerun, each with its comment."""
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, re.S) for line in block.splitlines()]
    calls = [line.partition(" #") for line in lines if line.startswith("forerun ")]
    return [(call.strip(), comment.strip()) for call, _, comment in calls]


#: Examples that are not run, by how they begin; the reason stands in the comment beside each. Other tests run these
#: commands on less.
NOT_RUN = {
    "forerun serve": "http://", "forerun mcp": "starts", "forerun install": "downloads",
    "forerun sweep": "minutes", "forerun train": "hours", "forerun tune": "hours", "forerun evaluate --fits": "minutes",
    "forerun evaluate --cards": "needs",
    "forerun evaluate default --split device": "hours", "forerun evaluate --out": "hours",
    "forerun predict resnet50 --device h200 --predictor": "needs", "forerun predict gpt2 --predictor my_trees": "needs",
    "forerun evaluate two-numbers": "needs",
    "forerun data card": "writes", "forerun measure host": "half a minute", "forerun measure machine": "half a minute",
    "forerun landscape import": "needs", "forerun landscape estimate --like": "needs",
    "forerun landscape explain": "needs",
    "forerun landscape trends": "needs", "forerun landscape fill": "needs", "forerun landscape experiments": "needs",
}  # fmt: skip


def why_not_run(line: str) -> str | None:
    return next((reason for start, reason in NOT_RUN.items() if line.startswith(start)), None)


#: By page; an example that several pages have is run once.
EXAMPLES = {
    line: page for page, text in reversed(PAGES.items()) for line, _ in shell_lines(text) if not why_not_run(line)
}
#: Pages whose examples run as commands of a shell do; those of the others run in one process, which shares captures.
IN_PROCESSES = ("README.md", "docs/MEASURE.md")


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
        assert f"forerun {command}" in GUIDE, command


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


def test_capabilities_name_commands_that_exist() -> None:
    page = (ROOT / "docs" / "CAPABILITIES.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\| .* \|$", page, re.M)]
    rows = [row for row in rows if row[0] != "capability"]
    assert len(rows) == 194 and len({tuple(row[:2]) for row in rows}) > 180
    for _, command, where, state, why in rows:
        words = command.strip("`").split()[1:]
        assert any(tuple(words[:n]) in LEAVES for n in (2, 1)), command
        linked = re.fullmatch(r"\[\w+\]\((\w+\.md)\)", where)
        assert linked is not None and (ROOT / "docs" / linked[1]).is_file(), where
        assert state in ("there", "partly", "not") and bool(why) == (state != "there")


def test_every_command_has_an_example_that_parses() -> None:
    pages = [README, (ROOT / "CONTRIBUTING.md").read_text(), *(p.read_text() for p in (ROOT / "docs").glob("*.md"))]
    seen = set()
    for line in [line for page in pages for line, _ in shell_lines(page)]:
        words = shlex.split(line)[1:]
        path = next(tuple(words[:n]) for n in (2, 1) if tuple(words[:n]) in LEAVES)
        LEAVES[path].make_context(line, words[len(path) :])  # raises on a word that the command does not take
        seen.add(path)
    assert seen == set(LEAVES)


def test_the_parser_behind_these_tests_refuses_what_is_wrong() -> None:
    for words in (["resnet50"], ["resnet50", "-d", "t4", "--divice", "t4"], ["resnet50", "-d", "t4", "-b", "many"]):
        with pytest.raises(Exception, match=r"device|divice|whole number"):
            LEAVES["predict",].make_context("predict", words)


def test_the_guide_counts_the_catalogue() -> None:
    usable = [d for d in all_devices() if d.bandwidth_gbs and d.peak_tflops]
    match = re.search(r"\*\*Devices\*\*: (\d+) in the catalogue .*?, (\d+)\s+of\s+them", GUIDE, re.S)
    assert match is not None
    assert (int(match[1]), int(match[2])) == (len(all_devices()), len(usable))


def test_counts_of_the_catalogue_are_true(run_forerun: Run) -> None:
    names = json.loads(run_forerun("models", "--json").stdout)
    architectures, families = len(names["huggingface"]), len(names["families"])
    assert f"one of {families} built-in families, by its settings" in GUIDE
    assert f"{architectures} of {architectures} Hugging Face architectures" in " ".join(GUIDE.split())
    changes = (ROOT / "CHANGELOG.md").read_text()
    grids = grid_ids()
    regions = sum("/" in name for name in grids)
    assert f"Hugging Face ({architectures} architectures offline" in changes
    assert f"{len(importers())} published data sets" in changes
    assert (
        f"Catalogue: {len(all_devices())} devices, MIG profiles, {len(all_instances())} cloud instances with prices, "
        f"{len(grids) - regions - 1} countries and {regions} cloud regions" in changes  # one is the whole world
    )


def test_operators_that_were_added_for_hard_networks_are_listed() -> None:
    """A spec of operators that says it was drawn by errors on held-out networks is listed in the scoreboard."""
    specs = [yaml.safe_load(path.read_text()) for path in (ROOT / "sweeps").glob("h200_operators*.yaml")]
    drawn = {spec["name"]: spec["n"] for spec in specs if re.search(r"hardest|furthest from", spec["about"])}
    listed = " ".join((ROOT / "docs" / "SCOREBOARD.md").read_text().split())
    assert len(drawn) >= 4 and all(f"`{name}`" in listed for name in drawn)
    assert f"{sum(drawn.values()):,} draws in all" in listed


def test_every_make_target_is_real() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"`?make ([a-z]+)(?:`| [A-Z]+=|  )", GUIDE)):
        assert f"\n{target}:" in makefile, target


def test_examples_that_are_not_run_say_why() -> None:
    lines = [pair for text in PAGES.values() for pair in shell_lines(text)]
    assert all(any(line.startswith(start) for line, _ in lines) for start in NOT_RUN)
    assert [line for line, comment in lines if (why_not_run(line) or "") not in comment] == []


def test_pages_link_to_what_exists() -> None:
    for page in (*PAGES, "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/DESIGN.md", "docs/COMMANDS.md"):
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.S)
        for path, anchor in re.findall(r"\]\((?!http)([^)#\s]*)(?:#([^)\s]+))?\)", text):
            target = (ROOT / page).parent / path if path else ROOT / page
            assert target.exists(), f"{page}: {path}"
            if anchor:
                heads = re.findall(r"^#+ (.*)$", target.read_text(), re.M)
                anchors = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
                assert anchor in anchors, f"{page}: {path}#{anchor}"


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/DESIGN.md", "docs/EXTEND.md"])
def test_files_and_names_in_the_code_exist(page: str) -> None:
    """A file is written `graph/cost.py`, what is in it `graph/cost.py: cost` or `capture/steps.py: DecodeStep.held`."""
    results = re.findall(r"`([\w./]+/[\w./]+\.(?:py|yaml|json\.gz))(?:: ([\w.]+))?`", (ROOT / page).read_text())
    assert len(results) > 10
    for path, name in results:
        file = next((f for f in (ROOT / "src" / "forerun" / path, ROOT / path) if f.is_file()), None)
        assert file is not None, path
        for part in filter(None, name.split(".")):
            defined = rf"^ *(?:async def|def|class) {part}\b|^{part}\b.*?="
            assert re.search(defined, file.read_text(), re.M), f"{path}: {name}"


@pytest.fixture
def with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files that examples name: those that pages show, and a model in ONNX."""
    for name, text in re.findall(r"```(?:python|yaml)\n# ([\w.]+)\n(.*?)```", GUIDE, re.S):
        (tmp_path / name).write_text(text)
    w = onnx_files.weight("w", 8, 3, 3, 3)
    conv = onnx_files.helper.make_node("Conv", ["x", "w"], ["y"])
    net = onnx_files.model([conv], {"x": (onnx_files.FLOAT, ["batch", 3, 32, 32])}, ["y"], [w])
    (tmp_path / "model.onnx").write_bytes(net.SerializeToString())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("line", "page"), EXAMPLES.items())
def test_shell_examples_run(
    line: str, page: str, with_files: Path, run_forerun: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(ROOT / word) if "/" in word and (ROOT / word).is_file() else word for word in shlex.split(line)[1:]]
    if page in IN_PROCESSES:
        done = run_forerun(*words)
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        code = run(words)
        out, err = capsys.readouterr()
    assert code == 0, err
    assert out.strip()


def test_the_first_answer_of_the_readme_is_what_the_command_prints(run_forerun: Run) -> None:
    (line, _), *_ = shell_lines(README)
    shown = re.search(r"```text\n(.*?)```", README, re.S)
    assert shown is not None and " predict " in line
    printed = " ".join(run_forerun(*shlex.split(line)[1:]).stdout.split())
    for part in shown[1].split("...\n"):
        assert " ".join(part.split()) in printed


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if "```python" in text])
def test_python_examples_run(page: str, with_files: Path) -> None:
    """The blocks of a page, one after another in a process of their own: what they register stays there."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGES[page], re.S))
    done = warm.run(["-c", code])
    assert done.returncode == 0, done.stderr
