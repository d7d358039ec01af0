"""Workload: which model, and how it is run."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from forerun._util.readable import short
from forerun.errors import ForerunError, did_you_mean

#: Modes in which a workload is one call of the model, and all modes: a generation is a loop of calls.
CALL_MODES = ("inference", "training", "prefill", "decode")
MODES = (*CALL_MODES, "generate")
#: fp32 is what PyTorch does by default (convolutions in TF32, matmuls not); tf32 lets matmuls use TF32 too; fp32-ieee
#: forbids it everywhere. int8 and int4 are weight-only: matmul weights are stored so, activations stay in fp16. fp8
#: is both: weights are stored so and products are computed so, where the device can.
DTYPES = ("fp32", "tf32", "fp32-ieee", "fp16", "bf16", "fp64", "int8", "int4", "fp8")
#: Asks for the dtype and the format of weights that the checkpoint is published in, as leaving dtype out does.
PUBLISHED = "published"
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")
AMP = ("fp16", "bf16")
#: How a generation chooses its tokens: the likeliest one, one drawn from the likely ones (top-k and top-p), or the best
#: of four beams.
DECODINGS = ("greedy", "sample", "beam")
#: Beams of a generation with beam search.
BEAMS = 4
#: Prompts of a batch: all of one length, or shorter ones padded on the left.
PROMPTS = ("full", "padded")
#: Whether the KV cache grows by a token at a time, or has room for the whole generation from the start.
CACHES = ("dynamic", "static")
#: Settings that only generations have, and their first values.
GENERATION = {"new_tokens": None, "decoding": "greedy", "prompt": "full", "cache": "dynamic"}
_ALSO_CALLED = {
    "float16": "fp16", "half": "fp16", "f16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float": "fp32",
    "float64": "fp64", "double": "fp64",
    "train": "training", "infer": "inference", "generation": "generate", "nf4": "int4", "4bit": "int4", "8bit": "int8",
    "float8": "fp8", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
}  # fmt: skip
MAX_SIZE = 2**31 - 1

#: What says which dtype, and after a space which format of quantised weights, a model named so is published in, and so
#: runs in under a runtime by that name. The frontends know; they fill the slot when they are imported.
PublishedDtype = Callable[[Any, str], str | None]
_published_dtype: list[PublishedDtype] = []


def ask_for_published_dtypes(source: PublishedDtype) -> None:
    """Makes `source` the one that workloads without a dtype ask."""
    _published_dtype[:] = [source]


@dataclass(frozen=True)
class Workload:
    """A model and the way it is run. Everything that decides the graph is here; the device is not."""

    model: Any
    batch: int = 1
    dtype: str = None  # type: ignore[assignment]  # None: the model's own, else what it is published in, else fp32
    mode: str = "inference"
    input_shape: tuple[int, ...] | dict[str, tuple[int, ...]] | None = None
    seq_len: int | None = None
    optimizer: str | None = None
    amp: str | None = None
    runtime: str = "eager"  # the name of one (runtimes/registry.py), which says itself what it can run
    task: str | None = None
    trust_remote_code: bool = False  # run Python that ships with a Hugging Face config: only when asked
    image_size: tuple[int, int] | None = None  # height and width, or one number for both
    images: int | None = None  # images in the prompt of a vision-language model; 0: the text alone
    new_tokens: int | None = None  # of a generation: how many tokens follow the prompt
    decoding: str | None = None  # of a generation; None: greedy
    prompt: str | None = None  # of a generation; None: full
    cache: str | None = None  # of a generation; None: dynamic
    tp: int = 1  # devices over which every layer is divided (tensor parallel)
    pp: int = 1  # stages over which the layers are divided (pipeline parallel)
    channels_last: bool = False  # images and the weights of their convolutions have their channels last in memory
    #: What the checkpoint is published in where dtype was left to it: the dtype, then the format of quantised weights
    #: ("bf16 mxfp4"). Set here; None where a dtype was asked for, which also means weights that are dequantised.
    published: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.runtime, str):
            raise ForerunError(f"runtime is the name of a runtime, such as eager, got {short(self.runtime)}")
        object.__setattr__(self, "runtime", self.runtime.lower())
        self._settle_dtype()
        for name, value, allowed in (
            ("mode", self.mode, MODES), ("dtype", self.dtype, DTYPES),
            ("optimizer", self.optimizer, OPTIMIZERS), ("amp", self.amp, AMP), ("decoding", self.decoding, DECODINGS),
            ("prompt", self.prompt, PROMPTS), ("cache", self.cache, CACHES),
        ):  # fmt: skip
            if isinstance(value, str) and value.lower() in allowed:
                object.__setattr__(self, name, value.lower())
            elif value is not None:
                known_as = _ALSO_CALLED.get(str(value).removeprefix("torch."))
                hint = f" Did you mean {known_as}?" if known_as in allowed else did_you_mean(str(value), allowed)
                hint = hint or f" Choose from {', '.join(allowed)}."
                raise ForerunError(f"{name} {value!r} is not known.{hint}")
        if self.task is not None and not isinstance(self.task, str):
            raise ForerunError(f"task is the name of a task, such as text-classification, got {short(self.task)}")
        object.__setattr__(self, "batch", _positive("batch", self.batch))
        for name in ("tp", "pp"):
            object.__setattr__(self, name, _positive(name, getattr(self, name)))
        if self.seq_len is not None:
            object.__setattr__(self, "seq_len", _positive("seq_len", self.seq_len))
        object.__setattr__(self, "image_size", _image_size(self.image_size))
        if self.images is not None and (isinstance(self.images, (bool, float)) or self.images != 0):
            object.__setattr__(self, "images", _positive("images", self.images))
        if self.mode == "training":
            if self.dtype in ("int8", "int4", "fp8"):
                raise ForerunError(f"a model with {self.dtype} weights cannot be trained; choose fp32, fp16 or bf16")
            if self.optimizer is None:
                object.__setattr__(self, "optimizer", "sgd")
        elif self.optimizer:
            raise ForerunError(f"an optimizer belongs to mode training, not {self.mode}")
        if self.amp and self.dtype not in ("fp32", "tf32", "fp32-ieee"):
            raise ForerunError(f"amp={self.amp} keeps fp32 weights: leave dtype at fp32 (it was {self.dtype})")
        object.__setattr__(self, "input_shape", _shapes(self.input_shape))
        self._settle_generation()

    def _settle_generation(self) -> None:
        """Gives a generation the settings that were left out; other modes have none of them."""
        given = [name for name in GENERATION if getattr(self, name) is not None]
        if self.mode != "generate":
            if given:
                raise ForerunError(f"{given[0]} is a setting of mode generate, not of {self.mode}")
            return
        if self.new_tokens is None:
            raise ForerunError("mode generate needs new_tokens: how many tokens are to follow the prompt")
        object.__setattr__(self, "new_tokens", _positive("new_tokens", self.new_tokens))
        for name, usual in GENERATION.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, usual)
        if self.prompt == "padded" and self.batch == 1:
            raise ForerunError("a single prompt has no padding: prompt padded needs a batch of 2 or more")
        if self.runtime != "eager":
            raise ForerunError(
                f"mode generate is transformers' own loop, which runs eagerly: runtime {self.runtime} is of one call; "
                "give mode prefill or decode"
            )
        if self.devices > 1:
            raise ForerunError(
                "mode generate is transformers' own loop on one device: leave out tp and pp, or give prefill or decode"
            )
        if isinstance(self.input_shape, dict):
            raise ForerunError("mode generate takes a prompt of seq_len tokens, no inputs by name")

    def _settle_dtype(self) -> None:
        """The one place where a dtype that was omitted is decided: all that follows sees a definite one.

        Autocast keeps fp32 weights, and a runtime that runs files runs an export in fp32.
        """
        published = self.published
        if self.dtype is None or (isinstance(self.dtype, str) and self.dtype.lower() == PUBLISHED):
            own = own_dtype(self.model)
            published = self._published_dtype() if own is None and not self.amp else None
            object.__setattr__(self, "dtype", own or (published or "fp32").partition(" ")[0])
        dtype, _, weights = str(published or "").partition(" ")
        if weights and self.mode == "training":  # no library trains them: they are dequantised first
            published = dtype
        kept = dtype == self.dtype and published != "fp32"  # another dtype has been asked for since
        object.__setattr__(self, "published", published if kept else None)

    def _published_dtype(self) -> str | None:
        if not _published_dtype:
            raise RuntimeError("a workload without a dtype needs the frontends: import forerun.frontends first")
        return _published_dtype[0](self.model, self.runtime)

    @property
    def devices(self) -> int:
        """How many devices run it together."""
        return self.tp * self.pp

    @property
    def weight_format(self) -> str | None:
        """The format that the checkpoint's quantised weights are published in and stay in: mxfp4, gptq ..."""
        return (self.published or "").partition(" ")[2] or None

    @property
    def generation(self) -> dict[str, Any]:
        """The settings of a generation that are not at their first values."""
        given = {name: getattr(self, name) for name in GENERATION}
        return {name: value for name, value in given.items() if value not in (None, GENERATION[name])}

    @property
    def shown_dtype(self) -> str:
        """The dtype as a table names it and a command takes it: quantised weights as they are published have none."""
        return PUBLISHED if self.weight_format else self.dtype

    @property
    def weight_dtype(self) -> str:
        """The dtype that weights and activations have while the graph is captured."""
        return {"tf32": "fp32", "fp32-ieee": "fp32", "int8": "fp16", "int4": "fp16", "fp8": "bf16"}.get(
            self.dtype, self.dtype
        )

    @property
    def graph_settings(self) -> dict[str, Any]:
        """What decides the graph besides the model and the batch: part of the cache key."""
        shape = self.input_shape
        images = {"image_size": self.image_size and list(self.image_size), "images": self.images}
        return {
            **{name: value for name, value in images.items() if value is not None},
            **({"channels_last": True} if self.channels_last else {}),
            **{name: value for name in GENERATION if (value := getattr(self, name)) is not None},
            **({"published": self.weight_format} if self.weight_format else {}),
            "weights": self.weight_dtype, "quantised": self.dtype if self.dtype in ("int8", "int4") else None,
            "mode": self.mode, "seq_len": self.seq_len, "optimizer": self.optimizer, "amp": self.amp,
            "task": self.task, "input_shape": list(shape) if isinstance(shape, tuple) else shape,
            "remote_code": self.trust_remote_code,
        }  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        few = {"image_size": None, "images": None, "channels_last": False, "published": None, "tp": 1, "pp": 1}
        few |= dict.fromkeys(GENERATION)
        for name, usual in few.items():  # settings of few models
            if out[name] == usual:
                del out[name]
        if not isinstance(self.model, str):
            out["model"] = getattr(self.model, "name", type(self.model).__name__)
        shape = self.input_shape
        if self.image_size is not None:
            out["image_size"] = list(self.image_size)
        out["input_shape"] = (
            {k: list(v) for k, v in shape.items()} if isinstance(shape, dict) else shape and list(shape)
        )
        return out


