"""forerun.compare: one model on several devices, and in a serving engine where it is a language model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from forerun.api.arguments import several
from forerun.api.generation import question_of
from forerun.api.predict import predict_many
from forerun.api.questions import given_model
from forerun.decisions.compare import served
from forerun.decisions.compare.answer import Comparison
from forerun.device import Device, load_device
from forerun.device.threads import with_threads
from forerun.predictors.base import Predictor


def compare(
    model: Any,
    devices: Iterable[str | Device],
    *,
    predictor: str | Path | Predictor = "default",
    confidence: float = 0.9,
    host: str | float = "default",
    region: str | None = None,
    instance: str | None = None,
    threads: int | None = None,
    **settings: Any,
) -> Comparison:
    """One model on several devices, fastest first; `settings` are those of a workload (batch, dtype, mode ...).

    The answer is a pandas DataFrame with the columns of `predict_many`; a notebook shows it with its intervals drawn.
    Of a language model whose mode is not given, `served.plan` is the best deployment of each device in a serving
    engine: the plan of `recommend`, made when it is first read. `plain_rows` has both as plain data.
    """
    chosen = tuple(dict.fromkeys(with_threads(load_device(d), threads) for d in several("devices", devices)))
    workload = given_model(model, settings)
    question_of(workload)  # a model that cannot be read is the user's to put right, not a row
    frame = predict_many(
        [workload], chosen, predictor=predictor, confidence=confidence, host=host, region=region, instance=instance
    )
    last = frame["fits"].eq(False)  # what does not fit stands last, however fast it would be
    ranked = frame.assign(last=last).sort_values(["last", "latency_ms"], ignore_index=True).drop(columns="last")
    return Comparison.of(ranked, confidence, served.question_of(model, chosen, settings, predictor, confidence))
