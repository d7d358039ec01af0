"""Importers of published measurements of vision models and of training, on small files of the true layout."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from forerun.data import importers, schema
from forerun.data.store import Store
from forerun.device import device_ids
from forerun.errors import ForerunError

NAMES = ("timm", "pytorch_gpu_benchmark", "help_nas_latency", "model_zoo_train_memory", "zeus_training_energy")


def write_timm(folder):
    """Four files: inference nchw and nhwc, compiled inference on a CPU, training; and a run that failed."""
    shared = {"img_size": 224, "param_count": 25.56, "gmacs": 4.09, "macts": 11.11}
    card = {"device": "rtx3090", "mode": "infer", "precision": "amp", "torch": "pt113", "cuda": "cu117"}
    rows = [
        {**card, "layout": "nchw", "compile": "eager", "batch_size": 1024.0, "step_time": 400.0, "file": "a"},
        {**card, "layout": "nhwc", "compile": "eager", "batch_size": 1024.0, "step_time": 200.0, "file": "b"},
        {
            **card, "device": "i9_10940x", "precision": "fp32", "layout": "nchw", "torch": "pt240", "cuda": "cpu",
            "compile": "dynamo", "batch_size": 1.0, "step_time": 10.0, "file": "c",
        },
        {
            **card, "mode": "train", "layout": "nchw", "torch": "pt110", "cuda": "cu113", "compile": "eager",
            "batch_size": 256.0, "step_time": 500.0, "file": "d", "gmacs": None, "macts": None,
        },
        {**card, "layout": "nchw", "compile": "eager", "batch_size": None, "step_time": None, "file": "a"},
    ]  # fmt: skip
    frame = pd.DataFrame([{**shared, **row} for row in rows])
    frame["model"] = ["resnet50"] * 4 + ["vit_huge_patch16_gap_448"]
    frame["samples_per_sec"] = frame["batch_size"] / frame["step_time"] * 1000
    frame.assign(historical="False").to_parquet(folder / "benchmarks.parquet")


def write_pytorch_gpu_benchmark(folder):
    columns = "device n_gpu precision mode model n_samples ms_median ms_mean batch_per_gpu num_classes batch_source"
    rows = [
        ("GeForce_RTX_3090", 1, "half", "inference", "resnet50", 50, 8.3, 8.4, 12.0, 1000.0, "config.json"),
        ("GeForce_RTX_3090", 2, "float", "train", "resnet50", 50, 60.0, 61.0, 12.0, None, "README_says_12_unverified"),
        ("GeForce_RTX_2080_TI", 1, "float", "inference", "vgg16", 20, 14.0, 15.0, 12.0, None, "config.json"),
        ("GeForce_RTX_2080_TI_V2", 1, "float", "inference", "vgg16", 50, 17.0, 18.0, 12.0, None, "config.json"),
        ("AMD_Radeon_RX_7800_XT", 1, "double", "inference", "vgg16", 50, 80.0, 81.0, 4.0, 200.0, "config.json"),
        ("AMD_Radeon_RX_7700S", 1, "float", "inference", "vgg16", 50, 33.0, 34.0, 12.0, 1000.0, "config.json"),
        ("AMD_Radeon_RX_7700S_NO_OPT", 1, "float", "inference", "vgg16", 50, 45.0, 46.0, 12.0, 1000.0, "config.json"),
    ]
    frame = pd.DataFrame(rows, columns=columns.split())
    frame.assign(vendor="x", img_size=224, ms_std=0.5, ms_min=8.0, ms_max=90.0, file="f").to_parquet(
        folder / "benchmarks.parquet"
    )


ARCH = "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|"  # input -> node 1 -> output
CUT = "|nor_conv_3x3~0|+|none~0|nor_conv_1x1~1|+|none~0|none~1|none~2|"  # nothing reaches the output


def write_help_nas_latency(folder):
    pd.DataFrame(
        {"arch": [ARCH, CUT], "1080ti_256": [17.0, 9.0], "titanx_1": [8.0, 5.0], "gold_6226": [9.0, 6.0],
         "pixel2": [14, 9], "pixel3": [3.6, 0.4], "raspi4": [10.0, 0.02], "eyeriss": [3.0, 2.0], "fpga": [2.0, 1.0]}
    ).to_csv(folder / "nasbench201_latency_ms.csv.gz", index=False)  # fmt: skip
    pd.DataFrame({"arch": ["[7, 8, 1]"], "2080ti_32": [7.6], "gold_6226": [111.0], "fpga": [25.0]}).to_csv(
        folder / "fbnet_latency_ms.csv.gz", index=False
    )
    arch = json.dumps({"ks": [7, 5], "e": [6, 4], "d": [2, 3], "r": 204})
    pd.DataFrame({"arch": [arch], "titan_xp_64": [55.5], "v100_1": [7.8]}).to_csv(
        folder / "ofa_latency_ms.csv.gz", index=False
    )


def write_model_zoo_train_memory(folder):
    pd.DataFrame(
        [
            ("configs/COCO-Detection/faster_rcnn_R_50_C4_1x.yaml", 0.551, 0.102, 4.8),
            ("configs/COCO-Detection/faster_rcnn_R_50_C4_1x.yaml", 0.551, 0.102, 4.8),
            ("configs/Cityscapes/mask_rcnn_R_50_FPN.yaml", 0.240, 0.078, 4.4),
            ("configs/new_baselines/mask_rcnn_regnetx_4gf_dds_FPN_100ep_LSJ.py", None, 0.071, None),
            (None, None, None, None),
        ],
        columns=["config", "train time (s/iter)", "inference time (s/im)", "train mem (GB)"],
    ).to_parquet(folder / "detectron2_v100.parquet")
    columns = "name config collection train_mem_gb train_resources batch_size inf_ms inf_hw inf_bs inf_mode inf_res"
    box = (50.76, "V100", 1.0, "FP32", "(800, 1333)")
    no_time = (None, None, None, None, None)

    def row(name, memory, gpus, batch=None, time=no_time, collection="Mask R-CNN"):
        return (name, f"configs/x/{name}.py", collection, memory, gpus, batch, *time)

    pd.DataFrame(
        [
            row("mask-rcnn_r50_fpn_1x_coco", 4.4, "8x V100 GPUs", time=box),  # 8xb2 by default
            row("mask-rcnn_r50_fpn_amp-1x_coco", 3.6, "8x NVIDIA V100 GPUs"),
            row("yolox_s_8x8_300e_coco", 7.6, "8x A100 GPUs"),
            row("fcos_x101-32x4d_4xb4-1x_coco", 13.0, "4x V100 GPUs", batch=16.0),
            row("ssd300_coco", 9.9, "8x V100 GPUs"),  # the default does not hold
            row("mask2former_16xb1-lsj_coco", 21.1, "8x A100 GPUs"),
            row("yolox_x_8xb8-300e_coco", 28.1, "8x TITANXp GPUs"),
            row("retinanet_r50_fpn_1x_objects365", 7.4, None),
            row("vfnet_r50_fpn_1x_coco", None, "8x V100 GPUs"),
        ],
        columns=columns.split(),
    ).to_parquet(folder / "mmdetection.parquet")
    pd.DataFrame(
        [
            row("ann_r50-d8_4xb2-40k_cityscapes-512x1024", 6.0, "4x V100 GPUS", 8, collection="ANN"),
            row("fcn_r101-d8_4xb2-amp-80k_cityscapes-512x1024", 5.37, "4x 1080 Ti GPUS", 8, collection="FCN"),
            row("mask2former_swin-t_8xb2-160k_ade20k-512x512", 3826.0, "8x A100 GPUS", 16, collection="Mask2Former"),
            row("maskformer_r50-d32_8xb2-160k_ade20k-512x512", 3.29, "8x 42.20 GPUS", 16, collection="MaskFormer"),
            row("pspnet_r50b-d32_4xb2-80k_cityscapes-512x1024", 3.0, "4x V100 GPUS", 8, collection="PSPNet"),
            row("pspnet_r50b-d32_4xb2-80k_cityscapes-512x1024", 2.9, "4x V100 GPUS", 8, collection="PSPNet"),
        ],
        columns=columns.split(),
    ).to_parquet(folder / "mmsegmentation.parquet")


def write_zeus_training_energy(folder):
    columns = "dataset network batch_size optimizer power_limit time_per_epoch average_power gpu"
    pd.DataFrame(
        [
            ("imagenet", "resnet50", 256, "adadelta", 225, 11198.95, 116.6, "v100"),
            ("squad", "bert_base_uncased", 8, "adamw", 100, 3000.0, 99.0, "rtx6000"),
            ("sentiment140", "bert_base_uncased", 8, "adamw", 100, 9000.0, 98.0, "rtx6000"),
            ("cifar100", "shufflenetv2", 1024, "adadelta", 150, 11.09, 141.6, "a40"),
            ("librispeech", "deepspeech2", 8, "adamw", 250, 9000.0, 130.0, "p100"),
        ],
        columns=columns.split(),
    ).to_parquet(folder / "zeus_power_all.parquet")
    columns = "dataset network batch_size optimizer learning_rate run target_metric target_epoch"
    run = ("imagenet", "resnet50", 256, "adadelta", 0.1, 1)
    pd.DataFrame(
        [
            (*run, 0.05, 1.0),
            (*run, 0.10, 1.0),
            (*run, 0.15, 2.0),
            (*run, 0.95, None),
            ("squad", "bert_base_uncased", 8, "adamw", 1e-5, 1, 82.5, 1.0),
        ],
        columns=columns.split(),
    ).to_parquet(folder / "summary_train.parquet")


WRITE = {
    "timm": write_timm,
    "pytorch_gpu_benchmark": write_pytorch_gpu_benchmark,
    "help_nas_latency": write_help_nas_latency,
    "model_zoo_train_memory": write_model_zoo_train_memory,
    "zeus_training_energy": write_zeus_training_energy,
}


@pytest.fixture
def loaded(request, tmp_path):
    WRITE[request.param](tmp_path)
    return importers.load(request.param, tmp_path)


def one(rows, **wanted):
    """The single row with these values."""
    for name, value in wanted.items():
        rows = rows[rows[name] == value]
    assert len(rows) == 1, f"{len(rows)} rows have {wanted}"
    return rows.iloc[0]


# -- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_store_takes_it_and_every_case_is_its_own(name, tmp_path):
    WRITE[name](tmp_path)
    tables = importers.load(name, tmp_path).tables
    store = Store(tmp_path / "store", shipped=False)
    assert store.replace(name, tables) == {table: len(rows) for table, rows in tables.items()}
    for table in tables:
        rows = store.read(table)
        assert rows["key"].is_unique
        assert set(rows["dataset"]) == {name} and set(rows["status"]) == {"ok"}
        for text in rows["extra"].dropna():
            json.loads(text)


@pytest.mark.parametrize("name", NAMES)
def test_loading_twice_gives_the_same_rows(name, tmp_path):
    WRITE[name](tmp_path)
    first, second = (importers.load(name, tmp_path).tables for _ in range(2))
    for table in first:
        assert schema.conform(table, first[table]).equals(schema.conform(table, second[table]))


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_layout_and_a_missing_file_are_reported(name, tmp_path):
    with pytest.raises(ForerunError, match="is missing"):
        importers.load(name, tmp_path)
    WRITE[name](tmp_path)
    for file in tmp_path.iterdir():
        wrong = pd.DataFrame({"something": [1]})
        wrong.to_csv(file) if file.name.endswith(".csv.gz") else wrong.to_parquet(file)
    with pytest.raises(ForerunError, match="not laid out as expected"):
        importers.load(name, tmp_path)


# -- each -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loaded", ["timm"], indirect=True)
def test_timm(loaded):
    rows = loaded.tables["models"]
    assert len(rows) == 4 and loaded.dropped == {"no time: the run failed": 1}
    plain = one(rows, protocol="timm", device="rtx3090", mode="inference")
    assert plain["model"] == "resnet50" and plain["family"] == "resnet" and plain["latency_ms"] == 400
    assert plain["batch"] == 1024 and plain["throughput"] == 2560 and plain["input_shape"] == "[3,224,224]"
    assert plain["parameters"] == pytest.approx(25.56e6) and plain["flops"] == pytest.approx(2 * 4.09e9 * 1024)
    assert (plain["dtype"], plain["amp"], plain["runtime"]) == ("fp32", "fp16", "eager")
    assert plain["software"] == '{"cuda":"11.7","torch":"1.13"}'
    assert json.loads(one(rows, protocol="timm/channels_last")["extra"])["channels_last"] is True
    cpu = one(rows, device="i9-10940x")
    assert cpu["runtime"] == "compile" and cpu["dtype"] == "fp32" and cpu["software"] == '{"torch":"2.4.0"}'
    assert pd.isna(cpu["amp"])
    training = one(rows, mode="training")
    assert training["dtype"] == "fp32" and training["amp"] == "fp16" and pd.isna(training["flops"])


@pytest.mark.parametrize("loaded", ["pytorch_gpu_benchmark"], indirect=True)
def test_pytorch_gpu_benchmark(loaded):
    rows = loaded.tables["models"]
    single = one(rows, device="rtx3090", devices=1)
    assert single["model"] == "torchvision/resnet50" and single["dtype"] == "fp16" and single["batch"] == 12
    assert (single["latency_ms"], single["latency_median_ms"], single["latency_min_ms"]) == (8.4, 8.3, 8.0)
    assert pd.isna(single["parallel"]) and json.loads(single["extra"]) == {"std_ms": 0.5}
    assert single["software"] == '{"torch":"1"}'
    double = one(rows, device="rtx3090", devices=2)
    assert double["mode"] == "training" and double["batch"] == 24 and double["parallel"] == '{"dp":2}'
    extra = json.loads(double["extra"])
    assert extra["optimizer_step"] is False and extra["batch_source"] == "README, not verified"
    assert set(rows[rows["device"] == "rtx2080ti"]["protocol"]) == {
        "pytorch_gpu_benchmark", "pytorch_gpu_benchmark/20-iterations",
    }  # fmt: skip
    other = one(rows, device="amd-radeon-rx-7800-xt")
    assert pd.isna(other["software"])
    assert other["dtype"] == "fp64" and other["batch"] == 4 and json.loads(other["extra"])["classes"] == 200
    assert one(rows, device="amd-radeon-rx-7700s", latency_ms=46.0)["protocol"].endswith("/no-opt-build")


@pytest.mark.parametrize("loaded", ["help_nas_latency"], indirect=True)
def test_help_nas_latency(loaded):
    rows = loaded.tables["models"]
    assert list(loaded.dropped.values()) == [5, 1, 1]  # estimates, under 0.1 ms, folded away
    assert len(rows) == 2 * 8 + 3 + 2 - 7
    big = one(rows, model=f"nasbench201/{ARCH}", device="gtx1080ti")
    assert big["batch"] == 256 and big["latency_ms"] == 17 and "dtype" not in rows
    assert one(rows, model=f"nasbench201/{CUT}", device="titan-x-pascal")["batch"] == 1  # PyTorch ran it as it is
    assert set(rows[rows["model"] == f"nasbench201/{CUT}"]["device_reported"]) == {
        "1080ti", "titanx", "gold_6226", "pixel2",
    }  # fmt: skip
    assert one(rows, device_reported="pixel3")["extra"] == {"measured_by": "HW-NAS-Bench"}
    fbnet = rows[rows["source"] == "fbnet"]
    assert set(fbnet["model"]) == {"fbnet/7-8-1"}
    assert "warning" in one(fbnet, device="xeon-6226")["extra"]
    ofa = one(rows, source="ofa", device="titan-xp")
    assert ofa["model"] == "ofa/r204-d23-k75-e64" and ofa["input_shape"] == "[3,204,204]" and ofa["batch"] == 64
    assert {"gtx1080ti", "rtx2080ti", "titan-xp", "v100-16gb"} <= set(rows["device"]) & set(device_ids())


@pytest.mark.parametrize("loaded", ["model_zoo_train_memory"], indirect=True)
def test_model_zoo_train_memory(loaded):
    rows = loaded.tables["models"]
    assert loaded.dropped == {
        "no config named": 1,
        "listed twice": 1,
        "no time per iteration, and a batch that the table does not state": 1,
        "neither memory nor time": 1,
        "the table and the config name different numbers of GPUs": 1,
        "no device named": 2,
        "listed twice with different memory": 2,
        "more memory than the named card has": 2,
    }
    d2 = one(rows, model="detectron2/COCO-Detection/faster_rcnn_R_50_C4_1x", mode="training")
    assert d2["latency_ms"] == 551 and d2["memory_allocated_mb"] == pytest.approx(4.8 * 1024)
    assert (d2["batch"], d2["devices"], d2["device"], d2["family"]) == (16, 8, "v100-16gb", "faster-rcnn")
    assert one(rows, model="detectron2/Cityscapes/mask_rcnn_R_50_FPN", mode="training")["batch"] == 8
    assert len(rows[(rows["source"] == "detectron2") & (rows["mode"] == "inference")]) == 3
    default = one(rows, model="mmdetection/mask-rcnn_r50_fpn_1x_coco", mode="training")
    assert default["batch"] == 16 and default["device"] == "v100-32gb" and "default" in default["extra"]
    timed = one(rows, model="mmdetection/mask-rcnn_r50_fpn_1x_coco", mode="inference")
    assert (timed["latency_ms"], timed["batch"], timed["devices"], timed["dtype"]) == (50.76, 1, 1, "fp32")
    assert json.loads(timed["extra"]) == {"resized_within": [800, 1333]} and pd.isna(timed["memory_allocated_mb"])
    assert one(rows, model="mmdetection/mask-rcnn_r50_fpn_amp-1x_coco")["amp"] == "fp16"
    yolox = one(rows, model="mmdetection/yolox_s_8x8_300e_coco")
    assert yolox["batch"] == 64 and yolox["device"] == "a100-sxm4-80gb" and pd.isna(yolox["extra"])
    assert one(rows, model="mmdetection/fcos_x101-32x4d_4xb4-1x_coco")["devices"] == 4
    assert pd.isna(one(rows, model="mmdetection/ssd300_coco")["batch"])
    seg = one(rows, model="mmsegmentation/fcn_r101-d8_4xb2-amp-80k_cityscapes-512x1024")
    assert seg["input_shape"] == "[3,512,1024]" and seg["device"] == "gtx1080ti" and seg["amp"] == "fp16"


@pytest.mark.parametrize("loaded", ["zeus_training_energy"], indirect=True)
def test_zeus_training_energy(loaded):
    rows = loaded.tables["models"]
    v100 = one(rows, device="v100-pcie-32gb")
    assert v100["model"] == "torchvision/resnet50" and v100["mode"] == "training" and v100["optimizer"] == "adadelta"
    assert (v100["epoch_s"], v100["power_w"], v100["power_limit_w"]) == (11198.95, 116.6, 225)
    assert set(rows[rows["model"] == "bert-base-uncased"]["protocol"]) == {
        "zeus_training_energy/squad", "zeus_training_energy/sentiment140",
    }  # fmt: skip
    assert one(rows, device="a40")["model"] == "zeus_training_energy/shufflenetv2"
    assert set(rows["device"]) <= set(device_ids())
    curves = loaded.tables["curves"]
    assert list(zip(curves["epoch"], curves["test_accuracy"], strict=True)) == [(1, 0.10), (2, 0.15)]
    assert json.loads(curves["case"].iloc[0]) == {
        "dataset": "imagenet", "learning_rate": 0.1, "optimizer": "adadelta", "run": 1,
    }  # fmt: skip
    assert sorted(loaded.dropped.values()) == [1, 1, 1]
