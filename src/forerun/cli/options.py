"""Options shared by several commands, and the parsing of their values."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from forerun._util.readable import short
from forerun.errors import ForerunError
from forerun.prediction import CONFIDENCES
from forerun.runtimes.registry import BUILT_IN, names
from forerun.workload import (
    AMP,
    CACHES,
    DECODINGS,
    DTYPES,
    MODES,
    OPTIMIZERS,
    PROMPTS,
    PUBLISHED,
)


def _complete(words: tuple[str, ...]):  # type: ignore[no-untyped-def]
    return lambda incomplete: [w for w in words if w.startswith(incomplete)]


def _complete_device(incomplete: str) -> list[str]:
    from forerun.device import device_ids

    return [d for d in device_ids() if d.startswith(incomplete.lower())]


def _complete_host(incomplete: str) -> list[str]:
    from forerun.device.cpus import cpu_ids
    from forerun.measure.assumed_host import host_names

    return [h for h in (*host_names(), *cpu_ids()) if h.startswith(incomplete.lower())]


def _complete_runtime(incomplete: str) -> list[str]:
    return [name for name in names(measured=True) if name.startswith(incomplete.lower())]


def _complete_model(incomplete: str) -> list[str]:
    from forerun.frontends.huggingface import catalog as hf_catalog

    return [n for n in hf_catalog.architecture_ids() if n.lower().startswith(incomplete.lower())]


def whole_number(text: str | int) -> int:
    """'900' or '9e2' as a whole number."""
    if isinstance(text, int):
        return text
    if re.fullmatch(r"\s*[-+]?\d{1,20}\s*", text):
        return int(text)
    if re.fullmatch(r"\s*\d{1,9}(\.\d{1,9})?[eE]\+?\d{1,2}\s*", text) and float(text).is_integer():
        return int(float(text))
    raise typer.BadParameter(f"{text[:60]!r} is not a whole number")


ModelArgument = Annotated[
    str,
    typer.Argument(
        help="A name (resnet50, timm/…, torchvision/…), a Hugging Face id, cnn:depth=6,filters=32, or a model file.",
        autocompletion=_complete_model,
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device", "-d", help="A device's id or alias, or a .yaml file of one.", autocompletion=_complete_device
    ),
]
BatchOption = Annotated[
    int, typer.Option("--batch", "-b", help="Samples per call.", parser=whole_number, metavar="INTEGER")
]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        help=f"{', '.join(DTYPES)}, or {PUBLISHED} (the checkpoint's own format, the default where known; else fp32).",
        autocompletion=_complete((*DTYPES, PUBLISHED)),
    ),
]
ModeOption = Annotated[str, typer.Option(help=", ".join(MODES), autocompletion=_complete(MODES))]
SeqLenOption = Annotated[
    int | None,
    typer.Option(
        "--seq-len", "-s", help="Tokens per sample (decode: in the cache).", parser=whole_number, metavar="INTEGER"
    ),
]
InputShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape",
        help="Sizes without the batch: 3,224,224; or per input, repeated: NAME=3,224,224. For the batch of an ONNX "
        "input, a leading 1 is accepted (NAME=1,3,224,224): that axis follows --batch.",
    ),
]
ImageSizeOption = Annotated[
    str | None, typer.Option("--image-size", help="Image size in pixels for Hugging Face models: 336, or 336x448.")
]
ImagesOption = Annotated[
    int | None, typer.Option("--images", help="Images per sample of a vision-language model (0: the text alone).")
]
OptimizerOption = Annotated[str | None, typer.Option(help=", ".join(OPTIMIZERS), autocompletion=_complete(OPTIMIZERS))]
AmpOption = Annotated[
    str | None,
    typer.Option(help="Autocast to fp16 or bf16, over fp32 weights.", autocompletion=_complete(AMP)),
]
NewTokensOption = Annotated[
    int | None,
    typer.Option(
        "--new-tokens", help="With --mode generate: tokens after the prompt.", parser=whole_number, metavar="INTEGER"
    ),
]
DecodingOption = Annotated[
    str | None,
    typer.Option(help=f"With --mode generate: {', '.join(DECODINGS)} (4 beams).", autocompletion=_complete(DECODINGS)),
]
PromptOption = Annotated[
    str | None,
    typer.Option(
        help=f"With --mode generate: {' or '.join(PROMPTS)} (shorter ones are padded on the left).",
        autocompletion=_complete(PROMPTS),
    ),
]
CacheOption = Annotated[
    str | None,
    typer.Option(help=f"With --mode generate: {' or '.join(CACHES)} KV cache.", autocompletion=_complete(CACHES)),
]
TpOption = Annotated[
    int,
    typer.Option(
        "--tp", help="Devices that divide every layer: tensor parallel.", parser=whole_number, metavar="INTEGER"
    ),
]
PpOption = Annotated[
    int,
    typer.Option(
        "--pp", help="Stages that divide the layers: pipeline parallel.", parser=whole_number, metavar="INTEGER"
    ),
]
ChannelsLastOption = Annotated[
    bool, typer.Option("--channels-last", help="Images and convolution weights in channels-last memory format.")
]
Tf32Option = Annotated[bool, typer.Option("--tf32", help="Allow TF32 for fp32 matmuls; the same as --dtype tf32.")]
RuntimeOption = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(BUILT_IN)}, or one of an installed package; one that was never measured is refused.",
        autocompletion=_complete_runtime,
    ),
]
TaskOption = Annotated[str | None, typer.Option(help="Hugging Face task, such as text-classification or causal-lm.")]
RegionOption = Annotated[str | None, typer.Option(help="Country or cloud region, for carbon: DEU, aws/us-east-1.")]
InstanceOption = Annotated[str | None, typer.Option(help="Cloud instance, for cost: p4d.24xlarge.")]
RemoteCodeOption = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run code that comes with the model: Python from the hub for an id, the .py files in it for a local "
        "folder, or the program in a TorchScript file.",
    ),
]
PredictorOption = Annotated[str, typer.Option(help="The predictor to use.")]
ConfidenceOption = Annotated[
    float, typer.Option(help="Coverage of the prediction interval: {} to {}.".format(*CONFIDENCES))
]
HostOption = Annotated[
    str,
    typer.Option(
        help="The host: default, reference, this (after forerun measure host), a name or its CPU's (forerun hosts), or "
        "its slowness relative to the reference, such as 1.5.",
        autocompletion=_complete_host,
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        help="Cores of a CPU that the call has, a thread on each (all of one socket).", parser=whole_number,
        metavar="INTEGER",
    ),
]  # fmt: skip
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def with_tf32(dtype: str | None, tf32: bool) -> str | None:
    """The dtype that --dtype and --tf32 name together."""
    if not tf32:
        return dtype
    if dtype is not None and dtype.lower() not in ("fp32", "tf32"):
        raise ForerunError(f"--tf32 applies to fp32 matmuls: omit --dtype {dtype}")
    return "tf32"


def parse_input_shape(words: list[str] | None) -> tuple[int, ...] | dict[str, tuple[int, ...]] | None:
    """'3,224,224' -> (3, 224, 224); 'ids=128' 'mask=128' -> a dict by input name."""
    if not words:
        return None
    named = {}
    for word in words:
        name, equals, sizes = word.rpartition("=")
        shape = _sizes(sizes, word)
        if not equals:
            if len(words) > 1:
                raise ForerunError("several --input-shape options need names: --input-shape NAME=3,224,224")
            return shape
        named[name] = shape
    return named


def _sizes(text: str, word: str) -> tuple[int, ...]:
    try:
        return tuple(whole_number(n) for n in text.replace("x", ",").split(",") if n.strip())
    except typer.BadParameter:
        raise ForerunError(f"--input-shape {short(word)} is not a list of sizes such as 3,224,224") from None
