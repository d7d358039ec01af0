"""Training steps of ONNX files against those of the PyTorch networks that they were exported from.

    python benchmarks/training_from_files.py              every network; --docs writes the table to docs/PREDICT.md
    python benchmarks/training_from_files.py resnet gpt2  those whose name contains one of the words
    python benchmarks/training_from_files.py --lines FILE keeps what is done; a run that was stopped goes on

Each network is exported in training mode by torch.onnx (batch norms and dropouts stay in the file) to a temporary
folder; a training step with Adam is predicted for an H200 from the file and from the network itself. Exits with 1 where
the mean error is above 1 % of FLOPs, or 3 % of memory (tensors at peak, and memory needed) or device time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEVICE, BATCH, OPTIMIZER = "h200", 32, "adam"
#: What is compared, and the most that the mean error may be.
COMPARED = {"FLOPs": 0.01, "tensors at peak": 0.03, "memory": 0.03, "device time": 0.03}
PAGE, MARKER = Path(__file__).parents[1] / "docs" / "PREDICT.md", "training_files"
IMAGES = (
    "torchvision/resnet50", "torchvision/vgg11_bn", "torchvision/mobilenet_v2", "torchvision/mobilenet_v3_large",
    "torchvision/densenet121", "torchvision/efficientnet_b0", "torchvision/regnet_y_400mf",
    "torchvision/squeezenet1_1", "torchvision/shufflenet_v2_x1_0", "torchvision/convnext_tiny",
    "torchvision/vit_b_16", "torchvision/googlenet", "timm/resnext50_32x4d", "timm/seresnet50", "timm/resnet26d",
    "timm/efficientnet_lite0", "timm/ghostnet_100", "timm/repvgg_a2", "timm/vit_tiny_patch16_224",
    "timm/deit_small_patch16_224", "timm/mixer_s16_224", "timm/poolformer_s12", "timm/convnextv2_nano",
    "timm/mobilevit_xs",
)  # fmt: skip
FAMILIES = (
    "cnn:depth=6,filters=32", "unet:", "super_resolution:blocks=8", "recurrent:", "multi_query:expand=1,parallel=0",
    "torch_transformer:",
)  # fmt: skip
TEXTS = ("bert", "distilbert", "roberta", "electra", "gpt2", "llama")


@dataclass
class Case:
    """A network with example inputs: its name, how it is built, the shapes of its inputs without the batch."""

    name: str
    build: Callable[[], Any]
    shape: tuple[int, ...]
    tokens: bool = False


def cases() -> list[Case]:
    """Every network."""
    from forerun.capture import torch_compat

    torch_compat.prepare()
    import timm
    import torchvision

    def image(name: str) -> Case:
        library, _, bare = name.partition("/")
        if library == "timm":
            return Case(bare, lambda: timm.create_model(bare), (3, 256, 256) if "mobilevit" in bare else (3, 224, 224))
        settings = {"init_weights": False, "aux_logits": False} if bare == "googlenet" else {}
        return Case(bare, lambda: torchvision.models.get_model(bare, **settings), (3, 224, 224))

    return [*map(image, IMAGES), *map(member, FAMILIES), *map(text, TEXTS)]


def member(name: str) -> Case:
    """A network of one of our families, with a single input."""
    from forerun.networks import family_of

    family = family_of(name)
    (given,) = family.inputs(family.parse(name)).values()
    return Case(name, lambda: family.make(name), given.shape, tokens=given.below is not None)


def text(kind: str) -> Case:
    """A language model of four layers that takes token ids and gives one tensor."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    few = {"gpt2": {"n_layer": 4}, "distilbert": {"n_layers": 4}}.get(kind, {"num_hidden_layers": 4})
    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 16}
    config = AutoConfig.for_model(kind, **few, **(sizes if kind == "llama" else {}), use_cache=False)

    bare = {"add_pooling_layer": False} if kind in ("bert", "roberta") else {}

    class OneTensor(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            auto = AutoModelForCausalLM if kind in ("gpt2", "llama") else AutoModel
            self.model = auto.from_config(config, **bare)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            mask = {"attention_mask": torch.ones_like(ids)} if kind in ("gpt2", "llama") else {}
            return self.model(ids, **mask)[0]

    return Case(f"{kind}, 4 layers", OneTensor, (128,), tokens=True)


def compared(case: Case, folder: Path) -> dict[str, tuple[float, float]]:
    """Each number from the file, and from the network."""
    import torch

    network = case.build().train()
    example = torch.zeros(2, *case.shape, dtype=torch.int64 if case.tokens else torch.float32)
    path = folder / "network.onnx"
    torch.onnx.export(
        network, (example,), str(path), dynamo=False, do_constant_folding=False, opset_version=18,
        training=torch.onnx.TrainingMode.TRAINING, input_names=["x"], dynamic_axes={"x": {0: "batch"}},
    )  # fmt: skip
    found = _numbers(str(path))
    return {name: (found[name], wanted) for name, wanted in _numbers(network, input_shape=case.shape).items()}


def _numbers(model: Any, **settings: Any) -> dict[str, float]:
    import forerun
    from forerun.frontends import load_graph
    from forerun.graph.cost import totals

    asked = {**settings, "batch": BATCH, "mode": "training", "optimizer": OPTIMIZER}
    graph = load_graph(forerun.Workload(model, **asked))
    made = forerun.predict(graph, DEVICE, batch=BATCH, mode="training", optimizer=OPTIMIZER)
    assert made.memory_allocated_mb is not None
    numbers = totals(graph).flops, made.memory_allocated_mb.value, made.memory_mb.value, made.device_ms.value
    return dict(zip(COMPARED, numbers, strict=True))


def table(found: dict[str, dict[str, tuple[float, float]]], means: dict[str, float]) -> str:
    """The errors of every network, in Markdown."""
    head = ["network", *COMPARED]
    rows = [[name, *(f"{100 * (a / b - 1):+.2f} %" for a, b in one.values())] for name, one in found.items()]
    rows.append([f"mean of {len(found)}, without sign", *(f"{100 * mean:.2f} %" for mean in means.values())])
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def kept(lines: Path | None) -> dict[str, dict[str, tuple[float, float]]]:
    """What was compared before."""
    if lines is None or not lines.is_file():
        return {}
    return {one["name"]: one["numbers"] for one in map(json.loads, lines.read_text().splitlines())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--docs", action="store_true", help="write the table to docs/PREDICT.md")
    parser.add_argument("--lines", type=Path, help="keep what is done in this file; a run that was stopped goes on")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    chosen = [c for c in cases() if not options.words or any(word in c.name for word in options.words)]
    found = kept(options.lines)
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"FORERUN_CACHE": folder, "FORERUN_LIMIT_S": "600"}  # on busy machines, too
        for case in chosen:
            if case.name in found:
                continue
            found[case.name] = one = compared(case, Path(folder))
            print(case.name, *(f"{key} {100 * (a / b - 1):+.2f} %" for key, (a, b) in one.items()), flush=True)
            if options.lines:
                with options.lines.open("a") as file:
                    file.write(json.dumps({"name": case.name, "numbers": one}) + "\n")
    found = {case.name: found[case.name] for case in chosen}
    means = {key: sum(abs(one[key][0] / one[key][1] - 1) for one in found.values()) / len(found) for key in COMPARED}
    written = table(found, means)
    print(written)
    if options.docs:
        before, mark, rest = PAGE.read_text().partition(f"<!-- {MARKER} -->\n")
        PAGE.write_text(before + mark + written + "\n" + rest[rest.index("<!-- end -->") :])
    sys.exit(any(means[key] > most for key, most in COMPARED.items()))


if __name__ == "__main__":
    main()
