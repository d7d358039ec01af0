"""The files of prepare.py, as graphs, questions and labels; needs NumPy and the modules of gnn-llm alone."""

from __future__ import annotations

import functools
import json
import lzma
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cells import Templates, plan

from forerun.graph.description import Description, read_numbers
from forerun.predictors.published.gnn_llm import nodes, prompts
from forerun.predictors.published.gnn_llm.nodes import SCALE, Nodes
from forerun.predictors.published.gnn_llm.prompts import GRAPH, SUMMARISE
from forerun.predictors.published.gnn_llm.stages import Item

TARGETS = ("latency_ms", "memory_mb", "energy_j")
SEED, TRAINED, TESTED = 38, 1600, 400
#: The kinds of op in a cell.
CELL_KINDS = ("conv", "elementwise", "matmul", "norm", "pool", "reduce")
#: One family of networks in so many is held out of our own rows.
HELD_OUT = 5


class Data:
    """Cells that are learned from and cells that are asked about, and measured models likewise by family."""

    def __init__(self, folder: Path, trained: int = TRAINED, tested: int = TESTED) -> None:
        with np.load(folder / "cells.npz") as found:
            arrays = {name: found[name] for name in found.files}
        self.templates = Templates.of_arrays(arrays)
        self.codes, self.labels = arrays["codes"], arrays["labels"]
        self.columns = arrays["columns"].tolist()
        self.devices, self.column_batches = arrays["devices"].tolist(), arrays["column_batches"]
        self.batches = sorted(set(self.column_batches.tolist()))
        order = np.random.default_rng(SEED).permutation(len(self.codes))
        self.test_cells, self.train_cells = order[:tested], order[tested : tested + trained]
        self.unlabelled_cells = order[tested:]
        self.measured, self.rows, self.texts, self.kinds = [], [], [], set(CELL_KINDS)
        for name in ("measured", "drawn"):
            if (folder / f"{name}.json.xz").is_file():
                held = json.loads(lzma.decompress((folder / f"{name}.json.xz").read_bytes()))
                first = len(self.measured)
                self.measured += nodes.read(folder / f"{name}.graphs.xz")
                self.texts += held["texts"]
                self.kinds |= set(held.get("kinds", ()))
                self.rows += [{**row, "graph": row["graph"] + first} for row in held["rows"]]
        self.sentences = np.zeros((3, len(self.columns), 0), dtype=np.float32)
        if (folder / "devices.npz").is_file():
            with np.load(folder / "devices.npz") as found:
                places = [found["names"].tolist().index(name) for name in self.devices]
                self.sentences = found["vectors"][:, places]

    @functools.cached_property
    def _cells(self) -> dict[tuple[int, int], tuple[Nodes, Description]]:
        return {}

    def cell(self, number: int, batch: int) -> tuple[Nodes, Description]:
        """The graph and the words of a cell at a batch size, built once."""
        if (number, batch) not in self._cells:
            self._cells[number, batch] = self.templates.build(tuple(self.codes[number].tolist()), batch)
        return self._cells[number, batch]

    def work(self, number: int, batch: int) -> np.ndarray:
        """[ops, 3]: logarithms of FLOPs, MACs and parameters of every node of a cell."""
        of, at = self.templates, int(np.flatnonzero(self.templates.batches == batch)[0])
        place = {key: index for index, key in enumerate(of.keys)}
        chosen = [place[key] for key, _ in plan(tuple(self.codes[number].tolist()))]
        return np.log1p(np.column_stack([of.flops[at], of.macs[at], of.parameters])[chosen]) / SCALE

    def unlabelled(self, most: int) -> list[Nodes]:
        """Graphs of different networks: drawn and measured ones, and cells that are not asked about."""
        own = self.measured[:most]
        chosen = self.unlabelled_cells[: most - len(own)].tolist()
        return [*own, *(self.templates.build(tuple(self.codes[c].tolist()), self.batches[c % 3])[0] for c in chosen)]

    @functools.cached_property
    def scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the logarithm of each column, over the cells that are learned from."""
        logs = np.log(self.labels[self.train_cells].astype(float))
        return np.nanmean(logs, axis=0), np.nanstd(logs, axis=0) + 1e-6

    def standardised(self, cells: Sequence[int]) -> np.ndarray:
        mean, scale = self.scale
        return (np.log(self.labels[np.asarray(cells)].astype(float)) - mean) / scale

    def held_out(self, row: dict[str, Any]) -> bool:
        return zlib.crc32(str(row.get("family")).encode()) % HELD_OUT == 0

    def summaries(self, graphs: list[Nodes]) -> list[Item]:
        """Graph to text: adds the graphs of cells and of measured models that are learned from."""
        asked_about = {row["graph"] for row in self.rows if self.held_out(row)}
        out = []
        for cell in self.train_cells.tolist():
            for batch in self.batches:
                out.append(Item(SUMMARISE, self._described(cell, batch), (len(graphs),)))
                graphs.append(self.cell(cell, batch)[0])
        for place, text in enumerate(self.texts):
            if place not in asked_about:
                out.append(Item(SUMMARISE, text, (len(graphs),)))
                graphs.append(self.measured[place])
        return out

    def _described(self, cell: int, batch: int) -> str:
        return self.cell(cell, batch)[1].text()

    def questions(self, cells: Sequence[int], graphs: list[Nodes], words: str = "") -> list[tuple[int, int, Item]]:
        """(place of the cell, column, question with its answer) of every label; adds the graphs."""
        first: dict[tuple[int, int], int] = {}
        out = []
        for at, cell in enumerate(np.asarray(cells).tolist()):
            for column in np.flatnonzero(np.isfinite(self.labels[cell])).tolist():
                batch = int(self.column_batches[column])
                if (cell, batch) not in first:
                    first[cell, batch] = len(graphs)
                    graphs.append(self.cell(cell, batch)[0])
                row = {"batch": batch, "mode": "inference", "dtype": "fp32"}
                stand_in = _words(self._described(cell, batch), words)
                prompt = prompts.question("latency_ms", self.devices[column], row, stand_in)
                answer = prompts.number_text(float(self.labels[cell, column]))
                out.append((at, column, Item(prompt, answer, () if words else (first[cell, batch],))))
        return out

    def measured_questions(self, graphs: list[Nodes], held_out: bool, words: str = "") -> list[tuple[int, str, Item]]:
        """(row, target, question with its answer) of our own rows and published ones; adds the graphs."""
        first = len(graphs)
        graphs += self.measured
        out = []
        for place, row in enumerate(self.rows):
            if self.held_out(row) != held_out:
                continue
            for target in TARGETS:
                if row.get(target):
                    prompt = prompts.question(target, row["device"], row, _words(self.texts[row["graph"]], words))
                    answer = prompts.number_text(float(row[target]))
                    out.append((place, target, Item(prompt, answer, () if words else (first + row["graph"],))))
        return out


def _words(text: str, words: str) -> str:
    """What stands in the place of a graph: its soft tokens, its words, or its numbers as JSON."""
    if words == "json":
        return json.dumps({name: float(f"{value:.3g}") for name, value in read_numbers(text).items()})
    return text if words == "text" else GRAPH
