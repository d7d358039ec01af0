"""Front door: Hugging Face models from a config: an id, a dict, a config.json, a folder.

Ids of the built-in catalogue need no network. A config is data: code that ships beside it is run only when the user
says so (`trust_remote_code=True`).
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError, did_you_mean
from forerun.graph.ir import Graph
from forerun.graph.sources import hf_catalog
from forerun.graph.sources.torch_module import capture
from forerun.workload import Workload

DEFAULT_SEQ_LEN = 128
_IMAGE_TEXT_LENGTH = 77

#: task -> the transformers class that runs it.
TASKS = {
    "base": "AutoModel",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "seq2seq": "AutoModelForSeq2SeqLM",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "image-classification": "AutoModelForImageClassification",
    "audio-classification": "AutoModelForAudioClassification",
    "speech-to-text": "AutoModelForSpeechSeq2Seq",
}

Inputs = dict[str, tuple[tuple[int, ...], str]]


def matches(model: Any) -> bool:
    if isinstance(model, dict):
        return "model_type" in model
    if not isinstance(model, (str, Path)):
        return False
    if hf_catalog.architecture(str(model)) is not None:
        return True
    path = Path(model)
    if path.name == "config.json" or (path.is_dir() and (path / "config.json").is_file()):
        return True
    organisation, slash, name = str(model).partition("/")
    looks_like_id = (
        bool(slash) and "/" not in name and bool(name) and organisation not in ("timm", "torchvision", ".", "")
    )
    return looks_like_id and not path.exists() and "." not in path.suffix.replace(".", "", 1) and not _file_like(path)


def _file_like(path: Path) -> bool:
    return path.suffix.lower() in (".onnx", ".keras", ".h5", ".pdmodel", ".json", ".pt", ".pth", ".pb", ".safetensors")


def key(model: Any, workload: Workload) -> dict[str, Any] | None:
    config = _offline_config(model)
    if config is None:
        return None
    return {"config": config, "transformers": version("transformers"), "torch": version("torch")}


def names() -> list[str]:
    return hf_catalog.known_names()


def title(model: Any) -> str:
    return str(model) if isinstance(model, (str, Path)) else str(model["model_type"])


def load(model: Any, workload: Workload) -> list[Graph]:
    from forerun.graph import torch_compat

    torch_compat.prepare()
    config = _config(model, workload)
    name = title(model)
    notes: list[str] = []
    task = _task(config, workload, name)
    inputs = _inputs(config, workload, name, task, notes)
    build = _builder(config, task, workload)
    experts, chosen = _experts(config)
    graphs = capture(build, inputs, workload, name, mask_density=1 / experts if experts else 1.0)
    active = _active_parameters(build, chosen / experts) if experts else None
    for graph in graphs:
        graph.active_parameters = active or graph.parameters
        graph.facts.update(_facts(config, workload, inputs, task))
        graph.notes += notes
    return graphs


# -- the config -------------------------------------------------------------------------------------------------------


def _offline_config(model: Any) -> dict[str, Any] | None:
    """The config as plain data when it can be had without the network."""
    if isinstance(model, dict):
        return model
    known = hf_catalog.architecture(str(model))
    if known is not None:
        return known.config
    path = Path(model)
    path = path / "config.json" if path.is_dir() else path
    if path.name != "config.json":
        return None
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ForerunError(f"{path} cannot be read: {e.strerror}") from e
    except ValueError as e:
        raise ForerunError(f"{path} is not valid JSON: {e}") from e
    if not isinstance(config, dict) or "model_type" not in config:
        raise ForerunError(f"{path} is not a Hugging Face config: it has no model_type")
    return config


def _config(model: Any, workload: Workload) -> Any:
    from transformers import CONFIG_MAPPING, AutoConfig

    data = _offline_config(model)
    if data is None:
        return _config_from_hub(str(model), workload.trust_remote_code)
    data = dict(data)
    kind = data.pop("model_type")
    if kind not in CONFIG_MAPPING:
        hint = did_you_mean(str(kind), CONFIG_MAPPING.keys())
        raise ForerunError(f"transformers {version('transformers')} knows no model_type {kind!r}.{hint}")
    try:
        return AutoConfig.for_model(kind, **data)
    except Exception as e:
        raise ForerunError(f"the {kind} config is not valid: {_first_line(e)}") from e


def _config_from_hub(name: str, trust_remote_code: bool) -> Any:
    """The config of an id beyond the catalogue: from the hub's local cache, else from the hub when it is in reach."""
    from transformers import AutoConfig

    options = {"trust_remote_code": trust_remote_code}
    try:
        return AutoConfig.from_pretrained(name, local_files_only=True, **options)
    except Exception:  # noqa: BLE001 - whatever is wrong with the local copy, the hub is asked next
        reason = "it cannot be reached from here"
    if _hub_in_reach():
        try:
            return AutoConfig.from_pretrained(name, **options)
        except Exception as e:  # noqa: BLE001 - the hub client raises many kinds of error
            reason = _first_line(e)
    hint = did_you_mean(name, hf_catalog.known_names()) or " Pass its config.json instead."
    raise ForerunError(
        f"{name} is not in the built-in catalogue, and the Hugging Face hub did not give it: {reason}.{hint}"
    )


