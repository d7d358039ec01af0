"""The collector's tables of AIConfigurator: from the repository, or from a Parquet copy that was sampled from it.

In the repository a table is systems/data/SYSTEM/FAMILY/BACKEND/VERSION/TABLE.parquet, in older commits without the
family and as CSV (TABLE.txt). For each system, backend and table the newest version is read that is not an addition
to an older one; for collectives, which are few, every version. The tables have 24 million rows, of which training uses
a few hundred per operator and GPU, so a fixed sample of each is imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from forerun.data.importers._files import missing, read

#: Our name of a table -> the authors' file name.
TABLES = {
    "gemm": "gemm_perf", "attention_context": "context_attention_perf",
    "attention_generation": "generation_attention_perf", "moe": "moe_perf", "nccl": "nccl_perf",
    "custom_allreduce": "custom_allreduce_perf",
}  # fmt: skip
COLLECTIVES = ("nccl", "custom_allreduce")
#: Files of the copy; the second GEMM file has power.
COPIES = {"gemm": ("gemm", "gemm_power_h200")}
SERVING = "silicon_sample.csv"
ROWS_PER_TABLE = 20_000
_SYSTEMS = ("aic-core/src/aiconfigurator_core/systems", "src/aiconfigurator/systems")
#: An example of silicon_data_source: "…; silicon_concurrency=128; measured=2026-04-17T00:00:00.000Z; …"
_IN_FLIGHT, _MEASURED = r"silicon_concurrency=(\d+)", r"measured=(\d{4}-\d\d-\d\d)"


@dataclass(frozen=True)
class Found:
    """The systems folder of the repository, or a folder of Parquet copies."""

    folder: Path
    copied: bool

    def read(self, name: str) -> pd.DataFrame:
        """A table with all its files concatenated."""
        if self.copied:
            frames = [pd.read_parquet(self.folder / f"{part}.parquet") for part in COPIES.get(name, (name,))]
        else:
            frames = [_sampled(read(path), name).assign(**where) for where, path in self._files(name)]
        if not frames:
            raise missing(f"data/*/*/*/*/{TABLES[name]}.parquet", f"{name}.parquet")
        return pd.concat([_plain(frame) for frame in frames], ignore_index=True)

    def serving(self) -> pd.DataFrame:
        """The runs of complete requests."""
        if self.copied:
            return pd.read_parquet(self.folder / "serving_end_to_end.parquet")
        runs = read(self.folder / SERVING)
        source = runs["silicon_data_source"].astype("string")
        return runs.assign(
            concurrency=source.str.extract(_IN_FLIGHT)[0].astype("float64"),
            measured_date=source.str.extract(_MEASURED)[0].astype(object),
            is_exact_dup=runs.duplicated([name for name in runs if name not in ("id", "silicon_data_source")]),
        )

    def _files(self, name: str) -> Iterator[tuple[dict[str, str], Path]]:
        """(system, backend and version, file) of every table that is read."""
        versions: dict[tuple[str, str], list[tuple[str, Path]]] = {}
        for path in sorted(self.folder.glob(f"data/**/{TABLES[name]}.*")):
            system, *_, backend, version, _ = path.relative_to(self.folder / "data").parts
            if path.suffix in (".parquet", ".txt"):
                versions.setdefault((system, backend), []).append((version, path))
        for (system, backend), paths in versions.items():
            paths.sort(key=lambda pair: _order(pair[0]))
            for version, path in paths if name in COLLECTIVES else [_newest_whole(paths)]:
                yield {"system": system, "backend_dir": backend, "version_dir": version}, path


def find(folder: Path) -> Found:
    """Locates the tables."""
    for place in (*(folder / systems for systems in _SYSTEMS), folder):
        if (place / "data").is_dir():
            return Found(place, copied=False)
    return Found(folder, copied=True)


def _newest_whole(versions: list[tuple[str, Path]]) -> tuple[str, Path]:
    """The last of the sorted versions whose file is at least half as large as the largest."""
    largest = max(path.stat().st_size for _, path in versions)
    return [pair for pair in versions if pair[1].stat().st_size >= largest / 2][-1]


def _sampled(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """A fixed sample of a large table, in its order."""
    if name in COLLECTIVES or len(frame) <= ROWS_PER_TABLE:
        return frame
    return frame.sample(ROWS_PER_TABLE, random_state=0).sort_index()


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with 64-bit integers (the copies hold smaller ones, which would overflow) and text for categories."""
    frame = frame.astype(dict.fromkeys(frame.select_dtypes("integer"), "int64"))
    return frame.astype(dict.fromkeys(frame.select_dtypes("category"), object))


def _order(version: str) -> tuple[list[int], bool, list[int]]:
    """The sort key of a version: 1.2.0rc5 comes before 1.2.0, 0.5.10 after 0.5.9."""
    release, pre, rest = re.fullmatch(r"([\d.]*)(rc|dev|a|b)?(.*)", version).groups()  # type: ignore[union-attr]
    numbers = [int(n) for n in re.findall(r"\d+", release)]
    return numbers, pre is None, [int(n) for n in re.findall(r"\d+", rest)]