def is_python_file(model: Any) -> bool:
    """Whether a model is named as code of the user's own: `my_unet.py:UNet`, or a path of a Python file."""
    return isinstance(model, (str, os.PathLike)) and re.search(r"\.py(:[^/\\]*)?$", str(model), re.I) is not None


def is_onnx_file(model: Any) -> bool:
    """Whether a model is the path of an ONNX file."""
    return isinstance(model, (str, os.PathLike)) and os.path.splitext(model)[1].lower() == ".onnx"


def _positive(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or not 1 <= number <= MAX_SIZE:
        raise ForerunError(f"{name} must be a whole number of 1 or more (at most {MAX_SIZE:,}), got {value!r}")
    return number


def own_dtype(model: Any) -> str | None:
    """The dtype that most weights of a live model have; None where the model is a name, or has none that is known.

    A PyTorch module is recognised by what it offers, so that no framework is imported here.
    """
    if isinstance(settings := getattr(model, "facts", {}), dict) and "settings" in settings:  # a captured graph
        whole = "fp8" if settings.get("quantised") == "fp8" and not settings.get("weight_format") else None
        return whole or settings["settings"].get("quantised") or settings["settings"].get("weights")
    parameters = getattr(model, "parameters", None)
    if not callable(parameters):
        return None
    try:
        sizes: dict[str, int] = {}
        for p in parameters():
            name = _ALSO_CALLED.get(str(p.dtype).removeprefix("torch."), "")
            sizes[name] = sizes.get(name, 0) + int(p.numel())
    except (TypeError, AttributeError, ValueError, RuntimeError):  # of another framework, or not initialised yet
        return None
    known = {name: size for name, size in sizes.items() if name in DTYPES}
    return max(known, key=lambda name: known[name]) if known else None


def _image_size(given: Any) -> tuple[int, int] | None:
    """336, (336, 448), "336" or "336x448" as height and width."""
    if given is None:
        return None
    if isinstance(given, str):
        words = given.lower().replace(",", "x").split("x")
        given = [int(word) if word.strip().isdecimal() else 0 for word in words]
    sides = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(sides) not in (1, 2):
        raise ForerunError(f"image_size must be one number or height and width, such as 336x448, got {given!r}")
    height, width = _positive("image_size", sides[0]), _positive("image_size", sides[-1])
    return height, width


def _shapes(given: Any) -> tuple[int, ...] | dict[str, tuple[int, ...]] | None:
    """One shape, or shapes by name: parts of a nested input by their path, such as `batch.image` or `frames.0`."""
    if given is None:
        return None
    if isinstance(given, dict):
        return dict(_named_shapes("", given))
    if isinstance(given, (list, tuple)) and given and all(isinstance(g, (dict, list, tuple)) for g in given):
        return dict(_named_shapes("", dict(enumerate(given))))
    return _shape(given)


def _named_shapes(path: str, given: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    for key, value in given.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict):
            yield from _named_shapes(name, value)
        elif isinstance(value, (list, tuple)) and value and all(isinstance(v, (dict, list, tuple)) for v in value):
            yield from _named_shapes(name, dict(enumerate(value)))
        else:
            yield name, _shape(value)


def _shape(given: Any) -> tuple[int, ...]:
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise ForerunError(f"input_shape must be sizes without the batch, such as (3, 224, 224), got {given!r}")
    return tuple(_positive("input_shape", d) for d in given)
