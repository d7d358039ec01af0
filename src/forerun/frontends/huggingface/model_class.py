"""Which transformers class runs a config: the requested task, the class the config names, or the default one."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import Any

from forerun.errors import ForerunError
from forerun.workload import Workload

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
    "image-text-to-text": "AutoModelForImageTextToText",
    "audio-text-to-text": "AutoModelForMultimodalLM",
    "object-detection": "AutoModelForObjectDetection",
    "semantic-segmentation": "AutoModelForSemanticSegmentation",
    "universal-segmentation": "AutoModelForUniversalSegmentation",
    "depth-estimation": "AutoModelForDepthEstimation",
    "ctc": "AutoModelForCTC",
}
#: Endings of classes whose heads serve pre-training alone: what is deployed is the model below them.
_PRETRAINING = ("ForPreTraining", "ForMaskedImageModeling")
#: Arguments by which a class takes audio.
AUDIO_INPUTS = ("input_features", "input_values")
#: Parts of a config for inputs other than text.
_OTHER_INPUTS = ("vision_config", "audio_config")


@dataclass(frozen=True)
class Chosen:
    """The class that runs, and the task it was chosen for ("named": the config names it)."""

    task: str
    model_class: Any

    @property
    def arguments(self) -> frozenset[str]:
        """Every argument that the class takes."""
        return frozenset(inspect.signature(self.model_class.forward).parameters)

    @property
    def main_input(self) -> str:
        return str(self.model_class.main_input_name)


def choose(config: Any, workload: Workload, name: str, notes: list[str]) -> Chosen:
    """The class for a workload. Text models keep to the usual classes; others run as the class their config names."""
    if workload.task:
        if workload.task not in TASKS:
            raise ForerunError(f"task {workload.task!r} is not known. Choose from {', '.join(TASKS)}.")
        return Chosen(workload.task, class_for(config, workload.task))
    audio_class = None if reads_images(config) else _audio_class(config)
    if reads_images(config):
        task = "image-text-to-text"
    else:
        task = "audio-text-to-text" if audio_class is not None else _usual_task(config, workload, name)
    if is_text(config):
        return Chosen(task, class_for(config, task))
    named = _named_class(config, workload)
    if named is None:
        return Chosen(task, audio_class or class_for(config, task))
    notes.append(f"runs {named.__name__}, the class that the config names")
    keeps = workload.mode in ("prefill", "decode") or task in ("image-text-to-text", "audio-text-to-text")
    return Chosen(task if keeps else "named", named)


def class_for(config: Any, task: str) -> Any:
    """The class that transformers has for a config and a task."""
    import transformers

    try:
        cls = getattr(transformers, TASKS[task])._model_mapping[type(config)]
    except (KeyError, AttributeError) as e:  # older releases of transformers lack an auto class or two
        cls = _own_class(config) if task == "base" else None
        if cls is None:
            raise ForerunError(f"transformers has no {TASKS[task]} for {config.model_type}") from e
    return cls[0] if isinstance(cls, tuple) else cls


def _own_class(config: Any) -> Any:
    """The model of a config that no auto class knows, such as one tower of a larger model."""
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    classes = [
        c for c in vars(module).values()
        if inspect.isclass(c) and getattr(c, "config_class", None) is type(config)
        and not c.__name__.endswith("PreTrainedModel") and "forward" in vars(c)
    ]  # fmt: skip
    models = [c for c in classes if c.__name__.endswith("Model")]
    return next(iter(models or classes), None)


def is_text(config: Any) -> bool:
    """Whether a model reads text alone."""
    from transformers.models.auto import modeling_auto as auto

    if any(getattr(config, part, None) is not None for part in _OTHER_INPUTS):
        return False
    if (
        config.model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        and config.model_type not in auto.MODEL_MAPPING_NAMES
    ):
        return True
    return str(class_for(config, "base").main_input_name) == "input_ids"


def reads_images(config: Any) -> bool:
    """Whether it is a language model that also reads images."""
    from transformers.models.auto import modeling_auto as auto

    if config.model_type not in auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        return False
    arguments = inspect.signature(class_for(config, "image-text-to-text").forward).parameters
    return "pixel_values" in arguments and "input_ids" in arguments


def reads_audio(config: Any) -> bool:
    """Whether it is a language model that also reads audio, and no images by default."""
    return not reads_images(config) and _audio_class(config) is not None


def _audio_class(config: Any) -> Any:
    """The class of a language model that reads audio; None where there is none. An encoder-decoder is another kind."""
    parts = (getattr(config, part, None) for part in ("audio_config", "encoder_config"))
    if getattr(config, "is_encoder_decoder", False) or not any(part is not None for part in parts):
        return None
    for task in ("audio-text-to-text", "speech-to-text", "seq2seq"):
        try:
            cls = class_for(config, task)
        except ForerunError:
            continue
        arguments = inspect.signature(cls.forward).parameters
        if "input_ids" in arguments and any(name in arguments for name in AUDIO_INPUTS):
            return cls
    return None


def has_two_towers(config: Any) -> bool:
    """Whether it reads an image and a text in parallel, as CLIP does."""
    parts = [getattr(config, part, None) for part in ("vision_config", "backbone_config", "text_config")]
    return (parts[0] is not None or parts[1] is not None) and parts[2] is not None and not reads_images(config)


def _named_class(config: Any, workload: Workload) -> Any:
    """The class that the config names, where transformers has it and it fits the mode."""
    import transformers

    word = next(iter(getattr(config, "architectures", None) or ()), None)
    cls = getattr(transformers, str(word), None)
    if not inspect.isclass(cls) or getattr(cls, "config_class", None) is not type(config):
        return None
    if cls.__name__.endswith(_PRETRAINING):
        return None
    bare = cls.__name__.endswith("Model")
    if bare and workload.mode != "inference" and not has_two_towers(config):
        return None  # training and generation need a head
    return cls


def _usual_task(config: Any, workload: Workload, name: str) -> str:
    """The task where the config names no class."""
    from transformers.models.auto import modeling_auto as auto

    kind = config.model_type
    causal = kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if workload.mode in ("prefill", "decode"):
        if getattr(config, "is_encoder_decoder", False):
            return _generating_task(config, workload, name)
        if not causal:
            raise ForerunError(f"{name} ({kind}) is not a language model: it has no {workload.mode} mode")
        return "causal-lm"
    if workload.mode == "inference" or has_two_towers(config):
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


def _generating_task(config: Any, workload: Workload, name: str) -> str:
    """The task of an encoder-decoder that generates text."""
    from transformers.models.auto import modeling_auto as auto

    if config.model_type in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
        return "seq2seq"
    if config.model_type in auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES:
        return "speech-to-text"
    if config.model_type in auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        return "image-text-to-text"
    raise ForerunError(f"{name} ({config.model_type}) does not generate text: it has no {workload.mode} mode")
