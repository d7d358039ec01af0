"""Builds a model once and makes a measurable call of each of its cases."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from forerun import networks
from forerun.networks.base import Input

from . import generation, python_file, quantised, runtimes
from .case_fields import task_of
from .inputs import DTYPES, made, memory_format
from .protocol import GRAPH_DECODE_MS, Call

#: Modes that fill or read a KV cache.
CACHED = ("prefill", "decode", "generate")


def group_key(case: dict[str, Any]) -> str:
    """Cases with the same key share one built model. Hugging Face models are built in their dtype, others cast."""
    parts = {k: case.get(k) for k in ("source", "name", "config", "overrides", "attention", "class")}
    parts["training"] = case["mode"] == "training"
    if case["source"] == "hf":
        parts.update(task=task_of(case), dtype=case["dtype"])
    return json.dumps(parts, sort_keys=True)


def optimizer_of(case: dict[str, Any], model: Any, rate: float) -> Any:
    """The optimizer that a case names: sgd has momentum 0.9; plain_sgd has none."""
    import torch

    makers: dict[str, Callable[[], Any]] = {
        "sgd": lambda: torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9),
        "plain_sgd": lambda: torch.optim.SGD(model.parameters(), lr=rate),
        "adam": lambda: torch.optim.Adam(model.parameters(), lr=rate),
        "adamw": lambda: torch.optim.AdamW(model.parameters(), lr=rate),
    }
    named = case.get("optimizer") or "sgd"
    if named not in makers:
        raise ValueError(f"there is no optimizer {named!r}; choose from {', '.join(makers)}")
    return makers[named]()


class Built:
    """One model on the device, with the shapes of its inputs."""

    def __init__(self, case: dict[str, Any], device: str) -> None:
        import torch

        self.torch = torch
        self.device = device
        self.source = case["source"]
        self.facts: dict[str, Any] = {}
        self.input_shape: list[int] | dict[str, list[int]] | None = None  # without the batch; by argument
        self.inputs: dict[str, Input] = {}  # of a family of networks
        self.classes = 1000
        with torch.device(device):
            self.model = self._build(case)
        self.model.train(case["mode"] == "training")
        self._disturb()
        self.facts.setdefault("parameters", sum(p.numel() for p in self.model.parameters()))

    def prepare(self, case: dict[str, Any]) -> None:
        """Frees everything on the device except the weights, and converts those to the case's dtype and layout."""
        self.model.zero_grad(set_to_none=True)
        self.torch.backends.cuda.matmul.allow_tf32 = case["dtype"] == "tf32"
        if case["mode"] != "training":  # autocast caches casts of trainable weights
            self.model.requires_grad_(bool(case.get("amp")))
        if self.source != "hf":
            self.model.to(getattr(self.torch, DTYPES[case["dtype"]]), memory_format=memory_format(case))
            for module in self.model.modules():  # some attention layers cache their bias in the dtype of the last call
                getattr(module, "attention_bias_cache", {}).clear()

    def known(self) -> dict[str, Any]:
        """What the model's rows say of it."""
        return self.facts

    def call(self, case: dict[str, Any]) -> Call:
        """The call of one case, with its inputs on the device."""
        call = self._call(case, runtimes.runtime_of(case).called(self.model))
        if not runtimes.is_usual(case):
            call.capturable, call.why_not_capturable = False, "compiled calls are not captured"
        return call

    def _call(self, case: dict[str, Any], model: Any) -> Call:
        if case.get("inputs") or (self.source in networks.FILES and self.source not in ("cnn", "unet")):
            return self._call_by_name(case, model)
        if self.source == "hf":
            return self._hf_call(case, model)
        dtype = getattr(self.torch, DTYPES[case["dtype"]])
        shape = [case["batch"], *(case.get("input_shape") or self.input_shape or (3, 224, 224))]
        x = self.torch.randn(shape, dtype=dtype, device=self.device).to(memory_format=memory_format(case))
        if case["mode"] == "training":
            return self._training(case, self._vision_loss(model, x))
        return Call(self._inference(case, lambda: model(x)))

    def _build(self, case: dict[str, Any]) -> Any:
        overrides = dict(case.get("overrides") or {})
        if self.source == "timm":
            import timm

            merged = overrides.pop("reparam", False)
            model: Any = timm.create_model(case["name"], **overrides)
            if merged:  # reparameterised as for deployment, requested by `?reparam=true` in the name
                from timm.utils.model import reparameterize_model

                model = reparameterize_model(model, inplace=True)
            self.classes = model.num_classes or model.num_features  # some models have no head
            size = overrides.get("img_size")
            declared = model.default_cfg.get("input_size", (3, 224, 224))
            self.input_shape = [int(declared[0]), size, size] if size else [int(n) for n in declared]
            return model
        if self.source == "torchvision":
            import torchvision

            self.input_shape = [3, 299, 299] if case["name"] == "inception_v3" else [3, 224, 224]
            builder = torchvision.models.get_model_builder(case["name"])
            if "weights_backbone" in inspect.signature(builder).parameters:  # by default weights would be downloaded
                overrides["weights_backbone"] = None
            return torchvision.models.get_model(case["name"], weights=None, **overrides)
        if self.source in networks.FILES:
            return self._family_build(case["name"])
        if self.source == "hf":
            return self._hf_build(case, overrides)
        if self.source == python_file.SOURCE:
            return python_file.built(case["name"]).to(self.device)
        raise ValueError(f"unknown source {self.source!r}")

    def _family_build(self, name: str) -> Any:
        family = networks.family_of(name)
        settings = family.parse(name)
        self.classes = settings.get("classes", self.classes)
        self.inputs = family.inputs(settings)
        shapes = {argument: list(given.shape) for argument, given in self.inputs.items()}
        self.input_shape = shapes[""] if set(shapes) == {""} else shapes
        return family.build(**settings)

    def _hf_build(self, case: dict[str, Any], overrides: dict[str, Any]) -> Any:
        import transformers

        settings = {**case["config"], **overrides}
        config = transformers.AutoConfig.for_model(settings.pop("model_type"), **settings)
        config.use_cache = case["mode"] in CACHED
        classes: dict[str, Any] = {
            "base": transformers.AutoModel,
            "causal-lm": transformers.AutoModelForCausalLM,
            "seq2seq-lm": transformers.AutoModelForSeq2SeqLM,
            "sequence-classification": transformers.AutoModelForSequenceClassification,
        }
        small = case["dtype"] in quantised.DTYPES
        dtype = getattr(self.torch, DTYPES[quantised.ACTIVATIONS if small else case["dtype"]])
        attention = {"attn_implementation": case["attention"]} if case.get("attention") else {}
        if "class" in case:
            model = getattr(transformers, case["class"])._from_config(config, dtype=dtype, **attention)
        else:
            model = classes[task_of(case)].from_config(config, dtype=dtype, **attention)
        self.facts["attention"] = getattr(model.config, "_attn_implementation", None)
        self.facts["parameters"] = sum(p.numel() for p in model.parameters())
        if small:
            self.facts["quantised_by"] = quantised.quantise(model, case["dtype"])
        return model

    def _hf_call(self, case: dict[str, Any], model: Any) -> Call:
        torch = self.torch
        if case["mode"] == "generate":
            return generation.generation(model, case, self.device)
        batch, length = case["batch"], case["seq_len"]
        vocab = self.model.config.get_text_config().vocab_size

        def tokens(n: int) -> Any:
            return torch.randint(0, vocab, (batch, n), device=self.device)

        if case["mode"] == "inference":
            ids = tokens(length)
            return Call(self._inference(case, lambda: model(input_ids=ids)), ask_before_capture=False)
        if case["mode"] == "prefill":
            ids = tokens(length)
            call = self._inference(case, lambda: model(input_ids=ids, use_cache=True, logits_to_keep=1))
            return Call(call, ask_before_capture=False)
        if case["mode"] == "decode":
            return _Decode(self, model, tokens(1), length).as_call()
        ids = tokens(length)
        labels = ids if task_of(case) == "causal-lm" else torch.zeros(batch, dtype=torch.long, device=self.device)
        return self._training(case, lambda: model(input_ids=ids, labels=labels, use_cache=False).loss)

    def _call_by_name(self, case: dict[str, Any], model: Any) -> Call:
        """A call with the inputs that the case or the family of networks lists, by argument."""
        from forerun.capture.loss import default_loss
        from forerun.capture.nested import call_arguments

        described = {name: Input.read(given) for name, given in (case.get("inputs") or {}).items()} or self.inputs
        positional, named = call_arguments(made(described, case, self.device))
        if case["mode"] == "training":
            return self._training(case, lambda: default_loss(model(*positional, **named)))
        return Call(self._inference(case, lambda: model(*positional, **named)), ask_before_capture=self.source != "hf")

    def _inference(self, case: dict[str, Any], call: Callable[[], Any]) -> Callable[[], Any]:
        inference_mode, autocast = self.torch.inference_mode, self.torch.autocast
        kind, amp = self.torch.device(self.device).type, case.get("amp")
        if amp:
            half = getattr(self.torch, DTYPES[amp])

            def run_cast() -> Any:
                with inference_mode(), autocast(kind, dtype=half):
                    return call()

            return run_cast

        def run() -> Any:
            with inference_mode():
                return call()

        return run

    def _vision_loss(self, model: Any, x: Any) -> Callable[[], Any]:
        """Cross-entropy of logits, or squared error of each output map of a U-Net."""
        torch, functional = self.torch, self.torch.nn.functional
        if self.source == "unet":
            maps = torch.randn((x.shape[0], 1, *x.shape[2:]), device=x.device)
            return lambda: sum(functional.mse_loss(out, maps) for out in model(x))
        labels = torch.randint(0, self.classes, (x.shape[0],), device=x.device)
        return lambda: functional.cross_entropy(model(x), labels)

    def _training(self, case: dict[str, Any], loss: Callable[[], Any]) -> Call:
        """zero_grad, forward, loss, backward, optimizer step; a new optimizer, so memory starts from the weights."""
        torch = self.torch
        optimizer = optimizer_of(case, self.model, 1e-5)
        amp = case.get("amp")
        # A low initial scale, since a step skipped for overflow would be faster than a real one.
        kind = torch.device(self.device).type
        scaler = torch.amp.GradScaler(kind, init_scale=256.0) if amp == "fp16" else None
        autocast = getattr(torch, DTYPES[amp]) if amp else None

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            if autocast is None:
                value = loss()
            else:
                with torch.autocast(kind, dtype=autocast):
                    value = loss()
            if scaler is None:
                value.backward()
                optimizer.step()
            else:
                scaler.scale(value).backward()
                scaler.step(optimizer)
                scaler.update()

        return Call(step, capturable=False, why_not_capturable="training steps are not captured")

    def _disturb(self) -> None:
        """Perturbs weights that are initialised to zero or one, since zeros draw less power than trained weights."""
        torch = self.torch
        with torch.no_grad():
            for p in self.model.parameters():
                if p.dim() <= 1 and p.is_floating_point():
                    p.add_(torch.randn_like(p), alpha=0.02)


