"""Rows of a device, from a store or a file, as measured calls: one for each case, with the workload that it ran."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from forerun._util.readable import short
from forerun.api.questions import Question, problem, profiled
from forerun.device import Device, load_device
from forerun.errors import ForerunError
from forerun.predictors.base import Predictor
from forerun.workload import Workload

#: Quantities of a row that corrections are fitted to.
QUANTITIES = ("latency_ms", "device_ms", "energy_j", "memory_mb")
#: Repeats of one case that differ by more than this factor contradict each other.
REPEATS = 1.5
MOST_CASES = 500
_WHAT_RAN = ("model", "batch", "dtype", "mode", "input_shape", "seq_len", "optimizer", "amp", "runtime", "case")
#: Names of published rows that the frontends know by another one.
_RENAMED = ((re.compile(r"^nasbench201/"), "nasbench201:"),)


@dataclass(frozen=True)
class Measured:
    """One case with its graph, and what was measured of it: the median of its repeats."""

    device: Device
    workload: Workload
    question: Question
    values: Mapping[str, float]  # of QUANTITIES, those that are known
    row: Mapping[str, Any] = field(default_factory=dict)  # as a file holds it
    places: tuple[int, ...] = ()  # which rows it is of

    @property
    def words(self) -> str:
        """'resnet50, batch 8'."""
        return f"{self.row['model']}, batch {self.workload.batch}" + (
            f", {self.workload.mode}" if self.workload.mode != "inference" else ""
        )


@dataclass(frozen=True)
class Rows:
    """The cases of one device, and what is to be said of rows that were left out or contradict each other."""

    cases: tuple[Measured, ...]
    notes: tuple[str, ...]


def read(source: Path) -> pd.DataFrame:
    """All rows of models with a time in a store or file."""
    if source.is_dir():
        from forerun.data.store import Store

        if not (source / "models").is_dir():
            raise ForerunError(f"{source} holds no rows of models: it is no store of measurements")
        rows = Store(source, shipped=False).read("models")
    elif not source.is_file():
        raise ForerunError(f"there is no store or file {source}")
    else:
        rows = _of_file(source)
    if "model" not in rows or "latency_ms" not in rows:
        lacking = next(name for name in ("model", "latency_ms") if name not in rows)
        raise ForerunError(f"the rows of {source} have no column {lacking}: they need model and latency_ms at least")
    if "status" in rows:
        rows = rows[rows["status"].fillna("ok") == "ok"]
    if "devices" in rows:
        rows = rows[rows["devices"].fillna(1) <= 1]
    times = pd.to_numeric(rows["latency_ms"], errors="coerce")
    rows = rows.assign(latency_ms=times)[(times > 0) & (times < 1e12)]
    if rows.empty:
        raise ForerunError(f"{source} has no rows of models with a latency_ms: there is nothing to adapt to")
    return rows.reset_index(drop=True)


def _of_file(path: Path) -> pd.DataFrame:
    try:
        if path.suffix == ".csv":
            return pd.read_csv(path)
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        if path.suffix in (".jsonl", ".json"):
            return _of_lines(path)
    except (OSError, ValueError, ImportError) as error:
        raise ForerunError(f"{path} cannot be read: {short(str(error).splitlines()[0])}") from error
    raise ForerunError(f"rows are a store (a folder) or a .jsonl, .csv or .parquet file, not {path.name}")


def _of_lines(path: Path) -> pd.DataFrame:
    """Lines of the measuring core, as a sweep writes them, or one row of ours a line."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    if not all(isinstance(line, dict) for line in lines):
        raise ForerunError(f"{path} is not one JSON object a line")
    if any("kind" in line for line in lines):
        from forerun.data.intake import tables_of

        return pd.DataFrame(tables_of(lines, "own")["models"])
    return pd.DataFrame(lines)


