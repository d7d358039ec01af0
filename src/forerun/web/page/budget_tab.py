"""The tab Budget."""

from __future__ import annotations

import gradio as gr
from pydantic import BaseModel

from forerun._util.quantities import TOKENS, quantity
from forerun.web.page import again
from forerun.web.page.form import about, devices_of, number_box, place_of, workload_of
from forerun.web.page.question import Question, Values, given, numbers
from forerun.web.requests import BudgetRequest, PlanTrainingRequest

ABOUT = (
    "What a training job takes on the devices of the form, and what fits into a budget. With the model timm, "
    "torchvision or cnn: the most accurate network within the limits on the first device. Pre-training plans how "
    "many of the first device train a language model from its first token on, and in which layout."
)
_COUNTS = ("dataset_size", "epochs", "steps", "gpus", "eval_size", "loading_samples_per_s")
_LIMITS = ("max_hours", "max_usd", "max_kwh", "max_carbon_kg", "max_latency_ms")
#: What the job is called that `forerun.plan_training` plans, and its limits.
_PRE_TRAINING, _PLAN_LIMITS = "pre-training", ("max_hours", "max_usd", "max_kwh")
#: Tokens of a sequence where the form has none.
_SEQUENCE = 4096
#: Names of collections of models, from which one is chosen for one device.
_COLLECTIONS = ("timm", "torchvision", "cnn")


def budget_tab() -> Question:
    about(ABOUT)
    fields: Values = {}
    with gr.Row(elem_classes="own"):
        jobs = ["training", "inference", _PRE_TRAINING]
        fields["job_mode"] = gr.Radio(jobs, value="training", label="The job is", elem_id="job")
    with gr.Row(elem_classes="own"):
        fields["dataset"] = gr.Dropdown(
            ["", *_datasets()], value="imagenet", allow_custom_value=True, label="Data set", elem_id="dataset"
        )
        fields["epochs"] = number_box(5, "Epochs", placeholder="as many as fit", elem_id="epochs")
        fields["max_hours"] = number_box(None, "At most hours", elem_id="max_hours")
        fields["max_usd"] = number_box(None, "At most USD", elem_id="max_usd")
    with gr.Accordion("More about the job", open=False):
        with gr.Row(elem_classes="own"):
            fields["every_device"] = gr.Checkbox(False, label="On all devices with a price")
            fields["gpus"] = number_box(1, "Devices of each kind")
        with gr.Row(elem_classes="own"):
            fields["dataset_size"] = number_box(None, "Samples in an epoch", placeholder="of the data set")
            fields["steps"] = number_box(None, "Steps", placeholder="instead of epochs")
            fields["eval_size"] = number_box(None, "Evaluated samples", placeholder="after every epoch")
            fields["loading_samples_per_s"] = number_box(None, "Loaded samples per s", placeholder="keeps up")
        with gr.Row(elem_classes="own"):
            fields["max_kwh"] = number_box(None, "At most kWh")
            fields["max_carbon_kg"] = number_box(None, "At most kg of CO2")
            fields["max_latency_ms"] = number_box(None, "Latency, at most ms", placeholder="of published models")
    with gr.Accordion("Pre-training of a language model", open=False):
        with gr.Row(elem_classes="own"):
            fields["tokens"] = gr.Textbox("100B", label="Tokens to train on", max_length=30, elem_id="tokens")
            fields["count"] = number_box(64, "Devices, at most", elem_id="count")
            fields["step"] = number_box(None, "Sequences of a step", placeholder="4 M tokens")
        with gr.Row(elem_classes="own"):
            fields["precision"] = gr.Dropdown(["bf16", "fp8", "fp4"], value="bf16", label="Precision of matmuls")
            fields["goal"] = gr.Dropdown(["time", "cost", "energy"], value="time", label="Plan for the least")
    return Question(
        "budget", "Budget", "Work it out", "Computing the job. A search through published models takes up to a "
        "minute.", "page_budget", _request, _lines, fields,
    )  # fmt: skip


def _datasets() -> list[str]:
    from forerun.decisions.budget.datasets import dataset_names

    return dataset_names()


def _request(values: Values) -> BudgetRequest | PlanTrainingRequest:
    if values["job_mode"] == _PRE_TRAINING:
        return _plan_request(values)
    fields = {**given(values, ("dataset",)), **numbers(values, (*_COUNTS, *_LIMITS)), "mode": values["job_mode"]}
    if fields.get("steps"):
        fields = {name: value for name, value in fields.items() if name not in ("epochs", "dataset")}
    workload = {name: value for name, value in workload_of(values).items() if name != "mode"}
    devices = None if values["every_device"] else devices_of(values)
    if devices and workload["model"] in _COLLECTIONS[:2]:
        devices = devices[:1]
    return BudgetRequest(**workload, **place_of(values), device=devices, **fields)


def _plan_request(values: Values) -> PlanTrainingRequest:
    workload = workload_of(values)
    fields = {**numbers(values, ("count", *_PLAN_LIMITS)), **given(values, ("precision", "goal", "instance"))}
    if step := numbers(values, ("step",)):
        fields["batch"] = step["step"]
    return PlanTrainingRequest(
        model=workload["model"], device=devices_of(values)[0], tokens=quantity(str(values["tokens"]), TOKENS),
        seq_len=workload.get("seq_len", _SEQUENCE), **fields,
    )  # fmt: skip


def _lines(request: BaseModel) -> tuple[str, str]:
    if isinstance(request, PlanTrainingRequest):
        settings, model = again.settings_of(request), again.plain_model(request.model)
        device = again.device_word(request.device)
        return again.command("plan training", model, settings, "--device", device), again.call(
            "plan_training", [model, device], settings
        )
    assert isinstance(request, BudgetRequest)
    devices = request.device if isinstance(request.device, list) else [request.device] if request.device else []
    settings = again.settings_of(request)
    words = ("--device", ",".join(again.device_word(device) for device in devices)) if devices else ()
    python = settings | ({"device": devices} if devices else {})
    model = again.plain_model(request.model)
    return again.command("budget", request.model, settings, *words), again.call("budget", [model], python)