def _hub_in_reach() -> bool:
    """One quick look, because the hub client tries for half a minute before it gives up."""
    import socket
    from urllib.parse import urlsplit

    from huggingface_hub import constants

    address = urlsplit(constants.ENDPOINT)
    if constants.HF_HUB_OFFLINE or address.hostname is None:
        return False
    try:
        with socket.create_connection((address.hostname, address.port or 443), timeout=3):
            return True
    except OSError:
        return False


def _first_line(e: Exception) -> str:
    return (str(e).strip().splitlines() or [type(e).__name__])[0][:200]


# -- the model --------------------------------------------------------------------------------------------------------


def _task(config: Any, workload: Workload, name: str) -> str:
    """The task that decides the transformers class."""
    from transformers.models.auto import modeling_auto as auto

    kind = config.model_type
    causal = kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if workload.task:
        if workload.task not in TASKS:
            raise ForerunError(f"task {workload.task!r} is not known. Choose from {', '.join(TASKS)}.")
        return workload.task
    if workload.mode in ("prefill", "decode"):
        if not causal or getattr(config, "is_encoder_decoder", False):
            raise ForerunError(f"{name} ({kind}) is not a decoder-only language model: it has no {workload.mode} mode")
        return "causal-lm"
    if workload.mode == "inference":
        return "base"
    if kind in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
        return "seq2seq"
    if kind in auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES:
        return "speech-to-text"
    is_encoder = kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if causal and not is_encoder:
        return "causal-lm"
    for task, table in (
        ("text-classification", auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES),
        ("image-classification", auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES),
        ("audio-classification", auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES),
    ):
        if kind in table:
            return task
    return "base"


def _builder(config: Any, task: str, workload: Workload) -> Any:
    import torch
    import transformers

    from forerun.graph.capture import TORCH_DTYPES

    dtype = TORCH_DTYPES[workload.weight_dtype]
    auto = getattr(transformers, TASKS[task])
    options = {"trust_remote_code": True} if workload.trust_remote_code else {}

    def build() -> Any:
        with torch.device("meta"):
            return auto.from_config(config, dtype=dtype, **options).to(device="meta", dtype=dtype)

    return build


