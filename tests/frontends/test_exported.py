"""Programs of torch.export and TorchScript: read as data where they can be, run only when they are trusted."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from forerun.errors import ForerunError
from forerun.frontends import find_frontend, load_graph
from forerun.frontends.check import Example, check_frontend
from forerun.frontends.pytorch.pt2_file import ExportedFrontend
from forerun.frontends.pytorch.torchscript_file import TorchScriptFrontend
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.graph.memory import simulate
from forerun.workload import Workload

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")


class Net(nn.Module):
    """A convolution, a norm, attention over what it finds, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 16)
        self.register_buffer("scale", torch.ones(16))

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.norm(self.conv(image)).relu().mean((2, 3))
        q = (self.linear(x) * self.scale).view(-1, 1, 4, 4)
        first, second = nn.functional.scaled_dot_product_attention(q, q, q).chunk(2, -1)
        return first + second, x


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """dynamic.pt2 for every batch, fixed.pt2 for a batch of 2, net.pt in TorchScript, weights.pt."""
    folder = tmp_path_factory.mktemp("programs")
    net, example = Net().eval(), (torch.zeros(2, 3, 8, 8),)
    free = {"image": {0: torch.export.Dim("batch")}}
    torch.export.save(torch.export.export(net, example, dynamic_shapes=free), folder / "dynamic.pt2")
    torch.export.save(torch.export.export(net, example), folder / "fixed.pt2")
    torch.jit.script(net).save(str(folder / "net.pt"))
    torch.save(net.state_dict(), folder / "weights.pt")
    return folder


def live(batch: int) -> Graph:
    return load_graph(Workload(Net(), batch=batch, input_shape=(3, 8, 8)))


def test_exported_programs_keep_the_contract(files: Path) -> None:
    same = {"same_as": Net(), "same_settings": {"input_shape": (3, 8, 8)}}
    assert len(check_frontend(ExportedFrontend(), [Example(files / "dynamic.pt2", **same)], ["net.pt", nn.ReLU()])) == 8


def test_an_exported_program_is_the_module_it_was(files: Path) -> None:
    found = load_graph(Workload(str(files / "dynamic.pt2"), batch=8))
    expected = live(8)
    assert [op.name for op in found.ops] == [op.name for op in expected.ops]
    assert found.work_hash() == expected.work_hash() and found.name == "dynamic"
    assert simulate(found).allocated_mb == pytest.approx(simulate(expected).allocated_mb, rel=0.01)
    half = load_graph(Workload(str(files / "dynamic.pt2"), batch=8, dtype="fp16"))
    assert {half.tensors[op.inputs[0]].dtype for op in half.ops if op.kind in ("conv", "matmul")} == {"fp16"}


def test_a_fixed_batch_is_served_and_no_other(files: Path) -> None:
    assert totals(load_graph(Workload(str(files / "fixed.pt2"), batch=2))).macs == totals(live(2)).macs
    with pytest.raises(ForerunError, match="was exported for batch 2 and takes no other; dynamic_shapes"):
        load_graph(Workload(str(files / "fixed.pt2"), batch=4))
    with pytest.raises(ForerunError, match="can be predicted for inference and training; for decode"):
        load_graph(Workload(str(files / "dynamic.pt2"), mode="decode"))


def test_a_live_program_is_taken_in_its_own_dtype() -> None:
    program = torch.export.export(nn.Linear(16, 4).half(), (torch.zeros(2, 16).half(),))
    graph = load_graph(Workload(program, batch=2))
    assert [op.kind for op in graph.ops] == ["matmul"]
    assert {t.dtype for t in graph.tensors} == {"fp16"}


