"""How a model is run in each mode, as one callable that `capture.record` can run twice."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from forerun.capture.loss import default_loss
from forerun.capture.nested import call_arguments, tensors_in
from forerun.errors import ForerunError
from forerun.workload import Workload

Inputs = dict[str, Any]  # the model's arguments, by name or path (see `nested`)
Held = Iterator[tuple[str, str, torch.Tensor]]


class Step:
    """One call of a model: forward only. `held` lists what is in memory before it starts."""

    def __init__(self, model: nn.Module, inputs: Inputs, workload: Workload) -> None:
        self.model, self.inputs, self.workload = model, inputs, workload

    def call(self, **extra: Any) -> Any:
        positional, named = call_arguments(self.inputs)
        return self.model(*positional, **named, **extra)

    def once(self) -> None:
        """What is counted to check folding: everything that may depend on a block's index."""
        self.call()

    def __call__(self, recorder: Any, emulation: Any) -> Any:
        with torch.no_grad():
            return self.call()

    def held(self) -> Held:
        for t in self.inputs.values():
            if isinstance(t, torch.Tensor):
                yield "input", "", t


class TrainingStep(Step):
    """zero_grad, forward, loss, backward, optimizer step; gradient scaling with fp16 autocast."""

    def __init__(self, model: nn.Module, inputs: Inputs, workload: Workload) -> None:
        super().__init__(model, inputs, workload)
        self.params = [p for p in model.parameters() if p.requires_grad]
        if not self.params:
            raise ForerunError("every parameter of the model is frozen: there is nothing to train")
        self.optimizer = _optimizer(workload.optimizer or "sgd", self.params)
        self.scale = torch.ones((), device="meta")
        self.found_inf = torch.zeros((), device="meta")
        self.loss = getattr(model, "forerun_loss", None) or default_loss

    def __call__(self, recorder: Any, emulation: Any) -> Any:
        recorder.phase = "forward"
        self.optimizer.zero_grad(set_to_none=True)
        emulation.clear_weight_cache()
        loss = self.loss(self.call())
        emulation.clear_weight_cache()
        if self.workload.amp == "fp16":
            loss = loss * self.scale
        recorder.phase = "backward"
        loss.backward()
        recorder.phase = "optimizer"
        if self.workload.amp == "fp16":
            grads = [p.grad for p in self.params if p.grad is not None]
            torch._amp_foreach_non_finite_check_and_unscale_(grads, self.found_inf, self.scale)
            self.found_inf.item()
        self.optimizer.step()
        return loss.detach()

    def held(self) -> Held:
        yield from super().held()
        for name, p in self.model.named_parameters():
            if p.grad is not None:
                yield "gradient", name, p.grad
            for t in self.optimizer.state.get(p, {}).values():
                if isinstance(t, torch.Tensor) and t.device.type == "meta":
                    yield "state", name, t


class PrefillStep(Step):
    """The whole prompt in one call; logits of the last token only; the cache is part of the output.

    An encoder-decoder reads the prompt with its encoder, and its decoder makes the first step.
    """

    def __call__(self, recorder: Any, emulation: Any) -> Any:
        with torch.no_grad():
            return self.call(**_caching(self.model, self.inputs), **_last_logits_only(self.model))


