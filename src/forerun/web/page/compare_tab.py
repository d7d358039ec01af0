"""The tab Compare."""

from __future__ import annotations

import shlex
from typing import Any

import gradio as gr
from pydantic import BaseModel

from forerun.errors import ForerunError
from forerun.web.page import again
from forerun.web.page.compared import AXES, PageCompareRequest
from forerun.web.page.form import about, devices_of, division_of, place_of, workload_of
from forerun.web.page.question import Question, Values, number

ABOUT = "How throughput, latency, memory and energy grow on each device, and what each costs."
_VALUES = {"batch": "1, 2, 4, 8, 16, 32, 64, 128", "seq_len": "128, 256, 512, 1024, 2048, 4096"}
_MOST = 16


def compare_tab() -> Question:
    about(ABOUT)
    with gr.Row(elem_classes="own"):
        axis = gr.Radio(
            [(words, name) for name, words in AXES.items()], value="batch", label="Against the", elem_id="axis"
        )
        values = gr.Textbox(
            "", label="Values", placeholder=_VALUES["batch"], max_length=300, elem_id="values",
            info="Empty: common values",
        )  # fmt: skip
    return Question(
        "compare", "Compare", "Compare", "Predicting every device at every value. A new model is read first, which "
        "takes some seconds.", "page_compare", _request, _lines, {"axis": axis, "values": values},
        payload=_payload,
    )  # fmt: skip


def _request(values: Values) -> PageCompareRequest:
    axis = str(values["axis"])
    words = str(values.get("values") or "").strip() or _VALUES[axis]
    numbers = sorted({number(part, "values") for part in words.replace(",", " ").replace(";", " ").split()})
    if len(numbers) > _MOST:
        raise ForerunError(f"at most {_MOST} values can be drawn, got {len(numbers)}")
    fields: Values = {axis: numbers[0], "axis": axis, "values": numbers, "devices": devices_of(values)}
    return PageCompareRequest(**{**workload_of(values), **division_of(values), **place_of(values), **fields})


def _payload(request: BaseModel) -> dict[str, Any]:
    """The request with a workload for every value, so that `answering` can check which are captured."""
    assert isinstance(request, PageCompareRequest)
    content = request.model_dump()
    return {**content, "workloads": [{**content, request.axis: value} for value in request.values]}


def _lines(request: BaseModel) -> tuple[str, str]:
    assert isinstance(request, PageCompareRequest)
    settings = again.settings_of(request, request.axis)
    option = f"--{request.axis.replace('_', '-')}"
    devices = ",".join(again.device_word(device) for device in request.devices)
    command = again.command("compare", request.model, settings, "--devices", devices)
    shell = f"for n in {shlex.join(map(str, request.values))}; do {command} {option} $n; done"
    place = ("region", "instance", "host", "confidence", "predictor")
    workload = {"model": again.plain_model(request.model), **{k: v for k, v in settings.items() if k not in place}}
    words = ", ".join(f"{key!r}: {value!r}" for key, value in workload.items())
    more = "".join(f", {key}={value!r}" for key, value in settings.items() if key in place)
    python = (
        f"cases = [{{{words}, {request.axis!r}: n}} for n in {request.values!r}]\n"
        f"forerun.predict_many(cases, {request.devices!r}{more})"
    )
    return shell, python
