"""Autocast in inference, channels last, TF32 in matmuls: what they change in the graph, and where they are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from forerun.capture import torch_compat
from forerun.cli.app import app
from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.graph.ir import Graph, Op
from forerun.measure.cases import case_of, workload_of
from forerun.measure.core.models import Built
from forerun.workload import Workload


@pytest.fixture(autouse=True, scope="module")
def whole_torchvision() -> None:
    """The measuring core imports timm as it is installed; here torchvision may be of another build."""
    torch_compat.prepare()


class Net(nn.Module):
    """A convolution, two norms, and a linear layer at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.batch_norm = nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16)
        self.layer_norm, self.linear = nn.LayerNorm(16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen: torch.Tensor = self.batch_norm(self.conv(x)).mean((2, 3))
        return self.linear(self.layer_norm(seen))  # type: ignore[no-any-return]


def graph_of(**settings: Any) -> Graph:
    return load_graph(Workload(Net(), batch=4, input_shape=(8, 16, 16), **settings))


def of_kind(graph: Graph, kind: str) -> list[Op]:
    return [op for op in graph.ops if op.kind == kind]


def dtypes_read(graph: Graph, kind: str) -> set[str]:
    return {graph.tensors[i].dtype for op in of_kind(graph, kind) for i in op.inputs}


def test_autocast_in_inference_runs_products_in_half_precision_and_keeps_the_weights_in_fp32() -> None:
    graph = graph_of(amp="bf16")
    assert dtypes_read(graph, "conv") == {"bf16"}
    assert dtypes_read(graph, "matmul") == {"bf16"}
    weights = {graph.tensors[i].dtype for op in graph.ops for i in op.inputs if _is_weight(graph, i)}
    assert "fp32" in weights
    assert len(graph.ops) > len(graph_of().ops)  # the casts are launched


def _is_weight(graph: Graph, tensor: int) -> bool:
    return graph.storages[graph.tensors[tensor].storage].role == "parameter"


def test_a_layer_norm_under_autocast_reads_fp32() -> None:
    norms = of_kind(graph_of(amp="fp16"), "norm")
    graph = graph_of(amp="fp16")
    by_layer = {tuple(graph.tensors[op.inputs[0]].shape): graph.tensors[op.inputs[0]].dtype for op in norms}
    assert by_layer[(4, 16)] == "fp32"
    assert by_layer[(4, 16, 14, 14)] == "fp16"


def test_channels_last_is_seen_by_the_convolution() -> None:
    plain, last = (of_kind(graph_of(channels_last=wanted), "conv")[0] for wanted in (False, True))
    assert not plain.attrs.get("strided")
    assert last.attrs.get("strided")


def test_the_layout_is_part_of_the_answer_and_of_the_command_that_checks_it() -> None:
    shown = CliRunner().invoke(
        app, ["predict", "mobilenetv2_100", "-d", "h200", "--channels-last", "--amp", "fp16", "--json"]
    )
    answer = json.loads(shown.stdout)
    assert answer["workload"]["channels_last"] is True
    assert answer["workload"]["amp"] == "fp16"
    assert "--channels-last" in answer["check"]
    assert "--amp fp16" in answer["check"]


def test_tf32_is_the_dtype_of_that_name_and_goes_with_no_other() -> None:
    shown = CliRunner().invoke(app, ["predict", "mobilenetv2_100", "-d", "h200", "--tf32", "--json"])
    assert json.loads(shown.stdout)["workload"]["dtype"] == "tf32"
    refused = CliRunner().invoke(app, ["predict", "mobilenetv2_100", "-d", "h200", "--tf32", "--dtype", "fp16"])
    assert isinstance(refused.exception, ForerunError)


@pytest.mark.parametrize(("settings", "why"), [
    ({"amp": "fp16", "dtype": "fp16"}, "keeps fp32 weights"),
    ({"model": "gpt2", "channels_last": True, "input_shape": None, "seq_len": 16}, "take images"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ForerunError, match=why):
        load_graph(Workload(**{"model": Net(), "input_shape": (8, 16, 16), **settings}))


def test_a_file_has_its_own_dtypes_and_layout(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    given, out = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [given], [out])
    save(helper.make_model(graph), str(tmp_path / "relu.onnx"))
    for settings in ({"amp": "fp16"}, {"channels_last": True}):
        with pytest.raises(ForerunError, match="settings of PyTorch models"):
            load_graph(Workload(str(tmp_path / "relu.onnx"), **settings))


def test_a_graph_answers_for_the_layout_it_was_captured_in() -> None:
    graph = graph_of(channels_last=True)
    with pytest.raises(ForerunError, match="captured with channels_last True, not None"):
        load_graph(Workload(graph, batch=4))


@pytest.mark.parametrize(("settings", "why"), [
    ({"mode": "decode", "amp": "fp16"}, "under autocast cannot be measured"), ({"channels_last": True}, "no images"),
])  # fmt: skip
def test_what_would_be_measured_otherwise_is_not_measured(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ForerunError, match=why):
        case_of(Workload("gpt2", seq_len=16, **settings))


def test_a_family_of_networks_is_measured_with_its_channels_last() -> None:
    case = case_of(Workload("super_resolution:image=8,width=8,blocks=1", batch=2, channels_last=True))
    built = Built(case, "cpu")
    built.prepare(case)
    assert built.call(case).call().is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("settings", [{"amp": "bf16"}, {"channels_last": True}, {"dtype": "tf32"}])
def test_a_measured_case_is_the_workload_that_was_asked_for(settings: dict[str, Any]) -> None:
    asked = Workload("timm/mobilenetv2_100", batch=2, input_shape=(3, 64, 64), **settings)
    assert workload_of(case_of(asked)) == asked


def test_measuring_sets_layout_and_autocast_for_one_case_alone() -> None:
    plain = case_of(Workload("timm/mobilenetv2_100", batch=2, input_shape=(3, 32, 32)))
    cast = case_of(
        Workload("timm/mobilenetv2_100", batch=2, input_shape=(3, 32, 32), amp="bf16", channels_last=True)
    )  # fmt: skip
    built = Built(plain, "cpu")
    weights = next(p for p in built.model.parameters() if p.dim() == 4 and p.shape[1] > 1)
    seen = []
    for case in (cast, plain):
        built.prepare(case)
        seen.append((built.call(case).call().dtype, weights.is_contiguous(), weights.requires_grad))
    assert seen == [(torch.bfloat16, False, True), (torch.float32, True, False)]


def test_merged_branches_are_measured_merged() -> None:
    case = case_of(Workload("timm/repghostnet_050?reparam=true", input_shape=(3, 32, 32)))
    merged, plain = Built(case, "cpu"), Built(case | {"overrides": {}}, "cpu")
    assert merged.facts["parameters"] < plain.facts["parameters"]
    merged.prepare(case)
    assert merged.call(case).call().shape == (1, 1000)
    with pytest.raises(ForerunError, match="is trained with its branches"):
        case_of(Workload("timm/repghostnet_050?reparam=true", mode="training", optimizer="momentum"))


def test_autocast_resizes_in_single_precision() -> None:
    """As PyTorch's own list says: the forward pass and the gradient."""
    graph = load_graph(Workload("segmenter:image=64,width=16", mode="training", batch=2, amp="fp16"))
    resized = [op for op in graph.ops if op.kind == "resize"]
    assert {op.phase for op in resized} == {"forward", "backward"}
    assert {graph.tensors[t].dtype for op in resized for t in (*op.inputs[:1], *op.outputs)} == {"fp32"}


class Sampled(nn.Module):
    """Looks up what a convolution gives at places of the convolution's type, or of fp32."""

    def __init__(self, wide: bool) -> None:
        super().__init__()
        self.conv, self.wide = nn.Conv2d(3, 2, 1), wide

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = self.conv(x)
        places = seen.permute(0, 2, 3, 1)
        return nn.functional.grid_sample(seen, places.float() if self.wide else places, align_corners=True)


@pytest.mark.parametrize(("wide", "dtype"), [(False, "fp16"), (True, "fp32")])
def test_autocast_samples_in_the_widest_type_that_comes(wide: bool, dtype: str) -> None:
    graph = load_graph(Workload(Sampled(wide), batch=2, input_shape=(3, 16, 16), amp="fp16"))
    op = next(op for op in graph.ops if "grid_sampler" in op.name)
    assert {graph.tensors[t].dtype for t in (*op.inputs, *op.outputs)} == {dtype}
