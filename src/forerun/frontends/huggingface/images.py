"""The images of a vision-language model: their size, how its class takes them, how many tokens they become.

A prompt is taken as all its images and then its text. How many tokens an image becomes is read from the model: its
vision tower is run on meta, and its output rows are counted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from forerun.errors import ForerunError
from forerun.frontends.huggingface import tiles as hf_tiles
from forerun.frontends.huggingface.model_class import Chosen
from forerun.frontends.pytorch.arguments import Argument, Arguments, tensors
from forerun.workload import Workload

#: Height and width where neither the config nor the user gives any: models that take every size.
FREE_SIZE = 448


class Prompt(NamedTuple):
    """The arguments of a prompt with images, how many tokens the images become, and how they are resized."""

    arguments: Arguments
    tokens: int
    cut: str = ""


def prompt(
    config: Any,
    chosen: Chosen,
    build: Any,
    workload: Workload,
    size: tuple[int, int],
    length: int,
    name: str,
    preprocessor: dict[str, Any] | None = None,
) -> Prompt:
    """A prompt of `length` text tokens with its images."""
    count = 1 if workload.images is None else workload.images
    images, tokens, cut = _images(config, chosen, build, workload, size, count, name, preprocessor)
    marked = places(count, tokens, length)
    ids = [_image_token(config) if image else text_token(config) for image in marked]
    arguments: Arguments = {"input_ids": Argument((len(ids),), "token", ids if count else None), **images}
    for types in ("mm_token_type_ids", "token_type_ids"):
        if count and types in chosen.arguments:
            arguments[types] = Argument((len(ids),), "token", marked)
    if "image_attention_mask" in chosen.arguments and count:
        arguments["image_attention_mask"] = Argument((len(ids), count), "token")
    if "cross_attention_mask" in chosen.arguments and count:
        arguments["cross_attention_mask"] = Argument((len(ids), *images["aspect_ratio_mask"].shape), "token")
    return Prompt(arguments, tokens, cut)


def _images(
    config: Any,
    chosen: Chosen,
    build: Any,
    workload: Workload,
    size: tuple[int, int],
    count: int,
    name: str,
    preprocessor: dict[str, Any] | None,
) -> Prompt:
    """The images as arguments; those that the vision tower does not take at their size are resized to its own."""
    if not count:
        return Prompt({}, 0)
    images, cut = _layout(config, chosen, size, count, preprocessor)
    own = hf_tiles.tower_size(config)
    try:
        return Prompt(images, image_tokens(build, images, workload, name), cut)
    except ForerunError:
        if own is None or own == size or cut:
            raise
    images, _ = _layout(config, chosen, own, count, preprocessor)
    cut = f"resized to {own[0]} x {own[1]}, the size of its vision tower"
    return Prompt(images, image_tokens(build, images, workload, name), cut)


def places(count: int, tokens: int, length: int) -> list[int]:
    """Which positions of a prompt are images or audio: they come first, each followed by a token of text.

    Models separate them by the text between them, as far as there is any.
    """
    out: list[int] = []
    for _ in range(count):
        out += [1] * (tokens // count) + [0] * (length > out.count(0))
    return out + [0] * (length - out.count(0))


def image_tokens(build: Any, images: Arguments, workload: Workload, name: str) -> int:
    """How many tokens of the sequence the images of one sample take; 0 where they are read by cross-attention."""
    from forerun.capture.capture import TORCH_DTYPES, census

    model = build().eval()
    owner = next((m for m in (model, getattr(model, "model", None)) if hasattr(m, "get_image_features")), None)
    if owner is None:
        return 0
    inputs = tensors(images, 1, TORCH_DTYPES[workload.weight_dtype])
    out: list[Any] = []
    try:
        census(model, lambda: out.append(owner.get_image_features(**inputs)), {}, 1.0, follow=True)
    except Exception as e:
        shapes = ", ".join(f"{argument} {tuple(a.shape)}" for argument, a in images.items())
        reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise ForerunError(
            f"the vision tower of {name} could not be run on {shapes}: {reason}; images=0 predicts the text alone"
        ) from e
    tokens = rows(out[0])
    if not tokens:
        raise ForerunError(f"the number of tokens of an image of {name} is unknown; images=0 predicts the text alone")
    return tokens


def rows(features: Any) -> int:
    """How many rows a tower returns: those of its projector, else those of its last layer."""
    import torch

    parts = [getattr(features, part, None) for part in ("pooler_output", "last_hidden_state")]
    chosen = next((part for part in parts if part is not None), features)
    return sum(t.numel() // t.shape[-1] for t in _all_tensors(chosen) if isinstance(t, torch.Tensor))


def _all_tensors(tree: Any) -> list[Any]:
    return [t for item in tree for t in _all_tensors(item)] if isinstance(tree, (list, tuple)) else [tree]


def _layout(
    config: Any, chosen: Chosen, size: tuple[int, int], count: int, preprocessor: dict[str, Any] | None
) -> tuple[Arguments, str]:
    """`count` images of a size as the class takes them, and how they are split; its arguments show which way."""
    takes = chosen.arguments
    vision = _first(config, "vision_config", "vq_config", default=config)
    channels = _first(vision, "num_channels", "in_channels", "in_chans", default=3)
    if "image_grid_thw" in takes:
        return _patches(vision, channels, size, count), ""
    if "aspect_ratio_ids" in takes:
        return _padded(vision, channels, count)
    if "image_sizes" in takes and getattr(config, "image_grid_pinpoints", None):
        return _pinpoints(config, channels, size, count), ""
    cut = ""
    if (tiles := hf_tiles.tiles(config, size, preprocessor)) is not None:
        count, size = count * tiles, hf_tiles.tower_size(config) or size
        cut = f"made into {tiles} tiles of {size[0]} x {size[1]} by its preprocessor" if tiles > 1 else ""
    if "pixel_attention_mask" in takes or "image_attention_mask" in takes:
        # Images of zeros would be dropped as padding.
        return {"pixel_values": Argument((count, channels, *size), "float", values=1.0)}, cut
    images = {"pixel_values": Argument((count, channels, *size), "float", joined=True)}
    if "image_sizes" in takes and getattr(vision, "model_type", "") == "pixtral":
        images["image_sizes"] = Argument((count, 2), "token", [list(size)] * count, joined=True)
    return images, cut


def _patches(vision: Any, channels: int, size: tuple[int, int], count: int) -> Arguments:
    """Images cut into patches in a row, with the grid of each: the Qwen-VL family."""
    patch = vision.patch_size
    step = _first(vision, "spatial_merge_size", "merge_size", default=1)
    step = step if isinstance(step, int) else step[0]
    rows, columns = (max(1, round(side / (patch * step))) * step for side in size)
    values = channels * getattr(vision, "temporal_patch_size", 1) * patch * patch
    grid = [1, rows, columns]
    return {
        "pixel_values": Argument((count * rows * columns, values), "float", joined=True),
        "image_grid_thw": Argument((count, 3), "token", [grid] * count, joined=True),
    }


def _padded(vision: Any, channels: int, count: int) -> tuple[Arguments, str]:
    """Images padded to the largest number of tiles, read by cross-attention: Llama 3.2 Vision."""
    most, side = vision.max_num_tiles, vision.image_size
    arguments = {
        "pixel_values": Argument((count, most, channels, side, side), "float"),
        "aspect_ratio_ids": Argument((count,), "token"),
        "aspect_ratio_mask": Argument((count, most), "token"),
    }
    return arguments, f"padded to {most} tiles of {side} x {side}"


def _pinpoints(config: Any, channels: int, size: tuple[int, int], count: int) -> Arguments:
    """Images as one overview and the tiles of the best fitting resolution: LLaVA-NeXT."""
    from transformers.image_processing_utils import select_best_resolution

    side = config.vision_config.image_size
    height, width = select_best_resolution(size, config.image_grid_pinpoints)
    tiles = 1 + (height // side) * (width // side)
    return {
        "pixel_values": Argument((count, tiles, channels, side, side), "float", joined=True),
        "image_sizes": Argument((count, 2), "token", [list(size)] * count, joined=True),
    }


def _first(config: Any, *names: str, default: Any) -> Any:
    return next((v for n in names if (v := getattr(config, n, None)) is not None), default)


def _image_token(config: Any) -> int:
    """The id of an image token in a prompt."""
    return int(_first(config, "image_token_id", "image_token_index", default=0))


def text_token(config: Any) -> int:
    """An id without a special meaning in any config."""
    special = {v for k, v in vars(config).items() if k.endswith(("_token_id", "_token_index")) and isinstance(v, int)}
    return next(i for i in range(len(special) + 1) if i not in special)