class DecodeStep(Step):
    """One new token against a cache of `seq_len` tokens, made by an unrecorded prefill.

    Images and encoders run in the prefill alone: their output is in the cache; an encoder's also stays in memory
    beside it.
    """

    def __init__(self, model: nn.Module, inputs: Inputs, workload: Workload) -> None:
        super().__init__(model, inputs, workload)
        self.cache: Any = None
        self.cache_name = "past_key_values"
        self.saved: list[dict[str, Any]] = []
        self.encoded: dict[str, Any] = {}
        self.tokens = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"

    def __call__(self, recorder: Any, emulation: Any) -> Any:
        with torch.no_grad():
            if self.cache is None:
                self._prefill()
            if recorder.recording:
                self.saved = []  # as in generation, nothing but the cache holds the old keys and values
            out = self._token()
            for holder, state in zip(self._holders(), self.saved, strict=False):
                vars(holder).update(state)
            return out

    def once(self) -> None:
        self._prefill()
        self._token()

    def _token(self) -> Any:
        ids = self.inputs[self.tokens]
        known = {self.tokens: ids.new_empty((ids.shape[0], 1)), **self.encoded}
        cache = {self.cache_name: self.cache, "use_cache": True}
        return self.model(**known, **cache, **_last_logits_only(self.model))

    def _prefill(self) -> None:
        with _kept_encoder_output(self.model, self.tokens == "decoder_input_ids") as encoded:
            out = self.call(**_caching(self.model, self.inputs), **_last_logits_only(self.model))
        names = ("past_key_values", "cache_params", "state")
        self.cache_name = next((n for n in names if getattr(out, n, None) is not None), "")
        if not self.cache_name:
            raise ForerunError(f"{type(self.model).__name__} has no cache, so it has no decode mode; use inference")
        self.cache = getattr(out, self.cache_name)
        self.encoded = {"encoder_outputs": encoded[-1]} if encoded else {}
        self.saved = [_frozen(vars(h)) for h in self._holders()]

    def _holders(self) -> list[Any]:
        """The objects whose attributes are the cache: one per layer; none when it is a plain list of tensors."""
        if isinstance(self.cache, list):
            return []
        if hasattr(self.cache, "cross_attention_cache"):  # an encoder-decoder's, which also notes what it has filled
            return [*self.cache.self_attention_cache.layers, *self.cache.cross_attention_cache.layers, self.cache]
        return list(getattr(self.cache, "layers", None) or [self.cache])

    def held(self) -> Held:
        for t in tensors_in(self.encoded):
            yield "cache", "", t
        if isinstance(self.cache, list):
            yield from (("cache", "", t) for t in self.cache)
        for holder in self._holders() if self.cache is not None else ():
            for t in _state_tensors(vars(holder)):
                yield "cache", "", t


def _caching(model: nn.Module, inputs: Inputs) -> dict[str, bool]:
    """Requests a cache, except from an encoder-decoder that creates one by itself: some pass the argument to the
    encoder."""
    by_itself = "decoder_input_ids" in inputs and getattr(getattr(model, "config", None), "use_cache", False)
    return {} if by_itself else {"use_cache": True}


@contextlib.contextmanager
def _kept_encoder_output(model: nn.Module, encodes: bool) -> Iterator[list[Any]]:
    """The outputs of the model's encoder while the model runs."""
    outputs: list[Any] = []
    encoder = model.get_encoder() if encodes else None  # type: ignore[operator]
    if encoder is None:
        yield outputs
        return
    handle = encoder.register_forward_hook(lambda _module, _args, out: outputs.append(out))
    try:
        yield outputs
    finally:
        handle.remove()


def _frozen(state: dict[str, Any]) -> dict[str, Any]:
    """A copy deep enough that the cache's own updates leave it alone."""
    return {k: type(v)(v) if type(v) in (list, dict) else v for k, v in state.items()}


def _state_tensors(state: dict[str, Any]) -> Iterator[torch.Tensor]:
    for value in state.values():
        items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
        yield from (t for t in items if isinstance(t, torch.Tensor))


def _last_logits_only(model: nn.Module) -> dict[str, Any]:
    return {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}


def _optimizer(name: str, params: list[nn.Parameter]) -> torch.optim.Optimizer:
    makers: dict[str, Callable[[], torch.optim.Optimizer]] = {
        "sgd": lambda: torch.optim.SGD(params, lr=0.1, foreach=True),
        "momentum": lambda: torch.optim.SGD(params, lr=0.1, momentum=0.9, foreach=True),
        "adam": lambda: torch.optim.Adam(params, lr=1e-3, foreach=True),
        "adamw": lambda: torch.optim.AdamW(params, lr=1e-3, foreach=True),
    }
    return makers[name]()


STEPS: dict[str, type[Step]] = {
    "inference": Step, "training": TrainingStep, "prefill": PrefillStep, "decode": DecodeStep,
}  # fmt: skip


def as_step(model: nn.Module, inputs: Inputs, workload: Workload) -> Step:
    """One call of the model in its mode, with the memory layout of images and weights."""
    model.train(workload.mode == "training")
    if workload.channels_last:
        if not any(map(_is_image, inputs.values())):
            raise ForerunError("channels_last is a setting of models that take images")
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        inputs = {
            name: t.to(memory_format=torch.channels_last) if _is_image(t) else t for name, t in inputs.items()
        }  # fmt: skip
    return STEPS[workload.mode](model, inputs, workload)


def _is_image(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_floating_point()
