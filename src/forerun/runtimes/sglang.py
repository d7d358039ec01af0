"""SGLang: a radix tree of cached prefixes, chunked prefill, CUDA graphs in decode."""

from __future__ import annotations

from forerun.runtimes.engine import Engine


class Sglang(Engine):
    name = "sglang"
    all_reduce = "sglang-graph"
    block = 1
    max_tokens = 8192
    max_sequences = 1024
    memory_share = 0.88
