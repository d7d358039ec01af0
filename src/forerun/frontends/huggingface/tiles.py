"""The number of tiles of an image for a vision tower of one size, as the family's image processor splits it.

The way of a family follows from the settings of its processor: those of the class in transformers, overridden by those
of a `preprocessor_config.json` beside the config.
"""

from __future__ import annotations

import math
from typing import Any

from forerun.errors import ForerunError

#: No processor makes more tiles of an image; one that would is misread or invalid.
MOST_TILES = 1000
_SETTINGS = ("size", "max_image_size", "do_image_splitting", "max_patches", "resize_to_max_canvas")


def tower_size(config: Any) -> tuple[int, int] | None:
    """Height and width of the vision tower's images; None where it takes every size."""
    side = getattr(getattr(config, "vision_config", None), "image_size", None)
    if isinstance(side, int):
        return side, side
    return (int(side[0]), int(side[1])) if isinstance(side, (list, tuple)) and len(side) == 2 else None


def tiles(config: Any, size: tuple[int, int], preprocessor: dict[str, Any] | None) -> int | None:
    """How many tiles of the tower's size an image becomes, its overview among them; None where it is not split."""
    tower = tower_size(config)
    if tower is None or tower[0] != tower[1]:
        return None
    settings = {**_usual_settings(config.model_type), **(preprocessor or {})}
    if settings.get("do_image_splitting") and "max_image_size" in settings:
        cut = _split(size, tower[0], settings)
    elif "resize_to_max_canvas" in settings:
        cut = _canvas(size, tower[0], settings)
    else:
        return None
    _check(cut)
    return cut + 1 if cut > 1 else 1


def _check(tiles: int) -> None:
    if tiles > MOST_TILES:
        raise ForerunError(f"an image would become {tiles:,} tiles: some size in its config or preprocessor is wrong")


def _split(size: tuple[int, int], side: int, settings: dict[str, Any]) -> int:
    """Idefics3, SmolVLM: the longer edge is resized to a length, which tiles then cover."""
    longest = _edge(settings["size"]) * side / _edge(settings["max_image_size"])
    return math.prod(math.ceil(edge * longest / max(size) / side) for edge in size)


def _canvas(size: tuple[int, int], side: int, settings: dict[str, Any]) -> int:
    """Llama 4: the canvas of tiles that fits best; one that takes the image without shrinking it, else the largest."""
    most = int(settings["max_patches"])
    _check(most)
    grids = [(rows, columns) for rows in range(1, most + 1) for columns in range(1, most // rows + 1)]
    scales = {(r, c): min(r * side / size[0], c * side / size[1]) for r, c in grids}
    enough = [scale for scale in scales.values() if scale >= 1]
    largest = settings["resize_to_max_canvas"] or not enough
    chosen = max(scales.values()) if largest else min(enough)
    return min(r * c for (r, c), scale in scales.items() if scale == chosen)


def _edge(size: Any) -> int:
    return int(size["longest_edge"])


def _usual_settings(kind: str) -> dict[str, Any]:
    """The settings that the image processor of a family has by default."""
    import transformers
    from transformers.models.auto import image_processing_auto as processors

    known = processors.IMAGE_PROCESSOR_MAPPING_NAMES.get(kind) or {}
    names = known.values() if isinstance(known, dict) else [known]
    classes = [c for name in names if name and (c := getattr(transformers, str(name), None)) is not None]
    usable = (c for c in classes if any(hasattr(c, setting) for setting in _SETTINGS))
    processor = next(usable, None)
    return {name: getattr(processor, name) for name in _SETTINGS if hasattr(processor, name)}
