"""The command with which an engine's own program serves a model in a layout."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

_START = {
    "vllm": "vllm serve {model}", "sglang": "python -m sglang.launch_server --model-path {model}",
    "tensorrt-llm": "trtllm-serve {model} --backend pytorch",
}  # fmt: skip
#: Options of layouts, left out at 1. Experts of vLLM are divided over all devices of the replica.
_SIZES = {
    "vllm": {"tp": "--tensor-parallel-size {}", "pp": "--pipeline-parallel-size {}",
             "replicas": "--data-parallel-size {}", "ep": "--enable-expert-parallel"},
    "sglang": {"tp": "--tp-size {}", "pp": "--pp-size {}", "ep": "--ep-size {}"},
    "tensorrt-llm": {"tp": "--tp_size {}", "pp": "--pp_size {}", "ep": "--ep_size {}"},
}  # fmt: skip
#: Budgets of tokens and of sequences in an iteration.
_BUDGETS = {
    "vllm": ("--max-num-batched-tokens {}", "--max-num-seqs {}"),
    "sglang": ("--chunked-prefill-size {}", "--max-running-requests {}"),
    "tensorrt-llm": ("--max_num_tokens {}", "--max_batch_size {}"),
}
#: Dtypes that need a word in vLLM and SGLang; the checkpoint's own formats need none.
_DTYPES = {
    "fp8": "--quantization fp8", "fp16": "--dtype float16", "bf16": "--dtype bfloat16", "fp32": "--dtype float32",
}  # fmt: skip


def launch_line(one: Any, layout: Mapping[str, int]) -> str:
    """The command line of one replica. Several replicas are as many commands behind a router; vLLM starts its own."""
    engine = one.one_stage.engine
    sizes = {"tp": one.tp, "pp": one.pp, "ep": one.ep, "replicas": layout.get("replicas", 1)}
    words = [_START[engine].format(model=quote(str(one.model.name)))]
    words += [form.format(sizes[name]) for name, form in _SIZES[engine].items() if sizes[name] > 1]
    words += [_DTYPES[one.dtype]] if engine != "tensorrt-llm" and one.dtype in _DTYPES else []
    words += [
        form.format(n)
        for form, n in zip(_BUDGETS[engine], (one.model.max_tokens, one.model.max_sequences), strict=True)
    ]
    return " ".join(words)
