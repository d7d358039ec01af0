"""The tab Explain."""

from __future__ import annotations

import gradio as gr
from pydantic import BaseModel

from forerun.web.page import again
from forerun.web.page.explained import PageExplainRequest
from forerun.web.page.form import about, device_names, devices_of, place_of, workload_of
from forerun.web.page.question import Question, Values

ABOUT = "Time and memory of a call by operator on the first of the devices, and what makes it faster than another."
_REFERENCE = "a100-sxm4-80gb"


def explain_tab() -> Question:
    about(ABOUT)
    with gr.Row(elem_classes="own"):
        reference = gr.Dropdown(
            ["", *device_names()], value="", label="Compared with", allow_custom_value=True, elem_id="reference",
            info="Empty: the second of the devices, or an A100",
        )  # fmt: skip
    return Question(
        "explain", "Explain", "Explain", "Explaining every operator. A new model is read first, which takes some "
        "seconds.", "page_explain", _request, _lines, {"reference": reference},
    )  # fmt: skip


def _request(values: Values) -> PageExplainRequest:
    devices = devices_of(values)
    named = str(values.get("reference") or "").strip()
    reference = named or (devices[1] if len(devices) > 1 else _REFERENCE)
    place = place_of(values, "region", "instance", "confidence")
    return PageExplainRequest(**workload_of(values), **place, device=devices[0], reference=reference)


def _lines(request: BaseModel) -> tuple[str, str]:
    assert isinstance(request, PageExplainRequest)
    settings = again.settings_of(request)
    shell = again.command("explain", request.model, settings, "--device", again.device_word(request.device))
    return shell, again.call("explain", [again.plain_model(request.model), request.device], settings)
