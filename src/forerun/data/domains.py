"""The application domain of a measured network: the column `kind` of the table `models`, one of KINDS.

It follows from a row's source and family. For sources with networks of several kinds (Hugging Face, ONNX files) the
family decides; unlisted ones are `other`. Families of Hugging Face are those of the catalogue.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import pandas as pd

from forerun.frontends.huggingface.catalog import families_of_task

KINDS = ("vision", "language", "speech", "other")

#: Sources with networks of a single kind: model zoos, our own families by prefix, search spaces of published sets.
_SOURCES = {
    "vision": (
        "timm torchvision diffusers detectron2 mmdetection mmsegmentation nasbench201 fbnet ofa "
        "cnn unet diffusion_unet dit vae_decoder gan super_resolution detector segmenter video volume style_transfer "
        "nerf autoencoder pose optical_flow mixer_mae"
    ),
    "language": "seq2seq biased_attention mixture_of_experts torch_transformer multi_query state_space recurrent",
    "speech": "speech_cnn conformer speech_seq2seq",
    "other": "recommender point_cloud graph_network neural_operator time_series tabular_transformer tabular",
}
#: Families of sources with several kinds.
_FAMILIES = {
    ("hf", "language"): "data2vec-text nystromformer rembert roberta-prelayernorm roformer xmod",
    ("onnx", "vision"): (
        "alexnet beit cait coat convnext crossvit cspresnet darknet ddddocr deit densenet dla eca edgenext "
        "efficientformer efficientnet fastvit ghostnet gmlp googlenet hardcorenas hrnet inception lcnet levit mixer "
        "mnasnet mobilenet mobilevit nudenet pit poolformer rapid rapidocr_cls rapidocr_det rapidocr_rec regnetx "
        "regnety repvgg res resmlp resnet resnext rexnet selecsls seresnet shufflenet squeezenet swin tinynet vit "
        "wide_resnet xcit"
    ),
    ("onnx", "speech"): "livekit piper silero speechmos",
    ("onnx", "language"): "gpt",
    ("zeus", "vision"): "shufflenetv2",
    ("zeus", "speech"): "deepspeech2",
}
#: Tasks of the Hugging Face catalogue; multimodal models are `other`.
_TASKS = {"causal-lm": "language", "encoder": "language", "seq2seq": "language", "vision": "vision", "speech": "speech",
          "multimodal": "other"}  # fmt: skip
#: Modes that generate or read text, independent of the source.
_TEXT_MODES = ("prefill", "decode", "generate", "serving")


@functools.cache
def _by_source() -> dict[str, str]:
    return {source: kind for kind, names in _SOURCES.items() for source in names.split()}


@functools.cache
def _by_family() -> dict[tuple[str, str], str]:
    known = {("hf", name): kind for task, kind in _TASKS.items() for name in families_of_task(task)}
    known |= {("onnx", name): "language" for (_, name), kind in known.items() if kind == "language"}
    return known | {(source, name): kind for (source, kind), names in _FAMILIES.items() for name in names.split()}


def kind_of(source: str | None, family: str | None, mode: str | None) -> str:
    """One of KINDS for a row."""
    kind = _by_source().get(source or "") or _by_family().get((source or "", family or ""))
    return kind or ("language" if mode in _TEXT_MODES else "other")


def kinds(rows: pd.DataFrame) -> pd.Series:
    """One of KINDS by row of a table with `source`, `family` and `mode`."""
    each = rows[["source", "family", "mode"]].astype(object).where(rows[["source", "family", "mode"]].notna(), None)
    known = {line: kind_of(*line) for line in set(each.itertuples(index=False, name=None))}
    return pd.Series([known[line] for line in each.itertuples(index=False, name=None)], index=rows.index, dtype=object)


@functools.cache
def sql() -> str:
    """`kind_of` as an expression of SQL over the columns `source`, `family` and `mode`."""
    lines = [
        f"when source in ({_texts(s for s, named in _by_source().items() if named == kind)}) then '{kind}'"
        for kind in KINDS
    ]
    for source, kind in sorted({(s, k) for (s, _), k in _by_family().items()}):
        names = (name for (s, name), k in _by_family().items() if (s, k) == (source, kind))
        lines.append(f"when source = '{source}' and family in ({_texts(names)}) then '{kind}'")
    lines.append(f"when mode in ({_texts(_TEXT_MODES)}) then 'language'")
    return f"case {' '.join(lines)} else 'other' end"


def _texts(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)
