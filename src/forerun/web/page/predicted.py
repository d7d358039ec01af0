"""The answer of the tab Predict: devices side by side, where the time goes, every device in detail."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from forerun.errors import ForerunError
from forerun.explanation import Explanation
from forerun.pages import prediction_html, predictions_html
from forerun.pages.bars import parts_html, text
from forerun.pages.tables import folded_html
from forerun.prediction import Prediction
from forerun.readable import pretty
from forerun.web.models import device_of
from forerun.web.operations import others, workload_settings
from forerun.web.requests import CompareRequest, Count


class PagePredictRequest(CompareRequest):
    """One model on several devices, for so many samples or tokens."""

    samples: Count | None = None
    measured: bool = True


def predict(request: dict[str, Any]) -> dict[str, Any]:
    """Each device as `forerun.predict` answers it."""
    from forerun.api import explain
    from forerun.api import predict as ask
    from forerun.questions import profiled, workload_from

    workload = workload_settings(request)
    profiled(workload_from(workload))  # what is wrong with the model is one sentence, and not one for every device
    more = others(request, "devices", "samples")
    setting = {name: more[name] for name in ("predictor", "host") if name in more}
    found: list[Prediction] = []
    times: list[Explanation] = []
    problems: list[str] = []
    for device in request["devices"]:
        try:
            found.append(ask(device=device_of(device), **workload, **more))
        except ForerunError as error:
            problems.append(str(error))
            continue
        try:
            times.append(explain(device=device_of(device), **workload, **setting))
        except ForerunError as error:
            problems.append(f"where the time goes on {found[-1].device}: {error}")
    if not found:
        raise ForerunError("; ".join(dict.fromkeys(problems)))
    table = predictions_html(found, samples=request.get("samples"), problems=dict.fromkeys(problems))
    return {"html": table + _times(times) + _details(found)}


def _details(found: list[Prediction]) -> str:
    inside = "".join(folded_html(f"{p.device} in detail", prediction_html(p)) for p in found)
    return f'<section class="forerun details">{inside}</section>'


def _times(times: list[Explanation]) -> str:
    """One bar a device, cut by operator; an operator has the same colour in all of them."""
    shares = [_by_operator(one) for one in times]
    whole: dict[str, float] = defaultdict(float)
    for one in shares:
        for name, share in one.items():
            whole[name] += share
    order = sorted(whole, key=lambda name: -whole[name])
    bars = "".join(
        f'<p class="bar-head"><b>{text(one.device)}</b> <span class="faint">device time {pretty(one.device_ms)} ms, '
        f"host time {pretty(one.host_ms)} ms</span></p>"
        + parts_html([(name, share.get(name, 0.0)) for name in order], f"Device time on {one.device} by operator")
        for one, share in zip(times, shares, strict=True)
    )
    return (
        f'<section class="forerun answer times"><h2>Where the time goes, by operator</h2>{bars}</section>'
        if bars
        else ""
    )


def _by_operator(one: Explanation) -> dict[str, float]:
    out: dict[str, float] = defaultdict(float)
    for op in one.ops:
        out[op.op] += op.share
    return out
