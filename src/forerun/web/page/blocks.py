"""The page as Gradio's blocks: the shared form at the side, a tab for each question, what happens when one is asked."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
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
from forerun.web.page.question import Question, answered, error_html, log
from forerun.web.page.recommend_tab import recommend_tab
from forerun.web.page.welcome import HEADER, WELCOME

TABS = (predict_tab, compare_tab, recommend_tab, optimise_tab, budget_tab, explain_tab, data_tab)
_PART = 2**20
_LONGEST_LINK = 30_000
#: The browser presses the button of the tab that a link names, as soon as it is there.
_PRESS = "(tab) => { if (tab) window.forerunPress(tab); }"


class _Shown:
    """A tab's question with the components that show its status and its answer."""

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
        for one in shown:
            _connect(app, one, shared)
        _connect_upload(app, shared, upload_status)
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


def _connect(app: FastAPI, one: _Shown, shared: dict[str, Any]) -> None:
    question = one.question
    fields = {**(shared if question.shared else {}), **question.fields}
    names = [name for name in fields if name != "upload"]

    async def ask(*given: Any) -> AsyncIterator[tuple[Any, Any]]:
        values = dict(zip(names, given, strict=True))
        link = form.link_of(question.name, fields, values)
        async for status, answer in answered(app, question, values, link):
            yield status, gr.skip() if answer is None else answer

    inputs, outputs = [fields[name] for name in names], [one.status, one.answer]
    one.button.click(
        ask,
        inputs,
        outputs,
        show_progress="hidden",
        api_visibility="private",
        concurrency_limit=None,
        trigger_mode="once",
    )


def _connect_upload(app: FastAPI, shared: dict[str, Any], status: gr.HTML) -> None:
    async def take(place: str | None) -> tuple[Any, str]:
        if not place:
            return gr.skip(), ""
        path = Path(place)
        try:
            found = await app.state.uploads.take(path.name, _parts(path))
        except ForerunError as error:
            return gr.skip(), error_html(str(error))
        except OSError:
            log.exception("an upload of the page")
            return gr.skip(), error_html("The file could not be stored.")
        finally:
            path.unlink(missing_ok=True)
        app.state.metrics.uploads.inc()
        minutes = app.state.settings.upload_minutes
        words = f"{found.name} ({found.bytes / 2**20:,.1f} MB) is kept for {minutes:g} minutes after its last use."
        return found.model, f'<p class="forerun faint">{words}</p>'

    shared["upload"].upload(
        take, [shared["upload"]], [shared["model"], status], show_progress="hidden", api_visibility="private"
    )


async def _parts(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(_PART):
            yield part


def _connect_link(
    page: gr.Blocks, tabs: gr.Tabs, asked_tab: gr.Textbox, shared: dict[str, Any], shown: list[_Shown]
) -> None:
    """Opening a link fills the form and asks."""
    own = {(one.question.name, name): c for one in shown for name, c in one.question.fields.items()}
    common = {name: component for name, component in shared.items() if name != "upload"}
    statuses = [one.status for one in shown]
    names = [one.question.name for one in shown]

    def fill(search: str) -> list[Any]:
        query = dict(parse_qsl(str(search).removeprefix("?")[:_LONGEST_LINK]))
        tab = query.get("tab", "")
        if tab not in names:
            return [gr.skip() for _ in range(2 + len(common) + len(own) + len(statuses))]
        problems: list[str] = []

        def value(name: str, component: Any, mine: bool) -> Any:
            if not mine or name not in query:
                return gr.skip()
            try:
                return form.value_of(component, query[name])
            except ForerunError as error:
                problems.append(f"the link's {name.replace('_', ' ')} was left out: {error}")
                return gr.skip()

        filled = [value(name, component, True) for name, component in common.items()]
        filled += [value(name, component, of == tab) for (of, name), component in own.items()]
        notes = [error_html("; ".join(problems)) if problems and n == tab else gr.skip() for n in names]
        return [gr.Tabs(selected=tab), "" if problems else tab, *filled, *notes]

    outputs = [tabs, asked_tab, *common.values(), *own.values(), *statuses]
    search = gr.Textbox(visible=False)
    page.load(
        fill, [search], outputs, js="() => window.location.search", show_progress="hidden", api_visibility="private"
    ).then(None, [asked_tab], None, js=_PRESS)
