"""Scores predicted memory of training steps on other GPUs: MMSegmentation's SegFormer and UPerNet (Swin) configs.

    forerun data import model_zoo_train_memory FOLDER
    python benchmarks/zoo_memory.py            minutes: every model is captured

The zoo reports the peak of PyTorch's allocator on one GPU, in two or three digits. The networks are transformers' ports
of the same models, with the loss on logits of the size of the image, as MMSegmentation computes it. Its auxiliary
head and its accuracy, which it computes in every step, are not in the ports.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import forerun
from forerun.capture import torch_compat
from forerun.data.store import Store

DATASET = "model_zoo_train_memory"
#: Widths, depths and the width of the head of SegFormer's encoders; width, depths and heads of Swin's.
SEGFORMER = {
    "b0": ([32, 64, 160, 256], [2, 2, 2, 2], 256), "b1": ([64, 128, 320, 512], [2, 2, 2, 2], 256),
    "b2": ([64, 128, 320, 512], [3, 4, 6, 3], 768), "b3": ([64, 128, 320, 512], [3, 4, 18, 3], 768),
    "b4": ([64, 128, 320, 512], [3, 8, 27, 3], 768), "b5": ([64, 128, 320, 512], [3, 6, 40, 3], 768),
}  # fmt: skip
SWIN = {
    "tiny": (96, [2, 2, 6, 2], [3, 6, 12, 24]), "small": (96, [2, 2, 18, 2], [3, 6, 12, 24]),
    "base": (128, [2, 2, 18, 2], [4, 8, 16, 32]),
}  # fmt: skip
_SEGFORMER = re.compile(r"mmsegmentation/segformer_mit-(?P<size>b\d)_.*_(?P<data>ade20k|cityscapes)-(?P<side>\d+)x")
_SWIN = re.compile(r"mmsegmentation/swin-(?P<size>\w+)-patch4-window7-in1k-pre_upernet_.*_ade20k-(?P<side>512)x")


def network(name: str) -> Any:
    """The network of a config without its weights, with its loss, and the side of its images; None for others."""
    import torch
    from torch.nn import functional
    from transformers import (
        SegformerConfig,
        SegformerForSemanticSegmentation,
        SwinConfig,
        UperNetConfig,
        UperNetForSemanticSegmentation,
    )

    class WithLoss(torch.nn.Module):
        def __init__(self, net: Any) -> None:
            super().__init__()
            self.net = net

        def forward(self, images: Any) -> Any:
            size = images.shape[-2:]
            logits = functional.interpolate(self.net(images).logits, size=size, mode="bilinear", align_corners=False)
            return functional.cross_entropy(logits, torch.zeros(len(images), *size, dtype=torch.int64))

    with torch.device("meta"):
        if found := _SEGFORMER.match(name):
            widths, depths, head = SEGFORMER[found["size"]]
            labels = 150 if found["data"] == "ade20k" else 19
            config = SegformerConfig(hidden_sizes=widths, depths=depths, decoder_hidden_size=head, num_labels=labels)
            return WithLoss(SegformerForSemanticSegmentation(config)), int(found["side"])
        if found := _SWIN.match(name):
            width, depths, heads = SWIN[found["size"]]
            stages = [f"stage{i}" for i in range(1, 5)]
            backbone = SwinConfig(embed_dim=width, depths=depths, num_heads=heads, window_size=7, out_features=stages)
            config = UperNetConfig(backbone_config=backbone, num_labels=150)
            return WithLoss(UperNetForSemanticSegmentation(config)), int(found["side"])
    return None


def main() -> None:
    torch_compat.prepare()
    rows = Store().read("models")
    rows = rows[(rows["dataset"] == DATASET) & (rows["mode"] == "training")].sort_values("memory_allocated_mb")
    errors = []
    for row in rows.itertuples():
        if not (_SEGFORMER.match(row.model) or _SWIN.match(row.model)):
            continue
        model, side = network(row.model)
        one = forerun.predict(
            model, row.device, mode="training", batch=int(row.batch / row.devices), input_shape=(3, side, side),
            optimizer="adamw",
        ).memory_allocated_mb  # fmt: skip
        errors.append(one.value / row.memory_allocated_mb - 1)
        print(
            f"{row.model.partition('/')[2]:<75} {row.device:<16} {row.memory_allocated_mb:>7,.0f} MB  predicted "
            f"{one.value:>7,.0f} ({one.low:,.0f} … {one.high:,.0f})  {errors[-1]:+.1%}",
            flush=True,
        )
    print(f"{len(errors)} configs: mean error {np.abs(errors).mean():.1%}, bias {np.mean(errors):+.1%}")


if __name__ == "__main__":
    main()
