"""The command with which an engine's own program serves a model in a layout."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from forerun.serving.context import context_tokens

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
#: The load of a benchmark against the running server, from each engine's own documentation. Lengths do not vary, and
#: an end token does not end an answer early.
_BENCH = {
    "vllm": "vllm bench serve --model {model} --dataset-name random --ignore-eos",
    "sglang": "python -m sglang.bench_serving --backend sglang --model {model} --dataset-name random "
    "--random-range-ratio 1.0",
    "tensorrt-llm": "python -m tensorrt_llm.serve.scripts.benchmark_serving --model {model} --backend openai "
    "--dataset-name random --random-ids --ignore-eos",
}
#: Dtypes that need a word in vLLM and SGLang; the checkpoint's own formats need none.
_DTYPES = {
    "fp8": "--quantization fp8", "fp16": "--dtype float16", "bf16": "--dtype bfloat16", "fp32": "--dtype float32",
}  # fmt: skip


def launch_line(one: Any, layout: Mapping[str, int]) -> str:
    """The command line of one replica. Several replicas are as many commands behind a router; vLLM starts its own, but
    not where experts are divided, which it would divide among all of them."""
    engine = one.one_stage.engine
    sizes = {"tp": one.tp, "pp": one.pp, "ep": one.ep, "replicas": layout.get("replicas", 1) if one.ep == 1 else 1}
    words = [_START[engine].format(model=quote(str(one.model.name)))]
    words += [form.format(sizes[name]) for name, form in _SIZES[engine].items() if sizes[name] > 1]
    words += [_DTYPES[one.dtype]] if engine != "tensorrt-llm" and one.dtype in _DTYPES else []
    words += [
        form.format(n)
        for form, n in zip(_BUDGETS[engine], (one.model.max_tokens, one.model.max_sequences), strict=True)
    ]
    return " ".join(words + _context(one, engine))


def _context(one: Any, engine: str) -> list[str]:
    """vLLM does not start where its cache cannot hold a request as long as the model's context."""
    context, room = context_tokens(str(one.model.name)), int(one.model.kv_tokens)
    short = engine == "vllm" and context is not None and 16 <= room < context
    return [f"--max-model-len {room - room % 16}"] if short else []


def bench_line(one: Any, load: Mapping[str, Any], requests: int) -> str | None:
    """The command that puts this load on the running server and reports the same quantities; None for a load that the
    engine's own benchmark does not have."""
    if "trace" in load or {"input_spread", "output_spread", "prefix", "cv"} & set(load):
        return None
    asked = f"--request-rate {load['rate']:g}" if "rate" in load else f"--max-concurrency {load['concurrency']}"
    return (
        f"{_BENCH[one.one_stage.engine].format(model=quote(str(one.model.name)))} --random-input-len "
        f"{load['input']:.0f} --random-output-len {load['output']:.0f} --num-prompts {requests} {asked}"
    )


def checkpoint_note(engine: str, dtype: str) -> str | None:
    """What the command leaves to the checkpoint: formats that no option of the engine converts weights to."""
    if dtype in ("int8", "int4") or (dtype == "fp8" and engine == "tensorrt-llm"):
        return f"{engine} runs {dtype} from a checkpoint stored in {dtype}: give the command the name of one"
    return None
