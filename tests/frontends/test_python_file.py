"""A Python file of the user's own as a model, `net.py:Net`: it runs where the user names it, and nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

import forerun
from forerun.errors import ForerunError
from forerun.frontends import frontends, load_graph
from forerun.frontends.check import Example, check_frontend
from forerun.frontends.pytorch.python_file import PythonFileFrontend

Run = Callable[..., subprocess.CompletedProcess[str]]
SHAPE = {"input_shape": (8,)}
NET = """
from dataclasses import dataclass
from torch import nn
from layers import WIDTH

print("the file runs")

@dataclass
class Settings:
    width: int = WIDTH

class Net(nn.Module):
    def __init__(self, width: int = 0):
        super().__init__()
        self.layer = nn.Linear(8, width or Settings().width, bias=False)

    def forward(self, x):
        return self.layer(x)

class Sized(Net):
    def __init__(self, width: int):
        super().__init__(width)

class Reads(Net):
    def __init__(self):
        import torch
        super().__init__(int(torch.linspace(1, 4, 2).sum().item()))

class Wrong(Net):
    def __init__(self):
        super().__init__()
        raise KeyError("no weights")

def make(): return Net(16)
def number(): return 7
def leave(): raise SystemExit(3)
ready = Net(2)
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    (tmp_path / "layers.py").write_text("WIDTH = 4\n")
    (tmp_path / "net.py").write_text(NET)
    return tmp_path / "net.py"


@pytest.mark.parametrize(("name", "width"), [("Net", 4), ("make", 16), ("ready", 2), ("Reads", 5)])
def test_a_class_a_function_or_a_module_is_answered_as_the_module_itself(net: Path, name: str, width: int) -> None:
    answer = forerun.predict(f"{net}:{name}", "t4", batch=3, **SHAPE)
    same = forerun.predict(nn.Linear(8, width, bias=False), "t4", batch=3, **SHAPE)
    assert answer.parameters == 8 * width and answer.model == name
    assert answer.latency_ms is not None and same.latency_ms is not None
    assert answer.device_ms == same.device_ms and answer.memory_mb == same.memory_mb
    assert f"the code in net.py was run to build {name}" in answer.notes


def test_an_edited_file_is_run_again_and_leaves_nothing_behind(net: Path) -> None:
    known = set(sys.modules)
    assert forerun.predict(f"{net}:Net", "t4", **SHAPE).parameters == 32
    (net.parent / "layers.py").write_text("WIDTH = 6\n")
    assert forerun.predict(f"{net}:Net", "t4", **SHAPE).parameters == 48
    assert "layers" not in set(sys.modules) - known and str(net.parent) not in sys.path
    assert sorted(p.name for p in net.parent.iterdir()) == ["layers.py", "net.py"]


def test_explain_and_compare_take_it(net: Path) -> None:
    assert forerun.explain(f"{net}:Net", "t4", **SHAPE).ops[0].scope == "layer"
    assert list(forerun.compare(f"{net}:Net", ["t4", "l4"], **SHAPE)["model"]) == ["Net", "Net"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (":Nett", "has no Nett. Did you mean Net"), (":Sized", "needs width: write a function without arguments"),
        ("", "say which class or function of"), (":Settings", "Settings() in"), (":number", "gives a int, no torch.nn"),
        (":Wrong", "Wrong() fails in line 32: KeyError: 'no weights'"),
        (":leave", "leave() fails in line 36: SystemExit: 3"),
        (":WIDTH", "is a int, no class"), (":nn.Linear", "has no nn.Linear"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(net: Path, name: str, message: str) -> None:
    with pytest.raises(ForerunError) as caught:
        forerun.predict(f"{net}{name}", "t4", **SHAPE)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import torch\n1 / 0\n", "net.py fails in line 2: ZeroDivisionError: division by zero"),
        ("class Net(:\n", "net.py fails in line 1: SyntaxError: invalid syntax"),
        ("from nowhere_at_all import Net\n", "net.py fails in line 1: ModuleNotFoundError: No module named"),
        ("\0", "net.py fails"),
    ],
)
def test_code_that_fails_is_one_sentence(net: Path, text: str, message: str) -> None:
    net.write_text(text)
    with pytest.raises(ForerunError) as caught:
        forerun.predict(f"{net}:Net", "t4", **SHAPE)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_no_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    for name, message in (("none.py:Net", "there is no file"), ("folder.py:Net", "is a folder|not a (regular )?file")):
        with pytest.raises(ForerunError, match=message):
            forerun.predict(f"{tmp_path / name}", "t4", **SHAPE)


def test_names_out_of_data_do_not_run_code(net: Path) -> None:
    """A workload that nobody marked as trusted comes from a file, a row or a request."""
    work = forerun.Workload(f"{net}:Net", **SHAPE)
    with pytest.raises(ForerunError, match="is Python code that must run"):
        load_graph(work)
    (row,) = forerun.predict_many([work], ["t4"]).to_dict("records")
    assert "is Python code that must run" in row["error"]
    assert [name for name, frontend in frontends().items() if frontend.runs_code] == ["python_file"]


def test_what_the_file_prints_does_not_mix_with_the_answer(net: Path, run_forerun: Run) -> None:
    done = run_forerun("predict", "net.py:Net", "-d", "t4", "--input-shape", "8", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["parameters"] == 32 and "the file runs" in done.stderr


def test_the_frontend_keeps_the_contract(net: Path) -> None:
    settings = {**SHAPE, "trust_remote_code": True}
    example = Example(f"{net}:Net", settings, nn.Linear(8, 4, bias=False), SHAPE, parameters=32)
    assert "refuses_junk" in check_frontend(PythonFileFrontend(), [example])
