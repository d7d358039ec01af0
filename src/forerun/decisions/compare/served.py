"""What devices give as a service of a language model: the plan that `recommend` and `report` show."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forerun.decisions.plans.serving_answer import ServingPlan
from forerun.decisions.recommend import served
from forerun.device import Device
from forerun.errors import ForerunError

#: A plan of more devices takes too long beside a comparison.
MOST_DEVICES = 8
#: Settings of a call that a service does not have: it has a load instead.
_OF_A_CALL = ("batch", "seq_len", "dtype")


@dataclass(frozen=True)
class Served:
    """A language model on devices, each in the layout that costs least per token; planned when it is first asked."""

    model: str
    devices: tuple[Device, ...]
    dtype: str | None
    confidence: float

    @property
    def plan(self) -> ServingPlan | None:
        """None where no device serves the model; `refused` says why."""
        found = _planned(self)
        return None if isinstance(found, str) else found

    @property
    def refused(self) -> dict[str, str]:
        """Why a device has no deployment."""
        found = _planned(self)
        if isinstance(found, str):
            return {device.id: found for device in self.devices}
        return found.missing

    def by_device(self) -> dict[str, dict[str, Any]]:
        """Plain data: the engine, the load that is assumed, and the deployment of each device, or why it has none."""
        refused, plan = self.refused, self.plan
        out: dict[str, dict[str, Any]] = {name: {"refused": reason} for name, reason in refused.items()}
        if plan is not None:
            out |= {one.device: {"engine": plan.engine, "load": plan.load, **one.to_dict()} for one in plan.rows}
        return out


def question_of(
    model: Any, devices: tuple[Device, ...], settings: Mapping[str, Any], predictor: Any, confidence: float
) -> Served | None:  # fmt: skip
    """None where the question is about one kind of call, or about anything but a language model."""
    rest = {name: value for name, value in settings.items() if name not in _OF_A_CALL}
    usual = {"runtime": "eager", "tp": 1, "pp": 1}
    rest = {name: None if value == usual.get(name) else value for name, value in rest.items()}
    if predictor != "default" or len(devices) > MOST_DEVICES or not served.serves(model, "cost", rest, {}):
        return None
    return Served(model, devices, settings.get("dtype"), confidence)


@functools.lru_cache(maxsize=16)
def _planned(asked: Served) -> ServingPlan | str:
    dtypes = None if asked.dtype is None else [asked.dtype]
    try:
        return served.plan(asked.model, "cost", asked.devices, dtypes, None, asked.confidence)
    except ForerunError as error:
        return str(error)
