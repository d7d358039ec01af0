"""torchvision's compiled ops as ops of ours: its own are missing with a CPU build of PyTorch, and have no meta kernel.

`nms` keeps all of its boxes, the upper bound; its caller takes the best of them.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch user knows

from forerun.capture.thread_patches import ThreadPatch
from forerun.capture.torch_library import defined_once

#: Sampling points per side of a bin where they depend on the size of a box.
_ADAPTIVE = 2
#: The assumed side of a detected box, as a share of the image's.
_BOX_SIDE = 0.25


@defined_once
def _nms_op(library: Any) -> Any:
    library.define("nms(Tensor boxes, Tensor scores) -> Tensor")
    library.impl("nms", lambda boxes, scores: scores.new_empty(scores.shape, dtype=torch.int64), "Meta")
    return torch.ops.forerun.nms


@defined_once
def _roi_align_op(library: Any) -> Any:
    library.define("roi_align(Tensor x, Tensor rois, int height, int width, int points) -> Tensor")
    library.define("roi_align_backward(Tensor gy, Tensor rois, Tensor x, int points) -> Tensor")

    def forward_meta(x: Any, rois: Any, height: int, width: int, points: int) -> Any:
        return x.new_empty((rois.shape[0], x.shape[1], height, width))

    library.impl("roi_align", forward_meta, "Meta")
    library.impl("roi_align_backward", lambda gy, rois, x, points: torch.empty_like(x), "Meta")

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0], inputs[1])
        ctx.points = inputs[4]

    def backward(ctx: Any, gy: Any) -> Any:
        x, rois = ctx.saved_tensors
        return torch.ops.forerun.roi_align_backward(gy, rois, x, ctx.points), None, None, None, None

    torch.library.register_autograd("forerun::roi_align", backward, setup_context=save, lib=library)
    return torch.ops.forerun.roi_align


def _nms(plain: Any, boxes: Any, scores: Any, iou_threshold: float) -> Any:
    return _nms_op()(boxes, scores) if boxes.is_meta else plain(boxes, scores, iou_threshold)


def _roi_align(
    plain: Any, input: Any, boxes: Any, output_size: Any, spatial_scale: float = 1.0, sampling_ratio: int = -1,
    aligned: bool = False,
) -> Any:  # fmt: skip
    if not input.is_meta:
        return plain(input, boxes, output_size, spatial_scale, sampling_ratio, aligned)
    if not isinstance(boxes, torch.Tensor):
        from torchvision.ops._utils import convert_boxes_to_roi_format

        boxes = convert_boxes_to_roi_format(boxes)
    height, width = (output_size, output_size) if isinstance(output_size, int) else output_size
    return _roi_align_op()(input, boxes, height, width, sampling_ratio if sampling_ratio > 0 else _ADAPTIVE)


def _pasted(plain: Any, mask: Any, box: Any, im_h: int, im_w: int) -> Any:
    """A mask resized to its box and pasted into the image. The host reads every number of the box, which is computed on
    the device; the box is taken as a share of the image."""
    if not box.is_meta:
        return plain(mask, box, im_h, im_w)
    for low, high in ((0, 2), (1, 3)):
        _ = box[high] - box[low] + 1, box[low] > 0, box[high] + 1 < im_w, box[low] - box[low], box[high] - box[low]
    height, width = max(1, round(im_h * _BOX_SIDE)), max(1, round(im_w * _BOX_SIDE))
    sized = F.interpolate(mask.expand((1, 1, -1, -1)), size=(height, width), mode="bilinear", align_corners=False)
    image = torch.zeros((im_h, im_w), dtype=mask.dtype, device=mask.device)
    image[:height, :width] = sized[0][0]
    return image


@functools.cache
def _patches() -> tuple[ThreadPatch, ...]:
    modules = {
        "paste_mask_in_image": ("torchvision.models.detection.roi_heads",),
        "nms": ("torchvision.ops", "torchvision.ops.boxes"),
        "roi_align": (
            "torchvision.ops", "torchvision.ops.roi_align", "torchvision.ops.poolers",
            "torchvision.models.detection.roi_heads",
        ),
    }  # fmt: skip
    known: dict[str, Callable[..., Any]] = {"nms": _nms, "roi_align": _roi_align, "paste_mask_in_image": _pasted}
    return tuple(
        ThreadPatch(sys.modules[module], name, known[name])
        for name, places in modules.items()
        for module in places
        if hasattr(sys.modules.get(module), name)
    )


@contextlib.contextmanager
def compiled_ops() -> Iterator[None]:
    """In this thread, inside the block, where torchvision is in use at all."""
    with contextlib.ExitStack() as stack:
        for patch in _patches() if "torchvision.models.detection.roi_heads" in sys.modules else ():
            stack.enter_context(patch)
        yield