def _experts(config: Any) -> tuple[int, int]:
    """(experts there are, experts a token meets); (0, 0) for dense models."""

    def field(*names: str) -> int:
        places = [config.get_text_config(), getattr(config, "ffn_config", None)]
        found = (getattr(p, n, None) for p in places for n in names)
        return next((v for v in found if isinstance(v, int)), 0)

    experts = field("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    return experts, field("num_experts_per_tok", "moe_topk", "top_k_experts", "moe_top_k") or min(experts, 1)


def _active_parameters(build: Any, share: float) -> int:
    model = build()
    total = sum(p.numel() for p in model.parameters())
    routed = sum(p.numel() for n, p in model.named_parameters() if ".experts." in n and "shared" not in n)
    return round(total - routed * (1 - share))


# -- the inputs -------------------------------------------------------------------------------------------------------


def _inputs(config: Any, workload: Workload, name: str, task: str, notes: list[str]) -> Inputs:
    """What the model is called with, per argument, without the batch."""
    if isinstance(workload.input_shape, dict):
        return {k: (tuple(v), "token" if "ids" in k else "float") for k, v in workload.input_shape.items()}
    main, text = _main_input(config, task), config.get_text_config()
    inputs: Inputs = {}
    if isinstance(workload.input_shape, tuple) and main != "pixel_values":
        raise ForerunError(f"{name} takes {main}: say its length with seq_len, or its shapes by input name")
    if task == "base" and workload.task is None and _has_language_head(config):
        notes.append("the bare model without its language head; --task causal-lm adds it, prefill and decode have it")
    if main == "pixel_values":
        inputs["pixel_values"] = (_image_shape(config, workload), "float")
    elif main == "input_values" and hasattr(config, "num_mel_bins"):  # a spectrogram rather than a waveform
        inputs["input_values"] = ((config.max_length, config.num_mel_bins), "float")
    elif main == "input_features":
        frames = 2 * getattr(config, "max_source_positions", 1500)
        inputs["input_features"] = ((getattr(config, "num_mel_bins", 80), frames), "float")
    elif main == "input_values":
        samples = workload.seq_len or 160_000  # ten seconds at 16 kHz
        if workload.seq_len is None:
            notes.append("seq_len not given: 160,000 samples (10 s at 16 kHz) assumed")
        inputs["input_values"] = ((samples,), "float")
    two_towers = hasattr(config, "vision_config") and hasattr(config, "text_config") and main == "pixel_values"
    needs_text = main == "input_ids" or two_towers or main == "input_features"
    if needs_text:
        default = min(_IMAGE_TEXT_LENGTH if two_towers else DEFAULT_SEQ_LEN, _context_limit(text) or 10**9)
        length = workload.seq_len or default
        if workload.seq_len is None:
            notes.append(f"seq_len not given: {length} tokens assumed")
        _check_length(name, text, length + (1 if workload.mode == "decode" else 0))
        if main != "input_features":
            inputs["input_ids"] = ((length,), "token")
        if getattr(config, "is_encoder_decoder", False):
            inputs["decoder_input_ids"] = ((length,), "token")
    if workload.mode == "training" and task in ("causal-lm", "seq2seq", "speech-to-text", "masked-lm"):
        inputs["labels"] = (inputs.get("decoder_input_ids", inputs.get("input_ids", ((1,), "")))[0], "token")
    return inputs


def _has_language_head(config: Any) -> bool:
    from transformers.models.auto import modeling_auto as auto

    encoder = config.model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return config.model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not encoder


def _main_input(config: Any, task: str) -> str:
    """The name of the model's first input, as its own class states it."""
    import transformers

    auto = getattr(transformers, TASKS[task])
    try:
        model_class = auto._model_mapping[type(config)]
    except KeyError as e:
        raise ForerunError(f"transformers has no {TASKS[task]} for {config.model_type}") from e
    model_class = model_class[0] if isinstance(model_class, tuple) else model_class
    if hasattr(config, "vision_config") and hasattr(config, "text_config"):
        return "pixel_values" if config.model_type in ("clip", "siglip", "siglip2", "align", "blip") else "input_ids"
    return str(model_class.main_input_name)


def _image_shape(config: Any, workload: Workload) -> tuple[int, ...]:
    if isinstance(workload.input_shape, tuple):
        return workload.input_shape
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", 224)
    height, width = (size, size) if isinstance(size, int) else tuple(size)[:2]
    image = (getattr(vision, "num_channels", 3), height, width)
    frames = getattr(vision, "num_frames", None)
    return (frames, *image) if isinstance(frames, int) else image


def _context_limit(text: Any) -> int | None:
    for field in ("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len", "n_ctx"):
        limit = getattr(text, field, None)
        if isinstance(limit, int) and limit > 0:
            # RoBERTa and its kin reserve positions up to the padding index.
            reserved = text.model_type in (
                "roberta",
                "xlm-roberta",
                "camembert",
                "longformer",
                "mpnet",
                "xlm-roberta-xl",
            )
            return limit - 2 if reserved else limit
    return None


def _check_length(name: str, text: Any, length: int) -> None:
    limit = _context_limit(text)
    if limit is not None and length > limit:
        raise ForerunError(f"{name} takes at most {limit:,} tokens; {length:,} were asked for")


def _facts(config: Any, workload: Workload, inputs: Inputs, task: str) -> dict[str, Any]:
    length = inputs.get("input_ids", inputs.get("decoder_input_ids", ((0,), "")))[0][0]
    tokens = {"prefill": length, "decode": 1}.get(workload.mode, 0)
    if workload.mode == "training" and task in ("causal-lm", "seq2seq"):
        tokens = length
    return {
        "source": "huggingface", "model_type": config.model_type, "task": task, "seq_len": length or None,
        "tokens_per_sample": tokens or None, "context_limit": _context_limit(config.get_text_config()),
    }  # fmt: skip
