"""Compares 300 predictions, all fields, with a golden file to the byte: a refactoring must not move any.

    python benchmarks/golden.py                compare; prints every field that moved, exits with 1 if any did
    python benchmarks/golden.py --write        write the golden file anew (its commit message says what moved and why)

Graphs are captured afresh, so that a change of the recorder shows too (minutes on two cores). Equal to the byte is
meant on one machine: another CPU rounds differently.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden_predictions.json.gz"
DEVICES = (
    "h200", "a100-sxm4-40gb", "h100-sxm", "t4", "l4", "rtx4090", "v100-16gb", "b200", "mi300x", "tpu-v5e",
)  # fmt: skip
#: (model, settings of predict): every mode, dtype, runtime and kind of name that needs no file and no network.
WORKLOADS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("resnet50", {}),
    ("resnet50", {"batch": 32, "dtype": "fp16", "confidence": 0.8}),
    ("resnet50", {"batch": 64, "mode": "training", "optimizer": "momentum", "amp": "fp16"}),
    ("resnet18", {"batch": 8, "dtype": "bf16", "region": "DEU"}),
    ("timm/convnext_tiny", {"batch": 16, "dtype": "fp32-ieee"}),
    ("timm/swin_tiny_patch4_window7_224", {"batch": 4, "runtime": "compile"}),
    ("timm/vit_base_patch16_224", {"batch": 64, "dtype": "fp16", "runtime": "cudagraph"}),
    ("timm/efficientnet_b0", {"batch": 128, "mode": "training", "optimizer": "adamw"}),
    ("timm/mobilenetv3_large_100", {"batch": 1, "host": 1.5}),
    ("timm/resnet50?layers=[2,2,2,2]", {"batch": 2}),
    ("torchvision/vgg16", {"batch": 8, "dtype": "tf32"}),
    ("torchvision/densenet121", {"batch": 16, "mode": "training"}),
    ("cnn:depth=6,filters=32,classes=10", {"batch": 128}),
    ("cnn:depth=8,filters=16,classes=10", {"batch": 256, "mode": "training", "optimizer": "adam"}),
    ("unet:base=44,levels=3", {"batch": 16}),
    ("unet:base=32,levels=4", {"batch": 8, "mode": "training", "amp": "bf16"}),
    ("bert-base-uncased", {"batch": 8, "seq_len": 128}),
    ("bert-base-uncased", {"batch": 16, "seq_len": 256, "mode": "training", "optimizer": "adamw", "amp": "bf16"}),
    ("distilbert-base-uncased", {"batch": 1, "seq_len": 64, "dtype": "fp16"}),
    ("gpt2", {"batch": 4, "seq_len": 512, "mode": "prefill", "dtype": "fp16"}),
    ("gpt2", {"batch": 16, "seq_len": 1000, "mode": "decode", "dtype": "fp32"}),
    ("meta-llama/Llama-3.1-8B", {"batch": 1, "seq_len": 2048, "mode": "prefill", "dtype": "bf16"}),
    ("meta-llama/Llama-3.1-8B", {"batch": 16, "seq_len": 4096, "mode": "decode", "dtype": "bf16"}),
    ("meta-llama/Llama-3.1-8B", {"batch": 4, "seq_len": 1024, "mode": "decode", "dtype": "int8"}),
    ("meta-llama/Llama-3.1-8B", {"batch": 1, "seq_len": 1024, "mode": "decode", "dtype": "int4"}),
    ("mistralai/Mixtral-8x7B-v0.1", {"batch": 8, "seq_len": 512, "mode": "decode", "dtype": "bf16"}),
    ("Qwen/Qwen2.5-0.5B", {"batch": 2, "seq_len": 512, "mode": "training", "optimizer": "adamw"}),
    ("google/gemma-2-2b", {"batch": 1, "seq_len": 256, "mode": "prefill", "dtype": "bf16"}),
    ("t5-small", {"batch": 4, "seq_len": 128}),
    ("resnet50", {"batch": 8, "predictor": "roofline"}),
)


def answers() -> dict[str, Any]:
    """Every case by name: the prediction as plain data, or the sentence that refuses it."""
    import warnings

    from rich.progress import track

    import forerun
    from forerun.errors import ForerunError

    warnings.filterwarnings("ignore")
    out: dict[str, Any] = {}
    for model, settings in track(WORKLOADS, "predicting", disable=not sys.stderr.isatty()):
        for device in DEVICES:
            name = " ".join([model, *(f"{k}={v}" for k, v in settings.items()), "on", device])
            try:
                out[name] = forerun.predict(model, device, **settings).to_dict()
            except ForerunError as error:
                out[name] = {"refused": str(error)}
    return json.loads(json.dumps(out))


def moved(was: Any, now: Any, path: str = "") -> list[str]:
    """A line for every leaf that differs; a field that the golden file does not have yet is no difference."""
    if isinstance(was, dict) and isinstance(now, dict):
        return [line for k in was for line in moved(was[k], now.get(k), f"{path}.{k}")]
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        pairs = enumerate(zip(was, now, strict=True))
        return [line for i, (a, b) in pairs for line in moved(a, b, f"{path}[{i}]")]
    return [] if was == now else [f"{path.lstrip('.')}: {was!r} -> {now!r}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the golden file anew")
    parser.add_argument("--most", type=int, default=5, help="lines shown for each case that moved")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FORERUN_CACHE"] = os.path.join(folder, "cache")
        os.environ["FORERUN_STORE"] = os.path.join(folder, "store")
        found = answers()
    if args.write:
        with gzip.GzipFile(GOLDEN, "wb", mtime=0) as file:
            file.write(json.dumps(found, indent=0, sort_keys=True).encode())
        print(f"{len(found)} predictions written to {GOLDEN}")
        return 0
    with gzip.open(GOLDEN) as file:
        golden = json.load(file)
    different = {name: moved(golden.get(name), found.get(name)) for name in [*golden, *(set(found) - set(golden))]}
    different = {name: lines for name, lines in different.items() if lines}
    for name, lines in different.items():
        print(name, *(f"    {line}" for line in lines[: args.most]), sep="\n")
    fields = {name: answer.keys() for name, answer in found.items() if "refused" not in answer}
    new = sorted({field for name, known in fields.items() for field in known - golden.get(name, {}).keys()})
    refused = sum("refused" in answer for answer in found.values())
    print(f"{len(golden) - len(different)} of {len(golden)} predictions equal to the byte ({refused} refusals)")
    if new:
        print(f"new fields: {', '.join(new)}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
