"""The `quantization_config` of a Hugging Face config: in how many bits the weights of a checkpoint are stored."""

from __future__ import annotations

from typing import Any

from forerun.errors import ForerunError

#: Methods that leave the output layer as it is unless their settings say otherwise.
_KEEP_HEAD = ("gptq", "awq", "bitsandbytes", "fp8", "fbgemm_fp8", "mxfp4", "hqq", "compressed-tensors")
_SKIP_LISTS = ("modules_to_not_convert", "llm_int8_skip_modules", "ignore", "ignored_layers", "exclude_modules")


def weight_format(config: Any) -> dict[str, Any] | None:
    """{"dtype", "method", "skip"} of a config with quantised weights, as JSON; None where it has none."""
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return None
    settings = settings.to_dict() if hasattr(settings, "to_dict") else settings
    if not isinstance(settings, dict):
        raise ForerunError(f"quantization_config must be settings by name, got {str(settings)[:60]!r}")
    method = str(settings.get("quant_method") or ("bitsandbytes" if _loads_bits(settings) else "")).lower()
    dtype = _dtype(method, settings)
    if dtype is None:
        raise ForerunError(
            f"the config's quantization_config ({method or 'without quant_method'}) has no format that forerun knows; "
            "remove it and choose dtype int8, int4 or fp8"
        )
    skip = [str(word) for name in _SKIP_LISTS for word in _words(settings.get(name))]
    if method in _KEEP_HEAD and not settings.get("lm_head"):
        skip.append("lm_head")
    return {"dtype": dtype, "method": method, "skip": sorted(set(skip))}


def _loads_bits(settings: dict[str, Any]) -> bool:
    return bool(settings.get("load_in_4bit") or settings.get("load_in_8bit"))


def _words(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _dtype(method: str, settings: dict[str, Any]) -> str | None:
    """The format of the weights by method and settings."""
    if "fp8" in method:
        return "fp8"
    if "fp4" in method:
        return "int4"
    if method == "bitsandbytes":
        return "int4" if settings.get("load_in_4bit") else "int8" if settings.get("load_in_8bit") else None
    if method == "compressed-tensors":
        return _group_dtype(settings.get("config_groups"))
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


def note(found: dict[str, Any], mode: str) -> str:
    """What is done with the weights of a quantised config."""
    if mode == "training":
        return f"the config's {found['method']} weights are trained in the dtype asked for, not in {found['dtype']}"
    kernel = {
        "int4": "PyTorch's 4-bit kernel stands for that of the method",
        "int8": "a cast before each product stands for the method's own kernel",
        "fp8": "a cast before each product is priced; dtype fp8 prices products in fp8, where the device has them",
    }[found["dtype"]]
    return f"the config stores its linear weights by {found['method']}: {found['dtype']}; {kernel}"
