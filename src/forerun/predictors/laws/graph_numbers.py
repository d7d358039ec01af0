"""A graph as one line of numbers: columns of a table of cases, and features of predictors that see no ops."""

from __future__ import annotations

from forerun.graph.ir import Graph
from forerun.graph.profile import Profile

#: Of a graph at any batch, and of a graph at one batch. whole_model/numbers.py says what each of them is.
GRAPH_NUMBERS = (
    "nodes", "edges", "parameters", "convolutions", "linears", "relus", "attentions", "heads", "hidden", "vocabulary",
    "token_types", "positions", "filters",
)  # fmt: skip
WORK_NUMBERS = ("macs", "bytes")
#: A second table of embeddings with at most this many rows is that of token types.
_FEW_TYPES = 16


def of_graph(columns: Profile) -> dict[str, float]:
    """GRAPH_NUMBERS and WORK_NUMBERS of a graph at its first batch size."""
    graph, repeat = columns.graph, columns.repeat
    forward = [i for i, op in enumerate(graph.ops) if op.phase == "forward"]

    def count(kind: str) -> float:
        return float(sum(repeat[i] for i in forward if graph.ops[i].kind == kind))

    return {
        "nodes": float(repeat.sum()),
        "edges": float(sum(repeat[consumer] for _, consumer in graph.edges())),
        "parameters": float(graph.parameters),
        "convolutions": count("conv"),
        "linears": count("matmul") + count("moe_matmul"),
        "relus": float(sum(repeat[i] for i in forward if "relu" in graph.ops[i].name)),
        "attentions": count("attention"),
        **_language_model(graph),
        "positions": float(graph.facts.get("context_limit") or 0),
        "filters": _filters(graph),
        "macs": float(repeat @ columns.macs[:, 0]),
        "bytes": float(repeat @ columns.bytes[:, 0]),
    }


def _filters(graph: Graph) -> float:
    """Output channels of the first convolution, which has them second in its output."""
    first = next((op for op in graph.ops if op.kind == "conv"), None)
    return 0.0 if first is None else float(graph.tensors[first.outputs[0]].shape[1])


def _language_model(graph: Graph) -> dict[str, float]:
    """Numbers of a language model, from the shapes of its embeddings and attention: every graph has these."""
    tables = [graph.tensors[op.inputs[0]].shape for op in graph.ops if op.kind == "embedding" and op.inputs]
    rows = sorted({shape[0] for shape in tables if len(shape) == 2}, reverse=True)
    queries = [graph.tensors[op.inputs[0]].shape for op in graph.ops if op.kind == "attention" and op.inputs]
    first = next((shape for shape in queries if len(shape) == 4), (0, 0, 0, 0))
    return {
        "heads": float(first[1]), "hidden": float(first[1] * first[3]), "vocabulary": float(rows[0] if rows else 0),
        "token_types": float(next((n for n in rows[1:] if n <= _FEW_TYPES), 0)),
    }  # fmt: skip
