"""A tab of the page: the fields of its form, how they become a request, and how a request is run."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ValidationError

from forerun._util.readable import short
from forerun.errors import ForerunError
from forerun.views.html.bars import text
from forerun.web.page.again import again_html
from forerun.web.traffic import QueueFull

log = logging.getLogger("forerun.web")
Values = dict[str, Any]


@dataclass
class Question:
    """One tab. `request` makes a request from the values of the form; `lines` gives the commands and the Python."""

    name: str
    title: str
    button: str
    waiting: str  # shown while waiting
    operation: str
    request: Callable[[Values], BaseModel]
    lines: Callable[[BaseModel], tuple[str, str]] | None = None
    fields: dict[str, Any] = field(default_factory=dict)  # the tab's own components by the names of their values
    payload: Callable[[BaseModel], dict[str, Any]] = lambda body: body.model_dump()
    shared: bool = True  # whether it uses the model and the devices of the form
    ask: Callable[[FastAPI, Any], Awaitable[dict[str, Any]]] | None = None  # replaces the call of the operation


async def answered(
    app: FastAPI, question: Question, values: Values, link: str
) -> AsyncIterator[tuple[str, str | None]]:
    """Pairs of a status and an answer as HTML, one after another; None leaves the answer as it is."""
    yield waiting_html(question.waiting), None
    try:
        request = question.request(values)
        async with app.state.places.place():
            if question.ask is not None:
                answer = await question.ask(app, request)
            else:
                answer = await app.state.answering.answer(question.operation, question.payload(request))
        with app.state.answering.uploads():
            again = again_html(link, question.lines(request) if question.lines else None, request)
    except ForerunError as error:
        yield error_html(str(error)), ""
    except ValidationError as error:
        yield error_html(validation_sentence(error)), ""
    except QueueFull:
        yield (
            error_html("The server is at its request limit; try again in some seconds."),
            "",
        )
    except Exception:  # the traceback goes to the log
        log.exception("a request of the page: %s", question.operation)
        yield error_html("Internal server error (logged)."), ""
    else:
        yield "", answer["html"] + again


def waiting_html(sentence: str) -> str:
    """A line that appears when an answer takes longer than a moment (the stylesheet delays it)."""
    return f'<div class="forerun waiting" role="status"><i aria-hidden="true"></i>{text(sentence)}</div>'


def error_html(sentence: str) -> str:
    """An error as one sentence in a box."""
    words = sentence[:1].upper() + sentence[1:]
    end = "" if words.endswith((".", "?", "!")) else "."
    return f'<div class="forerun problem" role="alert">{text(words + end)}</div>'


_LABELS = {
    "seq_len": "the sequence length", "input_shape": "the input shape", "devices": "the devices", "model": "the model",
    "samples": "the samples to run", "batch": "the batch", "confidence": "the confidence", "values": "the values",
}  # fmt: skip


def validation_sentence(error: ValidationError) -> str:
    """What is wrong with a request, in words of the form."""
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "the request"
    label = label_of(name)
    if first["type"] in ("missing", "too_short", "string_too_short"):
        return f"{label} must be given"
    what = str(first["msg"]).removeprefix("Value error, ").replace("Input should be", "should be")
    return f"{label}: {what[:1].lower()}{what[1:]}"


def given(values: Mapping[str, Any], names: tuple[str, ...]) -> Values:
    """Those of the values that were filled in."""
    return {name: value for name in names if (value := values.get(name)) not in (None, "", [])}


def numbers(values: Mapping[str, Any], names: tuple[str, ...]) -> Values:
    """Those of the values that were filled in, as numbers, such as 2,048 and 9e2."""
    return {name: number(str(value), name) for name, value in given(values, names).items() if str(value).strip()}


def number(words: str, name: str) -> int | float:
    """A typed number; `name` is that of its field."""
    plain = words.strip().replace(",", "").replace("_", "").replace(" ", "")
    if not re.fullmatch(r"[-+]?(\d{1,20}(\.\d{0,20})?|\.\d{1,20})([eE][-+]?\d{1,3})?", plain):
        raise ForerunError(f"{label_of(name)}: {short(words)} is not a number")
    parsed = float(plain)
    return int(parsed) if parsed.is_integer() and abs(parsed) < 2**53 else parsed


def label_of(name: str) -> str:
    """A field in a sentence."""
    return _LABELS.get(name, name.replace("_", " "))
