"""What a Hugging Face model is called with: its task decides the class, class and config decide the inputs."""

from __future__ import annotations

from typing import Any

from forerun.errors import ForerunError
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
#: RoBERTa and its kin, which reserve positions up to the padding index.
_RESERVED_POSITIONS = ("roberta", "xlm-roberta", "camembert", "longformer", "mpnet", "xlm-roberta-xl")

#: Argument -> (shape without the batch, "token" or "float").
Inputs = dict[str, tuple[tuple[int, ...], str]]


def task_of(config: Any, workload: Workload, name: str) -> str:
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


def inputs_of(config: Any, workload: Workload, name: str, task: str, notes: list[str]) -> Inputs:
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
        default = min(_IMAGE_TEXT_LENGTH if two_towers else DEFAULT_SEQ_LEN, context_limit(text) or 10**9)
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


def context_limit(text: Any) -> int | None:
    """How many tokens the model takes at most, where its config says so."""
    for field in ("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len", "n_ctx"):
        limit = getattr(text, field, None)
        if isinstance(limit, int) and limit > 0:
            return limit - 2 if text.model_type in _RESERVED_POSITIONS else limit
    return None


def _check_length(name: str, text: Any, length: int) -> None:
    limit = context_limit(text)
    if limit is not None and length > limit:
        raise ForerunError(f"{name} takes at most {limit:,} tokens; {length:,} were asked for")
