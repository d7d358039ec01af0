"""The sound of an audio-language model: how its class wants it, how many tokens of the sequence it becomes.

A prompt is one sound and then its text. How many tokens the sound becomes is read from the model: its audio tower is
run on meta, and the rows that it puts out are counted.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

from forerun.errors import ForerunError
from forerun.graph.sources.arguments import Argument, Arguments, tensors
from forerun.graph.sources.hf_class import AUDIO_INPUTS, Chosen
from forerun.graph.sources.hf_images import places, rows, text_token
from forerun.workload import Workload

#: Ten seconds at 16 kHz.
WAVEFORM_SAMPLES = 160_000
#: Ten seconds of a spectrogram, a frame every 10 ms.
FRAMES = 1000
#: Arguments that say which frames are sound and which are padding.
_MASKS = ("input_features_mask", "feature_attention_mask", "padding_mask")
_WIDTHS = ("feature_projection_input_dim", "input_dim", "input_size", "num_mel_bins", "feature_size")


class Sound(NamedTuple):
    """One sound as an argument, the axis of its frames, and whether the config fixes its length."""

    shape: tuple[int, ...]
    frames: int
    fixed: bool = False


def argument_name(chosen: Chosen) -> str:
    """The argument by which a class takes sound."""
    return next(name for name in AUDIO_INPUTS if name in chosen.arguments)


def sounds(config: Any, name: str) -> Iterator[Sound]:
    """The ways in which a class may take a sound, the likeliest first; its tower shows which one is right."""
    if name == "input_values":
        yield Sound((WAVEFORM_SAMPLES,), 0)
        yield Sound((1, WAVEFORM_SAMPLES), 1)
        return
    audio = audio_part(config)
    width = next((v for n in _WIDTHS if isinstance(v := getattr(audio, n, None), int)), 80)
    positions = getattr(audio, "max_source_positions", None)
    if isinstance(positions, int):
        yield Sound((width, 2 * positions), 1, fixed=True)
    yield Sound((width, FRAMES), 1)
    yield Sound((FRAMES, width), 0)


def audio_part(config: Any) -> Any:
    """The part of a config that describes what hears."""
    parts = (getattr(config, name, None) for name in ("encoder_config", "audio_config"))
    return next((part for part in parts if part), config)


def prompt(
    config: Any, chosen: Chosen, build: Any, workload: Workload, length: int, name: str
) -> tuple[Arguments, int, str]:
    """The arguments of a prompt of `length` text tokens after a sound, the sound's tokens, and what is noted of them.

    Where the tower cannot be run in any way that is known here, the text alone is answered, which the note says.
    """
    argument = argument_name(chosen)
    given = workload.input_shape.get(argument) if isinstance(workload.input_shape, dict) else None
    width = next(sounds(config, argument)).shape[0]
    candidates = [_given(given, width)] if given else list(sounds(config, argument))
    model, reason = build().eval(), ""
    for sound in candidates:
        heard = _arguments(model, chosen, argument, sound)
        try:
            tokens = _tokens(model, heard, workload)
        except Exception as e:  # noqa: BLE001 - whatever the tower refuses of a shape; the next one may be right
            reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
            continue
        marked = places(1, tokens, length)
        ids = [_audio_token(config) if is_sound else text_token(config) for is_sound in marked]
        note = (
            f"the sequence has {len(ids):,} tokens: {length:,} of text and {tokens:,} tokens of "
            f"{_words(sound, given)}; the shape of {argument} (--input-shape) sets another"
        )
        return {"input_ids": Argument((len(ids),), "token", ids), **heard}, tokens, note
    if given:
        raise ForerunError(f"the audio tower of {name} could not be run on {argument} {tuple(given)}: {reason}")
    note = (
        f"answered for the text alone: its audio is not counted, for its audio tower could not be run ({reason}); the "
        f"shape of {argument} (--input-shape) may say how"
    )
    return {"input_ids": Argument((length,), "token")}, 0, note


def _given(shape: tuple[int, ...], width: int) -> Sound:
    """A sound as the user gives it: the axis that is no channel counts its frames."""
    last = len(shape) - 1
    return Sound(shape, last - 1 if last and shape[-1] == width != shape[-2] else last)


def _words(sound: Sound, given: Any) -> str:
    size = " x ".join(f"{n:,}" for n in sound.shape)
    if given:
        return f"a sound of {size}"
    rate = "16 kHz" if WAVEFORM_SAMPLES in sound.shape else "100 frames a second"
    return f"a sound of {size}, {'its usual length' if sound.fixed else f'10 s at {rate}'}"


def _arguments(model: Any, chosen: Chosen, argument: str, sound: Sound) -> Arguments:
    """The sound, and a mask that says that all of it is sound, where the tower takes one."""
    parts = sound.shape[:-2] if argument == "input_features" else ()
    count = parts[0] if parts else 1
    shape = sound.shape if parts else (count, *sound.shape)
    out = {argument: Argument(shape, "float", joined=True)}
    for mask in _MASKS:
        if mask in chosen.arguments and mask in _takes(model):
            out[mask] = Argument((count, sound.shape[sound.frames]), "token", 1, joined=True)
    return out


def _features(model: Any) -> Any:
    """What turns a sound into rows of the sequence, where it does so from the sound alone."""
    calls = _feature_calls(model)
    return calls[0] if calls and not any("input_ids" in inspect.signature(c).parameters for c in calls) else None


def _feature_calls(model: Any) -> list[Any]:
    """`get_audio_features` of a model and of the part of it that has its towers."""
    owners = (model, getattr(model, "model", None))
    return [call for m in owners if (call := getattr(m, "get_audio_features", None)) is not None]


def _takes(model: Any) -> set[str]:
    """Every argument that what hears takes; outer classes often hand on whatever they get."""
    calls = _feature_calls(model) or [getattr(model, "model", model).forward]
    return {name for call in calls for name in inspect.signature(call).parameters}


def _tokens(model: Any, heard: Arguments, workload: Workload) -> int:
    """How many rows of the sequence a sound becomes."""
    from forerun.graph.capture import TORCH_DTYPES, census

    inputs = tensors(heard, 1, TORCH_DTYPES[workload.weight_dtype])
    call = _features(model)
    if call is None:
        call = getattr(model, "model", model).audio_tower
        taken = inspect.signature(call.forward).parameters
        inputs = {name: t for name, t in inputs.items() if name in taken}
    out: list[Any] = []
    census(model, lambda: out.append(call(**inputs)), {}, 1.0, follow=True)
    found = rows(out[0])
    if not found:
        raise ForerunError("how many tokens a sound becomes is not known")
    return found


def _audio_token(config: Any) -> int:
    """The id that stands for a piece of a sound in a prompt."""
    found = (getattr(config, name, None) for name in ("audio_token_id", "audio_token_index"))
    return int(next((v for v in found if v is not None), 0))
