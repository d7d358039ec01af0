"""ONNX files to measure: those of well-known packages, exports of timm and transformers models, and int8 versions.

`measure_onnxruntime.py prepare FOLDER` makes them. What is there already is kept.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import warnings
from pathlib import Path
from typing import Any

import real_files

IMAGE = (
    "resnet18 resnet50 resnext50_32x4d seresnet50 wide_resnet50_2 densenet121 inception_v3 mobilenetv2_100 "
    "mobilenetv3_large_100 mobilenetv3_small_100 mobilenetv4_conv_small efficientnet_b0 efficientnet_b2 "
    "efficientnet_lite0 regnetx_004 regnety_008 mnasnet_100 ghostnet_100 repvgg_a0 convnext_atto convnext_nano "
    "convnext_tiny vit_tiny_patch16_224 vit_small_patch16_224 vit_base_patch16_224 deit3_small_patch16_224 "
    "swin_tiny_patch4_window7_224 mixer_s16_224 poolformer_s12 levit_128s edgenext_small mobilevit_s fastvit_t8 "
    "efficientformer_l1 cait_xxs24_224 pit_s_224 coat_lite_tiny crossvit_9_240 beit_base_patch16_224 "
    "eva02_tiny_patch14_224 xcit_tiny_12_p16_224 resmlp_12_224 gmlp_s16_224 hrnet_w18_small dla34 darknet53 "
    "cspresnet50 eca_nfnet_l0 rexnet_100 tinynet_a hardcorenas_a lcnet_100 selecsls42b res2net50_26w_4s "
    "torchvision/shufflenet_v2_x1_0 torchvision/squeezenet1_1 torchvision/googlenet torchvision/alexnet"
).split()
#: Those that also get an int8 version with quantised activations (static), and with quantised weights only (dynamic).
STATIC = (
    "resnet18 resnet50 resnext50_32x4d seresnet50 densenet121 inception_v3 mobilenetv2_100 "
    "mobilenetv3_large_100 mobilenetv4_conv_small efficientnet_b0 efficientnet_lite0 regnetx_004 regnety_008 "
    "mnasnet_100 repvgg_a0 convnext_atto vit_tiny_patch16_224 vit_small_patch16_224 deit3_small_patch16_224 dla34 "
    "cspresnet50 shufflenet_v2_x1_0 squeezenet1_1"
).split()
DYNAMIC_IMAGE = ("vit_tiny_patch16_224", "vit_small_patch16_224", "mixer_s16_224", "swin_tiny_patch4_window7_224")
SMALL_BERT = {
    "bert_tiny": (128, 2, 2), "bert_mini": (256, 4, 4), "bert_small": (512, 4, 8), "bert_base": (768, 12, 12),
}  # fmt: skip
#: Configs by name; the weights are random.
TEXT: dict[str, dict[str, Any]] = {
    name: {"model_type": "bert", "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
           "intermediate_size": 4 * width}
    for name, (width, layers, heads) in SMALL_BERT.items()
} | {
    "distilbert": {"model_type": "distilbert"},
    "albert_base": {"model_type": "albert", "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "electra_small": {"model_type": "electra"},
    "roberta_6": {"model_type": "roberta", "num_hidden_layers": 6},
    "mobilebert_12": {"model_type": "mobilebert", "num_hidden_layers": 12},
    "deberta_small": {"model_type": "deberta-v2", "hidden_size": 384, "num_hidden_layers": 6, "vocab_size": 32000,
                      "num_attention_heads": 6, "intermediate_size": 1536, "relative_attention": True,
                      "pos_att_type": ["p2c", "c2p"], "position_buckets": 256, "share_att_key": True},
    "gpt2_6": {"model_type": "gpt2", "n_layer": 6, "use_cache": False},
    "opt_6": {"model_type": "opt", "num_hidden_layers": 6, "use_cache": False},
    "llama_small": {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8,
                    "intermediate_size": 1408, "use_cache": False},
    "t5_small": {"model_type": "t5", "num_layers": 6},
    "mpnet_6": {"model_type": "mpnet", "num_hidden_layers": 6},
    "convbert_6": {"model_type": "convbert", "num_hidden_layers": 6},
}  # fmt: skip
TEXT_INPUTS = ("input_ids", "attention_mask")
LARGEST_MB = 500


def built(name: str) -> tuple[Any, dict[str, Any], dict[int, str]]:
    """A model with random weights, inputs at batch 2, and the names of their open sizes."""
    from forerun.capture import torch_compat

    torch_compat.prepare()
    import torch

    torch.manual_seed(0)
    if name in TEXT:
        import transformers

        config = transformers.AutoConfig.for_model(**TEXT[name])
        kind = transformers.T5EncoderModel if config.model_type == "t5" else transformers.AutoModel
        inner = kind(config) if config.model_type == "t5" else kind.from_config(config)

        class FirstOutput(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = inner

            def forward(self, input_ids: Any, attention_mask: Any) -> Any:
                return self.inner(input_ids=input_ids, attention_mask=attention_mask)[0]

        ones = torch.ones(2, 16, dtype=torch.long)
        return FirstOutput().eval(), dict.fromkeys(TEXT_INPUTS, ones), {0: "batch", 1: "sequence"}
    library, _, bare = name.rpartition("/")
    if library:
        import torchvision

        settings = {"init_weights": True, "aux_logits": False} if bare == "googlenet" else {}
        model, size = torchvision.models.get_model(bare, **settings), (3, 224, 224)
    else:
        import timm

        model = timm.create_model(bare)
        size = model.default_cfg["input_size"]
    return model.eval(), {"input": torch.randn(2, *size)}, {0: "batch"}


def export(name: str, target: Path) -> None:
    """Writes the ONNX file of one model, with an open batch."""
    model, inputs, open_sizes = built(name)
    import torch

    torch.onnx.export(model, tuple(inputs.values()), str(target), dynamo=False, opset_version=17,
                      input_names=list(inputs), output_names=["output"],
                      dynamic_axes=dict.fromkeys([*inputs, "output"], open_sizes if len(inputs) > 1 else {0: "batch"})
                      )  # fmt: skip


def example(path: Path, batch: int) -> dict[str, Any]:
    """Inputs for an exported file."""
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    random_numbers = np.random.default_rng(batch)
    sizes = {i.name: [batch, *(s if isinstance(s, int) else 24 for s in i.shape[1:])] for i in session.get_inputs()}
    given: dict[str, Any] = {
        name: np.ones(shape, "int64")
        if name in TEXT_INPUTS
        else random_numbers.standard_normal(shape).astype("float32")
        for name, shape in sizes.items()
    }
    session.run(None, given)  # a file that only runs at the batch of its export is of no use
    return given


def quantise_static(source: Path, target: Path) -> None:
    """8-bit weights per channel and 8-bit activations, calibrated with random images."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class RandomImages(CalibrationDataReader):  # type: ignore[misc]
        left = iter([example(source, 1), example(source, 1)])

        def get_next(self) -> dict[str, Any] | None:
            return next(self.left, None)

    ready = target.with_suffix(".ready")
    quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)
    quantize_static(str(ready), str(target), RandomImages(), quant_format=QuantFormat.QDQ, per_channel=True,
                    weight_type=QuantType.QInt8)  # fmt: skip
    ready.unlink()


