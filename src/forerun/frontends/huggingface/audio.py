"""The audio clip of an audio-language model: how its class takes it, how many tokens of the sequence it becomes.

A prompt is one audio clip and then its text. The number of tokens of the clip is read from the model: its audio tower
is run on meta, and its output rows are counted.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

from forerun.errors import ForerunError
from forerun.frontends.huggingface.images import places, rows, text_token
from forerun.frontends.huggingface.model_class import AUDIO_INPUTS, Chosen
from forerun.frontends.pytorch.arguments import Argument, Arguments, tensors
from forerun.workload import Workload

#: Ten seconds at 16 kHz.
WAVEFORM_SAMPLES = 160_000
#: Ten seconds of a spectrogram, one frame per 10 ms.
FRAMES = 1000
#: Arguments that mark frames as audio or padding.
_MASKS = ("input_features_mask", "feature_attention_mask", "padding_mask")
_WIDTHS = ("feature_projection_input_dim", "input_dim", "input_size", "num_mel_bins", "feature_size")


class Clip(NamedTuple):
    """One audio clip as an argument, the axis of its frames, and whether the config fixes its length."""

    shape: tuple[int, ...]
    frames: int
    fixed: bool = False


def argument_name(chosen: Chosen) -> str:
    """The argument by which a class takes audio."""
    return next(name for name in AUDIO_INPUTS if name in chosen.arguments)


def clip_shapes(config: Any, name: str) -> Iterator[Clip]:
    """The shapes in which a class may take audio, the likeliest first; its tower shows which one is right."""
    if name == "input_values":
        yield Clip((WAVEFORM_SAMPLES,), 0)
        yield Clip((1, WAVEFORM_SAMPLES), 1)
        return
    audio = audio_part(config)
    width = next((v for n in _WIDTHS if isinstance(v := getattr(audio, n, None), int)), 80)
    positions = getattr(audio, "max_source_positions", None)
    if isinstance(positions, int):
        yield Clip((width, 2 * positions), 1, fixed=True)
    yield Clip((width, FRAMES), 1)
    yield Clip((FRAMES, width), 0)


def audio_part(config: Any) -> Any:
    """The part of a config that describes the audio tower."""
    parts = (getattr(config, name, None) for name in ("encoder_config", "audio_config"))
    return next((part for part in parts if part), config)


def prompt(
    config: Any, chosen: Chosen, build: Any, workload: Workload, length: int, name: str
) -> tuple[Arguments, int, str]:
    """The arguments of a prompt of `length` text tokens after an audio clip, the clip's tokens, and notes on them.

    Where the tower cannot be run in any known way, only the text is counted, with a note.
    """
    argument = argument_name(chosen)
    given = workload.input_shape.get(argument) if isinstance(workload.input_shape, dict) else None
    width = next(clip_shapes(config, argument)).shape[0]
    candidates = [_given(given, width)] if given else list(clip_shapes(config, argument))
    model, reason = build().eval(), ""
    for clip in candidates:
        arguments = _arguments(model, chosen, argument, clip)
        try:
            tokens = _tokens(model, arguments, workload)
        except Exception as e:  # noqa: BLE001 - the tower rejects a shape; the next one may be right
            reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
            continue
        marked = places(1, tokens, length)
        ids = [_audio_token(config) if is_sound else text_token(config) for is_sound in marked]
        note = (
            f"the sequence has {len(ids):,} tokens: {length:,} of text and {tokens:,} tokens of "
            f"{_words(clip, given)}; the shape of {argument} (--input-shape) sets another"
        )
        return {"input_ids": Argument((len(ids),), "token", ids), **arguments}, tokens, note
    if given:
        raise ForerunError(f"the audio tower of {name} could not be run on {argument} {tuple(given)}: {reason}")
    note = (
        f"predicted for the text alone: its audio is not counted, as its audio tower could not be run ({reason}); the "
        f"shape of {argument} (--input-shape) may say how"
    )
    return {"input_ids": Argument((length,), "token")}, 0, note


def _given(shape: tuple[int, ...], width: int) -> Clip:
    """An audio clip as the user gives it: the axis that is not a channel counts its frames."""
    last = len(shape) - 1
    return Clip(shape, last - 1 if last and shape[-1] == width != shape[-2] else last)


def _words(clip: Clip, given: Any) -> str:
    size = " x ".join(f"{n:,}" for n in clip.shape)
    if given:
        return f"an audio clip of {size}"
    rate = "16 kHz" if WAVEFORM_SAMPLES in clip.shape else "100 frames a second"
    return f"an audio clip of {size}, {'its usual length' if clip.fixed else f'10 s at {rate}'}"


def _arguments(model: Any, chosen: Chosen, argument: str, clip: Clip) -> Arguments:
    """The clip, and a mask without padding where the tower takes one."""
    parts = clip.shape[:-2] if argument == "input_features" else ()
    count = parts[0] if parts else 1
    shape = clip.shape if parts else (count, *clip.shape)
    out = {argument: Argument(shape, "float", joined=True)}
    for mask in _MASKS:
        if mask in chosen.arguments and mask in _takes(model):
            out[mask] = Argument((count, clip.shape[clip.frames]), "token", 1, joined=True)
    return out


def _features(model: Any) -> Any:
    """The method that turns a clip into rows of the sequence, from the clip alone."""
    calls = _feature_calls(model)
    return calls[0] if calls and not any("input_ids" in inspect.signature(c).parameters for c in calls) else None


def _feature_calls(model: Any) -> list[Any]:
    """`get_audio_features` of a model and of the part of it that has its towers."""
    owners = (model, getattr(model, "model", None))
    return [call for m in owners if (call := getattr(m, "get_audio_features", None)) is not None]


def _takes(model: Any) -> set[str]:
    """Every argument of the audio tower; outer classes often pass on all arguments."""
    calls = _feature_calls(model) or [getattr(model, "model", model).forward]
    return {name for call in calls for name in inspect.signature(call).parameters}


def _tokens(model: Any, arguments: Arguments, workload: Workload) -> int:
    """How many rows of the sequence an audio clip becomes."""
    from forerun.capture.capture import TORCH_DTYPES, census

    inputs = tensors(arguments, 1, TORCH_DTYPES[workload.weight_dtype])
    call = _features(model)
    if call is None:
        call = getattr(model, "model", model).audio_tower
        taken = inspect.signature(call.forward).parameters
        inputs = {name: t for name, t in inputs.items() if name in taken}
    out: list[Any] = []
    census(model, lambda: out.append(call(**inputs)), {}, 1.0, follow=True)
    lengths = rows(out[0])
    if not lengths:
        raise ForerunError("the number of tokens of an audio clip is unknown")
    return lengths


def _audio_token(config: Any) -> int:
    """The id of an audio token in a prompt."""
    ids = (getattr(config, name, None) for name in ("audio_token_id", "audio_token_index"))
    return int(next((v for v in ids if v is not None), 0))
