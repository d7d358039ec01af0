"""The store: Parquet files in a folder per table, queried with DuckDB, without a server and without locks for readers.

Every append is a new file, written elsewhere and moved into place, so that readers and other writers see it completely
or not at all. Small files are merged from time to time; a merged file lists those that it replaces, which are then
ignored. A file that cannot be read is moved to `set_aside` instead of being deleted, and no command fails. Files of an
older schema that lack more than later columns are rewritten when first read; shipped ones, which are read-only, are
converted on every read.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from forerun._util.extras import needed
from forerun.data import schema
from forerun.data.completed import completed
from forerun.data.places import default_folder, require_table, shipped_folder
from forerun.errors import ForerunError

with needed("the store of measurements"):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as pads
    import pyarrow.parquet as pq

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")

META = b"forerun"
LEAN = "lean"  # metadata of a file: it omits schema.DERIVED
MERGE_FILES, SMALL_BYTES = 64, 2**20
TRIES = 5  # attempts of a reader whose files are removed by a merge
_SIMULATED = "simulated"  # the column that says which predictor made a row
STALE_S = 3600.0  # a part file of this age was left by a writer that died
#: Restrictions of SQL, which a query cannot lift. Nothing is spilled to disk.
LOCKED_DOWN = (
    "temp_directory = ''", "memory_limit = '4GB'", "autoinstall_known_extensions = false",
    "autoload_known_extensions = false", "python_enable_replacements = false", "enable_external_access = false",
    "lock_configuration = true",
)  # fmt: skip


class Store:
    """A folder of tables that can be appended to, combined with the shipped ones."""

    def __init__(self, folder: str | Path | None = None, *, shipped: bool = True) -> None:
        self.folder = Path(folder) if folder is not None else default_folder()
        self.shipped = shipped
        self.set_aside: list[Path] = []  # files found broken by this object

    # -- writing ------------------------------------------------------------------------------------------------------

    def append(self, table: str, rows: pd.DataFrame | Iterable[Mapping[str, Any]]) -> int:
        """Adds rows atomically, safe with concurrent writers. Returns their number."""
        data = schema.conform(table, rows)
        if data.num_rows:
            self._write(table, data, {})
            self._merge_small(table)
        return data.num_rows

    def append_new(self, table: str, rows: pd.DataFrame | Iterable[Mapping[str, Any]]) -> int:
        """Adds the rows with a new row_id; returns their number."""
        data = schema.conform(table, rows)
        with self._locked(table):
            known = set(self.read(table, columns=["row_id"], simulated=True)["row_id"])
            fresh = [i not in known and not known.add(i) for i in data["row_id"].to_pylist()]  # type: ignore[func-returns-value]
            new = data.filter(pa.array(fresh, pa.bool_()))
            if new.num_rows:
                self._write(table, new, {})
        self._merge_small(table)
        return int(new.num_rows)

    def replace(self, dataset: str, tables: Mapping[str, pd.DataFrame]) -> dict[str, int]:
        """Adds a published data set, replacing an earlier import of it."""
        counts = {}
        for table, rows in tables.items():
            data = schema.conform(table, rows)
            with self._locked(table):
                now, replaced = self._listing(table)
                _remove(self.folder / table / name for name in replaced)
                old = [f for f in now if _meta(f).get("dataset") == dataset]
                about = {"dataset": dataset, "replaces": [f.name for f in old]}
                self._write(table, data, about)
                _remove(old)
            counts[table] = data.num_rows
        return counts

    def _write(self, table: str, data: pa.Table, about: dict[str, Any]) -> Path:
        place = self.folder / table
        try:
            place.mkdir(parents=True, exist_ok=True)
            name = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:16]}.parquet"
            return write_file(place / name, table, data, about)
        except OSError as error:
            raise ForerunError(f"the store cannot be written: {error.strerror or error} ({place})") from error

    def _merge_small(self, table: str) -> None:
        """Merges small files into one, unless another process is doing so."""
        if sum(1 for _ in (self.folder / table).glob("*.parquet")) < MERGE_FILES:
            return
        with self._locked(table, wait=False) as locked:
            if not locked:
                return
            now, replaced = self._listing(table)  # under the lock no other process removes files
            small = [f for f in now if f.stat().st_size < SMALL_BYTES and not _meta(f).get("dataset")]
            if len(small) < MERGE_FILES // 2:
                return
            # Files that an earlier merge replaced but could not remove go first, so that they never count again.
            _remove(self.folder / table / name for name in replaced)
            data = pa.concat_tables([pq.read_table(f, schema=schema.TABLES[table]) for f in small])
            self._write(table, data, {"replaces": [f.name for f in small]})
            _remove(small)
            for part in (self.folder / table).glob(".*.part"):
                with contextlib.suppress(OSError):
                    if time.time() - part.stat().st_mtime > STALE_S:
                        part.unlink()

    @contextlib.contextmanager
    def _locked(self, table: str, wait: bool = True) -> Iterator[bool]:
        """Holds the table's lock; False instead of waiting where `wait` is False and another process holds it."""
        with needed("the store of measurements"):
            from filelock import FileLock, Timeout

        place = self.folder / table
        try:
            place.mkdir(parents=True, exist_ok=True)
            lock = FileLock(place / ".lock", timeout=-1 if wait else 0)
            lock.acquire()
        except Timeout:
            yield False
            return
        except OSError as error:
            raise ForerunError(f"the store cannot be written: {error.strerror or error} ({place})") from error
        try:
            yield True
        finally:
            lock.release()

    # -- reading ------------------------------------------------------------------------------------------------------

    def files(self, table: str) -> list[Path]:
        """The table's files, shipped ones first; broken ones are set aside, older ones rewritten in today's schema."""
        return self._shipped(table) + self._listing(table)[0]

    def _shipped(self, table: str) -> list[Path]:
        return sorted((shipped_folder(table) / table).glob("*.parquet")) if self.shipped else []

    def _listing(self, table: str) -> tuple[list[Path], set[str]]:
        """The current files, and the names of those that a merge replaced."""
        for attempt in range(TRIES):
            try:
                return self._look(table)
            except FileNotFoundError:  # merged into a file that was not listed yet: list again
                if attempt == TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def _look(self, table: str) -> tuple[list[Path], set[str]]:
        files: list[Path] = []
        replaced: set[str] = set()
        for file in sorted((self.folder / table).glob("*.parquet")):
            try:
                about = _meta(file)
                version = int(about["schema"])
            except (pa.ArrowInvalid, KeyError, ValueError, TypeError):
                self._put_aside(file)
                continue
            if version > schema.SCHEMA_VERSION:
                raise ForerunError(f"{file} was written by a newer forerun (schema {version}); update this one")
            if not schema.reads_as_it_is(version):
                metadata = {k: v for k, v in about.items() if k != "schema"}
                write_file(file, table, schema.migrate(table, pq.read_table(file), version), metadata)
            replaced.update(about.get("replaces", ()))
            files.append(file)
        return [file for file in files if file.name not in replaced], replaced

    def _put_aside(self, file: Path) -> None:
        aside = self.folder / "set_aside"
        aside.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.replace(file, aside / file.name)
            self.set_aside.append(aside / file.name)

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection with a view per table, whose SQL can read nothing else. `models` has an additional
        column, `kind` (domains.py). Rows that a predictor made are in `simulated_models` alone.

        Arrow reads the files, so that DuckDB needs no access to files, network, extensions or Python variables. Even a
        statement that parses as SELECT could write in DuckDB (`with a as (copy ...)`).
        """
        from forerun.data import domains

        with needed("a query"):
            import duckdb

        link = duckdb.connect(":memory:")
        with contextlib.suppress(duckdb.InvalidInputException):  # in Jupyter without ipywidgets there is no bar
            link.execute("set enable_progress_bar = false")  # it would be printed into what --json prints
        for table in schema.TABLES:
            parts = self._parts(table)
            for number, part in enumerate(parts):
                link.register(f"_{table}_{number}", part)
            every = " union all by name ".join(f"select * from _{table}_{number}" for number in range(len(parts)))
            kind = f", {domains.sql()} as kind" if table == "models" else ""
            made = _SIMULATED in schema.TABLES[table].names
            measured = f" where {_SIMULATED} is null" if made else ""
            link.execute(f"create view {table} as select *{kind} from ({every}){measured}")
            if made:
                link.execute(
                    f"create view simulated_{table} as select *{kind} from ({every}) where {_SIMULATED} is not null"
                )
        for setting in LOCKED_DOWN:
            link.execute(f"set {setting}")
        return link

    def _parts(self, table: str) -> list[Any]:
        """The data sets of a table's view: its files, converted if they have an older schema."""
        files = [_complete(file, table) for file in self.files(table)]
        older = [file for file in files if not _is_current(file)]
        current = [str(file) for file in files if file not in older]
        parts: list[Any] = [_converted(file, table) for file in older]
        if current:
            parts.append(pads.dataset(current, schema=schema.TABLES[table], format="parquet"))
        return parts or [schema.TABLES[table].empty_table()]

    def query(self, sql: str) -> pd.DataFrame:
        """The result of one SQL query over the tables, without limits; see `sql.answer`."""
        return self.run(sql, lambda link, text: link.execute(text).df())

    def run(self, sql: str, take: Callable[[duckdb.DuckDBPyConnection, str], T]) -> T:
        """The result of `take` for a connection and one SELECT. Raises a ForerunError if the SQL is not valid."""
        with needed("a query"):
            import duckdb
        try:
            statements = duckdb.extract_statements(sql)
            if [str(one.type).rpartition(".")[2] for one in statements] != ["SELECT"]:
                raise ForerunError(f"a query is one SELECT statement over {', '.join(schema.TABLES)}")
            for attempt in range(TRIES):
                files = [file for table in schema.TABLES for file in self.files(table)]
                try:
                    return take(self.connect(), sql)
                except (duckdb.Error, OSError):
                    # A file may have been merged since it was listed: try again.
                    if attempt == TRIES - 1 or all(file.exists() for file in files):
                        raise
        except (duckdb.Error, OSError, ValueError, TypeError, OverflowError) as error:
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise ForerunError(f"the query failed: {reason}") from error
        raise AssertionError("unreachable")

    def read(
        self, table: str, *, columns: list[str] | None = None, filters: Any = None, simulated: bool = False
    ) -> pd.DataFrame:  # fmt: skip
        """A table, or its rows that pass the Parquet filters. Rows that a predictor made are not among them, unless
        `simulated` asks for these too."""
        if self.shipped:
            require_table(table)
        if not simulated and _SIMULATED in schema.TABLES[table].names:
            filters = _measured(filters)
        for attempt in range(TRIES):
            try:
                tables = [_read(file, table, columns, filters) for file in self.files(table)]
                break
            except FileNotFoundError:  # merged into another file since it was listed
                if attempt == TRIES - 1:
                    raise
        if not tables:
            return schema.TABLES[table].empty_table().to_pandas()
        return pa.concat_tables(tables).to_pandas()

    def column(self, table: str, name: str) -> list[Any]:
        return list(self.read(table, columns=[name])[name])


