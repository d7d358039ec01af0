"""Whole generations of a language model: transformers' own `generate`, with the prompt and the settings of a case."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .protocol import SLOW_GENERATION_S, Generation
from .specs import USUAL_SETTINGS

#: Settings of `generate` by the `decoding` of a case.
DECODINGS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False, "num_beams": 1},
    "sample": {"do_sample": True, "num_beams": 1, "top_k": 50, "top_p": 0.95, "temperature": 0.8},
    "beam": {"do_sample": False, "num_beams": 4},
}
#: `full` prompts have no padding; `padded` ones are of different lengths, padded on the left to the longest.
PROMPTS = ("full", "padded")
#: A static cache has room for the whole generation from the start. It runs eagerly here, without torch.compile.
CACHES: dict[str, dict[str, Any]] = {
    "dynamic": {},
    "static": {"cache_implementation": "static", "disable_compile": True},
}
BARE_STEPS = 6  # steps of the model without the loop, beside which the loop's own cost shows
START_TOKEN = 1


def settings_of(case: dict[str, Any]) -> dict[str, str]:
    """The prompt, decoding and cache of a case. Raises ValueError for unknown ones."""
    chosen = {}
    for name, known in (("prompt", PROMPTS), ("decoding", DECODINGS), ("cache", CACHES)):
        chosen[name] = str(case.get(name) or USUAL_SETTINGS[name])
        if chosen[name] not in known:
            raise ValueError(f"there is no {name} {chosen[name]!r}; choose from {', '.join(known)}")
    return chosen


def generation(model: Any, case: dict[str, Any], device: str) -> Generation:
    """The case as calls of `model.generate` that make exactly `new_tokens` tokens: no end token stops them."""
    import torch

    settings = settings_of(case)
    batch, length, count = case["batch"], case["seq_len"], case["new_tokens"]
    vocab = model.config.get_text_config().vocab_size
    ids = torch.randint(2, vocab, (batch, length), device=device)
    mask = torch.ones_like(ids)
    if settings["prompt"] == "padded":
        for row in range(batch):  # from the whole length down to half of it
            padding = length * row // (2 * max(1, batch - 1))
            mask[row, :padding] = 0
            ids[row, :padding] = 0
    _never_ends(model)
    options = {**DECODINGS[settings["decoding"]], **CACHES[settings["cache"]]}

    def generate(tokens: int) -> Callable[[], Any]:
        return lambda: model.generate(ids, attention_mask=mask, max_new_tokens=tokens, **options)

    bare = None if model.config.is_encoder_decoder else _bare_steps(model, ids, min(BARE_STEPS, count))
    return Generation(
        generate(count), capturable=False, why_not_capturable="whole generations are not captured",
        limit_s=SLOW_GENERATION_S, first_token=generate(1), bare_steps=bare, new_tokens=count,
    )  # fmt: skip


def _never_ends(model: Any) -> None:
    settings = model.generation_config
    settings.eos_token_id, settings.pad_token_id = None, 0
    settings.forced_bos_token_id = settings.forced_eos_token_id = None
    if model.config.is_encoder_decoder and settings.decoder_start_token_id is None:
        settings.decoder_start_token_id = START_TOKEN
    # transformers keeps the length of the last static cache on the model, for the next one to be as long.
    model.__dict__.pop("_previous_max_cache_length", None)


def _bare_steps(model: Any, ids: Any, steps: int) -> Callable[[Callable[[], None]], list[float]]:
    """Decode steps after the prompt that call the model alone, each synchronised: milliseconds of each."""
    import torch

    def run(sync: Callable[[], None]) -> list[float]:
        with torch.no_grad():
            cache = model(input_ids=ids, use_cache=True, logits_to_keep=1).past_key_values
            token, taken = ids[:, -1:], []
            for _ in range(steps):
                sync()
                begin = time.perf_counter()
                model(input_ids=token, past_key_values=cache, use_cache=True, logits_to_keep=1)
                sync()
                taken.append(1e3 * (time.perf_counter() - begin))
        return taken

    return run
