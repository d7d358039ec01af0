"""The answer of the tab Predict: devices side by side, where the time goes, every device in detail."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from forerun._util.readable import pretty
from forerun.api.explanation import Explanation
from forerun.errors import ForerunError
from forerun.prediction import Prediction
from forerun.views import rendering
from forerun.views.html.bars import parts_html, text
from forerun.views.html.tables import folded_html
from forerun.views.side_by_side import predictions_html
from forerun.web.models import device_of
from forerun.web.operations import others, workload_settings
from forerun.web.requests import CompareRequest, Count


class PagePredictRequest(CompareRequest):
    """One model on several devices, for a number of samples or tokens."""

    samples: Count | None = None
    measured: bool = True


def predict(request: dict[str, Any]) -> dict[str, Any]:
    """Each device as `forerun.predict` returns it."""
    from forerun.api.generation import question_of
    from forerun.api.predict import explain
    from forerun.api.predict import predict as ask
    from forerun.api.questions import workload_from

    workload = workload_settings(request)
    question_of(workload_from(workload))  # an error of the model is reported once, not for every device
    more = others(request, "devices", "samples")
    setting = {name: more[name] for name in ("predictor", "host") if name in more}
    predictions: list[Prediction] = []
    times: list[Explanation] = []
    problems: list[str] = []
    for device in request["devices"]:
        try:
            predictions.append(ask(device=device_of(device), **workload, **more))
        except ForerunError as error:
            problems.append(str(error))
            continue
        if predictions[-1].devices > 1:  # where the time goes is explained for one device
            continue
        try:
            times.append(explain(device=device_of(device), **workload, **setting))
        except ForerunError as error:
            problems.append(f"where the time goes on {predictions[-1].device}: {error}")
    if not predictions:
        raise ForerunError("; ".join(dict.fromkeys(problems)))
    table = predictions_html(predictions, samples=request.get("samples"), problems=dict.fromkeys(problems))
    return {"html": table + _times(times) + _details(predictions)}


def _details(predictions: list[Prediction]) -> str:
    inside = "".join(folded_html(f"{p.device} in detail", rendering.html(p)) for p in predictions)
    return f'<section class="forerun details">{inside}</section>'


def _times(times: list[Explanation]) -> str:
    """One bar per device, split by operator; an operator has the same colour in all of them."""
    shares = [_by_operator(explanation) for explanation in times]
    totals: dict[str, float] = defaultdict(float)
    for by_operator in shares:
        for name, share in by_operator.items():
            totals[name] += share
    order = sorted(totals, key=lambda name: -totals[name])
    bars = "".join(
        f'<p class="bar-head"><b>{text(e.device)}</b> <span class="faint">device time {pretty(e.device_ms)} ms, '
        f"host time {pretty(e.host_ms)} ms</span></p>"
        + parts_html([(name, share.get(name, 0.0)) for name in order], f"Device time on {e.device} by operator")
        for e, share in zip(times, shares, strict=True)
    )
    return (
        f'<section class="forerun answer times"><h2>Where the time goes, by operator</h2>{bars}</section>'
        if bars
        else ""
    )


def _by_operator(explanation: Explanation) -> dict[str, float]:
    out: dict[str, float] = defaultdict(float)
    for op in explanation.ops:
        out[op.op] += op.share
    return out
