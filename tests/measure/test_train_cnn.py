"""The starter script and the notebook that train CNNs: parts, tables, plots and prints, from tiny images."""

from __future__ import annotations

import csv
import importlib
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import warm

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """The names of the script, imported as the notebook imports it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        return vars(importlib.import_module("train_cnn"))


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    """Images whose class shows: a bright row for each, so that a network can learn something."""
    draw = np.random.default_rng(0)
    out = {}
    for name, count in (("train", 200), ("test", 50)):
        labels = draw.integers(0, 10, count)
        images = draw.integers(0, 60, (count, 3, 32, 32)).astype(np.uint8)
        images[np.arange(count), :, 3 * labels] = 250
        out |= {f"x_{name}": images, f"y_{name}": labels.astype(np.uint8)}
    return out


def test_a_grid_of_networks_is_trained_and_written(
    script: dict[str, Any], arrays: dict[str, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "images.npz", **arrays)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # such small work takes longer on many
    words = ["--data", str(tmp_path / "images.npz"), "--depth", "1,2", "--filters", "4", "--batch", "32"]
    script["main"]([*words, "--epochs", "2", "--device", "cpu", "-o", str(tmp_path / "runs")])
    torch.set_num_threads(threads)
    said = capsys.readouterr().out
    assert "Conv2d" in said and "epoch   2:" in said and "images/s" in said and "test: loss" in said
    rows = list(csv.DictReader((tmp_path / "runs" / "runs.csv").open()))
    assert [(r["depth"], r["filters"], r["batch"]) for r in rows] == [("1", "4", "32"), ("2", "4", "32")]
    for row in rows:
        assert int(row["training_images"]) == 180  # a tenth is held out for validation
        assert float(row["images_per_s"]) == pytest.approx(180 / float(row["epoch_s"]), rel=0.02)
        assert 0 <= float(row["test_accuracy"]) <= 1 and int(row["parameters"]) > 100
    epochs = list(csv.DictReader((tmp_path / "runs" / "epochs.csv").open()))
    assert len(epochs) == 4 and float(epochs[1]["training_loss"]) < float(epochs[0]["training_loss"])
    for name in ("accuracy.png", "loss.png"):
        assert (tmp_path / "runs" / name).stat().st_size > 5_000


@pytest.mark.parametrize("script", ["cnn_study.py", "tensor_cores.py"])
def test_the_pages_have_the_figures_of_their_rows(script: str) -> None:
    done = warm.run([str(EXAMPLES.parent / "benchmarks" / script), "--check"])
    assert done.returncode == 0, done.stderr


def test_the_published_files_are_read_alike(
    script: dict[str, Any], arrays: dict[str, np.ndarray], tmp_path: Path
) -> None:
    binary, pickled = tmp_path / "bin", tmp_path / "py"
    pieces = [(f"data_batch_{n}", slice(40 * n - 40, 40 * n), "train") for n in range(1, 6)]
    for folder in (binary, pickled):
        folder.mkdir()
    for name, part, of in (*pieces, ("test_batch", slice(None), "test")):
        x, y = arrays[f"x_{of}"][part].reshape(-1, 3072), arrays[f"y_{of}"][part]
        (binary / f"{name}.bin").write_bytes(np.hstack([y[:, None], x]).tobytes())
        (pickled / name).write_bytes(pickle.dumps({b"data": x, b"labels": [int(v) for v in y]}))
    for folder in (binary, pickled):
        for found, name in zip(script["read"](folder), ("x_train", "y_train", "x_test", "y_test"), strict=True):
            assert np.array_equal(found, arrays[name])
    (pickled / "test_batch").write_bytes(pickle.dumps({b"data": print}))
    with pytest.raises(pickle.UnpicklingError, match="not only arrays"):
        script["read"](pickled)


def test_mistakes_are_one_sentence(script: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["--data", str(tmp_path / "no")], "does not exist"), (["--data", str(tmp_path)], "neither an .npz nor"),
        (["--data", str(tmp_path), "--precision", "fp17"], "fp17 is not known"),
        (["--data", str(tmp_path), "--epochs", "0"], "are at least 1"),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as caught:
            script["main"](words)
        assert message in f"{caught.value} {capsys.readouterr().err}"


def test_the_notebook_runs_as_jupyter_runs_it(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    import nbclient
    import nbformat

    np.savez(tmp_path / "images.npz", **arrays)
    book = nbformat.read(EXAMPLES / "train_cnn.ipynb", as_version=4)
    kept = json.loads((EXAMPLES / "train_cnn.ipynb").read_text())["cells"]
    assert not [cell for cell in kept if cell.get("outputs") or cell.get("execution_count")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
        patch.setenv("CIFAR10", str(tmp_path / "images.npz"))
        patch.setenv("RUNS", str(tmp_path / "runs"))
        patch.setenv("EPOCHS", "1")
        where = {"metadata": {"path": str(EXAMPLES)}}
        nbclient.NotebookClient(book, timeout=300, kernel_name="python3", resources=where).execute()
    shown = json.dumps(book)
    assert "images_per_s" in shown and "predicted on a100-sxm4-40gb" in shown and "image/png" in shown
