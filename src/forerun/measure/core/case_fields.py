"""Values of a case's fields that both the core and whoever writes cases for it name."""

from __future__ import annotations

from typing import Any

CHANNELS_LAST = "channels_last"  # the `layout` of cases with images and weights in channels-last format
# The Auto class of a Hugging Face config by mode; `inference` is the bare model.
TASKS = dict.fromkeys(("prefill", "decode", "generate", "training"), "causal-lm") | {"inference": "base"}


def task_of(case: dict[str, Any]) -> str:
    return str(case.get("task") or TASKS[case["mode"]])
