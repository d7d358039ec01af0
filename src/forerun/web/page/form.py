"""The form that all tabs share: the model, how it is run, and the devices; reading it, and filling it from a link."""

from __future__ import annotations

import functools
import re
from typing import Any
from urllib.parse import urlencode

import gradio as gr

from forerun._util import documents
from forerun._util.readable import short
from forerun.errors import ForerunError
from forerun.runtimes.registry import names
from forerun.web.page.question import Values, given, numbers
from forerun.workload import AMP, CACHES, DECODINGS, DTYPES, MODES, OPTIMIZERS, PROMPTS

#: The choice that leaves the default to the library.
AUTO = ""
#: The initial values of the form.
FIRST: Values = {"model": "resnet50", "devices": ["l4", "h100-sxm"], "batch": 8}
#: The most devices in one request.
MOST_DEVICES = 12
#: Examples of family networks with settings.
FAMILIES = ("cnn:depth=6,filters=32", "unet:base=44,levels=3")
#: The page's script uploads the file that is chosen here.
UPLOAD = (
    '<label class="forerun upload">Upload ONNX or config.json<input type="file" accept=".onnx,.json"'
    ' aria-describedby="upload-status"></label>'
)
#: The longest value that a link may carry.
_LONGEST = 4000
_WORKLOAD = (
    "dtype", "mode", "optimizer", "amp", "runtime", "task", "channels_last", "decoding", "prompt", "cache",
)  # fmt: skip
_SIZES = ("batch", "seq_len", "new_tokens", "image_size", "images")
_PLACE = ("region", "instance", "host")


@functools.cache
def model_names() -> list[str]:
    """Model names to choose from: of timm, torchvision, Hugging Face and families."""
    from forerun.frontends.known_models import known_models

    known = known_models()
    families = [
        family["family"] for family in known["families"] if not any(f.startswith(family["family"]) for f in FAMILIES)
    ]
    return list(dict.fromkeys([FIRST["model"], *known["vision"], *known["huggingface"], *FAMILIES, *families]))


@functools.cache
def device_names() -> list[str]:
    """The devices with a spec sheet sufficient for a prediction."""
    from forerun.device import all_devices
    from forerun.predictors.laws.specs import spec_problem

    return [device.id for device in all_devices() if spec_problem(device) is None]


def _choice(words: tuple[str, ...], label: str, auto: str | None = None, **more: Any) -> gr.Dropdown:
    choices = [(auto, AUTO)] if auto else []
    value = AUTO if auto else words[0]
    return gr.Dropdown([*choices, *((word, word) for word in words)], value=value, label=label, **more)


def about(words: str) -> None:
    """The description of a tab, above its fields."""
    gr.HTML(f'<p class="forerun about">{words}</p>', apply_default_css=False)


def number_box(value: float | None, label: str, **more: Any) -> gr.Textbox:
    """A number field that may be empty, which Gradio's own cannot be."""
    first = "" if value is None else f"{value:g}"
    keys = gr.InputHTMLAttributes(autocomplete="off", enterkeyhint="go")
    return gr.Textbox(first, label=label, max_length=30, html_attributes=keys, **more)


def shared_fields() -> Values:
    """The components of the form by the names of their values, in the order of the Tab key."""
    fields: Values = {}
    fields["model"] = gr.Dropdown(
        model_names(), value=FIRST["model"], allow_custom_value=True, num_choices_shown=40, label="Model",
        elem_id="model", info="A name, a Hugging Face id, or a family with settings such as cnn:depth=6,filters=32",
    )  # fmt: skip
    fields["upload"] = gr.HTML(UPLOAD, elem_id="upload", apply_default_css=False)
    fields["devices"] = gr.Dropdown(
        device_names(), value=list(FIRST["devices"]), multiselect=True, allow_custom_value=True, num_choices_shown=60,
        max_choices=MOST_DEVICES, label="Devices", elem_id="devices",
        info="One or several; h200/1g.18gb is a MIG slice",
    )  # fmt: skip
    with gr.Row(elem_classes="pair"):
        fields["mode"] = _choice(MODES, "Mode", elem_id="mode", min_width=100)
        fields["dtype"] = _choice(DTYPES, "Dtype", "published", elem_id="dtype", min_width=100)
    with gr.Row(elem_classes="pair"):
        fields["batch"] = number_box(FIRST["batch"], "Batch", elem_id="batch", min_width=100)
        fields["seq_len"] = number_box(None, "Sequence length", elem_id="seq_len", min_width=100)
    with gr.Accordion("More about the run", open=False, elem_id="more"):
        with gr.Row(elem_classes="pair"):
            fields["optimizer"] = _choice(OPTIMIZERS, "Optimizer", "usual", min_width=100)
            fields["amp"] = _choice(AMP, "Autocast (AMP)", "off", min_width=100)
        with gr.Row(elem_classes="pair"):
            fields["runtime"] = _choice(names(measured=True), "Runtime", min_width=100)
            fields["task"] = gr.Textbox("", label="Task", placeholder="causal-lm", max_length=200, min_width=100)
        fields["input_shape"] = gr.Textbox(
            "", label="Input shape", placeholder="3,224,224 or ids=128; mask=128", max_length=2000,
            info="Of one sample, without the batch",
        )  # fmt: skip
        with gr.Row(elem_classes="pair"):
            fields["image_size"] = number_box(None, "Image size", min_width=100)
            fields["images"] = number_box(None, "Images per sample", min_width=100)
        with gr.Row(elem_classes="pair"):
            fields["new_tokens"] = number_box(None, "New tokens (generate)", elem_id="new_tokens", min_width=100)
            fields["decoding"] = _choice(DECODINGS[1:], "Decoding", DECODINGS[0], min_width=100)
        with gr.Row(elem_classes="pair"):
            fields["prompt"] = _choice(PROMPTS[1:], "Prompts", PROMPTS[0], min_width=100)
            fields["cache"] = _choice(CACHES[1:], "KV cache", CACHES[0], min_width=100)
        with gr.Row(elem_classes="pair"):
            fields["run_tp"] = number_box(None, "Tensor parallel", placeholder="1", elem_id="run_tp", min_width=100)
            fields["run_pp"] = number_box(None, "Pipeline stages", placeholder="1", elem_id="run_pp", min_width=100)
        fields["channels_last"] = gr.Checkbox(False, label="Channels last in memory")
    with gr.Accordion("More about the place", open=False, elem_id="place"):
        with gr.Row(elem_classes="pair"):
            fields["region"] = gr.Textbox(
                "", label="Region", placeholder="DEU, aws/us-east-1", max_length=200, min_width=100
            )
            fields["instance"] = gr.Textbox(
                "", label="Instance", placeholder="p4d.24xlarge", max_length=200, min_width=100
            )
        with gr.Row(elem_classes="pair"):
            fields["host"] = gr.Textbox(
                "", label="Host", placeholder="default, EPYC 7763, or 1.5", max_length=200, min_width=100
            )
            fields["confidence"] = number_box(0.9, "Confidence", min_width=100)
        fields["device_spec"] = gr.Textbox(
            "", label="A device of your own, as YAML", lines=5, max_lines=14, max_length=20_000, elem_id="device_spec",
            placeholder="name: My chip\nbase: h100-sxm\nbandwidth_gbs: 4000",
            info="Predicted besides the devices above",
        )  # fmt: skip
    return fields


