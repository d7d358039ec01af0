"""The tab Optimise."""

from __future__ import annotations

import gradio as gr
from pydantic import BaseModel

from forerun.decisions.optimise.goals import GOALS
from forerun.web.page import again
from forerun.web.page.form import about, devices_of, place_of, workload_of
from forerun.web.page.question import Question, Values
from forerun.web.requests import OptimiseRequest

ABOUT = (
    "What to change so that the model runs better on the first of the devices: settings, and the network itself. Each "
    "change has its predicted gain and interval; gains whose interval includes 1 are not claimed."
)


def optimise_tab() -> Question:
    about(ABOUT)
    with gr.Row(elem_classes="own"):
        goal = gr.Dropdown(
            [(g, g) for g in GOALS], value="latency", label="Goal", elem_id="optimise-goal",
            info="All but latency and memory are per sample, so that the batch may grow",
        )  # fmt: skip
    return Question(
        "optimise", "Optimise", "Optimise", "Trying changes one by one and together, which takes some seconds.",
        "page_optimise", _request, _lines, {"goal": goal},
    )  # fmt: skip


def _request(values: Values) -> OptimiseRequest:
    device = devices_of(values)[0]
    return OptimiseRequest(**workload_of(values), **place_of(values), device=device, goal=values["goal"])


def _lines(request: BaseModel) -> tuple[str, str]:
    assert isinstance(request, OptimiseRequest)
    settings = again.settings_of(request)
    shell = again.command("optimise", request.model, settings, "--device", again.device_word(request.device))
    return shell, again.call("optimise", [again.plain_model(request.model), request.device], settings)
