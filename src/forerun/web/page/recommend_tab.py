"""The tab Recommend."""

from __future__ import annotations

import gradio as gr
from pydantic import BaseModel

from forerun.advice.limits import GOALS
from forerun.web.page import again
from forerun.web.page.form import about, device_names, number_box, place_of, workload_of
from forerun.web.page.question import Question, Values, given, number, numbers
from forerun.web.requests import RecommendRequest
from forerun.workload import DTYPES

ABOUT = (
    "Which device, cloud instance, batch and dtype to choose, within limits. Model, mode and sequence length are those "
    "of the form; devices, batches and dtypes are all tried unless they are named here."
)
_LIMITS = {
    "max_latency_ms": ("Latency, at most ms", "of a call"), "min_throughput": ("Throughput, at least", "per second"),
    "max_usd_per_hour": ("Price, at most USD", "per hour"), "max_usd_per_million": ("Cost, at most USD", "per million"),
    "max_memory_mb": ("Memory, at most MB", "of each device"),
    "max_energy_j": ("Energy, at most J", "per sample or token"),
    "max_carbon_g": ("CO2, at most g", "per million"),
}  # fmt: skip
_NAMES = ("clouds", "regions", "vendors")


def recommend_tab() -> Question:
    about(ABOUT)
    fields: Values = {}
    with gr.Row(elem_classes="own"):
        fields["goal"] = gr.Dropdown([(g, g) for g in GOALS], value="cost", label="Goal", elem_id="recommend-goal")
        for name in ("max_latency_ms", "min_throughput", "max_usd_per_hour"):
            fields[name] = number_box(None, _LIMITS[name][0], placeholder=_LIMITS[name][1])
    with gr.Accordion("More limits and filters", open=False):
        with gr.Row(elem_classes="own"):
            for name in ("max_usd_per_million", "max_memory_mb", "max_energy_j", "max_carbon_g"):
                fields[name] = number_box(None, _LIMITS[name][0], placeholder=_LIMITS[name][1])
        with gr.Row(elem_classes="own"):
            fields["clouds"] = gr.Textbox("", label="Clouds", placeholder="aws, gcp", max_length=300)
            fields["regions"] = gr.Textbox("", label="Regions", placeholder="eu, asia, DEU", max_length=300)
            fields["vendors"] = gr.Textbox("", label="Vendors", placeholder="NVIDIA, AMD", max_length=300)
        with gr.Row(elem_classes="own"):
            fields["only"] = gr.Dropdown(device_names(), value=[], multiselect=True, label="Only these devices")
            fields["dtypes"] = gr.Dropdown(
                [(d, d) for d in DTYPES], value=[], multiselect=True, label="Only these dtypes"
            )
            fields["batches"] = gr.Textbox("", label="Only these batches", placeholder="1, 8, 64", max_length=300)
            fields["mig"] = gr.Checkbox(True, label="MIG slices too")
    return Question(
        "recommend", "Recommend", "Recommend", "Comparing all devices, batches and dtypes, which takes some seconds.",
        "page_recommend", _request, _lines, fields,
    )  # fmt: skip


def _request(values: Values) -> RecommendRequest:
    workload = {name: value for name, value in workload_of(values).items() if name not in ("batch", "dtype")}
    fields = {"goal": values["goal"], "mig": bool(values["mig"]), **numbers(values, tuple(_LIMITS))}
    fields |= {name: _words(text) for name, text in given(values, _NAMES).items()}
    fields |= {to: values[name] for name, to in (("only", "devices"), ("dtypes", "dtypes")) if values.get(name)}
    if values.get("batches"):
        fields["batches"] = [number(word, "batches") for word in _words(str(values["batches"]))]
    return RecommendRequest(**workload, **place_of(values, "region", "instance"), **fields)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _lines(request: BaseModel) -> tuple[str, str]:
    assert isinstance(request, RecommendRequest)
    settings = again.settings_of(request) | ({"devices": request.devices} if request.devices else {})
    model = again.plain_model(request.model)
    return again.command("recommend", request.model, settings), again.call("recommend", [model], settings)
