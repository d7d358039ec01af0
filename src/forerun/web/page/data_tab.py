"""The tab Data."""

from __future__ import annotations

from typing import Any

import gradio as gr
from fastapi import FastAPI

from forerun.web.page.form import about
from forerun.web.page.question import Question, Values, given
from forerun.web.page.stored import VIEWS, PageDataRequest, scoreboard_html
from forerun.workload import MODES

ABOUT = "Measurements, and the error of predictions on held-out data. Read-only."


def data_tab() -> Question:
    about(ABOUT)
    with gr.Row(elem_classes="own"):
        view = gr.Radio(
            [(words, name) for name, words in VIEWS.items()], value="measurements", label="Show", elem_id="view"
        )
    with gr.Row(elem_classes="own"):
        model = gr.Textbox("", label="Model contains", max_length=200, elem_id="data-model")
        device = gr.Textbox("", label="Device contains", max_length=200, elem_id="data-device")
        mode = gr.Dropdown([("all", ""), *((m, m) for m in MODES)], value="", label="Mode", elem_id="data-mode")
    return Question(
        "data", "Data", "Show", "Reading the data. The scoreboard is computed once, which takes up to half a minute.",
        "page_data", _request, None, {"view": view, "model": model, "device": device, "mode": mode}, shared=False,
        ask=_ask,
    )  # fmt: skip


def _request(values: Values) -> PageDataRequest:
    return PageDataRequest(**given(values, ("view", "model", "device", "mode")))


async def _ask(app: FastAPI, request: Any) -> dict[str, Any]:
    if request.view == "scoreboard":
        return {"html": scoreboard_html(await app.state.answering.scoreboard())}
    answer: dict[str, Any] = await app.state.answering.answer("page_data", request.model_dump())
    return answer
