"""What `recommend` answers for a language model: a plan of a serving engine, as nobody deploys single eager calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from forerun.advice.cost import choose_instance
from forerun.decisions.plans.serving import plan_serving
from forerun.decisions.plans.serving_answer import ServingPlan
from forerun.device import Device, all_devices
from forerun.frontends.huggingface import catalog
from forerun.predictors.laws.specs import spec_problem
from forerun.runtimes.registry import runtime

#: The load that is assumed: requests per second, and mean tokens.
RATE, INPUT, OUTPUT = 10.0, 1024, 256
ENGINE = "vllm"
_GOALS = ("cost", "energy")
#: Layouts that are tried on every device of the catalogue: few, as there are many devices.
_BUDGETS = (8192,)


def serves(model: Any, goal: str, settings: Mapping[str, Any], filters: Mapping[str, Any]) -> bool:
    """Whether the question is about a language model in general, and not about a call of it: neither a mode nor any
    other setting or limit of a call is given."""
    if not isinstance(model, str) or goal not in _GOALS or any(value is not None for value in filters.values()):
        return False
    usual = {"mode": "inference", "trust_remote_code": False, "channels_last": False}
    if any(value not in (None, usual.get(name)) for name, value in settings.items()):
        return False
    known = catalog.architecture(model)
    return known is not None and known.task == "causal-lm"


def plan(
    model: str, goal: str, devices: Sequence[str | Device] | None, dtypes: Sequence[str] | None,
    min_throughput: float | None, confidence: float,
) -> ServingPlan:  # fmt: skip
    """The plan for the assumed load, or for so many output tokens per second."""
    rate = RATE if min_throughput is None else min_throughput / OUTPUT
    found = plan_serving(
        model, devices=devices or offered(), engine=ENGINE, rate=rate, input=INPUT, output=OUTPUT, goal=goal,
        dtypes=dtypes, budgets=_BUDGETS, confidence=confidence,
    )  # fmt: skip
    note = (
        f"a language model is planned in a serving engine ({ENGINE}), for {rate:g} requests/s of {INPUT:,} input and "
        f"{OUTPUT} output tokens; forerun plan serving takes your load and limits, and --mode decode or prefill "
        "compares single calls instead"
    )
    return replace(found, notes=(note, *found.notes))


def offered() -> list[Device]:
    """GPUs with a price and a full spec sheet on which the engine is answered."""
    engine = runtime(ENGINE)
    return [
        device for device in all_devices()
        if device.traits.rented and spec_problem(device) is None and device.memory_mb is not None
        and engine.device_problem(device) is None and choose_instance(device, None) is not None
    ]  # fmt: skip
