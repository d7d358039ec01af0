"""How many boxes a detector of torchvision works on, which depends on the image: the assumed numbers.

Most of its counts have an upper bound that is reached as a rule, such as 1,000 proposals, and are taken there. A few
have no useful bound: all boxes of all classes may be above the score threshold, and all of them on one level of the
feature pyramid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

#: Boxes of an image that are above the score threshold, before overlapping ones are dropped.
CANDIDATES = 1000
NOTE = (
    "the number of boxes of a detector depends on the image: assumed are the most proposals and detections that it "
    f"keeps, spread evenly over the levels of its pyramid, and {CANDIDATES:,} boxes above the score threshold"
)

_Count = Callable[[int, Mapping[str, Any]], int]


def _candidates(boxes: int, _variables: Mapping[str, Any]) -> int:
    return min(boxes, CANDIDATES)


def _of_one_class(boxes: int, variables: Mapping[str, Any]) -> int:
    return min(boxes, max(1, CANDIDATES // max(1, variables["num_classes"] - 1)))


def _of_one_level(boxes: int, variables: Mapping[str, Any]) -> int:
    return -(-boxes // max(1, variables["num_levels"]))


#: (file, function) -> how many of the boxes it selects, by the variables of the function.
_COUNTS: dict[tuple[str, str], _Count] = {
    ("poolers.py", "_multiscale_roi_align"): _of_one_level,
    ("roi_heads.py", "postprocess_detections"): _candidates,
    ("retinanet.py", "postprocess_detections"): _candidates,
    ("fcos.py", "postprocess_detections"): _candidates,
    ("ssd.py", "postprocess_detections"): _of_one_class,
}


def boxes_found(frame: Any, boxes: int) -> int | None:
    """How many of `boxes` a line of torchvision's detectors finds; None for any other line."""
    if frame is None:
        return None
    path = Path(frame.f_code.co_filename)
    count = _COUNTS.get((path.name, frame.f_code.co_name)) if "torchvision" in path.parts else None
    return None if count is None else count(boxes, frame.f_locals)
