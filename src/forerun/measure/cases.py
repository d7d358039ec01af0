"""Conversion between workloads and cases of the measuring core, in both directions."""

from __future__ import annotations

from typing import Any

from forerun.errors import ForerunError
from forerun.frontends import zoo
from forerun.frontends.huggingface import catalog as hf_catalog
from forerun.frontends.huggingface.quantised import without_quantisation
from forerun.frontends.huggingface.sizes import DEFAULT_SEQ_LEN
from forerun.measure.core import python_file
from forerun.measure.core.case_fields import CHANNELS_LAST, task_of
from forerun.networks import FILES, family_of, is_family
from forerun.networks.base import Input
from forerun.runtimes.registry import USUAL, runtime, runtimes
from forerun.workload import GENERATION, Workload

DTYPES = ("fp32", "tf32", "fp16", "bf16", "int8", "int4")
#: Optimizer name in the core -> in a workload. The core's sgd has momentum 0.9.
OPTIMIZERS = {"sgd": "momentum", "adamw": "adamw", "plain_sgd": "sgd", "adam": "adam"}
#: Weight formats that the core measures, by the dtype of a workload.
_WEIGHT_FORMATS = {"nf4": "int4", "llm_int8": "int8"}
_TASKS = {
    "seq2seq-lm": "seq2seq",
    "sequence-classification": "text-classification",
    "causal-lm": "causal-lm",
    "base": "base",
}


def case_of(workload: Workload) -> dict[str, Any]:
    """The workload as a case. Raises a ForerunError that names what cannot be measured."""
    name, mode = workload.model, workload.mode
    if not isinstance(name, str):
        raise ForerunError("forerun measure takes a model by name, a Hugging Face id, or a family such as cnn:…")
    if workload.task is not None or isinstance(workload.input_shape, dict):
        raise ForerunError("task and inputs by name cannot be measured yet")
    if workload.devices > 1:
        raise ForerunError("several devices together are not measured yet: leave out tp and pp")
    run = runtime(workload.runtime)
    if (problem := run.why_not_measured(mode)) is not None:
        raise ForerunError(problem)
    if not run.calls_modules:
        able = ", ".join(one.name for one in runtimes() if one.calls_modules)
        raise ForerunError(f"runtime {run.name} cannot be measured with {name}; choose from {able}")
    if workload.weight_format:
        raise ForerunError(
            f"{name} is published with {workload.weight_format} weights, which are not measured yet; "
            f"choose a dtype: {workload.dtype} is measured with dequantised ones"
        )
    if workload.dtype not in DTYPES:
        raise ForerunError(f"dtype {workload.dtype} cannot be measured yet; choose {', '.join(DTYPES)}")
    case: dict[str, Any] = {
        "kind": "model",
        "mode": mode,
        "batch": workload.batch,
        "dtype": workload.dtype,
        "name": name,
    }
    if run.name != USUAL:
        case["runtime"] = workload.runtime
    if mode == "training":
        case["optimizer"] = next(ours for ours, name in OPTIMIZERS.items() if name == workload.optimizer)
    if workload.amp:
        if mode in ("decode", "generate"):
            what = "a decode step" if mode == "decode" else "a generation"
            raise ForerunError(f"{what} under autocast cannot be measured yet")
        case["amp"] = workload.amp
    if workload.channels_last:
        case["layout"] = CHANNELS_LAST
    known = hf_catalog.architecture(name)
    if known is not None:
        writes = mode == "generate" and known.task == "seq2seq"
        if known.task not in ("causal-lm", "encoder") and not writes:
            raise ForerunError(f"{name} is a {known.task} model; language models and encoders can be measured so far")
        if mode == "generate":
            if known.task == "encoder":
                raise ForerunError(f"{name} is an encoder and writes no tokens: it has no mode generate")
            case |= {"new_tokens": workload.new_tokens, **workload.generation}
            case |= {"task": "seq2seq-lm"} if writes else {}
        if workload.input_shape is not None or workload.channels_last:
            raise ForerunError(f"{name} takes a seq_len, no images: omit input_shape and channels_last")
        length = workload.seq_len or DEFAULT_SEQ_LEN
        if known.task == "encoder" and mode == "training":
            case["task"] = "sequence-classification"
        config = without_quantisation(known.config)  # the network is built from its config with random weights
        return case | {"source": "hf", "config": config, "seq_len": length}
    if mode in ("prefill", "decode", "generate") or workload.seq_len is not None:
        raise ForerunError(f"{name} is not a language model: it has no {mode} mode and no seq_len")
    if workload.dtype in ("int8", "int4"):
        raise ForerunError(f"{workload.dtype} weights are measured for language models only")
    if is_family(name):
        if workload.input_shape is not None:
            raise ForerunError(f"the name {name} gives the input: change it in the name")
        family = family_of(name)
        return case | {"source": family.prefix, "name": family.name(**family.parse(name))}
    if not zoo.matches(name):
        raise ForerunError(
            f"{name} cannot be built for measuring; give a name, a catalogued id, or a family such as cnn:…"
        )
    library, bare, changed = zoo.parse(name)
    zoo.check_reparam(library, bare, changed, mode)
    if isinstance(workload.input_shape, tuple):
        case["input_shape"] = list(workload.input_shape)
    return case | {"source": library or "timm", "name": bare, **({"overrides": changed} if changed else {})}


