"""The dtype of a Hugging Face checkpoint, and how its `quantization_config` stores the weights."""

from __future__ import annotations

import re
from typing import Any

from forerun.errors import ForerunError

#: Methods that do not quantise the output layer unless their settings say so.
_KEEP_HEAD = (
    "gptq", "awq", "bitsandbytes", "fp8", "fbgemm_fp8", "mxfp4", "hqq", "compressed-tensors", "modelopt", "bitnet",
)  # fmt: skip
_SKIP_LISTS = ("modules_to_not_convert", "llm_int8_skip_modules", "ignore", "ignored_layers", "exclude_modules")
#: Names of dtypes in configs.
_DTYPES = {
    "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "half": "fp16", "fp16": "fp16", "float32": "fp32",
    "float": "fp32", "fp32": "fp32", "float64": "fp64", "double": "fp64",
}  # fmt: skip
#: Methods whose kernels take fp16 where a config names no dtype; the others take bf16.
_IN_FP16 = ("gptq", "awq", "bitsandbytes", "hqq")


def published_in(config: dict[str, Any]) -> str | None:
    """The dtype and format of a checkpoint by its config: "bf16", "bf16 mxfp4"; None where it does not say."""
    dtype, settings = _own_dtype(config), _settings(config)
    if settings is None:
        return dtype
    try:
        published = weight_format(config) or {}
    except ForerunError:  # `weight_format` raises when the model is built
        published = {}
    method = str(published.get("method", ""))
    return f"{dtype or ('fp16' if method in _IN_FP16 else 'bf16')} {published.get('format', 'unknown')}"


def _own_dtype(config: dict[str, Any]) -> str | None:
    """The dtype that a config names, or that of its language model, which is most of the weights."""
    for part in (config, *(config.get(name) for name in ("text_config", "llm_config", "language_config", "decoder"))):
        for name in ("dtype", "torch_dtype"):
            value = part.get(name) if isinstance(part, dict) else None
            if isinstance(value, str) and (known := _DTYPES.get(value.removeprefix("torch."))):
                return known
    return None


def _settings(config: dict[str, Any]) -> Any:
    """The quantization_config, which some composite models have in the config of their text model."""
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        for name in ("quantization_config", "compression_config"):
            if part.get(name) is not None:
                return part[name]
    return None


def without_quantisation(config: dict[str, Any]) -> dict[str, Any]:
    """The config of the same model with its weights dequantised."""
    names = ("quantization_config", "compression_config")
    out = {key: value for key, value in config.items() if key not in names}
    if isinstance(text := out.get("text_config"), dict) and any(name in text for name in names):
        out["text_config"] = {key: value for key, value in text.items() if key not in names}
    return out


def weight_format(config: dict[str, Any]) -> dict[str, Any] | None:
    """{"dtype", "method", "format", "skip"} of a config with quantised weights, as JSON; None where it has none.

    `dtype` is the stored width, `method` the quantisation method, and `format` the kernel's format: bitsandbytes has
    nf4, fp4 and int8, the others one each, named like the method. `experts` is the dtype of the weights of routed
    experts where they have one of their own.
    """
    settings = _settings(config)
    if settings is None:
        return None
    if not isinstance(settings, dict):
        raise ForerunError(f"quantization_config must be settings by name, got {str(settings)[:60]!r}")
    method = str(settings.get("quant_method") or ("bitsandbytes" if _loads_bits(settings) else "")).lower()
    dtype = _dtype(method, settings)
    if dtype is None:
        raise ForerunError(
            f"the config's quantization_config ({method or 'without quant_method'}) has no format that forerun knows; "
            "choose a dtype: bf16 is predicted with dequantised weights, int8, int4 and fp8 store them in fewer bits"
        )
    skip = [_pattern(str(word)) for name in _SKIP_LISTS for word in _words(settings.get(name))]
    if method in _KEEP_HEAD and not settings.get("lm_head"):
        skip.append("lm_head")
    published = {
        "dtype": dtype,
        "method": method,
        "format": _format(method, dtype, settings),
        "skip": sorted(set(skip)),
    }
    if "fp4" in str(settings.get("expert_dtype", config.get("expert_dtype"))):  # experts in MXFP4, the rest in fp8
        published |= {"format": f"{published['format']}+mxfp4", "experts": "int4"}
    return published


def _format(method: str, dtype: str, settings: dict[str, Any]) -> str:
    if method == "bitsandbytes":
        return dtype if dtype == "int8" else str(settings.get("bnb_4bit_quant_type", "fp4")).lower()
    if method == "modelopt":
        return {"fp8": "fp8", "int4": "nvfp4"}.get(dtype, dtype)
    return method


def _pattern(word: str) -> str:
    """A module's path with stars for any part, as a regular expression (see `quantise.without_patterns`)."""
    if "*" not in word or word.startswith("re:"):
        return word
    return "re:^" + re.escape(word).replace(r"\*", "[^.]*") + r"(\.|$)"


def _loads_bits(settings: dict[str, Any]) -> bool:
    return bool(settings.get("load_in_4bit") or settings.get("load_in_8bit"))


def _words(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _dtype(method: str, settings: dict[str, Any]) -> str | None:
    """The format of the weights by method and settings."""
    if "fp8" in method:
        return "fp8"
    if "fp4" in method or method == "bitnet":  # ternary weights are packed in 2 bits; 4 is the least that is modelled
        return "int4"
    if method == "bitsandbytes":
        return "int4" if settings.get("load_in_4bit") else "int8" if settings.get("load_in_8bit") else None
    if method == "compressed-tensors":
        return _group_dtype(settings.get("config_groups"))
    if method == "modelopt":
        named = str(settings.get("quant_algo", settings.get("quantization", ""))).lower()
        return "int4" if "fp4" in named or "int4" in named or "w4a" in named else "fp8" if "fp8" in named else None
    bits = next((settings[n] for n in ("bits", "w_bit", "nbits") if settings.get(n) is not None), None)
    if bits is None:
        text = str(settings.get("weights", settings.get("quant_type", ""))).lower()  # quanto, torchao
        bits = next((b for word, b in (("float8", "fp8"), ("int8", 8), ("int4", 4)) if word in text), None)
    return (
        {"fp8": "fp8", 8: "int8", 4: "int4", 3: "int4", 2: "int4"}.get(bits) if isinstance(bits, (int, str)) else None
    )


def _group_dtype(groups: Any) -> str | None:
    """The format of the first group of layers of compressed-tensors."""
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    if not isinstance(weights, dict):
        return None
    bits, kind = weights.get("num_bits"), str(weights.get("type", "int"))
    if kind == "float" and bits == 8:
        return "fp8"
    return {8: "int8", 4: "int4", 3: "int4", 2: "int4"}.get(bits) if isinstance(bits, int) else None


def note(found: dict[str, Any]) -> str:
    """How a quantised config stores its weights; which kernel is priced for them, `quantise` says."""
    format_ = "" if found["format"] in (found["method"], found["dtype"]) else f" ({found['format']})"
    return f"the config stores its linear weights by {found['method']}{format_}: {found['dtype']}"
