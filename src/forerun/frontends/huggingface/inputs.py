"""Inputs of a Hugging Face model: class and config decide the arguments, the workload their sizes."""

from __future__ import annotations

from typing import Any

from forerun.errors import ForerunError
from forerun.frontends.huggingface import audio as hf_audio
from forerun.frontends.huggingface import images as hf_images
from forerun.frontends.huggingface.model_class import (
    AUDIO_INPUTS,
    Chosen,
    has_two_towers,
    reads_audio,
    reads_images,
)
from forerun.frontends.huggingface.sizes import CLASSIFIER_SIZE, DEFAULT_SEQ_LEN, context_limit, image_size
from forerun.frontends.pytorch.arguments import Argument, Arguments
from forerun.workload import Workload

_IMAGE_TEXT_LENGTH = 77
#: Tasks whose classes compute their own loss from labels that are as long as the text.
_LABELLED = ("causal-lm", "seq2seq", "speech-to-text", "masked-lm", "image-text-to-text", "audio-text-to-text")


class InputMaker:
    """Builds the arguments of one model under one workload, with a note for every assumption."""

    def __init__(
        self, config: Any, chosen: Chosen, workload: Workload, name: str, preprocessor: dict[str, Any] | None
    ) -> None:
        self.config, self.chosen, self.workload, self.name = config, chosen, workload, name
        self.preprocessor = preprocessor
        self.text = config.get_text_config()
        self.encodes = bool(getattr(config, "is_encoder_decoder", False))
        self.notes: list[str] = []
        self.image_tokens = self.audio_tokens = 0

    def arguments(self, build: Any) -> Arguments:
        """Every argument of a call, without the batch. `build` builds the model, where it is needed."""
        workload = self.workload
        if isinstance(workload.input_shape, dict) and not self._is_sound_alone(workload.input_shape):
            return {k: Argument(tuple(v), "token" if "ids" in k else "float") for k, v in workload.input_shape.items()}
        main = self._main_input()
        if isinstance(workload.input_shape, tuple) and main != "pixel_values":
            raise ForerunError(f"{self.name} takes {main}: give its length with seq_len, or its shapes by input name")
        if main != "pixel_values" and not self._reads_images() and (workload.image_size or workload.images):
            raise ForerunError(f"{self.name} takes {main} and no images")
        if self.chosen.task == "base" and workload.task is None and _has_language_head(self.config):
            self.notes.append(
                "the bare model without its language head; --task causal-lm adds it, prefill and decode have it"
            )
        if self._reads_images():
            inputs = self._images_and_text(build)
        elif self._reads_audio():
            inputs = self._audio_and_text(build)
        else:
            inputs = {**self._main(main), **self._text(main)}
        if self.encodes and workload.mode in ("prefill", "decode"):
            self._explain_encoder(inputs)
        if workload.mode == "training" and self.chosen.task in _LABELLED:
            like = inputs.get("decoder_input_ids", inputs.get("input_ids", Argument((1,), "token")))
            inputs["labels"] = Argument(like.shape, "token")
        return inputs

    def _reads_images(self) -> bool:
        return reads_images(self.config) and "pixel_values" in self.chosen.arguments

    def _reads_audio(self) -> bool:
        """Whether it reads audio as part of its prompt; a streaming model takes it step by step."""
        takes = self.chosen.arguments
        takes_audio = "input_ids" in takes and any(name in takes for name in AUDIO_INPUTS)
        return takes_audio and "encoder_past_key_values" not in takes and reads_audio(self.config)

    def _is_sound_alone(self, shapes: dict[str, tuple[int, ...]]) -> bool:
        """Whether the shapes given by name are those of the audio: the text then has seq_len tokens."""
        return self._reads_audio() and set(shapes) == {hf_audio.argument_name(self.chosen)}

    def _main_input(self) -> str:
        """The name of the model's first input, as its own class states it."""
        if has_two_towers(self.config) and {"pixel_values", "input_ids"} <= self.chosen.arguments:
            return "pixel_values"
        if getattr(self.config, "audio_config", None) is not None and "input_ids" in self.chosen.arguments:
            if not self._reads_audio():
                self.notes.append(
                    "its audio input is not counted; shapes by input name (--input-shape) are passed to it as they are"
                )
            return "input_ids"
        return self.chosen.main_input

    def _main(self, main: str) -> Arguments:
        """The argument of a model that reads an input other than text."""
        config, workload = self.config, self.workload
        if main == "pixel_values":
            return {"pixel_values": Argument(self._image_shape(), "float")}
        if (
            main == "input_values" and hasattr(config, "num_mel_bins") and hasattr(config, "max_length")
        ):  # a spectrogram rather than a waveform
            return {"input_values": Argument((config.max_length, config.num_mel_bins), "float")}
        if main == "input_features":
            return {"input_features": Argument(self._features(), "float")}
        if main == "input_values":
            samples = None if self.encodes else workload.seq_len
            if samples is None:
                self.notes.append(
                    f"{'' if self.encodes else 'seq_len not given: '}{hf_audio.WAVEFORM_SAMPLES:,} samples "
                    "(10 s at 16 kHz) assumed"
                )
            return {"input_values": Argument((samples or hf_audio.WAVEFORM_SAMPLES,), "float")}
        return {}

    def _features(self) -> tuple[int, ...]:
        """The shape of a spectrogram: 30 s with its frames last for Whisper and its kin, else 10 s, frames first."""
        config = self.config
        audio = hf_audio.audio_part(config)
        if hasattr(config, "input_feat_per_channel"):
            return hf_audio.FRAMES, config.input_feat_per_channel * config.input_channels
        if hasattr(audio, "max_source_positions") and not hasattr(audio, "feature_projection_input_dim"):
            return getattr(audio, "num_mel_bins", 80), 2 * audio.max_source_positions
        widths = ("feature_projection_input_dim", "input_dim", "num_mel_bins", "feature_size")
        width = next((v for n in widths if isinstance(v := getattr(audio, n, None), int)), 80)
        self.notes.append(f"{hf_audio.FRAMES:,} frames of a spectrogram (10 s) assumed")
        return hf_audio.FRAMES, width

    def _text(self, main: str) -> Arguments:
        """The tokens that a model reads or writes."""
        inputs: Arguments = {}
        both = main == "pixel_values" and "input_ids" in self.chosen.arguments and has_two_towers(self.config)
        writes = self.encodes and "decoder_input_ids" in self.chosen.arguments
        if not (main == "input_ids" or both or writes):
            return inputs
        length = self._length(_IMAGE_TEXT_LENGTH if both else DEFAULT_SEQ_LEN, used=self._uses_length(main))
        if main == "input_ids" or both:
            inputs["input_ids"] = Argument((length,), "token")
        if writes:
            first_step = self.workload.mode == "prefill"
            inputs["decoder_input_ids"] = Argument((1 if first_step else length,), "token")
        return inputs

    def _uses_length(self, main: str) -> bool:
        """A speech model's prefill is one decoder step: its text has no length."""
        return main == "input_ids" or self.workload.mode != "prefill"

    def _length(self, default: int, used: bool = True) -> int:
        """The tokens of the text: as given, else a default; an error beyond the context."""
        length = self.workload.seq_len or min(default, context_limit(self.text) or 10**9)
        if self.workload.seq_len is None and used:
            self.notes.append(f"seq_len not given: {length} tokens assumed")
        self._check_length(length + (1 if self.workload.mode == "decode" else 0))
        return length

    def _check_length(self, length: int) -> None:
        limit = context_limit(self.text)
        if limit is not None and length > limit:
            raise ForerunError(f"{self.name} takes at most {limit:,} tokens; {length:,} were requested")

    def _images_and_text(self, build: Any) -> Arguments:
        """A prompt with images: their tokens come before the text and count on top of seq_len."""
        length = self._length(DEFAULT_SEQ_LEN)
        size = image_size(self.config, self.workload, self.preprocessor, self.notes, hf_images.FREE_SIZE)
        inputs, self.image_tokens, cut = hf_images.prompt(
            self.config, self.chosen, build, self.workload, size, length, self.name, self.preprocessor
        )
        total = length + self.image_tokens
        self._check_length(total + (1 if self.workload.mode == "decode" else 0))
        count = 1 if self.workload.images is None else self.workload.images
        if not count:
            self.notes.append("predicted for the text alone: images is 0")
        else:
            images = (
                f"{count} image{'s' if count > 1 else ''} of {size[0]} x {size[1]} pixels{cut and ' (' + cut + ')'}"
            )
            how = f"{self.image_tokens:,} tokens of {images}" if self.image_tokens else f"beside {images}"
            whole = (
                f"{total:,} tokens: {length:,} of text and {how}" if self.image_tokens else f"{total:,} tokens {how}"
            )
            self.notes.append(f"the sequence has {whole}; the vision tower runs in {_tower(self.workload.mode)}")
        if self.encodes and "decoder_input_ids" in self.chosen.arguments:
            first_step = self.workload.mode == "prefill"
            inputs["decoder_input_ids"] = Argument((1 if first_step else length,), "token")
        return inputs

    def _audio_and_text(self, build: Any) -> Arguments:
        """A prompt with an audio clip: its tokens come before the text and count on top of seq_len."""
        length = self._length(DEFAULT_SEQ_LEN)
        inputs, self.audio_tokens, note = hf_audio.prompt(
            self.config, self.chosen, build, self.workload, length, self.name
        )
        self._check_length(length + self.audio_tokens + (1 if self.workload.mode == "decode" else 0))
        runs = f"; the audio tower runs in {_tower(self.workload.mode)}" if self.audio_tokens else ""
        self.notes.append(note + runs)
        return inputs

    def _image_shape(self) -> tuple[int, ...]:
        if isinstance(self.workload.input_shape, tuple):
            return self.workload.input_shape
        vision = getattr(self.config, "vision_config", None) or self.config
        size = image_size(self.config, self.workload, self.preprocessor, self.notes, CLASSIFIER_SIZE)
        image = (getattr(vision, "num_channels", 3), *size)
        frames = getattr(vision, "num_frames", None)
        return (frames, *image) if isinstance(frames, int) else image

    def _explain_encoder(self, inputs: Arguments) -> None:
        """What prefill and decode of an encoder-decoder are."""
        source = next(iter(inputs))
        reads = f"{inputs[source].shape[0]:,} tokens" if source == "input_ids" else f"its {source}"
        if self.workload.mode == "prefill":
            self.notes.append(f"prefill: the encoder reads {reads} once and the decoder makes its first step")
        else:
            past = inputs["decoder_input_ids"].shape[0]
            self.notes.append(
                f"decode: one step of the decoder after {past:,} tokens; the encoder's output for {reads} is in the "
                "cross-attention cache, and the encoder does not run"
            )


def _tower(mode: str) -> str:
    return "prefill and is not part of decode" if mode == "decode" else "this call"


def _has_language_head(config: Any) -> bool:
    from transformers.models.auto import modeling_auto as auto

    encoder = config.model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return config.model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not encoder
