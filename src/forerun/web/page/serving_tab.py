"""The tab Serving: one device under a load, simulated, or a plan over several devices."""

from __future__ import annotations

import gradio as gr
from pydantic import BaseModel

from forerun.web.page import again
from forerun.web.page.form import about, devices_of, number_box, workload_of
from forerun.web.page.question import Question, Values, given, numbers
from forerun.web.requests import PlanServingRequest, ServingRequest

ABOUT = (
    "A language model in a serving engine: what clients see, what it costs. Model, dtype and devices are those of the "
    "form. Simulate runs the first device iteration by iteration; plan compares all of them in all layouts."
)
_LOAD = ("rate", "concurrency", "input", "output", "input_spread", "output_spread")
_LIMITS = ("max_ttft_ms", "max_itl_ms", "confidence")
_LAYOUT = ("tp", "pp", "ep", "count", "max_tokens", "max_sequences", "prefix")


def serving_tab() -> Question:
    about(ABOUT)
    fields: Values = {}
    with gr.Row(elem_classes="own"):
        fields["what"] = gr.Radio(["simulate", "plan"], value="simulate", label="What to do", elem_id="serving-what")
        fields["engine"] = gr.Dropdown(
            [(name, name) for name in ("vllm", "sglang", "tensorrt-llm")], value="vllm", label="Engine",
            elem_id="serving-engine",
        )  # fmt: skip
        fields["rate"] = number_box(4, "Requests per second", elem_id="serving-rate")
        fields["concurrency"] = number_box(None, "Or clients", placeholder="closed loop")
    with gr.Row(elem_classes="own"):
        fields["input"] = number_box(1024, "Prompt tokens", elem_id="serving-input")
        fields["output"] = number_box(256, "New tokens", elem_id="serving-output")
        fields["max_ttft_ms"] = number_box(None, "TTFT, at most ms", elem_id="max_ttft_ms")
        fields["max_itl_ms"] = number_box(None, "ITL, at most ms", elem_id="max_itl_ms")
    with gr.Accordion("More about the engine and the load", open=False):
        with gr.Row(elem_classes="own"):
            fields["tp"] = number_box(None, "Tensor parallel", placeholder="the fewest that hold it")
            fields["pp"] = number_box(None, "Pipeline stages", placeholder="1")
            fields["ep"] = number_box(None, "Expert parallel", placeholder="1")
            fields["count"] = number_box(None, "Devices in all", placeholder="one replica")
        with gr.Row(elem_classes="own"):
            fields["max_tokens"] = number_box(None, "Tokens of an iteration", placeholder="the engine's")
            fields["max_sequences"] = number_box(None, "Sequences of an iteration", placeholder="the engine's")
            fields["prefix"] = number_box(None, "Shared prompt tokens", placeholder="0")
            fields["goal"] = gr.Dropdown(
                [(g, g) for g in ("cost", "energy", "devices")], value="cost", label="Plan for"
            )
        with gr.Row(elem_classes="own"):
            fields["input_spread"] = number_box(None, "Spread of prompts", placeholder="0: all alike")
            fields["output_spread"] = number_box(None, "Spread of answers", placeholder="0: all alike")
            fields["static"] = gr.Checkbox(False, label="Static batching, for comparison")
    return Question(
        "serving", "Serving", "Work it out", "Building the engine's iterations and simulating them, which takes some "
        "seconds; a plan takes longer.", "page_serving", _request, _lines, fields,
    )  # fmt: skip


def _request(values: Values) -> BaseModel:
    load = numbers(values, (*_LOAD, *_LIMITS)) | given(values, ("engine",))
    if "concurrency" in load:
        load.pop("rate", None)
    model, devices = workload_of(values)["model"], devices_of(values)
    dtype = values.get("dtype") or None
    if values["what"] == "plan":
        dtypes: Values = {"dtypes": [dtype]} if dtype else {}
        return PlanServingRequest(model=model, devices=devices, goal=values["goal"], **dtypes, **load)
    layout = numbers(values, _LAYOUT)
    instance = given(values, ("instance",))
    return ServingRequest(
        model=model, device=devices[0], dtype=dtype, static=bool(values["static"]), **layout, **instance, **load
    )


def _lines(request: BaseModel) -> tuple[str, str]:
    settings, model = again.settings_of(request), again.plain_model(request.model)  # type: ignore[attr-defined]
    if isinstance(request, PlanServingRequest):
        names = ",".join(again.device_word(device) for device in request.devices)
        return again.command("plan serving", model, settings, "--devices", names), again.call(
            "plan_serving", [model], {"devices": request.devices} | settings
        )
    assert isinstance(request, ServingRequest)
    device = again.device_word(request.device)
    return again.command("serving", model, settings, "--device", device), again.call(
        "serving", [model, device], settings
    )
