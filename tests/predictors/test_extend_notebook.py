"""The notebook that adds a device, a frontend, an importer, a predictor and a meter, run as Jupyter runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "extend.ipynb"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What every cell with code shows: its prints and its value."""
    import nbclient
    import nbformat

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        patch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path_factory.mktemp("jupyter")))
        book = nbformat.read(NOTEBOOK, as_version=4)
        nbclient.NotebookClient(book, timeout=900, kernel_name="python3").execute()
    return [_text(cell) for cell in book.cells if cell.cell_type == "code"]


def _text(cell: Any) -> str:
    return "".join(one.get("text") or one.get("data", {}).get("text/plain", "") for one in cell.outputs)


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]


def test_a_registered_device_is_predicted(shown: list[str]) -> None:
    assert shown[1] == "'acme-x1'"


def test_a_registered_frontend_reads_its_files(shown: list[str]) -> None:
    assert int(shown[2]) == 64 * 256 + 256 + 256 * 10 + 10


def test_a_registered_importer_brings_its_rows(shown: list[str]) -> None:
    assert "24" in shown[3] and shown[3].endswith("0")


def test_a_registered_predictor_is_trained_and_judged_on_gpus_that_were_held_out(shown: list[str]) -> None:
    trained, predicted, judged = shown[4:7]
    assert "written to" in trained and trained.endswith("0")
    assert "ms" in predicted
    gpus = judged.partition("Models on a held-out GPU")[2]
    for device in ("t4", "a10g", "v100-pcie-16gb", "rtx3090"):
        (line,) = [line for line in gpus.splitlines() if f" {device} " in line and "two-numbers" in line]
        assert line.split()[0] == "acme_times"
    assert judged.endswith("0")


def test_a_registered_meter_measures(shown: list[str]) -> None:
    assert '"kind": "wall-clock"' in shown[7] and '"name": "Wall Clock"' in shown[7]


def test_what_cannot_be_registered_is_one_sentence_each(shown: list[str]) -> None:
    first, second = shown[8].splitlines()
    assert "register takes a predictor, a frontend, an importer, a meter" in first and "got 42" in first
    assert "a predictor called default is installed" in second and "by another name" in second
