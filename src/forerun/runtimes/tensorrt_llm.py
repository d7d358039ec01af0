"""TensorRT-LLM: kernels of its own for attention, experts and all-reduce, CUDA graphs in decode."""

from __future__ import annotations

from forerun.runtimes.engine import Engine


class TensorRtLlm(Engine):
    name = "tensorrt-llm"
    also_called = ("trtllm", "trt-llm", "tensorrt_llm")
    all_reduce = "trt-llm-graph"
    block = 32
    max_tokens = 8192
    max_sequences = 2048
