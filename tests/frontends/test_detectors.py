"""Detectors by name: torchvision's and DETR's, with what is assumed about the image said."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.workload import Workload

Run = Callable[..., subprocess.CompletedProcess[str]]


def _boxes(graph: Graph, name: str) -> list[int]:
    """Over how many boxes the ops of a name go."""
    at = 1 if name == "roi_align" else 0
    return [graph.tensors[op.inputs[at]].shape[0] for op in graph.ops if op.name.split("::")[-1].startswith(name)]


@pytest.mark.parametrize(
    ("name", "gmacs"),
    [
        ("retinanet_resnet50_fpn", 151.5),
        ("fcos_resnet50_fpn", 128.2),
        ("ssd300_vgg16", 34.9),
        ("ssdlite320_mobilenet_v3_large", 0.58),
    ],
)
def test_detectors_of_one_stage_cost_what_torchvision_says(name: str, gmacs: float) -> None:
    # torchvision counts 800 x 800 pixels for the first two; a photograph is resized to 800 x 1088.
    graph = load_graph(Workload(f"torchvision/{name}"))
    grown = 800 * 1088 / 800**2 if "fpn" in name else 1.0
    assert totals(graph).macs / 1e9 == pytest.approx(gmacs * grown, rel=0.12)
    assert not [op for op in graph.ops if op.kind == "unknown"]
    assert any("480 x 640" in note for note in graph.notes)
    assert any("boxes above the score threshold" in note for note in graph.notes)


def test_proposals_are_spread_over_the_levels_of_the_pyramid() -> None:
    graph = load_graph(Workload("torchvision/fasterrcnn_resnet50_fpn"))
    assert _boxes(graph, "roi_align") == [250] * 4
    proposals, detections = _boxes(graph, "nms")
    assert 4000 < proposals < 5000  # 1,000 of each level, fewer of the coarsest
    assert detections == 1000
    rows = {graph.tensors[op.inputs[0]].shape[0] for op in graph.ops if op.kind == "matmul"}
    assert rows == {1000}


@pytest.mark.parametrize("name", ["maskrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn"])
def test_heads_of_masks_and_keypoints_see_the_detections(name: str) -> None:
    graph = load_graph(Workload(f"torchvision/{name}"))
    assert _boxes(graph, "roi_align") == [250] * 4 + [25] * 4


def test_training_a_detector_is_refused_in_one_sentence() -> None:
    with pytest.raises(ForerunError, match="images with their boxes"):
        load_graph(Workload("torchvision/retinanet_resnet50_fpn", mode="training"))


@pytest.mark.parametrize("model", ["facebook/detr-resnet-50", "torchvision/ssd300_vgg16"])
def test_the_command_answers_by_name(model: str, run_forerun: Run) -> None:
    done = run_forerun("predict", model, "--device", "l4", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["latency_ms"]["value"] > 0


@pytest.mark.parametrize(
    ("name", "millions", "gmacs"),
    [
        ("facebook/detr-resnet-50", 41.5, 86),
        ("microsoft/conditional-detr-resnet-50", 43.5, 90),
        ("SenseTime/deformable-detr", 40, 173),
    ],
)
def test_transformers_that_detect_have_the_size_of_their_papers(name: str, millions: float, gmacs: float) -> None:
    # DETR and conditional DETR: 86 and 90 GMACs, deformable DETR 173, means over the images of COCO.
    graph = load_graph(Workload(name))
    assert graph.parameters / 1e6 == pytest.approx(millions, rel=0.03)
    assert totals(graph).macs / 1e9 == pytest.approx(gmacs, rel=0.25)
