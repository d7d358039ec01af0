"""The contract of an importer, which converts a published data set into rows of the store and selects training rows.

An importer is a class that an installed package names under the entry point group `forerun.importers`, or that a
notebook passes to `forerun.register`:

    [project.entry-points."forerun.importers"]
    my_bench = "my_package.bench:MyBenchImporter"

`forerun data import my_bench FOLDER` then imports its rows. The constructor takes no arguments and must be cheap.

An importer reads the files as published by their authors (a clone of the repository, or the folder in it), converts
units to ours (milliseconds, MB of 2**20 bytes, joules, watts) and leaves unknown values null. It drops rows that the
source warns about and counts them, with the reason, in `Loaded.dropped`.

Importing a set does not make it training data. An importer states that with `operator_rows` for rows of operators, and
by overriding `model_rows` for rows of whole models; `timing_group` states how the rows were timed.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from forerun.graph.ir import Graph
    from forerun.workload import Workload


@dataclass
class Loaded:
    """Tables of rows (by names of `schema.TABLES`), and the number of dropped rows by reason."""

    tables: dict[str, pd.DataFrame]
    dropped: dict[str, int] = field(default_factory=dict)

    def drop(self, frame: pd.DataFrame, bad: pd.Series, reason: str) -> pd.DataFrame:
        """Removes the bad rows of a frame and counts them."""
        count = int(bad.sum())
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + count
        return frame[~bad]


@dataclass(frozen=True)
class Source:
    """A repository at a commit."""

    repository: str
    commit: str

    @property
    def folder(self) -> str:
        """The folder of `git clone`."""
        return self.repository.rstrip("/").rpartition("/")[2]

    @property
    def clone(self) -> str:
        """The shell command that fetches the repository at the commit."""
        return f"git clone {self.repository} && git -C {self.folder} checkout {self.commit}"


class Importer(ABC):
    """One published data set."""

    #: The value of column `dataset`, and NAME in `forerun data import NAME FOLDER`.
    name: str
    #: What was measured, in one line.
    about: str
    #: The licence of the data, as an SPDX identifier.
    licence: str
    #: The repository (URL), and the commit for which the importer was written.
    source: str
    commit: str
    #: Further repositories of the set; all are cloned side by side into one folder.
    more_sources: tuple[Source, ...] = ()

    #: The preparation that the files need before import; empty if they are read as published.
    prepared: str = ""

    #: The number of operator rows for training, per device, operator, dtype, runtime and protocol.
    operator_rows: int = 0

    @abstractmethod
    def load(self, folder: Path) -> Loaded:
        """Reads the rows in a folder. FileNotFoundError, KeyError, ValueError and TypeError are reported in a sentence.

        Columns `dataset` and `status` may be omitted: they are filled with `name` and `ok`.
        """

    def timing_group(self, rows: pd.DataFrame) -> pd.Series:
        """The timing group of each row; training fits a launch floor to each group.

        The empty name is for rows that were timed like ours, without a launch floor.
        """
        return pd.Series(self.name, index=rows.index, dtype=object)

    def model_rows(self, rows: pd.DataFrame) -> pd.DataFrame | None:
        """The rows of complete models that training uses, one row per case; None if the set has none.

        `rows` are rows of this set with a time, eager or compiled, on one GPU of the catalogue. The result has
        `case_key` (equal for the same program on different devices), `latency_ms` (the median of repeats) and `copy_ms`
        (the part of it that copies inputs to the device); `one_row_a_case` makes both.
        """
        return None

    def workload(self, row: dict[str, Any]) -> Workload:
        """The workload of a row of `model_rows`."""
        from forerun.workload import Workload

        training = row["mode"] == "training"
        return Workload(
            str(row["model"]),
            batch=int(row["batch"]),
            dtype=str(row["dtype"]),
            mode=str(row["mode"]),
            input_shape=tuple(json.loads(row["input_shape"])) if _known(row.get("input_shape")) else None,
            seq_len=int(row["seq_len"]) if _known(row.get("seq_len")) else None,
            optimizer=str(row["optimizer"]) if training and _known(row.get("optimizer")) else None,
            amp=str(row["amp"]) if _known(row.get("amp")) else None,
            runtime=str(row["runtime"]) if _known(row.get("runtime")) else "eager",
        )

    def graph(self, workload: Workload, software: object = None) -> Graph:
        """The graph that was timed, if it differs from the workload's; `software` is that of the row (JSON or null)."""
        from forerun.frontends import load_graph
        from forerun.runtimes.registry import as_run

        return as_run(load_graph(workload), workload.runtime)

    @property
    def models_in_training(self) -> bool:
        """Whether rows of complete models are training data."""
        return type(self).model_rows is not Importer.model_rows

    @property
    def in_training(self) -> bool:
        """Whether any row of the set is training data."""
        return self.operator_rows > 0 or self.models_in_training

    @property
    def sources(self) -> tuple[Source, ...]:
        """Every repository of the set."""
        return (Source(self.source, self.commit), *self.more_sources)

    @property
    def command(self) -> str:
        """The command that imports the set, run in the folder of its cloned repositories."""
        folder = "FOLDER" if self.prepared else "." if self.more_sources else self.sources[0].folder
        return f"forerun data import {self.name} {folder}"


def _known(value: Any) -> bool:
    return value is not None and value == value
