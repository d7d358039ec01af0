"""Data sets known by name, and which images the store's accuracy curves were trained on."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.device.reading import key, read_yaml, unknown


@dataclass(frozen=True)
class DataSet:
    """How many samples a data set has for training and for evaluation, with the source."""

    id: str
    name: str
    training: int
    evaluation: int
    source: str
    date: str


def load_dataset(name: str) -> DataSet:
    """A data set by its name; exact but for case, space, underscore and dash."""
    known, names = _datasets()
    if key(name) not in names:
        raise unknown("data set", name, names, f"Known are {', '.join(known)}; else give dataset_size.")
    return known[names[key(name)]]


def dataset_names() -> list[str]:
    """The data sets that are known by name."""
    return list(_datasets()[0])


def curve_datasets(of: str) -> dict[str, DataSet]:
    """The subsets of this data set behind the store's curves, by the data set of the rows."""
    curves = _content()["curves"]
    return {rows: _made(rows, entry) for rows, entry in curves.items() if entry["of"] == of}


@functools.cache
def _datasets() -> tuple[dict[str, DataSet], dict[str, str]]:
    entries = _content()["datasets"]
    names = {
        key(name): dataset_id
        for dataset_id, entry in entries.items()
        for name in (dataset_id, entry["name"], *entry.get("also", ()))
    }
    return {dataset_id: _made(dataset_id, entry) for dataset_id, entry in entries.items()}, names


def _made(name: str, entry: dict[str, Any]) -> DataSet:
    return DataSet(
        name, entry["name"], entry["training"], entry["evaluation"], entry["source"], str(entry["date"])
    )  # fmt: skip


@functools.cache
def _content() -> dict[str, Any]:
    return read_yaml(Path(__file__).with_name("datasets.yaml"))
