"""Sizes of a Hugging Face model: its context; its images as given, by its preprocessor, by its config, by default."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from forerun._util import documents
from forerun.frontends.huggingface import catalog as hf_catalog
from forerun.workload import Workload

#: Tokens where a question names no length.
DEFAULT_SEQ_LEN = 128
#: RoBERTa and its kin, which reserve positions up to the padding index.
_RESERVED_POSITIONS = ("roberta", "xlm-roberta", "camembert", "longformer", "mpnet", "xlm-roberta-xl")
#: Where the config has no size and the family is one of classifiers.
CLASSIFIER_SIZE = 224
#: For detectors and segmenters without a preprocessor of their family: the sizes of COCO's photographs, enlarged.
_PHOTOGRAPH = {"shortest_edge": 800, "longest_edge": 1333}
PREPROCESSOR = "preprocessor_config.json"


def preprocessor_of(model: Any) -> dict[str, Any] | None:
    """The content of `preprocessor_config.json` beside a config, or None where there is none."""
    if not isinstance(model, (str, Path)) or hf_catalog.architecture(str(model)) is not None:
        return None  # a name of the catalogue is not a path, even where a folder has the same name
    path = Path(model)
    path = (path if path.is_dir() else path.parent) / PREPROCESSOR
    if Path(model).name != "config.json" and not Path(model).is_dir():
        return None
    if not path.exists():
        return None
    content = documents.read_json(path)
    return content if isinstance(content, dict) else None


def image_size(
    config: Any, workload: Workload, preprocessor: dict[str, Any] | None, notes: list[str], free_size: int
) -> tuple[int, int]:
    """Height and width; a note says where they come from unless the user or the config gave them.

    `free_size` is that of models which take every size and whose config names none.
    """
    if workload.image_size is not None:
        return workload.image_size
    pixels = _from_preprocessor(preprocessor or {})
    if pixels is not None:
        notes.append(f"images of {pixels[0]} x {pixels[1]} pixels, from {PREPROCESSOR}")
        return pixels
    parts = (getattr(config, name, None) for name in ("vision_config", "encoder"))
    vision = next((part for part in parts if getattr(part, "image_size", None)), config)
    size = getattr(vision, "image_size", None) or getattr(config, "anchor_image_size", None)
    if isinstance(size, int):
        return size, size
    if isinstance(size, (list, tuple)) and len(size) >= 2:
        return int(size[0]), int(size[1])
    pixels = _usual(config.model_type) or (free_size, free_size)
    notes.append(f"images of {pixels[0]} x {pixels[1]} pixels assumed, the config names no size; --image-size sets it")
    return pixels


def _from_preprocessor(settings: dict[str, Any], divisor: int = 1) -> tuple[int, int] | None:
    """The size to which a preprocessor resizes images."""
    size = settings.get("crop_size") if settings.get("do_center_crop") else None
    size = size or settings.get("size") or settings.get("crop_size")
    if isinstance(size, int):
        return size, size
    if not isinstance(size, dict):
        return None
    if "height" in size and "width" in size:
        return int(size["height"]), int(size["width"])
    short, long = size.get("shortest_edge"), size.get("longest_edge")
    if not isinstance(short, int) or short > 8192:  # some give a number of pixels, not a length
        return None
    if not isinstance(long, int):
        return short, short
    if long > 8192:
        return None
    # A photograph of 4 : 3, the usual case of shortest and longest edges.
    long = min(long, round(short * 4 / 3))
    return math.ceil(short / divisor) * divisor, math.ceil(long / divisor) * divisor


def _usual(kind: str) -> tuple[int, int] | None:
    """The size to which the preprocessor of a family of detectors or segmenters resizes images; None for others."""
    import transformers
    from transformers.models.auto import image_processing_auto as processors
    from transformers.models.auto import modeling_auto as auto

    dense = (
        auto.MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES, auto.MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING_NAMES,
        auto.MODEL_FOR_INSTANCE_SEGMENTATION_MAPPING_NAMES, auto.MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES,
        auto.MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES,
    )  # fmt: skip
    if kind in auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES or not any(kind in table for table in dense):
        return None
    known = processors.IMAGE_PROCESSOR_MAPPING_NAMES.get(kind) or {}
    for name in (n for n in (known.values() if isinstance(known, dict) else [known]) if n):
        processor = getattr(transformers, str(name), None)
        if processor is not None and isinstance(getattr(processor, "size", None), dict):
            return _from_preprocessor({"size": processor.size}, int(getattr(processor, "size_divisor", None) or 1))
    return _from_preprocessor({"size": _PHOTOGRAPH}, divisor=32)


def context_limit(text: Any) -> int | None:
    """How many tokens the model takes at most, where its config says so."""
    for field in ("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len", "n_ctx"):
        limit = getattr(text, field, None)
        if isinstance(limit, int) and limit > 0:
            return limit - 2 if text.model_type in _RESERVED_POSITIONS else limit
    return None
