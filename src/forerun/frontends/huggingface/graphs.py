"""The graphs of a Hugging Face config under a workload: the model on meta tensors, captured with its inputs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from forerun.capture import time_steps
from forerun.frontends.huggingface import data as hf_data
from forerun.frontends.huggingface import quantised as hf_quantised
from forerun.frontends.huggingface.checks import check_parameters
from forerun.frontends.huggingface.config import plain_config
from forerun.frontends.huggingface.inputs import InputMaker
from forerun.frontends.huggingface.model_class import TASKS, Chosen, choose
from forerun.frontends.huggingface.sizes import context_limit, preprocessor_of
from forerun.frontends.pytorch.arguments import Argument, Arguments
from forerun.frontends.pytorch.module_graphs import capture, folding
from forerun.graph.ir import Graph
from forerun.graph.quantise import without_patterns
from forerun.workload import Workload

#: A model that launches more in one pass is tried as a loop over its tokens: more takes seconds of capture.
MOST_CALLS = 12_000


def captured(model: Any, config: Any, workload: Workload, name: str) -> list[Graph]:
    """The graphs of a config under a workload."""
    data = plain_config(model)
    notes: list[str] = hf_data.notes(data)
    chosen = choose(config, workload, name, notes)
    experts, met = _experts(config)
    active: list[int] = []
    make = builder(config, chosen, workload)

    def build() -> Any:
        model = make()
        if experts and not active:
            active.append(_active_parameters(model, met / experts))
        return model

    maker = InputMaker(config, chosen, workload, name, preprocessor_of(model))
    stored = hf_quantised.weight_format(data) if workload.weight_format else None
    if stored is not None:
        notes.append(hf_quantised.note(stored))
    inputs = maker.arguments(build)
    density = 1 / experts if experts else 1.0

    def of_length(length: int, mode: str) -> tuple[Arguments, Workload]:
        at_length = replace(workload, seq_len=length, mode=mode)
        return InputMaker(config, chosen, at_length, name, None).arguments(build), at_length

    @functools.cache
    def short_stacks() -> frozenset[str]:
        """Stacks that fold at a short length fold at all of these."""
        return folding(build, *of_length(time_steps.LENGTHS[0], workload.mode), density).stacks()

    counted = folding(build, inputs, workload, density)
    # The prefill before decoding may loop over the tokens too.
    reading = "prefill" if workload.mode == "decode" else workload.mode
    graphs = _at_any_length(
        lambda most: capture(build, inputs, workload, name, density, most, counted.stacks),
        lambda length: capture(
            build, *of_length(length, workload.mode), name, density, None, lambda _: short_stacks()
        ),
        lambda length: folding(build, *of_length(length, reading), density).calls(),
        lambda: counted.counted if reading == workload.mode else None,
        inputs, workload, notes,
    )  # fmt: skip
    check_parameters(name, graphs[0].parameters)
    for graph in graphs:
        graph.active_parameters = active[0] if active else graph.parameters
        graph.facts.update(_facts(config, workload, inputs, chosen.task))
        if stored is not None:
            graph.facts["weight_format"] = {**stored, "skip": without_patterns(stored["skip"], graph)}
        for kind, tokens in (("image_tokens", maker.image_tokens), ("audio_tokens", maker.audio_tokens)):
            if tokens:
                graph.facts[kind] = tokens
        graph.notes += [*notes, *maker.notes]
    return graphs


def _at_any_length(
    whole: Callable[[int | None], list[Graph]],
    at: Callable[[int], list[Graph]],
    calls: Callable[[int], int],
    counted: Callable[[], int | None],
    inputs: Arguments,
    workload: Workload,
    notes: list[str],
) -> list[Graph]:
    """The graphs at the requested length; those of a model that loops over its tokens are extrapolated from shorter
    ones."""
    from forerun.capture.recorder import TooManyCalls

    length = inputs["input_ids"].shape[0] if "input_ids" in inputs else 0
    beside_text = any(argument.values is not None for argument in inputs.values())  # images or audio in the prompt
    if length <= max(time_steps.COUNTED) or isinstance(workload.input_shape, dict) or beside_text:
        return whole(None)
    try:
        return whole(MOST_CALLS)
    except TooManyCalls:
        graphs = time_steps.extended(at, calls, length, counted())
    if graphs is None:
        return whole(None)
    notes.append(
        f"it loops over its tokens one by one: captured at up to {time_steps.LENGTHS[-1]} tokens, whose steps are "
        f"equal, and extrapolated to {length:,}"
    )
    return graphs


def builder(config: Any, chosen: Chosen, workload: Workload) -> Any:
    import transformers

    from forerun.capture.capture import TORCH_DTYPES
    from forerun.capture.meta_build import on_meta

    dtype = TORCH_DTYPES[workload.weight_dtype]

    def make() -> Any:
        if chosen.task in TASKS and workload.trust_remote_code:
            return getattr(transformers, TASKS[chosen.task]).from_config(config, dtype=dtype, trust_remote_code=True)
        return chosen.model_class._from_config(config, dtype=dtype)

    def build() -> Any:
        with on_meta():
            model = make()
        tensors = itertools.chain(model.parameters(), model.buffers())
        done = all(t.is_meta and (t.dtype == dtype or not (t.is_floating_point() or t.is_complex())) for t in tensors)
        return model if done else model.to(device="meta", dtype=dtype)

    return build


def _experts(config: Any) -> tuple[int, int]:
    """(number of experts, experts per token); (0, 0) for dense models."""

    def field(*names: str) -> int:
        places = [config.get_text_config(), getattr(config, "ffn_config", None)]
        values = (getattr(p, n, None) for p in places for n in names)
        return next((v for v in values if isinstance(v, int)), 0)

    experts = field("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    return experts, field("num_experts_per_tok", "moe_topk", "top_k_experts", "moe_top_k") or min(experts, 1)


def _active_parameters(model: Any, share: float) -> int:
    total = sum(p.numel() for p in model.parameters())
    routed = sum(p.numel() for n, p in model.named_parameters() if ".experts." in n and "shared" not in n)
    return round(total - routed * (1 - share))


def _facts(config: Any, workload: Workload, inputs: Arguments, task: str) -> dict[str, Any]:
    length = inputs.get("input_ids", inputs.get("decoder_input_ids", Argument((0,), "")))[0][0]
    tokens = {"prefill": length if "input_ids" in inputs else 0, "decode": 1}.get(workload.mode, 0)
    if workload.mode == "training" and task in ("causal-lm", "seq2seq", "image-text-to-text", "audio-text-to-text"):
        tokens = length
    return {
        "source": "huggingface", "model_type": config.model_type, "task": task, "seq_len": length or None,
        "tokens_per_sample": tokens or None, "context_limit": context_limit(config.get_text_config()),
    }  # fmt: skip
