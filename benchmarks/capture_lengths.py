"""Captures every Hugging Face architecture of the catalogue at 128 and at 2,048 tokens, and prints the slowest ten.

    python benchmarks/capture_lengths.py                  all; exits with 1 if any took longer than 20 s or failed
    python benchmarks/capture_lengths.py --part 1/8       the first of eight parts, for machines side by side
    python benchmarks/capture_lengths.py --types          every model_type of transformers instead, at two layers

Nothing is read from or written to the cache of graphs. Nightly: hours on two cores.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

LENGTHS = (128, 2048)
LIMIT_S = 20.0
_LAYERS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "depth",
    "num_encoder_layers", "num_decoder_layers",
)  # fmt: skip


def shrunk(config: dict[str, Any], layers: int = 2) -> dict[str, Any]:
    """A config with two layers in every stack; lists that go with the layers keep their first and last entry."""
    out: dict[str, Any] = {}
    for name, value in config.items():
        if name in ("out_features", "out_indices", "stage_names"):
            continue
        if isinstance(value, dict):
            value = shrunk(value, layers)
        elif name in _LAYERS and isinstance(value, int):
            value = min(value, layers)
        elif name.endswith("layer_types") and isinstance(value, list) and len(value) > layers:
            value = [value[0], value[-1]]
        out[name] = value
    return out


def cases(types: bool) -> Iterator[tuple[str, Any, int | None]]:
    """(name, model, length) of all that is captured."""
    from forerun.graph.sources import hf_catalog

    if not types:
        for name in hf_catalog.architecture_ids():
            text = hf_catalog.architecture(name).task in ("causal-lm", "encoder", "seq2seq")  # type: ignore[union-attr]
            yield from ((name, name, length) for length in (LENGTHS if text else (None,)))
        return
    from transformers import CONFIG_MAPPING

    for kind in CONFIG_MAPPING:
        try:
            config = CONFIG_MAPPING[kind]().to_dict()
        except Exception as error:  # noqa: BLE001 - some types have no default config
            print(f"{kind}: no default config ({type(error).__name__})")
            continue
        yield kind, {**shrunk(config), "model_type": kind}, None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--types", action="store_true")
    options = parser.parse_args()
    part, parts = (int(n) for n in options.part.split("/"))

    from forerun.errors import ForerunError
    from forerun.graph import torch_compat
    from forerun.graph.sources import find_door
    from forerun.workload import Workload

    torch_compat.prepare()
    took: list[tuple[float, str]] = []
    failed: Counter[str] = Counter()
    for name, model, length in list(cases(options.types))[part - 1 :: parts]:
        started = time.monotonic()
        try:
            find_door(model)[1].load(model, Workload(model, seq_len=length, dtype="bf16"))
        except ForerunError as error:
            if "takes at most" in str(error):  # a context shorter than the length is no failure
                continue
            failed[str(error).partition(": ")[2][:80]] += 1
            print(f"{name}: {error}")
        took.append((time.monotonic() - started, f"{name} at {length or 'its own size'}"))
    for seconds, name in sorted(took, reverse=True)[:10]:
        print(f"{seconds:7.1f} s  {name}")
    for cause, count in failed.most_common(20):
        print(f"{count:5d}  {cause}")
    return int(bool(failed) or any(seconds > LIMIT_S for seconds, _ in took))


if __name__ == "__main__":
    sys.exit(main())