def _measured(filters: Any) -> pc.Expression:
    """Parquet filters that only measured rows pass."""
    known = pc.field(_SIMULATED).is_null()
    if filters is None:
        return known
    return known & (filters if isinstance(filters, pc.Expression) else pq.filters_to_expression(filters))


def write_file(path: Path, table: str, data: pa.Table, about: dict[str, Any], level: int = 12) -> Path:
    """Writes a file of the store atomically."""
    described = {"schema": schema.SCHEMA_VERSION, "table": table, **about}
    data = data.replace_schema_metadata({META: json.dumps(described).encode()})
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with part.open("wb") as file:
            pq.write_table(data, file, compression="zstd", compression_level=level)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _meta(file: Path) -> dict[str, Any]:
    metadata = pq.read_schema(file).metadata or {}
    return dict(json.loads(metadata[META]))


def _read(file: Path, table: str, columns: list[str] | None, filters: Any) -> pa.Table:
    """Reads the rows of a file that pass the filters, in the current schema."""
    derived = columns is None or not set(schema.DERIVED).isdisjoint(columns)
    if derived:
        file = _complete(file, table)
    about = _meta(file)
    if schema.reads_as_it_is(int(about["schema"])) and not (derived and about.get(LEAN)):
        return pq.read_table(file, columns=columns, filters=filters, schema=schema.TABLES[table])
    rows = _converted(file, table)
    if filters is not None:
        rows = rows.filter(filters if isinstance(filters, pc.Expression) else pq.filters_to_expression(filters))
    return rows if columns is None else rows.select(columns)


def _is_current(file: Path) -> bool:
    """Whether a file reads in the current schema as it is."""
    about = _meta(file)
    return schema.reads_as_it_is(int(about["schema"])) and not about.get(LEAN)


def _complete(file: Path, table: str) -> Path:
    """The file or, where it omits derived columns, a copy that has them."""
    about = _meta(file)
    if not about.get(LEAN):
        return file
    rest = {name: value for name, value in about.items() if name not in (LEAN, "schema")}
    return completed(file, lambda copy: write_file(copy, table, _converted(file, table), rest, level=1))


def _converted(file: Path, table: str) -> pa.Table:
    """A file of an older schema, or without derived columns, converted to the current schema."""
    about = _meta(file)
    data = schema.migrate(table, pq.read_table(file), int(about["schema"]))
    return schema.with_derived(table, data) if about.get(LEAN) else data


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)