def workload_of(values: Values) -> Values:
    """The workload of a request, from the values of the form."""
    shape = input_shape(str(values.get("input_shape") or ""))
    model = str(values.get("model") or "").strip()
    return {
        **given(values, _WORKLOAD),
        **numbers(values, _SIZES),
        "model": model,
        **({"input_shape": shape} if shape else {}),
    }


def division_of(values: Values) -> Values:
    """How many devices run the model together, where it was given: of the tabs Predict and Compare. The tab Serving
    has fields of its own."""
    return {name.removeprefix("run_"): n for name, n in numbers(values, ("run_tp", "run_pp")).items()}


def place_of(values: Values, *without: str) -> Values:
    """Region, instance, host and confidence, where they were given."""
    values_given = given(values, _PLACE) | numbers(values, ("confidence",))
    values_given = {name: value for name, value in values_given.items() if name not in without}
    host = str(values_given.get("host", ""))
    return values_given | ({"host": float(host)} if re.fullmatch(r"\d{1,3}(\.\d{1,9})?", host) else {})


def devices_of(values: Values) -> list[str | dict[str, Any]]:
    """The devices that were chosen, and the one whose spec was pasted."""
    devices: list[str | dict[str, Any]] = [
        str(name).strip() for name in values.get("devices") or [] if str(name).strip()
    ]
    spec = str(values.get("device_spec") or "")
    if spec.strip():
        read = documents.parse_yaml(spec, "the device")
        if not isinstance(read, dict) or not all(isinstance(key, str) for key in read):
            raise ForerunError("a device of your own is a list of fields, one per line, such as memory_gb: 24")
        devices.append(read)
    if not devices:
        raise ForerunError("choose at least one device")
    return devices


def input_shape(words: str) -> list[int] | dict[str, list[int]] | None:
    """'3,224,224' -> [3, 224, 224]; 'ids=128; mask=128' -> a dict by input name."""
    parts = [part.strip() for part in re.split(r"[;\n]", words) if part.strip()]
    if not parts:
        return None
    named: dict[str, list[int]] = {}
    for part in parts:
        name, _, sizes = part.rpartition("=")
        if not re.fullmatch(r"\s*\d{1,10}(\s*[,x ]\s*\d{1,10}){0,7}\s*", sizes):
            raise ForerunError(f"the input shape {short(part)} is not a list of sizes such as 3,224,224")
        named[name.strip()] = [int(size) for size in re.split(r"[,x ]+", sizes.strip())]
    if "" in named:
        if len(parts) > 1:
            raise ForerunError("several input shapes need names: ids=128; mask=128")
        return named[""]
    return named


def link_of(tab: str, fields: Values, values: Values) -> str:
    """The query string that fills the form with these values; defaults are omitted."""
    words = {"tab": tab}
    for name, component in fields.items():
        value = values.get(name)
        if value in (None, "", []) or (value == component.value and name not in FIRST):
            continue
        words[name] = ",".join(map(str, value)) if isinstance(value, list) else _plain(value)
    return f"?{urlencode(words)}"


def _plain(value: Any) -> str:
    return str(value) if not isinstance(value, bool) else "yes" if value else "no"


def value_of(component: Any, words: str) -> Any:
    """A value of a link as its component takes it; a ForerunError where it does not."""
    if len(words) > _LONGEST:
        raise ForerunError("the link is too long")
    if isinstance(component, gr.Checkbox):
        return words == "yes"
    if isinstance(component, gr.Dropdown | gr.Radio):
        several = isinstance(component, gr.Dropdown) and component.multiselect
        chosen = [word for word in words.split(",") if word] if several else words
        free = isinstance(component, gr.Dropdown) and component.allow_custom_value
        known = {value for _, value in component.choices}
        if not free and not set(chosen if several else [words]) <= known:
            raise ForerunError(f"{short(words)} is not among {', '.join(map(str, known))}")
        return chosen
    return words
