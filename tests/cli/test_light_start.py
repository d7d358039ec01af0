"""What a command does not need it does not import, and what it remembers it forgets when the source changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from forerun._util.installed import version
from forerun._util.remembered import remembered
from forerun.device.reading import CATALOG, read_yaml

HEAVY = (
    "torch", "timm", "transformers", "pandas", "pyarrow", "duckdb", "pydantic", "yaml", "importlib.metadata",
    "numpy.ma", "statistics", "zipfile", "tempfile", "concurrent.futures", "html", "forerun.api.explanation",
    "forerun.measure.core.protocol", "forerun.frontends.converters.environment",
)  # fmt: skip
SAYS = "import sys; from forerun.cli import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"


def test_a_prediction_of_a_cached_graph_imports_only_what_it_uses(tmp_path: Path) -> None:
    words = [sys.executable, "-c", SAYS, "predict", "resnet18", "--device", "a100"]
    env = {**os.environ, "FORERUN_STORE": str(tmp_path)}
    for _ in range(2):  # the first captures the graph where nothing has
        done = subprocess.run(words, env=env, check=True, capture_output=True, text=True)
    assert "Latency" in done.stdout
    assert set(done.stderr.split()).isdisjoint(HEAVY)


def test_a_command_is_imported_when_it_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", SAYS, "--version"], check=True, capture_output=True, text=True)
    loaded = {name for name in done.stderr.split() if name.startswith("forerun.cli.")}
    assert loaded <= {"forerun.cli.app", "forerun.cli.plain_values", "forerun.cli.terminal", "forerun.cli.progress"}


def test_what_is_remembered_is_made_anew_when_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "source.txt"

    def length() -> int:
        return remembered("length", [source], lambda: len(source.read_text()))

    source.write_text("one")
    assert length() == 3
    (tmp_path / "cache" / "length.json").write_text("{damaged")
    assert length() == 3
    source.write_text("three")
    assert length() == 5


@pytest.mark.parametrize("path", sorted(CATALOG.glob("**/*.yaml")), ids=lambda path: path.stem)
def test_the_remembered_catalogue_says_what_its_files_say(path: Path) -> None:
    read_yaml(path)
    assert _as_text(read_yaml(path)) == _as_text(yaml.load(path.read_text(), Loader=yaml.CSafeLoader))


def _as_text(value: object) -> object:
    """Names and dates as text, as JSON has them."""
    if isinstance(value, dict):
        return {str(name): _as_text(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_as_text(one) for one in value]
    return value if isinstance(value, (int, float, bool)) or value is None else str(value)


def test_the_version_of_a_package_is_that_of_its_metadata() -> None:
    from importlib import metadata

    assert version("PyYAML") == version("pyyaml") == metadata.version("pyyaml")
    with pytest.raises(ModuleNotFoundError):
        version("no-such-package")