def stored_dtype(dtype: str) -> str:
    """The workload dtype that corresponds to the dtype of a case."""
    return _WEIGHT_FORMATS.get(dtype, dtype)


def workload_of(case: dict[str, Any], file: str | None = None, trust_remote_code: bool = False) -> Workload:
    """The case as a workload for the frontends; `file` is the path of the ONNX file, for ONNX cases.

    The code of a Python file runs only where the caller trusts it: a row is data.
    """
    settings: dict[str, Any] = {"batch": case["batch"], "dtype": stored_dtype(case["dtype"]), "mode": case["mode"]}
    if case.get("runtime"):
        settings["runtime"] = case["runtime"]
    if case["mode"] == "training":
        named = case.get("optimizer") or "sgd"
        if named not in OPTIMIZERS:
            raise ForerunError(f"the measuring core has no optimizer {named!r}; it has {', '.join(OPTIMIZERS)}")
        settings["optimizer"] = OPTIMIZERS[named]
    if case["mode"] == "generate":
        settings |= {name: case.get(name) for name in GENERATION}
    settings |= {"amp": case.get("amp"), "channels_last": case.get("layout") == CHANNELS_LAST}
    if case["source"] == "onnx":
        shapes = {name: tuple(shape) for name, shape in case["input_shape"].items()}
        return Workload(file or case["path"], batch=case["batch"], input_shape=shapes, runtime=case["runtime"])
    if case["source"] == python_file.SOURCE:
        given = {name: Input.read(one).shape for name, one in case["inputs"].items()}
        whole = given[""] if set(given) == {""} else given
        return Workload(case["name"], input_shape=whole, trust_remote_code=trust_remote_code, **settings)
    overrides = dict(case.get("overrides") or {})
    if case["source"] == "hf" and "decoder_input_ids" in (case.get("inputs") or {}):
        overrides["use_cache"] = False  # the core keeps none for a call of both halves
    if case["source"] == "hf" and case.get("class"):
        config = {**case["config"], **overrides, "architectures": [case["class"]]}
        return Workload(config, seq_len=case.get("seq_len"), **settings)
    if case["source"] == "hf":
        run_as = task_of(case) if case["mode"] == "training" else case.get("task")
        task = _TASKS[run_as] if run_as else None
        return Workload({**case["config"], **overrides}, seq_len=case.get("seq_len"), task=task, **settings)
    if case["source"] in FILES:
        return Workload(case["name"], **settings)
    overrides.pop("init_weights", None)  # weights are never initialised
    shape = None if "img_size" in overrides else case.get("input_shape")
    name = zoo.full_name(case["source"], case["name"], overrides)
    return Workload(name, input_shape=tuple(shape) if shape else None, **settings)


def model_name(case: dict[str, Any]) -> str:
    """The name of a case's model in the store: one that the frontends accept, except for our own configs."""
    if case["source"] in FILES or case["source"] in ("tabular", "onnx", python_file.SOURCE):
        return str(case["name"])
    if case["source"] == "hf" and "/" in case["name"]:
        return str(case["name"])
    return zoo.full_name(case["source"], case["name"], case.get("overrides") or {})
