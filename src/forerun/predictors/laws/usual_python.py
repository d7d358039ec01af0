"""Python that a model runs beside PyTorch's, and that the host's launch costs do not have.

Modules call each other in Python, so that the costs of launches, views and modules contain the Python of usual models:
of 96 of them (timm, torchvision, transformers, our families), the calls follow from their modules and launches to 10 %
on average. What a model calls beyond that (tensors rearranged by name, messages between nodes, objects of settings)
costs the host time that no prediction has: in rows of packages it explained nothing of their errors, since these
networks call hardly more than usual ones, so that it is shown and not added.
"""

from __future__ import annotations

from forerun.graph.ir import Graph

#: Calls of Python functions in usual models: by module, view and launch of the forward pass, by a model of
#: transformers, and by any call.
BY_MODULE, BY_VIEW, BY_LAUNCH, BY_TRANSFORMERS, BY_CALL = 7.7, 0.19, 0.37, 437.0, 6.2
#: Microseconds of a call of a Python function with what it does: between 0.28 and 0.46 in modules, einops, OmegaConf
#: and configs of transformers; and how much of it a call of a C function is.
FUNCTION_US, C_FUNCTION = 0.35, 0.25
#: Calls of C functions by call of a Python function in usual models (nine of ten have fewer).
C_BY_FUNCTION = 0.42


def usual_calls(graph: Graph) -> float | None:
    """How many Python functions a usual model of as many modules and launches calls; None where nothing is known."""
    host = graph.facts.get("host_calls", {})
    if "modules" not in host or "views" not in host:
        return None
    launches = sum(op.repeat for op in graph.ops if op.phase == "forward")
    by_parts = BY_MODULE * host["modules"] + BY_VIEW * host["views"] + BY_LAUNCH * launches
    return float(by_parts + BY_TRANSFORMERS * host.get("transformers", 0) + BY_CALL)


def beyond_usual_ms(graph: Graph) -> float:
    """Milliseconds of the reference host for the calls beyond those of a usual model; 0 where they were not counted."""
    calls, usual = graph.python_calls(), usual_calls(graph)
    if calls is None or usual is None:
        return 0.0
    functions, c_functions = calls
    return max(0.0, functions + C_FUNCTION * c_functions - usual * (1 + C_FUNCTION * C_BY_FUNCTION)) * FUNCTION_US / 1e3
