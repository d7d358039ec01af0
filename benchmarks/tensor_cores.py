"""Which operators run on tensor cores, by rule and by the names of the kernels that our rows keep: `python
benchmarks/tensor_cores.py` writes the table of docs/MEASURE.md between its markers; `--check` compares.

The rule is that of `forerun report` (device/matrix_units.py). Rows of single operators keep the names of all their
kernels; a row is on tensor cores if one of them is (measure/tensor_kernels.py), and rows whose names were cut too early
to say it are left out. Rows of models keep the names of their five longest kernels.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import pandas as pd

from forerun.data.places import shipped_folder
from forerun.device import load_device
from forerun.device.matrix_units import runs_on_matrix_units
from forerun.measure.tensor_kernels import on_tensor_cores

ROOT = Path(__file__).parent.parent
PAGE, NAME = "docs/MEASURE.md", "tensor_cores"
DEVICE = "h200"
#: Kinds of operator by the start of their families' names.
KINDS = {
    "linear, matmul, bmm, einsum": r"linear|matmul$|bmm|einsum", "attention": r"sdpa",
    "convolution": r"conv(?!.*(?:depthwise|group|multiplier))",
    "depthwise convolution": r"conv_(?:depthwise|multiplier)",
    "grouped convolution": r"conv\w*group", "recurrent": r"gru|lstm",
}  # fmt: skip
#: Their class of kernel (graph.profile.CLASSES).
CLASS = {
    "linear, matmul, bmm, einsum": "matmul", "attention": "attention", "convolution": "conv",
    "depthwise convolution": "conv_depthwise", "grouped convolution": "conv_grouped", "recurrent": "rnn",
}  # fmt: skip
CUT = "_ZN17cutlass__5x_cudnn"  # mangled names, which were cut before they say what they compute on
UNITS = {"fp32": "fp32", "tf32": "tf32", "fp16": "fp16", "bf16": "bf16"}


def operators() -> pd.DataFrame:
    path = shipped_folder("operators") / "operators" / "forerun-h200.parquet"
    kept = pd.read_parquet(path, columns=["family", "dtype", "device_ms", "extra", "status"])
    kept = kept[(kept["status"] == "ok") & kept["dtype"].isin(UNITS) & kept["device_ms"].notna()]
    names = [json.loads(text).get("kernel_names", []) if text else [] for text in kept["extra"]]
    known = [bool(each) and not any(name.startswith(CUT) for name in each) for each in names]
    kept = kept.assign(seen=[any(map(on_tensor_cores, each)) for each in names])[known]
    kept["kind"] = None
    for words, pattern in KINDS.items():
        kept.loc[kept["kind"].isna() & kept["family"].str.match(pattern), "kind"] = words
    return kept.dropna(subset=["kind"])


def lines() -> list[list[str]]:
    device, out = load_device(DEVICE), []
    rows = operators()
    for kind in KINDS:
        for dtype, unit in UNITS.items():
            part = rows[(rows["kind"] == kind) & (rows["dtype"] == dtype)]
            if len(part) < 20:
                continue
            ruled = runs_on_matrix_units(device, CLASS[kind], unit)
            time = float(part.loc[part["seen"], "device_ms"].sum() / part["device_ms"].sum())
            out.append([
                kind, dtype, f"{len(part):,}", "yes" if ruled else "no", f"{100 * part['seen'].mean():.0f} %",
                f"{100 * time:.0f} %", f"{100 * (part['seen'] == ruled).mean():.0f} %",
            ])  # fmt: skip
    return out


def models() -> str:
    """The share of the five longest kernels' time on tensor cores, by precision."""
    kept = pd.read_parquet(shipped_folder() / "models" / "forerun-h200.parquet", columns=["dtype", "amp", "extra"])
    texts = []
    for words, part in (
        ("FP16 and BF16", kept[kept["dtype"].isin(["fp16", "bf16"])]), ("autocast", kept[kept["amp"].notna()]),
        ("FP32 (TF32 in convolutions)", kept[(kept["dtype"] == "fp32") & kept["amp"].isna()]),
    ):  # fmt: skip
        on = total = 0.0
        for text in part["extra"]:
            for name, ms, _ in json.loads(text).get("top_kernels", []) if text else []:
                total += ms
                on += ms * on_tensor_cores(name)
        texts.append(f"{100 * on / total:.0f} % in {words}")
    return f"Of the time of the five longest kernels of model rows, on tensor cores: {', '.join(texts)}."


def block() -> str:
    head = ["operator", "dtype", "rows", "rule: on tensor cores", "rows on them, by kernel names", "of their time",
            "rows as the rule says"]  # fmt: skip
    table = "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines()))
    return f"{table}\n\n{models()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()
    page = ROOT / PAGE
    text, body = page.read_text(), block()
    pattern = re.compile(rf"(<!-- {NAME} -->\n).*?(<!-- end -->)", re.S)
    if len(pattern.findall(text)) != 1:
        sys.exit(f"{PAGE} has not one place for the figures {NAME}")
    new = pattern.sub(lambda m: f"{m[1]}{body}\n{m[2]}", text)
    if options.check:
        sys.exit(None if new == text else f"{PAGE} is not what its rows say: run python benchmarks/tensor_cores.py")
    page.write_text(new)


if __name__ == "__main__":
    main()
