"""Holds predictions from the spec sheet alone against timm's published throughput on cards nobody here measured.

    python benchmarks/timm_check.py benchmarks.parquet

The file is timm's own benchmark tables (huggingface/pytorch-image-models, results/) in one Parquet table with the
columns device, mode, layout, compile, torch, model, img_size, batch_size, step_time. Reading it needs pyarrow.
"""

from __future__ import annotations

import sys
import warnings

import pandas as pd

import forerun

MODELS = (
    "resnet50 resnet18 mobilenetv3_large_100 efficientnet_b0 convnext_tiny vit_base_patch16_224 regnety_032 "
    "densenet121 swin_tiny_patch4_window7_224 mixer_b16_224 resnext50_32x4d vgg16".split()
)


def main() -> None:
    warnings.filterwarnings("ignore")
    table = pd.read_parquet(sys.argv[1])
    table = table[(table["compile"] == "eager") & (table["layout"] == "nchw")]
    table = table.assign(base=table["model"].str.split(".").str[0])
    rows = []
    for (device, mode, model), found in table[table["base"].isin(MODELS)].groupby(["device", "mode", "base"]):
        row = found.dropna(subset=["batch_size", "step_time"]).sort_values("torch").iloc[-1]  # the newest torch
        training = {"mode": "training", "amp": "fp16", "optimizer": "momentum"}
        settings = {"dtype": "fp16"} if mode == "infer" else training
        side = int(row["img_size"])
        p = forerun.predict(
            f"timm/{model}", device, batch=int(row["batch_size"]), input_shape=(3, side, side), **settings
        )
        assert p.latency_ms is not None
        real, said = row["step_time"], p.latency_ms
        rows.append((device, mode, model, real, said.value, real / said.value, said.low <= real <= said.high))
    answers = pd.DataFrame(rows, columns=["device", "mode", "model", "measured_ms", "predicted_ms", "ratio", "inside"])
    print(answers.round(2).to_string(index=False))
    for (device, mode), group in answers.groupby(["device", "mode"]):
        error = (group["predicted_ms"] / group["measured_ms"] - 1).abs()
        single = group["predicted_ms"] * (group["measured_ms"] / group["predicted_ms"]).median()
        print(
            f"{device} {mode}: {len(group)} models, mean error {error.mean():.0%}, median {error.median():.0%}, "
            f"in the interval {group['inside'].mean():.0%}, measured/predicted {group['ratio'].median():.2f} "
            f"(with one ratio for the card: {(single / group['measured_ms'] - 1).abs().mean():.0%})"
        )


if __name__ == "__main__":
    main()