def quantise_dynamic(source: Path, target: Path) -> None:
    """8-bit weights of the matrix products; their inputs are quantised as they come."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(str(source), str(target), op_types_to_quantize=["MatMul", "Gemm"], weight_type=QuantType.QInt8)


def make(name: str, folder: Path) -> list[str]:
    """The files of one model that are missing; returns what went wrong."""
    warnings.simplefilter("ignore")
    bare = name.rpartition("/")[2]
    exported = folder / "exported" / f"{bare}.onnx"
    steps = [(exported, lambda part: export(name, part))]
    if bare in STATIC:
        steps.append((folder / "int8" / f"{bare}_int8_static.onnx", lambda part: quantise_static(exported, part)))
    if bare in TEXT or bare in DYNAMIC_IMAGE:
        steps.append((folder / "int8" / f"{bare}_int8_dynamic.onnx", lambda part: quantise_dynamic(exported, part)))
    wrong = []
    for target, step in steps:
        part = target.with_suffix(f".{os.getpid()}.part")
        try:
            if target.exists() or (target != exported and not exported.exists()):
                continue
            step(part)
            for batch in (1, 3):
                example(part, batch)
            if part.stat().st_size > LARGEST_MB * 1e6:
                raise ValueError(f"it is larger than {LARGEST_MB} MB")
            part.rename(target)
        except Exception as e:  # noqa: BLE001 - whatever a model or a library raises
            wrong.append(f"{target.name} is left out: {(str(e).splitlines() or [type(e).__name__])[0][:200]}")
            part.unlink(missing_ok=True)
    return wrong


def prepare(folder: Path) -> int:
    """Fills the folder, two models at a time."""
    for group in ("packages", "exported", "int8"):
        (folder / group).mkdir(parents=True, exist_ok=True)
    names = [*TEXT, *IMAGE]
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        jobs = {pool.submit(make, name, folder): name for name in names}
        for number, job in enumerate(concurrent.futures.as_completed(jobs), 1):
            print(f"{number}/{len(jobs)} {jobs[job]}", *job.result(), sep="\n    ", flush=True)
    real_files.fetched(folder / "packages")
    for group in ("packages", "exported", "int8"):
        print(f"{group}: {len(list((folder / group).rglob('*.onnx')))} files")
    return 0
