"""What a language model is asked and how it answers: prompts, numbers as text, and what its answers say."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.workload import Workload

#: Where the soft tokens of a graph stand in a prompt.
GRAPH = "<graph></graph>"
SUMMARISE = f"{GRAPH}\nSummarise the graph\n"
QUANTITIES = {
    "latency_ms": "Latency in milliseconds", "memory_mb": "Memory in MB", "energy_j": "Energy in joules",
}  # fmt: skip
#: How a question may be put when a fitted predictor is asked.
PROMPTING = ("plain", "few-shot", "chain-of-thought")
#: Digits that are kept of a number, and the most tokens that an answer or a summary may take.
DIGITS, ANSWER_TOKENS, SUMMARY_TOKENS = 4, 16, 400
_ANSWER = re.compile(r"(\d{1,15}(?:\.\d{1,12})?(?:e[+-]?\d{1,3})?) ?(?:ms|MB|J|milliseconds|joules)?\.?", re.ASCII)


def question(target: str, device: str, settings: Mapping[str, Any], graph: str = GRAPH) -> str:
    """What is asked of a graph; `settings` are those of a workload or of a measured row. `graph` may be a text in its
    place."""
    parts = [
        f"Device: {device}",
        f"Runtime: {_given(settings, 'runtime') or 'eager'}, {_given(settings, 'amp') or settings['dtype']}",
        f"Mode: {settings['mode']}",
        f"Batch: {int(settings['batch'])}",
    ]
    if (tokens := _given(settings, "seq_len")) is not None:
        parts.append(f"Tokens: {int(tokens)}")
    if (optimizer := _given(settings, "optimizer")) is not None:
        parts.append(f"Optimizer: {optimizer}")
    return f"{graph}\n{'. '.join(parts)}. {QUANTITIES[target]}\n"


def of_workload(target: str, device: str, workload: Workload, batch: int, graph: str = GRAPH) -> str:
    """What is asked of a workload's graph at a batch size."""
    named = ("runtime", "amp", "dtype", "mode", "seq_len", "optimizer")
    return question(target, device, {"batch": batch, **{name: getattr(workload, name) for name in named}}, graph)


def _given(settings: Mapping[str, Any], name: str) -> Any:
    """A setting; None where it is missing, as in a table, too."""
    value = settings.get(name)
    return None if value is None or value == "" or value != value else value


def number_text(value: float) -> str:
    """A number as an answer: four significant digits, no exponent."""
    return np.format_float_positional(float(f"{value:.{DIGITS}g}"), trim="-")


def read_number(text: str) -> float | None:
    """The number that an answer is; None where it is none, is not positive, or is beyond all measure."""
    found = _ANSWER.fullmatch(text.strip()) if len(text) <= 200 else None
    if found is None:
        return None
    value = float(found[1])
    return value if 0 < value < 1e15 and math.isfinite(value) else None


def few_shot(asked: str, shots: Sequence[tuple[str, str]]) -> str:
    """A question after others with their answers."""
    return "".join(f"{prompt}{answer}\n\n" for prompt, answer in shots) + asked


def after_thought(asked: str, summary: str) -> str:
    """A question after the summary that the model gave first."""
    return f"{SUMMARISE}{summary.strip()}\n{asked.removeprefix(GRAPH).lstrip()}"
