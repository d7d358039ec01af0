"""The schema of the store: one Arrow schema per table, its version, and migrations of older files.

Times are milliseconds, memory MB of 2**20 bytes, energy joules per call, power watts. What was not measured is null.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd

from forerun._util.extras import needed
from forerun.errors import ForerunError

with needed("the store of measurements"):
    import pyarrow as pa

SCHEMA_VERSION = 3
#: Columns that the largest shipped file omits if they follow from the rest of a row, since hashes compress badly.
DERIVED = ("key", "row_id")

_TEXT, _INT, _FLOAT = pa.string(), pa.int64(), pa.float64()


def _columns(kind: pa.DataType, names: str) -> list[tuple[str, pa.DataType]]:
    return [(name, kind) for name in names.split()]


#: Origin and environment of a row; every table has these.
_ORIGIN = [
    *_columns(_TEXT, "row_id key dataset device device_reported host software protocol measured_at session"),
    *_columns(_TEXT, "status reason extra"),
]
_MODELS = [
    # What ran. `model` is the name forerun knows; `case` is the measuring core's own description.
    *_columns(_TEXT, "model source family graph_hash case case_key"),
    *_columns(_FLOAT, "parameters flops"),
    # How it ran. `seq_len` is the prompt, or the cache's length in decode; `tokens_out` what was generated after it.
    *_columns(_TEXT, "mode dtype amp optimizer runtime quantised input_shape parallel"),
    *_columns(_INT, "batch seq_len tokens_out devices repeat"),
    # What came out.
    *_columns(_FLOAT, "latency_ms latency_median_ms latency_min_ms latency_p90_ms latency_p99_ms event_ms loop_ms"),
    *_columns(_FLOAT, "device_ms kernels copies graph_ms first_call_ms ttft_ms tpot_ms epoch_s time_to_train_s"),
    *_columns(_FLOAT, "throughput mfu"),
    *_columns(_TEXT, "throughput_unit"),
    *_columns(_FLOAT, "memory_mb memory_reserved_mb memory_allocated_mb weights_mb"),
    *_columns(_FLOAT, "energy_j power_w power_limit_w sm_clock_mhz"),
    # Which predictor made the row; null where it was measured. Such rows are no truth: `Store.read` leaves them out.
    *_columns(_TEXT, "simulated"),
]
_OPERATORS = [
    # `op` and the names in `shape` (JSON) are those of the measuring core: linear m n k, conv2d b cin cout h w r …
    *_columns(_TEXT, "op family shape dtype direction runtime case_key"),
    *_columns(_INT, "repeat devices"),
    *_columns(_FLOAT, "device_ms device_min_ms device_max_ms kernels power_w"),
]
_CURVES = [
    *_columns(_TEXT, "model case case_key"),
    *_columns(_INT, "batch epoch"),
    *_columns(_FLOAT, "seconds loss train_accuracy test_accuracy"),
]
_HOSTS = [*_columns(_TEXT, "op"), *_columns(_FLOAT, "launch_us launch_min_us load")]

#: Published accuracies of networks with weights, as fractions. `flops` are per image.
_ACCURACIES = [
    *_columns(_TEXT, "model source evaluated_on"),
    *_columns(_INT, "image_size"),
    *_columns(_FLOAT, "parameters flops top1_accuracy top5_accuracy"),
]

#: The largest batch of a case that ran and the smallest that ran out of memory, each tried in a fresh process. Memory
#: is that of the largest that ran, `graph_hash` that of the graph at `batch_limits.FILED_AT`.
_BATCH_LIMITS = [
    *_columns(_TEXT, "model source family graph_hash case case_key"),
    *_columns(_TEXT, "mode dtype amp optimizer runtime input_shape"),
    *_columns(_INT, "seq_len ran_batch oom_batch"),
    *_columns(_FLOAT, "memory_mb memory_reserved_mb memory_allocated_mb usable_mb"),
]

#: A run of a serving engine: `arrivals` are `poisson` at a `rate` per second, or `closed`: as many requests as its
#: `concurrency` are always there. `prompt` and `output` are tokens (means, with `spread` the sigma of a log-normal).
#: TTFT: arrival to first token; ITL: gaps between tokens; TPOT: (last - first token) / (tokens - 1); e2e: arrival to
#: last token. `trace` (every request) and `iteration_times` (every iteration) are JSON.
_SERVING = [
    *_columns(_TEXT, "model source family case case_key dtype engine attention arrivals trace iteration_times"),
    *_columns(_INT, "repeat devices concurrency prompt output block_size num_blocks max_batch_tokens"),
    *_columns(_INT, "max_requests_per_batch requests arrived completed iterations"),
    *_columns(_FLOAT, "parameters rate spread window_s ttft_ms ttft_p50_ms ttft_p90_ms ttft_p99_ms"),
    *_columns(_FLOAT, "itl_ms itl_p50_ms itl_p90_ms itl_p99_ms tpot_ms tpot_p50_ms tpot_p90_ms tpot_p99_ms"),
    *_columns(_FLOAT, "e2e_ms e2e_p50_ms e2e_p90_ms e2e_p99_ms"),
    *_columns(_FLOAT, "requests_per_s output_tokens_per_s prompt_tokens_per_s"),
    # Means over iterations: the whole, and its parts (scheduler and inputs; forward pass; bookkeeping of tokens).
    *_columns(_FLOAT, "iteration_ms prepare_ms step_ms update_ms"),
    # Means over time: share with an iteration at work, sequences that run and wait, tokens and blocks in the KV cache.
    *_columns(_FLOAT, "busy running waiting context_tokens used_blocks most_used_blocks submit_lag_ms"),
    *_columns(_FLOAT, "power_w energy_j sm_clock_mhz memory_mb memory_reserved_mb memory_allocated_mb"),
]

TABLES: dict[str, pa.Schema] = {
    "models": pa.schema([*_ORIGIN, *_MODELS]),
    "operators": pa.schema([*_ORIGIN, *_OPERATORS]),
    "curves": pa.schema([*_ORIGIN, *_CURVES]),
    "hosts": pa.schema([*_ORIGIN, *_HOSTS]),
    "accuracies": pa.schema([*_ORIGIN, *_ACCURACIES]),
    "batch_limits": pa.schema([*_ORIGIN, *_BATCH_LIMITS]),
    "serving": pa.schema([*_ORIGIN, *_SERVING]),
}
#: Tables that no predictor is trained on, so that they do not affect fitted weights.
NOT_LEARNED = ("accuracies", "batch_limits", "serving")
#: The identity of a case: what ran, how, on what, with which software, under which protocol.
_WHERE = ("device", "software", "protocol", "dataset")
KEYS: dict[str, tuple[str, ...]] = {
    "models": ("graph_hash", "model", "mode", "batch", "dtype", "amp", "optimizer", "runtime", "quantised",
               "input_shape", "seq_len", "tokens_out", "devices", "parallel", "power_limit_w", "case_key", *_WHERE),
    "operators": ("op", "shape", "dtype", "direction", "runtime", "devices", *_WHERE),
    "curves": ("model", "case", "batch", "epoch", *_WHERE),
    "hosts": ("op", "session", *_WHERE),
    "accuracies": ("model", "image_size", "evaluated_on", *_WHERE),
    "batch_limits": ("case_key", *_WHERE),
    "serving": ("case_key", *_WHERE),
}  # fmt: skip


def _rename_device_reported(table: str, data: pa.Table) -> pa.Table:
    """Version 1 called `device_reported` `device_said`."""
    return data.rename_columns(["device_reported" if name == "device_said" else name for name in data.column_names])


def _add_columns(table: str, data: pa.Table) -> pa.Table:
    """Version 2 had no column `simulated`: it is null in what was measured."""
    for field in TABLES[table]:
        if field.name not in data.column_names:
            data = data.append_column(field, pa.nulls(data.num_rows, field.type))
    return data.select(TABLES[table].names)


#: version -> the migration of a table of that version to the next one; version 1 is the first.
MIGRATIONS: dict[int, Callable[[str, pa.Table], pa.Table]] = {1: _rename_device_reported, 2: _add_columns}


def conform(table: str, rows: pd.DataFrame | Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as an Arrow table of the schema: missing columns are null, unknown ones an error, key and row_id are set."""
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    schema = TABLES[table]
    unknown = [name for name in frame.columns if name not in schema.names]
    if unknown:
        raise ForerunError(f"table {table} has no column {', '.join(map(str, unknown))}")
    frame = frame.reset_index(drop=True)
    for name in ("software", "extra", "shape", "case", "input_shape", "parallel"):
        if name in frame:
            frame[name] = [_text(value) for value in frame[name]]
    if "key" not in frame:
        frame["key"] = keys(table, frame)
    if "row_id" not in frame:
        # Ids of rows of published files are deterministic; repeats of a case are distinguished by number.
        number = frame.groupby("key").cumcount()
        frame["row_id"] = [f"{key}-{n}" for key, n in zip(frame["key"], number, strict=True)]
    columns = []
    for field in schema:
        if field.name in frame:
            columns.append(_array(frame[field.name], field))
        else:
            columns.append(pa.nulls(len(frame), field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def keys(table: str, frame: pd.DataFrame) -> list[str]:
    """The identity of every row's case, as a hash."""
    columns = []
    for name in KEYS[table]:
        if name in frame:
            integer = pa.types.is_integer(TABLES[table].field(name).type)
            columns.append([_key_part(value, integer) for value in frame[name]])
        else:
            columns.append([""] * len(frame))
    return [hashlib.sha256("\x1f".join(row).encode()).hexdigest()[:20] for row in zip(*columns, strict=True)]


def row_id(case_key: str, repeat: int, session: str | None, time: str | None, dataset: str) -> str:
    """The id of a row that our measuring core wrote, independent of when it is stored."""
    return hashlib.sha256("/".join([case_key, str(repeat), str(session), str(time), dataset]).encode()).hexdigest()[:24]


def without_derived(table: str, data: pa.Table) -> pa.Table:
    """A table whose hashes are null if `with_derived` can recompute them."""
    return _hashes(
        table, data, lambda stored, known: [None if f == k else k for f, k in zip(stored, known, strict=True)]
    )


def with_derived(table: str, data: pa.Table) -> pa.Table:
    """A table with the hashes that `without_derived` omitted."""
    return _hashes(table, data, lambda stored, known: [k or f for f, k in zip(stored, known, strict=True)])


def _hashes(table: str, data: pa.Table, choose: Callable[[list[str], list[str | None]], list[str | None]]) -> pa.Table:
    """A table with hashes selected from those computed from its other columns and those stored."""
    frame = data.to_pandas()
    parts = (frame[name] for name in ("case_key", "repeat", "session", "measured_at", "dataset"))
    for name, values in (
        ("key", keys(table, frame)), ("row_id", [row_id(*line) for line in zip(*parts, strict=True)]),
    ):  # fmt: skip
        column = pa.array(choose(values, data[name].to_pylist()), pa.string())
        data = data.set_column(data.schema.get_field_index(name), TABLES[table].field(name), column)
    return data


def reads_as_it_is(version: int) -> bool:
    """Whether files of a version lack no more than columns that came later, which read as null."""
    return all(MIGRATIONS[step] is _add_columns for step in range(version, SCHEMA_VERSION))


def migrate(table: str, data: pa.Table, version: int) -> pa.Table:
    """Migrates a table of an older version to the current one."""
    for step in range(version, SCHEMA_VERSION):
        data = MIGRATIONS[step](table, data)
    return data


def _key_part(value: Any, integer: bool) -> str:
    """A value as part of a key: empty for null, integers without a decimal point."""
    if value is None or value is pd.NA or value != value:
        return ""
    return str(int(value)) if integer else str(value)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and value != value:
        return None
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _array(series: pd.Series, field: pa.Field) -> pa.Array:
    try:
        return pa.array(series, type=field.type, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        if pa.types.is_integer(field.type):
            return pa.array(series.astype("float64"), from_pandas=True).cast(pa.int64())
        raise ForerunError(f"column {field.name} holds something else than {field.type}: {error}") from error
