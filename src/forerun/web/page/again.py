"""Reproducing an answer: the link that opens it, the commands that print it, the Python code that returns it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from forerun.views.html.bars import text
from forerun.web.models import uploaded_name

_FLAGS = {"channels_last": "--channels-last"}
#: Settings whose option has another name, and the unit after the number on the command line.
_OPTIONS = {
    "max_latency_ms": ("--max-latency", "ms"), "max_memory_mb": ("--max-memory", "MB"),
    "max_usd_per_hour": ("--max-price", ""), "max_usd_per_million": ("--max-cost", ""),
    "max_energy_j": ("--max-energy", "J"), "max_carbon_g": ("--max-carbon", "g"),
    "loading_samples_per_s": ("--loading-rate", ""), "max_ttft_ms": ("--max-ttft", "ms"),
    "max_itl_ms": ("--max-itl", "ms"),
}  # fmt: skip
_NOT_SETTINGS = ("model", "device", "devices", "samples", "axis", "values", "reference")


def settings_of(request: BaseModel, *without: str) -> dict[str, Any]:
    """The settings of a request besides models and devices, without defaults."""
    known = request.model_dump(exclude_defaults=True)
    return {name: value for name, value in known.items() if name not in (*_NOT_SETTINGS, *without)}


def options(settings: Mapping[str, Any]) -> list[str]:
    """Settings as options of a command."""
    words: list[str] = []
    for name, value in settings.items():
        option, unit = _OPTIONS.get(name, (f"--{name.replace('_', '-')}", ""))
        if isinstance(value, bool):
            off = f"--no-{name.replace('_', '-')}"
            words.append(_FLAGS.get(name, option) if value else off)
        elif name == "input_shape":
            shapes = value.items() if isinstance(value, dict) else [("", value)]
            for key, sizes in shapes:
                words += [option, (f"{key}=" if key else "") + ",".join(map(str, sizes))]
        elif name == "image_size" and isinstance(value, list):
            words += [option, "x".join(map(str, value))]
        elif isinstance(value, list):
            words += [option, ",".join(map(str, value))]
        else:
            words += [option, f"{value:g}{unit}" if isinstance(value, float) else f"{value}{unit}"]
    return words


def command(name: str, model: str, settings: Mapping[str, Any], *more: str) -> str:
    """A command line, every word of it quoted for the shell."""
    return shlex.join(["forerun", *name.split(), plain_model(model), *more, *options(settings)])


def call(name: str, positional: Iterable[Any], settings: Mapping[str, Any]) -> str:
    """A call of forerun's Python function."""
    words = [repr(value) for value in positional] + [f"{key}={_plain(value)!r}" for key, value in settings.items()]
    return f"forerun.{name}({', '.join(words)})"


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def plain_model(model: str) -> str:
    """The model for the command line: an upload is a file by its name."""
    return uploaded_name(model) or model


def device_word(device: str | dict[str, Any]) -> str:
    """A device as an option's value; a device given by fields becomes a file."""
    return device if isinstance(device, str) else "my_device.yaml"


def again_html(link: str, lines: tuple[str, str] | None, request: BaseModel) -> str:
    """The link and the lines, each with a button that copies it."""
    parts = []
    if lines:
        parts += [_copied("On the command line", lines[0]), _copied("In Python", f"import forerun\n\n{lines[1]}")]
    upload = uploaded_name(str(getattr(request, "model", "")))
    words = (
        "The link works as long as the upload exists: some minutes after its last use."
        if upload
        else "The link opens this page with the same request and runs it."
    )
    where = text(link)
    parts.append(
        f'<p class="link"><a href="{where}">Link to this answer</a> '
        f'<button type="button" class="copy" data-link="{where}">Copy</button> <span class="faint">{words}</span></p>'
    )
    return (
        f'<section class="forerun again" data-state="{where}"><h3>The same answer again</h3>{"".join(parts)}</section>'
    )


def _copied(title: str, lines: str) -> str:
    return (
        f'<div class="lines"><div class="lines-head">{text(title)} <button type="button" class="copy" '
        f'aria-label="Copy: {text(title)}">Copy</button></div>'
        f'<pre tabindex="0"><code>{text_lines(lines)}</code></pre></div>'
    )


def text_lines(lines: str) -> str:
    """Several lines, each escaped for HTML."""
    return "\n".join(text(line) for line in lines.split("\n"))