def changed(source: Path, target: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a .pt2 file with another program in it."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for item in old.infolist():
            data = old.read(item)
            if item.filename.endswith("model.json"):
                program = json.loads(data)
                edit(program["graph_module"])
                data = json.dumps(program).encode()
            new.writestr(item, data)
    return target


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("os.system", "the program calls os.system"),
        ("torch.ops.aten.from_file.default", "calls torch.ops.aten.from_file.default"),
        ("torch.ops.mylib.add.default", "calls torch.ops.mylib.add.default"),
        ("torch.ops.aten.relu.__class__", "calls torch.ops.aten.relu.__class__"),
        ("torch.load", "the program calls torch.load"),
    ],
)
def test_a_program_calls_operators_of_pytorch_and_nothing_else(
    files: Path, tmp_path: Path, target: str, message: str
) -> None:
    def edit(module: dict[str, Any]) -> None:
        (node,) = [n for n in module["graph"]["nodes"] if "relu" in n["target"]]
        node["target"] = target

    path = changed(files / "dynamic.pt2", tmp_path / "changed.pt2", edit)
    with pytest.raises(ForerunError) as caught:
        load_graph(Workload(str(path)))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_expressions_and_pickles_in_a_file_are_never_run(files: Path, tmp_path: Path) -> None:
    """torch.export.load would evaluate the expression of a size, and unpickle the example inputs."""
    trace = tmp_path / "trace"

    def edit(module: dict[str, Any]) -> None:
        for meta in module["graph"]["tensor_values"].values():
            for size in meta["sizes"]:
                if "as_expr" in size:
                    size["as_expr"]["expr_str"] = f"__import__('pathlib').Path({str(trace)!r}).touch()"

    path = changed(files / "dynamic.pt2", tmp_path / "changed.pt2", edit)
    assert totals(load_graph(Workload(str(path), batch=2))).macs == totals(live(2)).macs
    assert not trace.exists()


@pytest.mark.parametrize("edit", [
    lambda module: module["graph"].pop("nodes"), lambda module: module["graph"]["tensor_values"].clear(),
    lambda module: module["signature"].update(input_specs=[]), lambda module: module["signature"].clear(),
    lambda module: module["graph"]["nodes"][0].update(inputs=[{"name": "x", "arg": {"as_tensor": {"name": "?"}}}]),
    lambda module: module["graph"]["nodes"][-1].update(outputs=[]),
], ids=["nodes", "tensors", "inputs", "signature", "name", "outputs"])  # fmt: skip
def test_a_damaged_program_is_one_sentence(files: Path, tmp_path: Path, edit: Any) -> None:
    path = changed(files / "dynamic.pt2", tmp_path / "changed.pt2", edit)
    with pytest.raises(ForerunError) as caught:
        load_graph(Workload(str(path)))
    assert "\n" not in str(caught.value)


def test_torchscript_keeps_the_contract(files: Path) -> None:
    settings = {"input_shape": (3, 8, 8), "trust_remote_code": True}
    plain = nn.Sequential(nn.Linear(16, 8), nn.ReLU())
    path = files / "plain.pt"
    torch.jit.script(plain).save(str(path))
    examples = [Example(path, {**settings, "input_shape": (16,)}, plain, {"input_shape": (16,)})]
    assert len(check_frontend(TorchScriptFrontend(), examples, ["net.pt2", files / "weights.pt"])) == 8


def test_a_torchscript_file_runs_only_when_it_is_trusted(files: Path) -> None:
    path = str(files / "net.pt")
    with pytest.raises(ForerunError, match=r"is TorchScript, a program that must run .*--trust-remote-code"):
        load_graph(Workload(path, input_shape=(3, 8, 8)))
    trusted = load_graph(Workload(path, batch=4, input_shape=(3, 8, 8), trust_remote_code=True))
    assert totals(trusted).macs == totals(live(4)).macs
    assert any("TorchScript shows attention in parts" in note for note in trusted.notes)
    with pytest.raises(ForerunError, match="is TorchScript"):  # not from the cache either
        load_graph(Workload(path, batch=4, input_shape=(3, 8, 8)))


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_live_torchscript_modules(mode: str) -> None:
    net = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    expected = load_graph(Workload(net, batch=4, input_shape=(16,), mode=mode))
    for script in (torch.jit.script(net), torch.jit.trace(net, torch.zeros(2, 16))):
        found = load_graph(Workload(script, batch=4, input_shape=(16,), mode=mode))
        assert totals(found).macs == totals(expected).macs and found.parameters == expected.parameters
    half = load_graph(Workload(torch.jit.script(net).half(), batch=4, input_shape=(16,)))
    assert {t.dtype for t in half.tensors} == {"fp16"}


def test_weights_alone_are_refused_as_before(files: Path) -> None:
    for model in (files / "weights.pt", "missing.pt"):
        with pytest.raises(ForerunError, match="is a file of weights or a pickle, which forerun does not execute"):
            find_frontend(model)
