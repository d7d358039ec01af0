"""The authors' layouts of sets not in training: CSV, JSON, Markdown, HTML and YAML files as they publish them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from test_importers_language import llm_inference_bench, llmfoundry_mfu, ml_energy, nemo_megatron_perf, splitwise
from test_importers_layouts import csv, rows_of
from test_importers_vision import write_zeus_training_energy

from forerun.data import importers
from forerun.data.importers._markdown import tables
from forerun.errors import ForerunError


def markdown(frame: pd.DataFrame, missing: str = "n/a") -> str:
    """A table as the documents write it."""
    lines = [
        frame.columns,
        ["---"] * len(frame.columns),
        *frame.astype(object).where(frame.notna(), missing).to_numpy(),
    ]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def splitwise_repository(copy: Path, clone: Path) -> None:
    splitwise(copy)
    csv(clone / "data/perf_model.csv", pd.read_parquet(copy / "perf_model.parquet").to_dict("records"))


def zeus_repository(copy: Path, clone: Path) -> None:
    write_zeus_training_energy(copy)
    trace = clone / "examples/research_reproducibility/zeus_nsdi23/trace"
    for gpu, rows in pd.read_parquet(copy / "zeus_power_all.parquet").groupby("gpu"):
        csv(trace / f"summary_power_{gpu}.csv", rows.drop(columns="gpu").to_dict("records"))
    csv(trace / "summary_train.csv", pd.read_parquet(copy / "summary_train.parquet").to_dict("records"))


def llm_inference_bench_repository(copy: Path, clone: Path) -> None:
    llm_inference_bench(copy)
    places = {
        "all_results": "All_results", "power": "Fig_16_a_b/power_results", "tp_pp": "Fig_9/anything",
        "ttft_itl": "Fig_22/all_results_TTFT_ITL",
    }  # fmt: skip
    for name, place in places.items():
        csv(clone / f"Plots/{place}.csv", pd.read_parquet(copy / f"{name}.parquet").to_dict("records"))
    csv(clone / "Plots/Fig_18/other.csv", [{"Hardware": "SN40L", "Latency": 1.0}])


def ml_energy_repository(copy: Path, clone: Path) -> None:
    ml_energy(copy)
    for number, row in enumerate(pd.read_parquet(copy / "configs.parquet").to_dict("records")):
        known = {name: value for name, value in row.items() if name != "path" and value == value}
        path = clone / "data" / row["path"].replace("y.json", f"y{number}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(known))
    (clone / "data/diffusion/text-to-image/models.json").parent.mkdir(parents=True)
    (clone / "data/diffusion/text-to-image/models.json").write_text('{"x": {"nickname": "y"}}')


def llmfoundry_repository(copy: Path, clone: Path) -> None:
    llmfoundry_mfu(copy)
    frame = pd.read_parquet(copy / "llmfoundry_training_throughput.parquet")
    page = clone / "scripts/train/benchmarking/README.md"
    page.parent.mkdir(parents=True)
    parts = [f"## {name}\n{markdown(rows.drop(columns='section'))}" for name, rows in frame.groupby("section")]
    page.write_text("# LLM\n\n| Option | Meaning |\n|---|---|\n| a | b |\n\n" + "\n".join(parts))


def nemo_repository(copy: Path, clone: Path) -> None:
    nemo_megatron_perf(copy)
    frame = pd.read_parquet(copy / "tables_long.parquet")
    docs = clone / "docs"
    docs.mkdir(parents=True)
    parts = []
    for section, rows in frame.groupby("section", sort=False):
        headings = section.split(" > ")
        titles = "\n\n".join(f"{'#' * (depth + 1)} {title}" for depth, title in enumerate(headings))
        stored = rows.drop(columns=["source", "table", "note", "section", "container"]).dropna(axis=1, how="all")
        if "System:" in section:
            stored = stored.drop(columns="System")
        parts.append(f"{titles}\n\n{markdown(stored)}")
    (docs / "performance-summary-archive.md").write_text("\n".join(parts))
    (docs / "performance-guide.md").write_text(markdown(frame))  # not one of the pages


def model_zoos(clone: Path) -> None:
    head = "".join(
        f'<th valign="bottom">{name}</th>\n'
        for name in ("Name", "lr<br/>sched", "train<br/>time<br/>(s/iter)", "inference<br/>time<br/>(s/im)",
                     "train<br/>mem<br/>(GB)", "box<br/>AP", "download")
    )  # fmt: skip

    def line(config: str, *numbers: Any) -> str:
        cells = "".join(
            f'<td align="center">{n}</td>\n' for n in ("1x", *numbers, '<a href="https://x/y.pkl">model</a>')
        )
        return f'<!-- ROW: x -->\n <tr><td align="left"><a href="configs/{config}">R50</a></td>\n{cells}</tr>\n'

    (clone / "detectron2").mkdir(parents=True)
    (clone / "detectron2/MODEL_ZOO.md").write_text(
        f"# Zoo\n\n<table><tbody>\n{head}<!-- TABLE BODY -->\n"
        + line("COCO-Detection/faster_rcnn_R_50_C4_1x.yaml", 0.551, 0.102, 4.8, 35.7)
        + ' <tr><td align="left">without a config</td>\n<td align="center">1x</td>\n</tr>\n</tbody></table>\n'
    )
    detection = """
    Collections:
      - Name: ATSS
        Metadata:
          Training Resources: 8x V100 GPUs
    Models:
      - Name: atss_r50_fpn_1x_coco
        In Collection: ATSS
        Config: configs/atss/atss_r50_fpn_1x_coco.py
        Metadata:
          Training Memory (GB): 3.7
          inference time (ms/im):
            - value: 50.76
              hardware: V100
              backend: PyTorch
              batch size: 1
              mode: FP32
              resolution: (800, 1333)
    """
    segmentation = """
    Models:
      - Name: ann_r50-d8_4xb2-40k_cityscapes-512x1024
        In Collection: ANN
        Config: configs/ann/ann_r50-d8_4xb2-40k_cityscapes-512x1024.py
        Metadata: {Batch Size: 8, Training Resources: 4x V100 GPUS, Memory (GB): 6.0}
    """
    for path, text in (("mmdetection/configs/atss/metafile.yml", detection),
                       ("mmsegmentation/configs/ann/metafile.yaml", segmentation)):  # fmt: skip
        (clone / path).parent.mkdir(parents=True)
        (clone / path).write_text(text)


Write = Callable[[Path, Path], None]
SETS: dict[str, Write] = {
    "splitwise": splitwise_repository, "zeus_training_energy": zeus_repository,
    "llm_inference_bench": llm_inference_bench_repository, "ml_energy": ml_energy_repository,
    "llmfoundry_mfu": llmfoundry_repository, "nemo_megatron_perf": nemo_repository,
}  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_both_layouts_give_the_same_rows(name: str, tmp_path: Path) -> None:
    copy, clone = tmp_path / "copy", tmp_path / "clone"
    copy.mkdir()
    SETS[name](copy, clone)
    copied = rows_of(name, copy)
    assert rows_of(name, clone) == copied
    assert all(copied.values())
    assert importers.load(name, clone).dropped == importers.load(name, copy).dropped


@pytest.mark.parametrize("name", [*SETS, "model_zoo_train_memory"])
def test_an_empty_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(ForerunError, match=f"does not contain the {name} data: .* is missing"):
        importers.load(name, tmp_path)


def test_model_zoos_from_three_clones(tmp_path: Path) -> None:
    model_zoos(tmp_path)
    loaded = importers.load("model_zoo_train_memory", tmp_path)
    assert loaded.dropped == {"no config named": 1}
    rows = loaded.tables["models"].set_index(["source", "mode"])
    trained = rows.loc[("detectron2", "training")]
    assert trained["model"] == "detectron2/COCO-Detection/faster_rcnn_R_50_C4_1x"
    assert (trained["latency_ms"], trained["batch"]) == (551, 16)
    assert trained["memory_allocated_mb"] == pytest.approx(4.8 * 1024)
    assert rows.loc[("detectron2", "inference")]["latency_ms"] == 102
    result = rows.loc[("mmdetection", "training")]
    assert (result["device"], result["devices"], result["batch"]) == ("v100-32gb", 8, 16)  # 8xb2 by default
    assert result["memory_allocated_mb"] == pytest.approx(3.7 * 1024)
    timed = rows.loc[("mmdetection", "inference")]
    assert (timed["latency_ms"], timed["batch"], timed["dtype"]) == (50.76, 1, "fp32")
    assert json.loads(timed["extra"]) == {"resized_within": [800, 1333]}
    cut = rows.loc[("mmsegmentation", "training")]
    assert (cut["devices"], cut["batch"], cut["input_shape"]) == (4, 8, "[3,512,1024]")


def test_tables_of_markdown_stand_under_their_headings() -> None:
    lines = [
        *("# A", "", "## B", "", "| x | y |", "|:--|--:|", "| 1 | n/a |", "| 2 | |", "no row", ""),
        *("## C", "### D", "|  p |", "|---|", "|  3 |", "", "---"),
    ]
    result = list(tables("\n".join(lines)))
    assert [headings for headings, _ in result] == [["A", "B"], ["A", "C", "D"]]
    assert result[0][1].to_dict("list") == {"x": ["1", "2"], "y": [None, None]}
    assert result[1][1].to_dict("list") == {"p": ["3"]}