def of_device(rows: pd.DataFrame, device: Device) -> pd.DataFrame:
    """The rows of a device: those that name it, or all of one other name, as a chip is called that nobody listed."""
    if "device" not in rows:
        return rows
    names = sorted(rows["device"].dropna().astype(str).unique())
    mine = [name for name in names if name in (device.id, device.name)]
    if mine:
        return rows[rows["device"].isin(mine)].reset_index(drop=True)
    if len(names) > 1:
        listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise ForerunError(
            f"these are rows of {len(names)} devices ({listed}), none of them {device.id}: give one's rows"
        )
    return rows


def cases_of(
    rows: pd.DataFrame, device: Device | None, predictor: Predictor,
    progress: Callable[..., Iterable[Any]] | None = None,
) -> Rows:  # fmt: skip
    """The cases of rows of a device, or of the devices that they name, each captured; what cannot be is named."""
    notes: list[str] = []
    columns = [name for name in (*_WHAT_RAN, *(("device",) if device is None else ())) if name in rows]
    keys = rows[columns].astype(object).where(rows[columns].notna(), None)
    groups: dict[str, list[int]] = {}
    for place, line in enumerate(keys.to_dict("records")):
        groups.setdefault(json.dumps(line, sort_keys=True, default=str), []).append(place)
    kept = list(groups.values())
    if len(kept) > MOST_CASES:
        notes.append(f"of {len(kept):,} cases, {MOST_CASES} were used, evenly over the rows")
        kept = [kept[i * len(kept) // MOST_CASES] for i in range(MOST_CASES)]
    cases, failed = [], []
    for places in progress(kept, len(kept)) if progress else kept:
        line = keys.iloc[places[0]].to_dict()
        try:
            workload, on = workload_of_row(line), device or load_device(str(line["device"]))
            if (reason := problem(workload, replace(on, adaptation=None), predictor)) is not None:
                raise ForerunError(reason)
            question = profiled(workload)
        except ForerunError as error:
            failed.append(f"{short(line['model'])}: {error}")
            continue
        of_case = rows.iloc[places]
        known = {name: pd.to_numeric(of_case[name], errors="coerce") for name in QUANTITIES if name in rows}
        values = {name: float(each.median()) for name, each in known.items() if each.notna().any()}
        one = Measured(on, workload, question, values, {k: v for k, v in line.items() if v is not None} | values,
                       tuple(places))  # fmt: skip
        least, most = of_case["latency_ms"].min(), of_case["latency_ms"].max()
        if most > REPEATS * least:
            notes.append(f"rows of one case contradict each other: {one.words}: {least:.4g} to {most:.4g} ms")
        cases.append(one)
    if failed:
        count = f"{len(failed)} cases" if len(failed) > 1 else "a case"
        if not cases:
            raise ForerunError(f"none of the rows can be used, the first because {failed[0]}")
        notes.append(f"{count} left out, the first because {failed[0]}")
    return Rows(tuple(cases), tuple(notes))


def workload_of_row(line: Mapping[str, Any]) -> Workload:
    """What a row ran: by its case where our measuring core wrote it, else by its columns."""
    if line.get("case"):
        from forerun.measure.cases import workload_of

        return workload_of(json.loads(line["case"]) if isinstance(line["case"], str) else dict(line["case"]))
    model = line["model"]
    if isinstance(model, str):
        for pattern, name in _RENAMED:
            model = pattern.sub(name, model)
    mode = line.get("mode") or "inference"
    try:
        shape = line.get("input_shape")
        if isinstance(shape, str):
            shape = json.loads(shape if shape.startswith(("[", "{")) else f"[{shape}]")
        return Workload(
            model, batch=_whole(line.get("batch"), 1), dtype=line.get("dtype") or "fp32", mode=mode,
            input_shape=tuple(shape) if isinstance(shape, list) else shape,
            seq_len=_whole(line.get("seq_len"), None), optimizer=line.get("optimizer") if mode == "training" else None,
            amp=line.get("amp"), runtime=line.get("runtime") or "eager",
        )  # fmt: skip
    except (TypeError, ValueError) as error:
        raise ForerunError(f"its columns are no workload: {short(str(error))}") from error


def _whole(value: Any, usual: int | None) -> Any:
    return usual if value is None else int(value)
