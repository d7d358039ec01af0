"""Front door: Hugging Face models from a config: an id, a dict, a config.json, a folder.

Ids of the built-in catalogue need no network. A config is data: code that ships beside it is run only when the user
says so (`trust_remote_code=True`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError
from forerun.graph import time_steps
from forerun.graph.ir import Graph
from forerun.graph.quantise import without_patterns
from forerun.graph.sources import hf_catalog, hf_quantised
from forerun.graph.sources.arguments import Argument, Arguments
from forerun.graph.sources.door import Door, first_line
from forerun.graph.sources.hf_checks import check_parameters
from forerun.graph.sources.hf_class import TASKS, Chosen, choose
from forerun.graph.sources.hf_config import load_config, offline_config
from forerun.graph.sources.hf_inputs import DEFAULT_SEQ_LEN, InputMaker, context_limit
from forerun.graph.sources.hf_sizes import preprocessor_of
from forerun.graph.sources.torch_module import capture, folding
from forerun.workload import Workload

__all__ = ["DEFAULT_SEQ_LEN", "HuggingFaceDoor"]


#: Raise when models that read something else than text are called in another way.
READER = 2
#: A model that launches more in one pass is tried as one that loops over its tokens: that is seconds of capture.
MOST_CALLS = 12_000


class HuggingFaceDoor(Door):
    """A Hugging Face model. It takes whatever looks like an id, so only bare names are asked for later."""

    takes = "a Hugging Face id, config, config.json or folder"
    priority = 20
    suffixes = (".json",)
    reads_images = True

    def matches(self, model: Any) -> bool:
        if isinstance(model, dict):
            return "model_type" in model
        if not isinstance(model, (str, Path)):
            return False
        path = Path(model)
        if hf_catalog.architecture(str(model)) is not None or path.name == "config.json":
            return True
        if self.claims(model) or path.exists():
            return path.is_dir() and (path / "config.json").is_file()
        organisation, slash, name = str(model).partition("/")
        return bool(slash and name) and "/" not in name and organisation not in ("timm", "torchvision", ".", "")

    def untrusted(self, model: Any) -> bool:
        return isinstance(model, dict) or hf_catalog.architecture(str(model)) is None

    def key(self, model: Any, workload: Workload) -> dict[str, Any] | None:
        config = offline_config(model)
        if config is None:
            return None
        key: dict[str, Any] = {"config": config, "transformers": version("transformers"), "torch": version("torch")}
        if not _is_plain_text(config) or "quantization_config" in config:
            key |= {"reader": READER, "preprocessor": preprocessor_of(model)}
        return key

    def names(self) -> list[str]:
        return hf_catalog.known_names()

    def title(self, model: Any) -> str:
        return str(model) if isinstance(model, (str, Path)) else str(model["model_type"])

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        from forerun.graph import torch_compat

        torch_compat.prepare()
        name = self.title(model)
        config = load_config(model, workload.trust_remote_code)
        try:
            return _captured(model, config, workload, name)
        except ForerunError:
            raise
        except Exception as e:  # a config is anyone's text, and what it breaks in transformers is its own fault
            raise ForerunError(f"{name} cannot be built from its config: {first_line(e)}") from e


def _captured(model: Any, config: Any, workload: Workload, name: str) -> list[Graph]:
    """The graphs of a config under a workload."""
    notes: list[str] = []
    chosen = choose(config, workload, name, notes)
    experts, met = _experts(config)
    active: list[int] = []
    make = _builder(config, chosen, workload)

    def build() -> Any:
        model = make()
        if experts and not active:
            active.append(_active_parameters(model, met / experts))
        return model

    maker = InputMaker(config, chosen, workload, name, preprocessor_of(model))
    stored = hf_quantised.weight_format(config)
    if stored is not None:
        notes.append(hf_quantised.note(stored, workload.mode))
    inputs = maker.arguments(build)
    density = 1 / experts if experts else 1.0

    def of_length(length: int, mode: str) -> tuple[Arguments, Workload]:
        asked = replace(workload, seq_len=length, mode=mode)
        return InputMaker(config, chosen, asked, name, None).arguments(build), asked

    @functools.cache
    def short_stacks() -> frozenset[str]:
        """Those that fold at a short length fold at all of these."""
        return folding(build, *of_length(time_steps.LENGTHS[0], workload.mode), density).stacks()

    counted = folding(build, inputs, workload, density)
    # What decoding is preceded by may go through the tokens one by one, too.
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
    """The graphs at the length asked for; those of a model that loops over its tokens come from shorter ones."""
    from forerun.graph.recorder import TooManyCalls

    length = inputs["input_ids"].shape[0] if "input_ids" in inputs else 0
    beside_text = any(argument.values is not None for argument in inputs.values())  # images or sounds in the prompt
    if length <= max(time_steps.COUNTED) or isinstance(workload.input_shape, dict) or beside_text:
        return whole(None)
    try:
        return whole(MOST_CALLS)
    except TooManyCalls:
        found = time_steps.extended(at, calls, length, counted())
    if found is None:
        return whole(None)
    notes.append(
        f"it goes through its tokens one by one: captured at up to {time_steps.LENGTHS[-1]} tokens, whose steps are "
        f"equal, and extended to {length:,}"
    )
    return found


def _is_plain_text(config: dict[str, Any]) -> bool:
    """Whether a config is surely that of a text model; seen without transformers, whose import takes seconds."""
    other = ("vision_config", "audio_config", "image_size", "patch_size", "num_mel_bins", "conv_dim", "num_channels")
    return "vocab_size" in config and not any(field in config for field in other)


def _builder(config: Any, chosen: Chosen, workload: Workload) -> Any:
    import transformers

    from forerun.graph.capture import TORCH_DTYPES
    from forerun.graph.meta_build import on_meta

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
    """(experts there are, experts a token meets); (0, 0) for dense models."""

    def field(*names: str) -> int:
        places = [config.get_text_config(), getattr(config, "ffn_config", None)]
        found = (getattr(p, n, None) for p in places for n in names)
        return next((v for v in found if isinstance(v, int)), 0)

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
