"""Converted models on disk: the ONNX that a converter wrote, without the values of its weights."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forerun._util import limits
from forerun._util.extras import needed
from forerun._util.source_hash import modules, source_hash
from forerun.frontends.base import reading_limits
from forerun.frontends.converters import environment as converter_env
from forerun.graph.ir import Graph
from forerun.workload import Workload

_CONVERTERS = Path(__file__).parent / "scripts"


def convert_once(key: dict[str, Any] | None, run: Callable[[Path, Path], None]) -> tuple[Any, dict[str, Any]]:
    """The ONNX that `run(onnx_path, facts_path)` writes, and its facts; from the store when it ran before.

    The ONNX is the path of a kept file, or the model itself without a key.
    """
    with needed("a converted model"):
        from forerun.frontends.onnx import read as onnx_read
    made_by = source_hash(modules(_CONVERTERS), _CONVERTERS)
    name = hashlib.sha256(json.dumps([made_by, key], sort_keys=True).encode()).hexdigest()[:32] if key else ""
    store = converter_env.home() / "converted"
    kept, kept_facts = store / f"{name}.onnx", store / f"{name}.json"
    if key and kept.is_file() and kept_facts.is_file():
        return kept, json.loads(kept_facts.read_text())
    with tempfile.TemporaryDirectory(prefix="forerun-") as scratch:
        made, facts_path = Path(scratch) / "model.onnx", Path(scratch) / "facts.json"
        run(made, facts_path)
        proto = onnx_read.read(made)
        facts = json.loads(facts_path.read_text()) if facts_path.is_file() else {}
    onnx_read.drop_values(proto)
    if key:
        store.mkdir(parents=True, exist_ok=True)
        for path, data in ((kept, proto.SerializeToString()), (kept_facts, json.dumps(facts).encode())):
            partial = path.with_suffix(path.suffix + f".{id(proto)}")
            partial.write_bytes(data)
            partial.replace(path)
        return kept, facts
    return proto, facts


def graphs_from(onnx: Any, facts: dict[str, Any], workload: Workload, name: str, source: str) -> list[Graph]:
    """The graphs of a converted model, with the parameter count its own framework reports."""
    with needed("a converted model"):
        from forerun.frontends.onnx.build import build
    if isinstance(onnx, Path):  # the file that was converted may have been anybody's
        size_mb = onnx.stat().st_size / 2**20
        settings = {**workload.to_dict(), "model": None}
        limit = reading_limits(size_mb, workload)
        made = limits.run(_build_kept, str(onnx), settings, name, what=name, limits=limit)
        graphs = [Graph.from_dict(one) for one in made]
    else:
        graphs = build(onnx, workload, name)
    for graph in graphs:
        graph.facts["source"] = source
        if (parameters := facts.get("parameters")) and parameters != graph.parameters:
            graph.parameters = graph.active_parameters = int(parameters)
    return graphs


def _build_kept(path: str, settings: dict[str, Any], name: str) -> list[dict[str, Any]]:
    from forerun.frontends.onnx import build as onnx_build
    from forerun.frontends.onnx import read as onnx_read

    made = onnx_build.build(onnx_read.read(Path(path)), Workload(**{**settings, "model": path}), name)
    return [graph.to_dict() for graph in made]
