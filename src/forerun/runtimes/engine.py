"""What serving engines (vLLM, SGLang, TensorRT-LLM) share as runtimes: CUDA graphs, formats of weights, budgets; their
fusions are in fuse_engine.py, their efficiencies in predictors/laws/engines.py."""

from __future__ import annotations

from typing import ClassVar

from forerun.graph.ir import Graph
from forerun.runtimes.base import Chip, LaunchCosts, Run, Runtime
from forerun.runtimes.cudagraph import HAVE_GRAPHS
from forerun.runtimes.fuse_engine import fuse_engine

#: Modes that an engine has.
MODES = ("prefill", "decode")
#: Modules that checkpoints in 8 and 4 bits leave in half precision, as engines expect.
IN_HALF_PRECISION = ("lm_head", "embed_out", "mlp.gate", "mlp.router", "block_sparse_moe.gate", "shared_expert_gate")


class Engine(Runtime):
    """What the engines share; each states its name and which machines it has."""

    devices: ClassVar[tuple[str, ...] | None] = HAVE_GRAPHS
    dequantises_in_kernels = True
    weight_kernels = "awq"
    never_quantised = IN_HALF_PRECISION
    #: Iterations replay CUDA graphs; what the scheduler adds to each is in predictors/shipped/engines.json.
    launch = LaunchCosts(host_share=0.0, call_us=20.0, floor_share=0.6)
    replays = True
    engine = True
    calls_modules = False
    #: The all-reduce of its iterations (predictors/laws/collectives.py).
    all_reduce: ClassVar[str]
    #: Tokens of a block of its cache, and its own budgets of tokens and of sequences in an iteration.
    block: ClassVar[int] = 16
    max_tokens: ClassVar[int] = 8192
    max_sequences: ClassVar[int] = 256
    #: The share of the device's memory that it takes for weights, activations and cache.
    memory_share: ClassVar[float] = 0.9

    def problem(self, run: Run) -> str | None:
        if run.mode in MODES and not run.amp and not run.channels_last:
            return None
        return f"{self.name} serves language models: it has the modes prefill and decode, without amp and channels_last"

    def device_problem(self, chip: Chip) -> str | None:
        return None if self.runs_on(chip) else f"{self.name} is answered on GPUs, and {chip.id} is a {chip.kind}"

    def made_of(self, graph: Graph) -> Graph:
        return fuse_engine(graph)

    def why_not_measured(self, mode: str) -> str | None:
        return f"{self.name} is a server of its own, which forerun predicts and does not start: measure eager PyTorch"
