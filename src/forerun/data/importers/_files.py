"""Locates the files of a set: in a clone of the authors' repository, in the folder inside it, or as Parquet copies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

_POINTER = b"version https://git-lfs"


def roots(folder: Path, inner: str) -> Iterator[Path]:
    """Where the files of a repository may be: `inner` of a clone, or the folder itself."""
    for place in (folder / inner, folder):
        if place.is_dir():
            yield place


def matching(folder: Path, inner: str, pattern: str) -> list[Path]:
    """The files that match in `inner` of a clone or in the folder itself, sorted by name; empty when there are none."""
    return next((paths for place in roots(folder, inner) if (paths := sorted(place.glob(pattern)))), [])


def read(path: Path) -> pd.DataFrame:
    """Reads a Parquet or CSV file; a file that Git LFS did not fetch raises an error."""
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise ValueError(f"{path.name} was not fetched: run git lfs pull in the clone")
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, low_memory=False)


def table(folder: Path, theirs: str, ours: str) -> pd.DataFrame:
    """Reads one table: the authors' CSV file (a path in their repository), or a Parquet copy of it."""
    copy, csv = folder / ours, Path(theirs)
    paths = [copy] if copy.exists() else matching(folder, str(csv.parent), csv.name)
    if not paths:
        raise missing(theirs, ours)
    return read(paths[0])


def missing(*names: str) -> FileNotFoundError:
    """The error if the folder has none of these files."""
    return FileNotFoundError(" or ".join(names))
