"""Captures every Hugging Face architecture of the catalogue at 128 and at 2,048 tokens, and prints the slowest ten.

    python benchmarks/capture_lengths.py                  all; exits with 1 if any took longer than 20 s or failed
    python benchmarks/capture_lengths.py --part 1/8       the first of eight parts, for machines side by side
    python benchmarks/capture_lengths.py --types          every model_type of transformers instead, at two layers
    python benchmarks/capture_lengths.py --lines FILE     keeps what is done; a run that was stopped goes on

Seconds are those of the processor, so that other work on the machine does not count. Nothing is read from or written to
the cache of graphs. Nightly: hours on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
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
    from forerun.frontends.huggingface import catalog as hf_catalog

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


def captured(name: str, model: Any, length: int | None) -> dict[str, Any]:
    """One capture: its seconds and, where it failed, the sentence."""
    from forerun.errors import ForerunError
    from forerun.frontends import find_frontend
    from forerun.workload import Workload

    started = time.process_time()
    error = None
    for dtype in ("bf16", "fp32"):  # PyTorch has no Fourier transforms in bf16
        try:
            find_frontend(model)[1].load(model, Workload(model, seq_len=length, dtype=dtype))
        except ForerunError as e:
            error = str(e)
        if error is None or "Unsupported dtype" not in error or dtype == "fp32":
            break
        error = None
    short = error is not None and "takes at most" in error  # a context shorter than the length is no failure
    return {
        "name": f"{name} at {length or 'its own size'}", "seconds": None if short else time.process_time() - started,
        "error": None if short else error,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--types", action="store_true")
    parser.add_argument("--lines", type=Path)
    options = parser.parse_args()
    part, parts = (int(n) for n in options.part.split("/"))

    from forerun.capture import torch_compat

    torch_compat.prepare()
    kept = options.lines.read_text().splitlines() if options.lines and options.lines.exists() else []
    done = {line["name"]: line for line in map(json.loads, kept)}
    for name, model, length in list(cases(options.types))[part - 1 :: parts]:
        if f"{name} at {length or 'its own size'}" in done:
            continue
        line = captured(name, model, length)
        done[line["name"]] = line
        if line["error"]:
            print(f"{line['name']}: {line['error']}", flush=True)
        if options.lines:
            with options.lines.open("a") as file:
                file.write(json.dumps(line) + "\n")
    took = sorted(((line["seconds"], line["name"]) for line in done.values() if line["seconds"]), reverse=True)
    print(f"{len(took)} captures")
    for seconds, name in took[:10]:
        print(f"{seconds:7.1f} s  {name}")
    failed = Counter(line["error"].partition(": ")[2][:80] for line in done.values() if line["error"])
    for cause, count in failed.most_common(20):
        print(f"{count:5d}  {cause}")
    return int(bool(failed) or any(seconds > LIMIT_S for seconds, _ in took))


if __name__ == "__main__":
    sys.exit(main())
