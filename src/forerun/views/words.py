"""Words that several views share: headings, settings of a workload, large counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.runtimes.registry import USUAL
from forerun.workload import GENERATION, PUBLISHED

#: From this width on a terminal has all columns.
WIDE = 120
_BASIS = {
    "roofline": "the device's peaks, with efficiencies fitted on one H200: rely on the interval, not on the digits",
    "learned": "fitted to measurements of other models, never below the roofline",
    "simulated": "fitted to what the default predictor says of such devices, not to measurements of them",
    "measured": "this case itself was measured",
    "adapted": "learned, then corrected by measurements of this device",
}


def interval_heading(confidence: float) -> str:
    """'90 % interval'."""
    return f"{100 * confidence:g} % interval"


def headline(p: Any) -> str:
    """'resnet50 on h200: inference, batch 8, fp32'."""
    return f"{p.model} on {p.device}: {setting_words(p.workload)}"


def setting_words(w: Mapping[str, Any]) -> str:
    """'training, batch 32, fp32, sgd': a workload's settings in words, without defaults."""
    shape, tokens = w.get("input_shape"), w.get("seq_len")
    words = [
        w["mode"], f"batch {w['batch']}" if "batch" in w else "", _dtype_words(w),
        f"input {list(shape) if isinstance(shape, tuple) else shape}" if shape else "",
        f"{tokens:,.0f} tokens" if tokens and tokens == tokens else "",  # not a number: none, in a table of pandas
        f"{w['new_tokens']:,.0f} new" if w.get("new_tokens") else "", *_generation_words(w),
        w.get("optimizer") or "", f"amp {w['amp']}" if w.get("amp") else "",
        "channels last" if w.get("channels_last") else "",
        w["runtime"] if w.get("runtime") not in (None, USUAL) else "",
        *(f"{name} {w[name]}" for name in ("tp", "pp") if w.get(name, 1) > 1),
    ]  # fmt: skip
    return ", ".join(word for word in words if word)


def _generation_words(w: Mapping[str, Any]) -> list[str]:
    """'sample', 'padded prompts', 'static cache': settings of a generation that are not at their first values."""
    shown = {"decoding": "{}", "prompt": "{} prompts", "cache": "{} cache"}
    return [words.format(w[name]) for name, words in shown.items() if w.get(name) not in (None, GENERATION[name])]


def _dtype_words(w: Mapping[str, Any]) -> str:
    """'bf16', or 'bf16 with mxfp4 weights' where the checkpoint's own quantised weights are used."""
    stored = str(w.get("published") or "").partition(" ")[2]
    return f"{w['dtype']} with {stored} weights" if stored else w.get("dtype") or ""


def dtype_words(dtype: str) -> str:
    """'bf16'; quantised weights as they are published have a format in place of a dtype."""
    return "weights as published" if dtype == PUBLISHED else dtype


def count(x: float) -> str:
    """4.09 G, 25.6 M."""
    for limit, suffix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= limit:
            return f"{x / limit:.3g} {suffix}"
    return f"{x:.3g} "


def basis_line(basis: str, captured_with: Mapping[str, str] | None = None) -> str:
    """'Basis: measured (this case itself was measured)'; with the version of transformers, whose models change."""
    version = (captured_with or {}).get("transformers")
    model = f"; the model is that of transformers {version}" if version else ""
    return f"Basis: {basis} ({_BASIS.get(basis.partition(' ')[0], '')}){model}"
