"""How large the images of a Hugging Face model are: as asked, by its preprocessor, by its config, or as usual."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from forerun import documents
from forerun.workload import Workload

#: Where the config has no size and the family is one of classifiers.
CLASSIFIER_SIZE = 224
#: Where a detector's or segmenter's family has no preprocessor of its own: the sizes of COCO's photographs, enlarged.
_PHOTOGRAPH = {"shortest_edge": 800, "longest_edge": 1333}
PREPROCESSOR = "preprocessor_config.json"


def preprocessor_of(model: Any) -> dict[str, Any] | None:
    """What `preprocessor_config.json` beside a config says, or None where there is none."""
    if not isinstance(model, (str, Path)):
        return None
    path = Path(model)
    path = (path if path.is_dir() else path.parent) / PREPROCESSOR
    if Path(model).name != "config.json" and not Path(model).is_dir():
        return None
    if not path.exists():
        return None
    found = documents.read_json(path)
    return found if isinstance(found, dict) else None


def image_size(
    config: Any, workload: Workload, preprocessor: dict[str, Any] | None, notes: list[str], free_size: int
) -> tuple[int, int]:
    """Height and width; a note says where they come from unless the user or the config gave them.

    `free_size` is that of models which take every size and whose config names none.
    """
    if workload.image_size is not None:
        return workload.image_size
    found = _from_preprocessor(preprocessor or {})
    if found is not None:
        notes.append(f"images of {found[0]} x {found[1]} pixels, from {PREPROCESSOR}")
        return found
    parts = (getattr(config, name, None) for name in ("vision_config", "encoder"))
    vision = next((part for part in parts if getattr(part, "image_size", None)), config)
    size = getattr(vision, "image_size", None) or getattr(config, "anchor_image_size", None)
    if isinstance(size, int):
        return size, size
    if isinstance(size, (list, tuple)) and len(size) >= 2:
        return int(size[0]), int(size[1])
    found = _usual(config.model_type) or (free_size, free_size)
    notes.append(f"images of {found[0]} x {found[1]} pixels assumed, the config names no size; --image-size sets it")
    return found


def _from_preprocessor(settings: dict[str, Any], divisor: int = 1) -> tuple[int, int] | None:
    """The size that a preprocessor brings images to."""
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
    # A photograph of 4 : 3, which is what shortest and longest edges are made for.
    long = min(long, round(short * 4 / 3))
    return math.ceil(short / divisor) * divisor, math.ceil(long / divisor) * divisor


def _usual(kind: str) -> tuple[int, int] | None:
    """The size that the preprocessor of a family of detectors or segmenters brings images to; None for others."""
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
