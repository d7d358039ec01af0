"""Frontend: timm and torchvision models by name. Weights are never downloaded, nor even allocated.

A name may change hyper-parameters: `timm/resnet50?layers=[2,2,2,2]&base_width=48`. `timm/repvgg_b1?reparam=true` is the
network as it is deployed: its parallel branches and norms merged into single convolutions by timm.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from forerun._util.installed import version
from forerun.capture.thread_patches import ThreadPatch
from forerun.errors import ForerunError, did_you_mean
from forerun.frontends.base import Frontend, first_line
from forerun.frontends.config_sizes import check_sizes
from forerun.frontends.huggingface import catalog as hf_catalog
from forerun.frontends.pytorch.module_graphs import capture
from forerun.graph.ir import Graph
from forerun.workload import Workload

#: torchvision models that do not take 3 x 224 x 224.
_TORCHVISION_SHAPES = {
    r"inception_v3": (3, 299, 299),
    r"(r3d|mc3|r2plus1d)_18": (3, 16, 112, 112),
    r"mvit_.*|swin3d_.*|s3d": (3, 16, 224, 224),
    r"raft_.*": (3, 224, 224),
}

#: What detectors are given where nobody says: a photograph of COCO.
_PHOTOGRAPH = (3, 480, 640)

#: Asks for a network with its branches merged; not a hyper-parameter of timm.
REPARAM = "reparam"
#: Hyper-parameters that would read files or the network.
_NOT_CHANGEABLE = r"pretrained|checkpoint|weights|cache|url|file|path|hf_|init_weights"


class VisionFrontend(Frontend):
    """A timm or torchvision model by name. It takes any bare word, so it is asked last."""

    takes = "the name of a timm or torchvision model"
    priority = 10

    def matches(self, model: Any) -> bool:
        return matches(model)

    def key(self, model: Any, workload: Workload) -> dict[str, Any]:
        return {"name": model, **{p: _version(p) for p in ("timm", "torchvision", "torch")}}

    def names(self) -> list[str]:
        return names()

    def knows(self, name: str) -> bool:
        library, _, word = name.partition("?")[0].rpartition("/")
        return library in ("", "timm", "torchvision") and word in names()

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        from forerun.capture import torch_compat

        torch_compat.prepare()
        if workload.mode in ("prefill", "decode"):
            raise ForerunError(f"{model} is a vision model: it has no {workload.mode} mode")
        if workload.seq_len is not None:
            raise ForerunError(f"{model} is a vision model: it takes an input_shape, not a seq_len")
        library, name, changed = parse(model)
        try:
            if library != "torchvision" and _in_timm(name):
                return _load_timm(name, workload, changed)
            if library != "timm" and name in torchvision_names():
                return _load_torchvision(name, workload, changed)
        except (TypeError, ValueError, AssertionError, AttributeError, KeyError) as e:
            if not changed:
                raise
            raise ForerunError(f"{name} cannot be built with {', '.join(changed)}: {first_line(e)}") from e
        raise _unknown(model, name)


def _unknown(model: str, name: str) -> ForerunError:
    from forerun.frontends.registry import model_names

    known = names() if "/" in model else model_names()  # a bare word may mean a model of any kind
    return ForerunError(f"no model is called {model!r}.{did_you_mean(name, known) or ' See: forerun models'}")


def matches(model: Any) -> bool:
    """Whether it may be a vision model's name: timm/ or torchvision/ and a name, or a bare word (letters, digits, dots,
    underscores) that is neither a catalogued Hugging Face model nor a file."""
    from forerun.frontends.registry import is_file

    if not isinstance(model, str):
        return False
    if model.startswith(("timm/", "torchvision/")):
        return True
    word = model.partition("?")[0]
    bare = re.fullmatch(r"[A-Za-z][\w.]*", word) is not None
    return bare and not is_file(word) and hf_catalog.architecture(word) is None


@functools.cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except ModuleNotFoundError:
        return None


def parse(model: str) -> tuple[str, str, dict[str, Any]]:
    """Library (may be empty), name and changed hyper-parameters of `library/name?key=value&key=[1,2]`."""
    reference, _, given = model.partition("?")
    library, _, name = reference.rpartition("/")
    changed: dict[str, Any] = {}
    for part in filter(None, given.split("&")):
        key, equals, text = part.partition("=")
        if not equals or not re.fullmatch(r"[a-z_][a-z0-9_]*", key):
            raise ForerunError(f"{part!r} in {model!r} is not of the form key=value")
        if re.match(_NOT_CHANGEABLE, key):
            raise ForerunError(f"{key} cannot be changed: forerun reads no weights and no files through a model's name")
        try:
            changed[key] = json.loads(text)
        except ValueError:
            changed[key] = text
    if not isinstance(changed.get(REPARAM, True), bool):
        raise ForerunError(f"{REPARAM} must be true or false, got {changed[REPARAM]!r}")
    check_sizes(changed, model)
    return library, name, changed


def full_name(library: str, name: str, changed: dict[str, Any]) -> str:
    """The name that `parse` reads back."""
    given = "&".join(f"{k}={json.dumps(v, separators=(',', ':'))}" for k, v in sorted(changed.items()))
    return f"{library}/{name}" + (f"?{given}" if given else "")


def names() -> list[str]:
    """Every name of timm and torchvision that can be captured."""
    from forerun.capture import torch_compat

    torch_compat.prepare()
    import timm

    return sorted({*timm.list_models(), *torchvision_names()})


def _in_timm(name: str) -> bool:
    import timm

    return bool(timm.is_model(name))


def torchvision_names() -> list[str]:
    import torchvision

    return sorted(torchvision.models.list_models())


def _detectors() -> list[str]:
    """Models whose work depends on the image (`graph.detector_counts` says what is assumed)."""
    import torchvision

    return list(torchvision.models.list_models(module=torchvision.models.detection))


def timm_parameters(model: str, input_shape: tuple[int, ...] | None = None) -> tuple[int, int]:
    """How many parameters a timm model has as it comes and with its branches merged, built for images of a shape.

    Nothing is captured. The two are equal where there is nothing to merge.
    """
    from forerun.capture import torch_compat
    from forerun.capture.meta_build import on_meta

    torch_compat.prepare()
    _, name, changed = parse(model)
    if not _in_timm(name):
        raise _unknown(model, name)
    try:
        build, _ = _timm_builder(name, Workload(model, input_shape=input_shape), changed)
        with on_meta():
            built = build()
            return _count(built), _count(_with_branches_merged(built))
    except (TypeError, ValueError, AssertionError, AttributeError, KeyError) as e:
        raise ForerunError(f"{model} cannot be built for images of {input_shape}: {first_line(e)}") from e


def _load_timm(name: str, workload: Workload, changed: dict[str, Any]) -> list[Graph]:
    check_reparam("timm", name, changed, workload.mode)
    build, shape = _timm_builder(name, workload, changed)
    title = full_name("", name, changed).lstrip("/")
    return capture(build, {"": (shape, "float")}, workload, title)


def _timm_builder(name: str, workload: Workload, changed: dict[str, Any]) -> tuple[Callable[[], Any], tuple[int, ...]]:
    """What builds a model for the images of a workload, and their shape."""
    import timm

    from forerun.capture.capture import TORCH_DTYPES
    from forerun.capture.meta_build import on_meta

    given = {key: value for key, value in changed.items() if key != REPARAM}

    def build(**options: Any) -> Any:
        with on_meta():
            model = timm.create_model(name, pretrained=False, **{**given, **options})
            model = _merged(model, name) if changed.get(REPARAM) else model
            return model.to(device="meta", dtype=TORCH_DTYPES[workload.weight_dtype])

    built = build()
    default = tuple(built.pretrained_cfg.get("input_size") or (3, 224, 224))
    size = changed.get("img_size")
    if size:
        default = (default[0], *([size, size] if isinstance(size, int) else size))
    shape = _shape(name, workload, default)
    options: dict[str, Any] = {}
    if shape[1:] != default[1:]:
        try:  # transformers of fixed grid need the size; convolutional nets do not accept it
            built = build(img_size=shape[1:])
            options = {"img_size": shape[1:]}
        except TypeError:
            options = {}
    if shape[0] != default[0]:
        options["in_chans"] = shape[0]
        built = build(**options)
    ready = [built]  # building takes as long as a capture's pass: what was built to learn the shape is the first
    return lambda: ready.pop() if ready else build(**options), shape


def _merged(model: Any, name: str) -> Any:
    """The model as it is deployed; an error where nothing of it is merged."""
    before = _count(model)
    model = _with_branches_merged(model)
    if _count(model) == before:
        raise ForerunError(f"{name} has no branches that timm merges: leave out {REPARAM}")
    return model


def _with_branches_merged(model: Any) -> Any:
    """The model itself, with its branches and norms merged as timm does it for deployment."""
    from timm.utils.model import reparameterize_model

    return reparameterize_model(model, inplace=True)


def _count(model: Any) -> int:
    return sum(p.numel() for p in model.parameters())


def check_reparam(library: str, name: str, changed: dict[str, Any], mode: str) -> None:
    """A ForerunError where merged branches are asked for and there can be none."""
    if changed.get(REPARAM) and mode == "training":
        raise ForerunError(f"{name} is trained with its branches: leave out {REPARAM}, which merges them for inference")
    if changed.get(REPARAM) and library == "torchvision":
        raise ForerunError(f"torchvision merges no branches of {name}: leave out {REPARAM}")


def _load_torchvision(name: str, workload: Workload, changed: dict[str, Any]) -> list[Graph]:
    import torchvision

    from forerun.capture.capture import TORCH_DTYPES
    from forerun.capture.meta_build import on_meta

    default = next((s for p, s in _TORCHVISION_SHAPES.items() if re.fullmatch(p, name)), (3, 224, 224))
    detects, notes = name in _detectors(), []
    if detects:
        default = _PHOTOGRAPH
        if workload.mode == "training":
            raise ForerunError(f"{name} is trained on images with their boxes, which are not known: ask for inference")
        if workload.input_shape is None:
            size = " x ".join(map(str, default[1:]))
            notes.append(f"images of {size} pixels assumed, which the detector resizes itself; --input-shape sets it")
    shape = _shape(name, workload, default)
    options: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(torchvision.models.get_model_builder(name)).parameters:
        options["weights_backbone"] = None  # else it is downloaded
    if name in ("inception_v3", "googlenet"):
        options["init_weights"] = False
    check_reparam("torchvision", name, changed, workload.mode)
    options |= {key: value for key, value in changed.items() if key != REPARAM}

    def build() -> Any:
        with on_meta(), _widths_with_values():
            return torchvision.models.get_model(name, **options).to(
                device="meta", dtype=TORCH_DTYPES[workload.weight_dtype]
            )

    inputs = {"": (shape, "float"), "1": (shape, "float")} if name.startswith("raft") else {"": (shape, "float")}
    graphs = capture(build, inputs, workload, full_name("", name, changed).lstrip("/"))
    return [replace(graph, notes=notes + graph.notes) for graph in graphs] if notes else graphs


@functools.cache
def _widths_with_values() -> ThreadPatch:
    """A RegNet works its widths out with tensors, which therefore need values even where weights have none."""
    import torch
    from torchvision.models.regnet import BlockParams

    def on_cpu(found: Any, *args: Any, **options: Any) -> Any:
        with torch.device("cpu"):
            return found(*args, **options)

    return ThreadPatch(BlockParams, "from_init_params", on_cpu)


def _shape(name: str, workload: Workload, default: tuple[int, ...]) -> tuple[int, ...]:
    shape = workload.input_shape
    if shape is None:
        return default
    if isinstance(shape, dict) or len(shape) != len(default):
        want = ",".join(map(str, default))
        raise ForerunError(f"{name} takes one input of {len(default)} dimensions without the batch, such as {want}")
    if shape[0] > 16 and shape[-1] <= 4:
        raise ForerunError(f"input_shape {shape} looks like height, width, channels; {name} takes the channels first")
    return shape
