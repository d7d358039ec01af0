"""The tab Predict."""

from __future__ import annotations

import gradio as gr
from pydantic import BaseModel

from forerun.web.page import again
from forerun.web.page.form import about, devices_of, division_of, number_box, place_of, workload_of
from forerun.web.page.predicted import PagePredictRequest
from forerun.web.page.question import Question, Values, numbers

ABOUT = "How the model will run on each device: every number with its prediction interval and its basis."


def predict_tab() -> Question:
    about(ABOUT)
    with gr.Row(elem_classes="own"):
        samples = number_box(
            None, "Samples to run", info="Samples or tokens; empty: a million, for cost and carbon", elem_id="samples"
        )
        measured = gr.Checkbox(
            True, label="Use measurements", info="Where the store has exactly this case", elem_id="measured"
        )
    return Question(
        "predict", "Predict", "Predict", "Predicting. A new model is read first, which takes some seconds.",
        "page_predict", _request, _lines, {"samples": samples, "measured": measured},
    )  # fmt: skip


def _request(values: Values) -> PagePredictRequest:
    fields = {"measured": bool(values["measured"]), **numbers(values, ("samples",))}
    fields |= division_of(values)
    return PagePredictRequest(**workload_of(values), **place_of(values), devices=devices_of(values), **fields)


def _lines(request: BaseModel) -> tuple[str, str]:
    assert isinstance(request, PagePredictRequest)
    settings = again.settings_of(request)
    model = again.plain_model(request.model)
    shell = "\n".join(
        again.command("predict", request.model, settings, "--device", again.device_word(device))
        for device in request.devices
    )
    python = "\n".join(again.call("predict", [model, device], settings) for device in request.devices)
    return shell, python
