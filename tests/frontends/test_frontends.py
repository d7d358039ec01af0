"""The frontends: every built-in one keeps the contract, and what does not keep it is named by check_frontend."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from entry_points import installed
from torch import nn

from forerun._util import registry as law
from forerun.capture import torch_compat
from forerun.errors import ForerunError
from forerun.frontends import find_frontend, frontends, load_graph, model_names
from forerun.frontends.base import Frontend
from forerun.frontends.check import Example, FrontendFault, check_frontend
from forerun.frontends.huggingface import catalog as hf_catalog
from forerun.frontends.huggingface.frontend import HuggingFaceFrontend
from forerun.frontends.onnx.file import OnnxFrontend
from forerun.frontends.pytorch.torch_module import TorchFrontend
from forerun.frontends.registry import FRONTENDS
from forerun.frontends.settings import FamilyFrontend
from forerun.frontends.zoo import VisionFrontend, timm_parameters
from forerun.graph.ir import Graph, Op, Storage, Tensor
from forerun.graph.profile import profile
from forerun.workload import Workload

torch_compat.prepare()
CHECKS = ["attributes", "leaves_alone", "takes_its_own", "key", "valid_graphs", "same_network", "batches",
          "refuses_junk"]  # fmt: skip


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )


# -- every built-in frontend (those of Keras and Paddle: test_keras_paddle.py) ----------------------------------------


def test_torch_keeps_the_contract() -> None:
    # conv 2 * 8 * 64 * 27, its bias and ReLU 8 * 64 each, the pool's mean 8 * 64, linear 2 * 8 * 4
    flops = 2 * 8 * 64 * 27 + 3 * 8 * 64 + 2 * 8 * 4
    example = Example(small_cnn(), {"input_shape": (3, 8, 8)}, parameters=8 * 27 + 8 + 8 * 4 + 4, flops=flops)
    assert check_frontend(TorchFrontend(), [example]) == CHECKS


def test_families_keep_the_contract() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)
    )
    example = Example("cnn:depth=1,filters=4", same_as=net, same_settings={"input_shape": (3, 32, 32)})
    assert check_frontend(FamilyFrontend(), [example]) == CHECKS


def test_vision_names_keep_the_contract() -> None:
    import torchvision

    net = torchvision.models.squeezenet1_1(weights=None)
    example = Example("torchvision/squeezenet1_1", same_as=net, same_settings={"input_shape": (3, 224, 224)})
    assert check_frontend(VisionFrontend(), [example]) == CHECKS


def test_hugging_face_keeps_the_contract() -> None:
    from transformers import AutoConfig, AutoModel

    known = hf_catalog.architecture("prajjwal1/bert-tiny")
    assert known is not None
    net = AutoModel.from_config(AutoConfig.for_model(**known.config))
    settings = {"seq_len": 16}
    same = {"same_as": net, "same_settings": {"input_shape": {"input_ids": (16,)}}}
    examples = [Example("prajjwal1/bert-tiny", settings, **same), Example(known.config, settings, **same)]
    foreign = ["resnet50", "torchvision/vgg16", "timm/vgg16", "./model", "one/two/three"]
    assert check_frontend(HuggingFaceFrontend(), examples, foreign) == CHECKS


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_onnx_keeps_the_contract(tmp_path: Path) -> None:
    import onnx

    net, path = small_cnn().eval(), tmp_path / "net.onnx"
    torch.onnx.export(net, (torch.zeros(1, 3, 8, 8),), path, dynamo=False, do_constant_folding=False,
                      input_names=["x"], dynamic_axes={"x": {0: "batch"}})  # fmt: skip
    same = {"same_as": net, "same_settings": {"input_shape": (3, 8, 8)}}
    assert check_frontend(OnnxFrontend(), [Example(path, **same), Example(onnx.load(path), **same)]) == CHECKS


# -- what check_frontend finds -----------------------------------------------------------------------------------------


def linear(batch: int, name: str = "acme") -> Graph:
    """y[N, 4] = x[N, 8] @ w[8, 4], growing with the batch."""
    sizes = ((batch, 8), (8, 4), (batch, 4))
    grows: tuple[tuple[int, int] | None, ...] = ((1, 0), None, (1, 0))
    storages = [
        Storage(4 * a * b, role, born, None, 1, 4 * b if growing else 0)
        for (a, b), role, born, growing in zip(
            sizes, ("input", "parameter", "activation"), (-1, -1, 0), grows, strict=True
        )
    ]
    tensors = [Tensor(s, "fp32", i, (-1, -1, 0)[i], grows[i]) for i, s in enumerate(sizes)]
    op = Op("matmul", "acme::linear", (0, 1), (2,), {"shared_b": True})
    return Graph(name, [op], tensors, storages, 32, 32, batch, scalable=True, outputs=(2,))


class AcmeFrontend(Frontend):
    """A frontend of another package, and a good one."""

    takes = "an Acme file"
    suffixes = (".acme",)

    def matches(self, model: Any) -> bool:
        return self.claims(model)

    def key(self, model: Any, workload: Workload) -> dict[str, Any] | None:
        return {"size": 8}

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        if not Path(model).is_file():
            raise ForerunError(f"there is no file {model}")
        if Path(model).read_text() != "linear 8 4":
            raise ForerunError(f"{model} is no Acme file")
        return [linear(workload.batch)]


@pytest.fixture
def acme(tmp_path: Path) -> Path:
    path = tmp_path / "net.acme"
    path.write_text("linear 8 4")
    return path


def test_a_frontend_of_another_package_keeps_the_contract(acme: Path) -> None:
    net = nn.Linear(8, 4, bias=False)
    example = Example(acme, same_as=net, same_settings={"input_shape": (8,)}, parameters=32, flops=64)
    assert check_frontend(AcmeFrontend(), [example]) == CHECKS


class Plain:
    takes = "an Acme file"

    def matches(self, model: Any) -> bool:
        return True

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        return [linear(workload.batch)]


def wrong_kind(batch: int) -> Graph:
    graph = linear(batch)
    graph.ops[0].kind = "linear"
    return graph


def wrong_slope(batch: int) -> Graph:
    graph = linear(batch)
    graph.scalable = False
    graph.tensors[2].shape = (batch * batch, 4)
    return graph


def raises(error: Exception) -> Any:
    def fail(*_: Any) -> Any:
        raise error

    return fail


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "says nothing": ({"takes": ""}, "takes does not say what the frontend takes"),
    "no number": ({"priority": "first"}, "priority is no whole number"),
    "suffix": ({"suffixes": ("ACME",)}, "suffix 'ACME' of AcmeFrontend does not begin with a dot"),
    "names": ({"names": lambda self: ["acme-large"]}, "offers the name 'acme-large' and does not take it"),
    "takes all": ({"matches": lambda self, m: True}, "takes None, which is not its own"),
    "takes names": ({"matches": lambda self, m: isinstance(m, str) and " " not in m},
                    "takes 'cnn:depth=3,filters=4', which is not its own"),
    "takes none": ({"matches": lambda self, m: False}, "does not take"),
    "matches fails": ({"matches": lambda self, m: m.endswith("acme")}, "the frontend raised AttributeError"),
    "no answer": ({"matches": lambda self, m: None}, "neither True nor False"),
    "key of objects": ({"key": lambda self, m, w: {"path": m}}, "is not JSON"),
    "key of tuples": ({"key": lambda self, m, w: {"size": (8, 4)}}, "does not survive JSON"),
    "key by batch": ({"key": lambda self, m, w: {"batch": w.batch}}, "not the same when it is asked for again"),
    "load fails": ({"load": raises(KeyError("w"))}, "at batch 1 raised KeyError: 'w'"),
    "one graph": ({"load": lambda self, m, w: linear(w.batch)}, "gave Graph instead of a list of graphs"),
    "wrong kind": ({"load": lambda self, m, w: [wrong_kind(w.batch)]}, "has the kind 'linear'"),
    "one batch only": ({"load": lambda self, m, w: [wrong_slope(1)]}, "no graph that serves batch 2"),
    "no line": ({"load": lambda self, m, w: [wrong_slope(w.batch)]}, "which is no straight line"),
    "takes junk": ({"load": lambda self, m, w: [linear(w.batch)]}, "holds no model, was not refused"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_contract_is_named_in_one_sentence(fault: str, acme: Path) -> None:
    changes, message = FAULTS[fault]
    broken = type("AcmeFrontend", (AcmeFrontend,), changes)()
    with pytest.raises(FrontendFault) as caught:
        check_frontend(broken, [Example(acme)])
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_another_network_is_no_match(acme: Path) -> None:
    with pytest.raises(FrontendFault, match="has 32 parameters instead of 36"):
        check_frontend(AcmeFrontend(), [Example(acme, same_as=nn.Linear(8, 4), same_settings={"input_shape": (8,)})])
    with pytest.raises(FrontendFault, match="has 64 FLOPs instead of 65"):
        check_frontend(AcmeFrontend(), [Example(acme, flops=65)])


def test_a_plain_object_is_no_frontend() -> None:
    with pytest.raises(FrontendFault, match="Plain is not a subclass of"):
        check_frontend(Plain(), [Example("x")])  # type: ignore[arg-type]
    with pytest.raises(FrontendFault, match="at least one example"):
        check_frontend(AcmeFrontend(), [])


def test_a_framework_may_not_be_imported_to_look_at_a_name(acme: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Heavy(AcmeFrontend):
        def matches(self, model: Any) -> bool:
            sys.modules["jax"] = sys
            return super().matches(model)

    monkeypatch.delitem(sys.modules, "jax", raising=False)
    with pytest.raises(FrontendFault, match="imported jax"):
        check_frontend(Heavy(), [Example(acme)])
    del sys.modules["jax"]


# -- who is asked ----------------------------------------------------------------------------------------------------


class Point:
    """An entry point."""

    def __init__(self, name: str, made: Any) -> None:
        self.name, self.value, self.made = name, f"acme:{name}", made

    def load(self) -> Any:
        if isinstance(self.made, Exception):
            raise self.made
        return self.made


@pytest.fixture
def registered() -> Iterator[Any]:
    """Installs frontends beside the built-in ones."""
    with ExitStack() as stack:

        def register(*points: Point) -> None:
            stack.close()
            stack.enter_context(installed(FRONTENDS, *points))

        yield register


def test_a_process_that_reads_untrusted_models_again_imports_what_its_children_need(
    registered: Any, tmp_path: Path
) -> None:
    warmed: list[int] = []

    class Untrusted(AcmeFrontend):
        def untrusted(self, model: Any) -> bool:
            return True

        def key(self, model: Any, workload: Workload) -> None:
            return None

        def warm_up(self) -> None:
            warmed.append(os.getpid())

        def load(self, model: Any, workload: Workload) -> list[Graph]:
            return [linear(workload.batch, f"warmed {len(warmed)} times, {os.getpid() != here}")]

    registered(Point("acme-untrusted", Untrusted))
    here = os.getpid()
    names = []
    for number in range(3):
        path = tmp_path / f"{number}.acme"
        path.write_text("linear 8 4")
        names.append(load_graph(Workload(path)).name)
    assert names == [f"warmed {times} times, True" for times in (0, 1, 2)]
    assert warmed == [here, here]


def test_frontends_are_asked_by_priority_and_then_by_name(registered: Any) -> None:
    files_and_objects = ["exported", "families", "keras", "onnx", "paddle", "python_file", "torch", "torchscript"]
    assert list(frontends()) == [*files_and_objects, "huggingface", "vision"]

    class Any1(AcmeFrontend):
        def matches(self, model: Any) -> bool:
            return isinstance(model, str)

    registered(Point("zeta", Any1), Point("acme", Any1))
    assert list(frontends()) == [*files_and_objects, "acme", "zeta", "huggingface", "vision"]
    assert find_frontend("resnet50")[0] == "acme"  # before the frontends for names
    assert find_frontend("cnn:depth=1,filters=4")[0] == "families"  # after those for files and families
    assert find_frontend("net.onnx")[0] == "onnx"  # a suffix that it does not claim
    assert find_frontend("net.acme")[0] == "acme"


def test_a_frontend_of_another_package_is_loaded_cached_and_validated(registered: Any, acme: Path) -> None:
    registered(Point("acme", AcmeFrontend))
    assert load_graph(Workload(acme, batch=3)).content_hash() == linear(3).content_hash()
    acme.unlink()
    assert load_graph(Workload(acme, batch=5)).content_hash() == linear(5).content_hash()  # from the cache

    class Wrong(AcmeFrontend):
        def key(self, model: Any, workload: Workload) -> None:
            return None

        def load(self, model: Any, workload: Workload) -> list[Graph]:
            return [wrong_kind(workload.batch)]

    registered(Point("acme", Wrong))
    with pytest.raises(
        ForerunError, match=r"the graph of acme is not valid: op 0 \(acme::linear\) has the kind 'linear'"
    ):
        load_graph(Workload(acme))


def test_the_older_entry_point_group_is_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = law.entry_points
    older = {"forerun.sources": [Point("acme", AcmeFrontend)]}
    monkeypatch.setattr(law, "entry_points", lambda group: [*plain(group=group), *older.get(group, [])])
    FRONTENDS.reset()
    try:
        assert find_frontend("net.acme")[0] == "acme"
    finally:
        monkeypatch.undo()
        FRONTENDS.reset()


def test_a_broken_registration_is_one_sentence(registered: Any) -> None:
    registered(Point("acme", Plain))
    with pytest.raises(ForerunError, match=r"frontend acme \(acme:acme\) is no subclass of"):
        frontends()
    registered(Point("acme", ImportError("no module called acme")))
    with pytest.raises(ForerunError, match="cannot be loaded: no module called acme"):
        frontends()
    registered(Point("onnx", AcmeFrontend))
    with pytest.raises(ForerunError, match="two frontends are called onnx"):
        frontends()


@pytest.mark.parametrize(
    ("model", "frontend"),
    [
        ("resnet50", "vision"), ("timm/resnet50.a1_in1k", "vision"), ("resnet50?layers=[1,1,1,1]", "vision"),
        ("bert-base-uncased", "huggingface"), ("acme/anything-7B", "huggingface"), ("x/config.json", "huggingface"),
        ({"model_type": "bert"}, "huggingface"), ("cnn:depth=1,filters=4", "families"), ("a/b/NET.ONNX", "onnx"),
        ("net.keras", "keras"), ("org/net.h5", "keras"), ("net.pdiparams", "paddle"), (nn.ReLU(), "torch"),
    ],
)  # fmt: skip
def test_every_model_finds_its_frontend(model: Any, frontend: str) -> None:
    assert find_frontend(model)[0] == frontend


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("net.pt", "net.pt is a file of weights or a pickle"), ("org/net.SAFETENSORS", "file of weights"),
        ("missing.json", "there is no file missing.json"), ("", "reasonable length"), ("x" * 300, "reasonable length"),
        ("resnet 50", "no model is called 'resnet 50'. Did you mean resnet50"),
        (7, "a int is not a model forerun knows"),
    ],
)  # fmt: skip
def test_what_no_frontend_takes_is_refused_in_one_sentence(model: Any, message: str) -> None:
    with pytest.raises(ForerunError) as caught:
        find_frontend(model)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_file_is_answered_with_every_frontend(tmp_path: Path, registered: Any) -> None:
    registered(Point("acme", AcmeFrontend))
    path = tmp_path / "settings.json"
    path.write_text("{}")
    with pytest.raises(ForerunError) as caught:
        find_frontend(path)
    for frontend in frontends().values():
        assert frontend.takes in str(caught.value)
    for suffix in (".onnx", ".keras", ".h5", ".pdmodel", ".json", ".acme"):
        assert suffix in str(caught.value)


def test_names_are_offered_by_every_frontend_that_has_some(registered: Any) -> None:
    class Named(AcmeFrontend):
        def names(self) -> list[str]:
            return ["acme-large"]

    registered(Point("acme", Named))
    assert {"acme-large", "gpt2", "resnet50"} <= set(model_names())


def test_an_int8_graph_is_quantised_once() -> None:
    net = nn.Linear(64, 64, bias=False)
    graph = load_graph(Workload(net, input_shape=(64,), dtype="int8"))
    again = load_graph(Workload(graph, dtype="int8"))
    assert again.to_dict() == graph.to_dict()
    with pytest.raises(ForerunError, match="are int8 already, not int4"):
        load_graph(Workload(graph, dtype="int4"))


def test_the_frontend_of_the_documentation_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "EXTEND.md").read_text()
    section = text.partition("## A frontend")[2].partition("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.S)
    assert len(blocks) == 2 and "check_frontend(" in blocks[1]
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), "EXTEND.md", "exec"), {})


def test_add_an_op_names_every_file_of_the_walk() -> None:
    root = Path(__file__).parents[2]
    section = (root / "docs" / "EXTEND.md").read_text().partition("## An op")[2]
    files = re.findall(r"^\d\. `([\w/]+\.py)`", section, re.M)
    assert [f.rpartition("/")[2] for f in files] == [
        "kinds.py", "cost.py", "features.py", "profile.py", "kernels.py", "torch_ops.py",
    ]  # fmt: skip
    assert all((root / "src" / "forerun" / f).is_file() for f in files)


# -- branches merged ------------------------------------------------------------------------------------------------


def test_merged_branches_of_a_timm_model() -> None:
    plain, merged = (load_graph(Workload(name, amp="fp16")) for name in ("repvgg_a0", "repvgg_a0?reparam=true"))
    # timm's tables: 9.11 M parameters with branches, 8.31 M in those that were made with --reparam
    assert plain.parameters == pytest.approx(9.11e6, abs=5e3)
    assert merged.parameters == pytest.approx(8.31e6, abs=5e3)
    assert flops(merged) < 0.95 * flops(plain)
    assert {op.kind for op in plain.ops} - {op.kind for op in merged.ops} == {"norm"}
    assert merged.name == "repvgg_a0?reparam=true"


def test_parameters_of_a_timm_model_that_is_not_captured() -> None:
    sized = (3, 160, 160)
    plain, merged = timm_parameters("timm/repvgg_a0", sized)
    assert (plain / 1e6, merged / 1e6) == (pytest.approx(9.11, abs=5e-3), pytest.approx(8.31, abs=5e-3))
    assert timm_parameters("repvgg_a0?reparam=true") == (merged, merged)
    (usual, same), (small, _) = (timm_parameters("vit_tiny_patch16_224", shape) for shape in (None, sized))
    assert usual == same and usual - small == (14 * 14 - 10 * 10) * 192  # a transformer knows its positions
    for wrong, why in (("timm/no_such_model", "no model is called"), ("resnet18?no_option=1", "cannot be built")):
        with pytest.raises(ForerunError, match=why):
            timm_parameters(wrong)


@pytest.mark.parametrize(
    ("model", "mode", "message"),
    [
        ("repvgg_a2?reparam=1", "inference", "reparam must be true or false, got 1"),
        ("repvgg_a2?reparam=yes", "inference", "reparam must be true or false, got 'yes'"),
        ("resnet18?reparam=true", "inference", "resnet18 has no branches that timm merges: leave out reparam"),
        ("torchvision/resnet18?reparam=true", "inference", "torchvision merges no branches of resnet18"),
        ("repvgg_a2?reparam=true", "training", "repvgg_a2 is trained with its branches"),
    ],
)  # fmt: skip
def test_branches_that_cannot_be_merged(model: str, mode: str, message: str) -> None:
    with pytest.raises(ForerunError) as caught:
        load_graph(Workload(model, mode=mode))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def flops(graph: Graph) -> float:
    return float(profile(graph, "fp32").work[0].sum())