class _Decode:
    """A decode step of one token with a cache of `length` tokens, which is reset by reassigning references."""

    def __init__(self, built: Built, model: Any, token: Any, length: int) -> None:
        self.built, self.model, self.token, self.length = built, model, token, length
        self.saved: list[dict[str, Any]] = []
        self.cache = self._fresh()

    def _fresh(self) -> Any:
        """A cache with random contents and shapes inferred from a prompt of one token."""
        from transformers import DynamicCache

        torch, model = self.built.torch, self.built.model
        with torch.inference_mode():
            probe = model(input_ids=self.token, use_cache=True, logits_to_keep=1).past_key_values
            cache: Any = DynamicCache(config=model.config.get_text_config())
            for i, layer in enumerate(probe.layers):
                b, heads, _, width = layer.keys.shape
                shape, kind = (b, heads, self.length, width), {"dtype": layer.keys.dtype, "device": layer.keys.device}
                vb, vheads, _, vwidth = layer.values.shape
                values = torch.randn((vb, vheads, self.length, vwidth), **kind)
                cache.update(torch.randn(shape, **kind), values, i)
                held = cache.layers[i]
                held.keys, held.values = held.keys.contiguous(), held.values.contiguous()
        return cache

    def run(self) -> Any:
        with self.built.torch.inference_mode():
            return self.model(input_ids=self.token, past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits

    def hold(self) -> None:
        # While memory is read the cache grows, as in real generation; from here on it is reset after each call.
        self.cache = None
        self.cache = self._fresh()
        self.saved = [dict(layer.__dict__) for layer in self.cache.layers]

    def restore(self) -> None:
        for layer, was in zip(self.cache.layers, self.saved, strict=True):
            layer.__dict__.update(was)

    def as_call(self) -> Call:
        limit = GRAPH_DECODE_MS
        return Call(self.run, self._restore_if_held, self.hold, ask_before_capture=False, graph_limit_ms=limit)

    def _restore_if_held(self) -> None:
        if self.saved:
            self.restore()
