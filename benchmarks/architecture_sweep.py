"""Writes a sweep over Hugging Face architectures that have no measured row: `python benchmarks/architecture_sweep.py`.

One model per `model_type` of the catalogue: the smallest one, with fewer layers where it is large. The class that runs
and its inputs are those that the frontend chooses, so that a row and its graph are the same call. Architectures whose
inputs depend on values (images within a prompt) are left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from forerun.capture import torch_compat
from forerun.data.places import shipped_folder
from forerun.errors import ForerunError
from forerun.frontends.huggingface import catalog
from forerun.frontends.huggingface.config import load_config
from forerun.frontends.huggingface.graphs import builder
from forerun.frontends.huggingface.inputs import InputMaker
from forerun.frontends.huggingface.model_class import choose
from forerun.workload import Workload

#: Architectures whose cache is no list of keys and values: no decode step is measured.
OTHER_CACHES = ("jamba", "lfm2", "mamba", "mamba2", "openai-gpt", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next",
                "recurrent_gemma", "rwkv", "falcon_mamba", "bamba", "zamba2")  # fmt: skip
#: Architectures that transformers does not have, or whose inputs are characters.
LEFT_OUT = ("gte", "canine")
#: Fields of configs that have experts: their matmuls are computed in bf16 alone.
EXPERTS = (
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "moe_num_experts",
    "ffn_config",
    "moe_intermediate_size",
)
LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
)
MOST_PARAMETERS = 4e8
FEWEST_LAYERS = 2
MOST_EXPERTS = 16
COUNTS_OF_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
TEXT = [
    {"mode": "inference", "batch": [1, 16], "seq_len": [64, 256], "dtype": ["fp32", "fp16", "bf16"]},
    {
        "mode": "training",
        "batch": [4, 16],
        "seq_len": 128,
        "dtype": "fp32",
        "amp": [None, "bf16"],
        "optimizer": "adamw",
        "task": "sequence-classification",
    },
]
LANGUAGE = [
    {"mode": "prefill", "batch": [1, 8], "seq_len": [128, 512], "dtype": ["fp16", "bf16"]},
    {"mode": "decode", "batch": [1, 16], "seq_len": [128, 1024], "dtype": ["fp16", "bf16"]},
    {"mode": "training", "batch": [4, 8], "seq_len": 256, "dtype": ["fp32", "bf16"], "optimizer": "adamw"},
]
RECURRENT = [
    {"mode": "inference", "batch": [1, 8], "seq_len": [128, 512], "dtype": ["bf16", "fp16"]},
    {"mode": "training", "batch": [4, 8], "seq_len": 128, "dtype": "bf16", "optimizer": "adamw"},
]
OTHERS = [
    {"mode": "inference", "batch": [1, 4, 16], "dtype": ["fp32", "fp16", "bf16"]},
    {"mode": "training", "batch": [2, 8], "dtype": "fp32", "amp": [None, "bf16"], "optimizer": "sgd"},
]


#: Decoders of the kind that Falcon's first releases are: ALiBi biases, keys and values of every head.
OLDER_DECODERS: dict[str, Any] = {
    f"falcon-alibi-{layers}": {"family": "falcon-alibi", "config": {
        "model_type": "falcon", "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
        "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True, "new_decoder_architecture": False,
        "vocab_size": 50304, "num_kv_heads": heads, "ffn_hidden_size": 4 * width}}
    for width, layers, heads in ((1024, 8, 16), (2048, 12, 32), (2560, 6, 40))
}  # fmt: skip


def measured_types() -> set[str]:
    rows = pd.read_parquet(shipped_folder("models") / "models" / "forerun-h200.parquet", columns=["source", "case"])
    cases = map(json.loads, rows.loc[rows["source"] == "hf", "case"])
    return {case["config"]["model_type"] for case in cases}


def shallower(config: dict[str, Any], parameters: float) -> dict[str, Any]:
    """The config with its layers, and the experts of a large one, cut so that it has about the most parameters."""
    share = min(1.0, MOST_PARAMETERS / parameters)
    if share < 0.1:
        config = {**config, **{name: min(config[name], MOST_EXPERTS) for name in COUNTS_OF_EXPERTS if name in config}}
    cut = {name: max(FEWEST_LAYERS, int(config[name] * share)) for name in LAYERS if isinstance(config.get(name), int)}
    per_layer = {name: value[: cut["num_hidden_layers"]] for name, value in config.items()
                 if isinstance(value, list) and len(value) == config.get("num_hidden_layers")}  # fmt: skip
    return {**config, **cut, **per_layer} if share < 1 else config


def smallest(entries: list[catalog.Architecture]) -> catalog.Architecture:
    return min(entries, key=lambda one: (one.parameters or 1e12, one.id))


def inputs_of(config: dict[str, Any], mode: str) -> tuple[str, dict[str, Any]] | None:
    """The class that runs and its inputs as a sweep lists them; None where they depend on values."""
    loaded = load_config(dict(config), False)
    workload = Workload(dict(config), dtype="fp32", mode=mode)
    chosen = choose(loaded, workload, config["model_type"], [])
    arguments = InputMaker(loaded, chosen, workload, config["model_type"], None).arguments(
        builder(loaded, chosen, workload)
    )
    text = loaded.get_text_config()
    below = getattr(text, "vocab_size", None) or 2
    listed: dict[str, Any] = {}
    for name, argument in arguments.items():
        if argument.values is not None or argument.joined:
            return None
        listed[name] = (
            {"shape": list(argument.shape), "below": below} if argument.kind == "token" else list(argument.shape)
        )
    return chosen.model_class.__name__, listed


def entries_by_type() -> Iterator[tuple[str, catalog.Architecture]]:
    known = measured_types()
    by_type: dict[str, list[catalog.Architecture]] = {}
    for name in catalog.architecture_ids():
        entry = catalog.architecture(name)
        assert entry is not None
        by_type.setdefault(str(entry.config["model_type"]), []).append(entry)
    for kind in sorted(set(by_type) - known - set(LEFT_OUT)):
        yield kind, smallest(by_type[kind])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("sweeps/h200_architectures.yaml"))
    given = parser.parse_args()
    torch_compat.prepare()
    texts: dict[str, Any] = {}
    languages: dict[str, Any] = {}
    recurrent: dict[str, Any] = {}
    others: list[dict[str, Any]] = []
    for kind, entry in entries_by_type():
        config = {k: v for k, v in entry.config.items() if k not in ("quantization_config", "torch_dtype")}
        config = shallower(config, entry.parameters or 4e8)
        label = entry.id.rpartition("/")[2]
        if entry.task in ("causal-lm", "encoder"):
            target = recurrent if kind in OTHER_CACHES else languages if entry.task == "causal-lm" else texts
            halves = {"dtypes": ["bf16"]} if any(name in config for name in EXPERTS) else {}
            target[label] = {"family": kind, "config": config, **halves}
            continue
        for mode, settings in zip(("inference", "training"), OTHERS, strict=True):
            try:
                made = inputs_of(config, mode)
            except (ForerunError, ValueError, TypeError, AttributeError) as error:
                print(f"{kind} {mode}: {type(error).__name__}: {str(error)[:100]}")
                continue
            if made is None:
                print(f"{kind} {mode}: its inputs depend on values")
                continue
            model = {"family": kind, "class": made[0], "config": config, "inputs": made[1]}
            others.append(
                {"configs": {label: model}, "per_model": 2 if mode == "inference" else 1, "settings": [settings]}
            )
    languages |= OLDER_DECODERS
    blocks = [{"configs": languages, "per_model": 3, "settings": LANGUAGE},
              {"configs": recurrent, "per_model": 2, "settings": RECURRENT},
              {"configs": texts, "per_model": 3, "settings": TEXT}, *others]  # fmt: skip
    about = "Architectures of transformers that no other sweep has: one model of each type of the catalogue."
    spec = {"name": given.out.stem, "about": about, "seed": 139, "breadth": 3, "blocks": blocks}
    given.out.write_text(yaml.safe_dump(spec, sort_keys=False, width=160, default_flow_style=None))
    types = (
        len(languages)
        + len(recurrent)
        + len(texts)
        + len({next(iter(b["configs"].values()))["family"] for b in others})
    )
    print(f"{types} architectures in {given.out}")


if __name__ == "__main__":
    main()
