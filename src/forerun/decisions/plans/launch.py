"""The command that starts a training in a layout: torchrun with FSDP, or Megatron-LM with its flags."""

from __future__ import annotations

import math
import shlex

from forerun.device import Device
from forerun.device.links import in_machine
from forerun.graph.language_model import LanguageModel
from forerun.graph.layout import Layout
from forerun.predictors.laws.pretraining import Run

#: What transformers' Trainer calls the stages of ZeRO.
_FSDP = {2: "shard_grad_op auto_wrap", 3: "full_shard auto_wrap"}


def launch_line(model: LanguageModel, device: Device, run: Run, steps: float) -> str:
    """A line for a shell; NODES and the data are for the user to fill in."""
    layout = run.layout
    each = min(layout.devices, in_machine(device))
    start = ["torchrun", "--nnodes", str(math.ceil(layout.devices / each)), "--nproc-per-node", str(each)]
    script = _trainer if data_parallel_alone(layout) else _megatron
    return shlex.join([*start, *script(model, run, math.ceil(steps))])


def data_parallel_alone(layout: Layout) -> bool:
    """Whether PyTorch's own DDP or FSDP do it, which know no ZeRO 1."""
    return layout.tp == layout.pp == layout.cp == layout.ep == 1 and layout.zero != 1


def _trainer(model: LanguageModel, run: Run, steps: int) -> list[str]:
    """transformers' own script, run_clm.py."""
    words = [
        "run_clm.py", "--config_name", model.name, "--tokenizer_name", model.name, "--do_train", "--block_size",
        str(run.seq_len), "--per_device_train_batch_size", str(run.micro_batch), "--gradient_accumulation_steps",
        str(run.micro_batches), "--max_steps", str(steps), "--bf16", "--optim", "adamw_torch_fused",
    ]  # fmt: skip
    if run.layout.zero in _FSDP:
        words += ["--fsdp", _FSDP[run.layout.zero]]
    return [*words, "--gradient_checkpointing"] if run.recomputed else words


def _megatron(model: LanguageModel, run: Run, steps: int) -> list[str]:
    layout = run.layout
    flags: dict[str, object] = {
        "num-layers": model.layers, "hidden-size": model.width, "num-attention-heads": model.heads,
        "seq-length": run.seq_len, "max-position-embeddings": run.seq_len, "micro-batch-size": run.micro_batch,
        "global-batch-size": run.sequences, "train-iters": steps, "tensor-model-parallel-size": layout.tp,
        "pipeline-model-parallel-size": layout.pp, "context-parallel-size": layout.cp,
    }  # fmt: skip
    grouped = 0 < model.key_heads < model.heads
    if grouped:
        flags["num-query-groups"] = model.key_heads
    if model.expert_count:
        flags |= {"num-experts": model.expert_count, "moe-router-topk": model.routed}
        flags["expert-model-parallel-size"] = max(layout.ep // layout.tp, 1)
    words = ["pretrain_gpt.py", *(word for name, value in flags.items() for word in (f"--{name}", str(value)))]
    words += ["--bf16", "--use-flash-attn", *(["--group-query-attention"] if grouped else [])]
    if run.precision == "fp8":
        words += ["--fp8-format", "hybrid"]
    if layout.sp:
        words.append("--sequence-parallel")
    if layout.zero in (1, 2):
        words += ["--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"]
    if layout.zero == 3:
        words += ["--use-torch-fsdp2", "--no-gradient-accumulation-fusion"]
    if run.recomputed:
        words += ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"]
    return words
