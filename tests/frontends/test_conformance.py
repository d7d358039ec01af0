"""One network through every frontend: the same parameters, the same FLOPs. And known values from the literature."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from forerun.capture import torch_compat
from forerun.frontends import load_graph
from forerun.frontends.converters import environment as converter_env
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.workload import Workload

torch_compat.prepare()


def graph_of(model: object, **settings: object) -> Graph:
    return load_graph(Workload(model, **settings))  # type: ignore[arg-type]


def test_known_values() -> None:
    assert totals(graph_of("resnet50")).macs == pytest.approx(4.09e9, rel=0.01)
    assert totals(graph_of("torchvision/resnet50")).macs == pytest.approx(4.09e9, rel=0.01)
    assert totals(graph_of("vit_base_patch16_224")).macs == pytest.approx(17.6e9, rel=0.01)
    assert totals(graph_of("bert-base-uncased", seq_len=128)).macs == pytest.approx(11.2e9, rel=0.01)


def test_known_parameters() -> None:
    llama = graph_of("meta-llama/Llama-3.1-8B", mode="decode", seq_len=128, dtype="bf16")
    assert llama.parameters == pytest.approx(8.03e9, rel=0.01)
    mixtral = graph_of("mistralai/Mixtral-8x7B-v0.1", mode="decode", seq_len=128, dtype="bf16")
    assert mixtral.parameters == pytest.approx(46.7e9, rel=0.01)
    assert mixtral.active_parameters == pytest.approx(12.9e9, rel=0.01)


def test_a_token_costs_two_flops_per_active_parameter() -> None:
    """The rule of thumb every LLM paper uses; embeddings are looked up, not multiplied."""
    g = graph_of("mistralai/Mixtral-8x7B-v0.1", mode="decode", seq_len=128, dtype="bf16")
    embedding, attention = 32000 * 4096, 32 * 2 * 129 * 4096  # scores and mix, in each of 32 layers
    assert totals(g).macs == pytest.approx(g.active_parameters - embedding + attention, rel=0.001)


def export(model: torch.nn.Module, example: tuple[torch.Tensor, ...], path: Path, **options: object) -> Path:
    torch.onnx.export(model.eval(), example, path, dynamo=False, do_constant_folding=False,
                      training=torch.onnx.TrainingMode.PRESERVE, **options)  # type: ignore[arg-type]  # fmt: skip
    return path


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_resnet50_through_pytorch_and_onnx(tmp_path: Path) -> None:
    import torchvision

    net = torchvision.models.resnet50(weights=None)
    path = export(net, (torch.zeros(1, 3, 224, 224),), tmp_path / "resnet50.onnx",
                  input_names=["x"], dynamic_axes={"x": {0: "batch"}})  # fmt: skip
    module, onnx = graph_of(net, input_shape=(3, 224, 224), batch=4), graph_of(str(path), batch=4)
    assert module.parameters == onnx.parameters == 25_557_032
    assert totals(onnx).macs == totals(module).macs
    assert totals(onnx).flops == pytest.approx(totals(module).flops, rel=0.01)


class LastHidden(torch.nn.Module):
    """BERT as the legacy exporter can take it: a tensor in, a tensor out."""

    def __init__(self, bert: torch.nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.bert(input_ids=ids).pooler_output


@pytest.mark.filterwarnings("ignore")
def test_bert_through_pytorch_and_onnx(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    net = LastHidden(BertModel(BertConfig()))
    ids = torch.zeros(1, 16, dtype=torch.int64)
    path = export(net, (ids,), tmp_path / "bert.onnx", input_names=["input_ids"],
                  dynamic_axes={"input_ids": {0: "batch", 1: "sequence"}})  # fmt: skip
    by_name = graph_of("bert-base-uncased", batch=2, seq_len=128)
    onnx = graph_of(str(path), batch=2, seq_len=128)
    assert by_name.parameters == onnx.parameters == 109_482_240
    assert totals(onnx).flops == pytest.approx(totals(by_name).flops, rel=0.01)


def test_resnet50_through_keras(tmp_path: Path) -> None:
    if converter_env.status("keras")["state"] not in ("here", "installed"):
        pytest.skip("no Keras here: 'forerun install keras' adds it, 'make test' does so by itself")
    path = tmp_path / "resnet50.keras"
    script = Path(__file__).parents[1] / "helpers" / "keras_resnet50.py"
    subprocess.run([converter_env.python_for("keras"), script, path], check=True, capture_output=True)
    keras, module = graph_of(str(path), batch=2), graph_of("resnet50", batch=2)
    assert keras.parameters == module.parameters == 25_557_032
    assert totals(keras).macs == pytest.approx(totals(module).macs, rel=0.01)
    assert totals(keras).flops == pytest.approx(totals(module).flops, rel=0.01)
