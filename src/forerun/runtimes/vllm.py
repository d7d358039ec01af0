"""vLLM: chunked prefill, CUDA graphs of whole iterations in decode, its own one-shot all-reduce."""

from __future__ import annotations

from forerun.runtimes.engine import Engine


class Vllm(Engine):
    name = "vllm"
    all_reduce = "vllm-graph"
    block = 16
    max_tokens = 8192
    max_sequences = 1024
