"""How engines fill their iterations."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.errors import ForerunError, did_you_mean


@dataclass(frozen=True)
class Policy:
    """The scheduling of an engine. The first that came is the first served, everywhere."""

    name: str
    mixed: bool = True  # prompts share iterations with decoding; else they come first, in iterations of their own
    chunked: bool = True  # a prompt may be split over iterations
    reserve: bool = False  # admitted only when the KV cache has room for the whole answer: never preempted
    static: bool = False  # a batch of waiting requests runs until its longest answer ends


VLLM = Policy("vllm")
SGLANG = Policy("sglang", mixed=False)
TENSORRT_LLM = Policy("tensorrt-llm", chunked=False, reserve=True)
#: What engines replaced: for comparison.
STATIC = Policy("static", mixed=False, chunked=False, reserve=True, static=True)

POLICIES = {policy.name: policy for policy in (VLLM, SGLANG, TENSORRT_LLM)}


def policy_of(engine: str) -> Policy:
    """The policy of an engine by its name."""
    if not isinstance(engine, str) or engine not in POLICIES:
        hint = did_you_mean(engine, POLICIES) or f" Choose from {', '.join(POLICIES)}."
        raise ForerunError(f"engine {engine!r} is not known.{hint}")
    return POLICIES[engine]
