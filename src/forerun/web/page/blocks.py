"""The page as Gradio's blocks: the shared form at the side, a tab for each operation, and its events."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr
from fastapi import FastAPI

from forerun.errors import ForerunError
from forerun.web.page import form
from forerun.web.page.budget_tab import budget_tab
from forerun.web.page.compare_tab import compare_tab
from forerun.web.page.data_tab import data_tab
from forerun.web.page.explain_tab import explain_tab
from forerun.web.page.optimise_tab import optimise_tab
from forerun.web.page.predict_tab import predict_tab
from forerun.web.page.question import Question, answered, error_html
from forerun.web.page.recommend_tab import recommend_tab
from forerun.web.page.serving_tab import serving_tab
from forerun.web.page.welcome import HEADER, WELCOME

TABS = (predict_tab, compare_tab, recommend_tab, optimise_tab, budget_tab, serving_tab, explain_tab, data_tab)
_LONGEST_LINK = 30_000
#: The browser presses the button of the tab that a link names, as soon as it is there.
_PRESS = "(tab) => { if (tab) window.forerunPress(tab); }"
#: What the script knows of an upload: its model name, and the message about it.
_TAKEN = "(model) => [window.forerunUpload.model || model, window.forerunUpload.html]"


class _Shown:
    """A tab's request with the components that show its status and its answer."""

    def __init__(self, question: Question, status: gr.HTML, answer: gr.HTML, button: gr.Button) -> None:
        self.question, self.status, self.answer, self.button = question, status, answer, button


def make_blocks(app: FastAPI) -> gr.Blocks:
    """The whole page."""
    logging.getLogger("httpx").setLevel(logging.WARNING)
    with gr.Blocks(title="forerun", analytics_enabled=False, fill_width=True) as page:
        gr.HTML(HEADER, elem_id="top", apply_default_css=False)
        with gr.Row(elem_id="body"):
            with gr.Column(elem_id="side", min_width=280, scale=0):
                shared = form.shared_fields()
                upload_status = gr.HTML("", elem_id="upload-status")
            with gr.Column(elem_id="main", min_width=300, scale=1), gr.Tabs(elem_id="tabs") as tabs:
                shown = [_tab(make) for make in TABS]
        asked_tab = gr.Textbox("", visible=False)
        for tab in shown:
            _connect(app, tab, shared)
        _connect_upload(shared, upload_status)
        _connect_link(page, tabs, asked_tab, shared, shown)
    return page


def _tab(make: Any) -> _Shown:
    name = make.__name__.removesuffix("_tab")
    with gr.Tab(name.capitalize(), id=name, elem_id=f"tab-{name}"):
        question = make()
        button = gr.Button(question.button, variant="primary", elem_id=f"ask-{name}", elem_classes="ask")
        status = gr.HTML("", elem_id=f"status-{name}", elem_classes="status", js_on_load=None, apply_default_css=False)
        first = WELCOME if name == "predict" else ""
        answer = gr.HTML(
            first, elem_id=f"answer-{name}", elem_classes="reply", js_on_load=None, apply_default_css=False
        )
    return _Shown(question, status, answer, button)


def _connect(app: FastAPI, tab: _Shown, shared: dict[str, Any]) -> None:
    question = tab.question
    fields = {**(shared if question.shared else {}), **question.fields}
    names = [name for name in fields if name != "upload"]

    async def ask(*given: Any) -> AsyncIterator[tuple[Any, Any]]:
        values = dict(zip(names, given, strict=True))
        link = form.link_of(question.name, fields, values)
        async for status, answer in answered(app, question, values, link):
            yield status, gr.skip() if answer is None else answer

    inputs, outputs = [fields[name] for name in names], [tab.status, tab.answer]
    tab.button.click(
        ask,
        inputs,
        outputs,
        show_progress="hidden",
        api_visibility="private",
        concurrency_limit=None,
        trigger_mode="once",
    )


def _connect_upload(shared: dict[str, Any], status: gr.HTML) -> None:
    """The page's script sends a file as any client of REST does, and then presses a hidden button."""
    taken = gr.Button(visible="hidden", elem_id="uploaded")
    taken.click(None, [shared["model"]], [shared["model"], status], js=_TAKEN, show_progress="hidden")


def _connect_link(
    page: gr.Blocks, tabs: gr.Tabs, asked_tab: gr.Textbox, shared: dict[str, Any], shown: list[_Shown]
) -> None:
    """Opening a link fills the form and runs it."""
    components = {
        (shown_tab.question.name, name): c for shown_tab in shown for name, c in shown_tab.question.fields.items()
    }
    common = {name: component for name, component in shared.items() if name != "upload"}
    statuses = [shown_tab.status for shown_tab in shown]
    names = [shown_tab.question.name for shown_tab in shown]

    def fill(search: str) -> list[Any]:
        query = dict(parse_qsl(str(search).removeprefix("?")[:_LONGEST_LINK]))
        tab = query.get("tab", "")
        if tab not in names:
            return [gr.skip() for _ in range(2 + len(common) + len(components) + len(statuses))]
        problems: list[str] = []

        def value(name: str, component: Any, components: bool) -> Any:
            if not components or name not in query:
                return gr.skip()
            try:
                return form.value_of(component, query[name])
            except ForerunError as error:
                problems.append(f"the link's {name.replace('_', ' ')} was ignored: {error}")
                return gr.skip()

        filled = [value(name, component, True) for name, component in common.items()]
        filled += [value(name, component, of == tab) for (of, name), component in components.items()]
        notes = [error_html("; ".join(problems)) if problems and n == tab else gr.skip() for n in names]
        return [gr.Tabs(selected=tab), "" if problems else tab, *filled, *notes]

    outputs = [tabs, asked_tab, *common.values(), *components.values(), *statuses]
    search = gr.Textbox(visible=False)
    page.load(
        fill, [search], outputs, js="() => window.location.search", show_progress="hidden", api_visibility="private"
    ).then(None, [asked_tab], None, js=_PRESS)
