"""Coverage: how many models of the catalogue get a prediction on every device whose spec sheet suffices."""

from __future__ import annotations

import functools
import random
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from forerun.api.predict import predict_many
from forerun.api.questions import dtype_problem
from forerun.capture import torch_compat
from forerun.device import Device, all_devices
from forerun.frontends import zoo
from forerun.frontends.huggingface import catalog as hf_catalog
from forerun.predictors.laws.specs import spec_problem
from forerun.workload import Workload

COLUMNS = ("source", "model", "mode", "asked", "answered", "unanswered", "s")
#: Language models that keep no cache a caller could hand back, so they have no decode mode.
CACHELESS = ("openai-gpt", "google/recurrentgemma-2b")
#: What people run in each mode; the second where a device cannot do the first.
_DTYPES = {"inference": ("fp32", "bf16"), "decode": ("bf16", "fp32")}
#: What must be a number above zero in a prediction.
_NUMBERS = ("latency_ms", "latency_low_ms", "latency_high_ms", "device_ms", "throughput", "memory_mb")

Progress = Callable[[Iterable[Any], int], Iterable[Any]]


@dataclass(frozen=True)
class Question:
    """A model, where it comes from, and the mode it is naturally run in."""

    source: str
    model: str
    mode: str = "inference"


def catalogue() -> list[Question]:
    """Every model known by name."""
    return vision() + architectures()


def vision() -> list[Question]:
    """All of timm and torchvision."""
    torch_compat.prepare()
    import timm

    out = [Question("timm", f"timm/{name}") for name in timm.list_models()]
    return out + [Question("torchvision", f"torchvision/{name}") for name in zoo.torchvision_names()]


def architectures() -> list[Question]:
    """The Hugging Face catalogue by task: language models in decode, everything else in inference."""
    out = []
    for name in hf_catalog.architecture_ids():
        entry = hf_catalog.architecture(name)
        assert entry is not None
        decodes = entry.task == "causal-lm" and name not in CACHELESS
        out.append(Question(f"Hugging Face, {entry.task}", name, "decode" if decodes else "inference"))
    return out


def drawn(questions: Sequence[Question], count: int, seed: int = 0) -> list[Question]:
    """`count` questions, the same every time, spread over the sources as evenly as their sizes allow."""
    rng = random.Random(seed)
    piles: dict[str, list[Question]] = {}
    for question in rng.sample(list(questions), len(questions)):
        piles.setdefault(question.source, []).append(question)
    out: list[Question] = []
    while len(out) < min(count, len(questions)):
        out += [pile.pop() for pile in piles.values() if pile]
    return out[:count]


def known_devices() -> list[Device]:
    """The devices whose bandwidth and one peak are known."""
    return [device for device in all_devices() if spec_problem(device) is None]


def ask(question: Question, devices: Sequence[Device]) -> dict[str, Any]:
    """One line of the result: on how many devices the model gets a prediction, and why not on the others."""
    start = time.perf_counter()
    unanswered: dict[str, list[str]] = {}
    for dtype in _DTYPES[question.mode]:
        able = [device for device in devices if _dtype(question, device) == dtype]
        with warnings.catch_warnings(action="ignore"):
            problems = _problems(question, dtype, able)
        for name, reason in problems:
            unanswered.setdefault(reason, []).append(name)
    failed = sum(map(len, unanswered.values()))
    return {**vars(question), "asked": len(devices), "answered": len(devices) - failed, "unanswered": unanswered,
            "s": round(time.perf_counter() - start, 2)}  # fmt: skip


def _dtype(question: Question, device: Device) -> str:
    """The dtype a model is run in on a device: the first it can do."""
    choices = _DTYPES[question.mode]
    return next((d for d in choices if dtype_problem(Workload(question.model, dtype=d), device) is None), choices[0])


def _problems(question: Question, dtype: str, devices: Sequence[Device]) -> list[tuple[str, str]]:
    """(device, reason in one sentence) for every device without a prediction."""
    if not devices:
        return []
    try:
        answers = predict_many([Workload(question.model, dtype=dtype, mode=question.mode)], devices)
    except Exception as error:  # noqa: BLE001 - models that fail are what this counts
        return [(device.id, _sentence(f"{type(error).__name__}: {error}")) for device in devices]
    out = []
    for row in answers.to_dict("records"):
        # A model that cannot be read leaves rows with a reason and no numbers.
        numbers = np.array([row.get(name) or np.nan for name in _NUMBERS], dtype=float)
        if isinstance(row["error"], str):
            out.append((row["device"], _sentence(row["error"])))
        elif not (np.isfinite(numbers) & (numbers > 0)).all():
            wrong = [n for n, v in zip(_NUMBERS, numbers, strict=True) if not (np.isfinite(v) and v > 0)]
            out.append((row["device"], f"no number above zero for {', '.join(wrong)}"))
    return out


def _sentence(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")[:200]


def answered(
    questions: Sequence[Question],
    devices: Sequence[Device],
    progress: Progress | None = None,
    *,
    through: Callable[..., Iterable[Any]] = map,
) -> pd.DataFrame:
    """One line per model; `through` is `map`, or one that spreads the work over processes."""
    lines = through(functools.partial(ask, devices=tuple(devices)), questions)
    return pd.DataFrame(list(progress(lines, len(questions)) if progress else lines), columns=list(COLUMNS))


def totals(lines: pd.DataFrame) -> pd.DataFrame:
    """Models, devices, cases and the answered share, by source and altogether."""
    parts = [*lines.groupby("source", sort=False), ("all", lines)]
    return pd.DataFrame(
        {"source": str(name), "models": len(part), "devices": int(part["asked"].max()),
         "cases": int(part["asked"].sum()), "answered": int(part["answered"].sum()),
         "share": float(part["answered"].sum() / max(part["asked"].sum(), 1))}
        for name, part in parts
    )  # fmt: skip


def failures(lines: pd.DataFrame) -> pd.DataFrame:
    """Models without a prediction: mode, on how many devices (and the first of them), and why."""
    failed = [
        {"model": row["model"], "mode": row["mode"], "devices": len(names), "such as": names[0], "reason": reason}
        for row in lines.to_dict("records")
        for reason, names in row["unanswered"].items()
    ]
    return pd.DataFrame(failed, columns=["model", "mode", "devices", "such as", "reason"])
