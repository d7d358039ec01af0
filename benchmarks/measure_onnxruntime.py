"""Measures many ONNX files on this machine's CPU with onnxruntime: fp32 and int8, one thread and two. Not in CI.

    python benchmarks/measure_onnxruntime.py prepare FOLDER                     fetch, export and quantise the files
    python benchmarks/measure_onnxruntime.py measure FOLDER --out rows.jsonl    a row per file, batch and threads
    python benchmarks/measure_onnxruntime.py file FOLDER --out rows.jsonl       file the rows with their graphs

All keep what is there already, so a run that was stopped goes on. Measure on a machine that does nothing else: one
case runs at a time, on as many cores as it has threads.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import re
import sys
import time
import uuid
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx_corpus
import real_files

THREADS, LENGTHS, LIMIT_S = (1, 2), (32, 128, 384), 0.7
#: A case is measured again, at most so often, when more than this share of a core was given to other machines.
MOST_STOLEN, TRIES, BUSY = 0.03, 4, "the machine was busy"
LARGER_BATCH, LARGER_BATCH_OF_PACKAGES = 4, 8
ROLES = ("det", "rec", "cls")  # of the files that read text in images


@dataclass(frozen=True)
class Case:
    """One file at one batch, length and number of threads."""

    path: Path
    sha256: str
    family: str
    batch: int
    threads: int
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.sha256, self.batch, self.threads, self.settings.get("seq_len"))

    @property
    def title(self) -> str:
        length = f" length {self.settings['seq_len']}" if "seq_len" in self.settings else ""
        return f"{self.path.stem} batch {self.batch}{length} threads {self.threads}"


def family_of(path: Path, folder: Path) -> str:
    """resnet, bert, rapidocr_det: what the name of an exported file begins with, or its package and its role."""
    group, first, *_ = path.relative_to(folder).parts
    if group != "packages":
        found = re.match(r"t5|wide_resnet|vit|[a-z]+", path.stem)
        return found.group().removesuffix("v") if found else path.stem
    if "silero" in path.as_posix().lower():
        return "silero"
    role = next((role for role in ROLES if f"_{role}_" in path.name.lower()), None)
    return "_".join(filter(None, [first.partition("-")[0], role]))


def files_of(folder: Path, only: str) -> list[Path]:
    """The ONNX files of a folder whose path holds a word."""
    return sorted(path for path in folder.rglob("*.onnx") if only in path.as_posix())


def listed(folder: Path, seed: int, only: str = "") -> list[Case]:
    """Every case, in an order drawn by the seed; of files with the same content, the first."""
    from forerun.frontends.base import file_hash

    draw = random.Random(seed)
    files: dict[str, Path] = {}
    for path in files_of(folder, only):
        files.setdefault(file_hash(path), path)
    cases = []
    for sha256, path in files.items():
        family, packaged = family_of(path, folder), path.is_relative_to(folder / "packages")
        known = (c for c in real_files.CASES if packaged and path.as_posix().endswith(c.ending))
        of_package = next(known, real_files.Case(""))
        text = not packaged and path.stem.partition("_int8")[0] in onnx_corpus.TEXT
        for batch in (1, LARGER_BATCH_OF_PACKAGES if packaged else LARGER_BATCH):
            if batch > 1 and not of_package.batched:
                continue
            settings = {"seq_len": draw.choice(LENGTHS)} if text else real_files.run_with(path, of_package, batch)
            cases += [Case(path, sha256, family, batch, threads, settings) for threads in THREADS]
    draw.shuffle(cases)
    return cases


def use_cores(count: int) -> None:
    """Restricts this process to so many of its cores, from which onnxruntime takes its threads."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def measured(case: Case) -> dict[str, Any] | str:
    """The row of a case, or why there is none."""
    from forerun.errors import ForerunError
    from forerun.measure.onnx_runtime import measure_onnx
    from forerun.workload import Workload

    begin, stolen = time.monotonic(), real_files.stolen_s()
    try:
        row = measure_onnx(Workload(str(case.path), batch=case.batch, **case.settings), "cpu", limit_s=LIMIT_S)
    except ForerunError as error:
        return str(error)
    share = (real_files.stolen_s() - stolen) / (time.monotonic() - begin)
    if share > MOST_STOLEN:
        return f"{BUSY} ({share:.0%} of a core was given to others meanwhile)"
    precision = "int8" if "int8" in case.path.stem else "fp32"
    return {**row, "case": {**row["case"], "family": case.family, "precision": precision}}


def measure(folder: Path, out: Path, budget_s: float, seed: int, only: str) -> int:
    """Appends the rows of the cases that the file lacks, until the time is up."""
    from forerun.measure.core.rows import SESSION_FIELDS, Rows, read

    cases = listed(folder, seed, only)
    done = {
        (case["sha256"], case["batch"], case["threads"], case.get("seq_len"))
        for case in (row["case"] for row in read(out) if row.get("kind") == "model")
    }
    todo = [case for case in cases if case.identity not in done and case.threads <= len(os.sched_getaffinity(0))]
    print(f"{len(cases)} cases listed, {len(cases) - len(todo)} done already or without enough cores", flush=True)
    begin, rows, kept = time.monotonic(), Rows(out), 0
    pools: dict[int, ProcessPoolExecutor] = {}
    sessions: dict[int, str] = {}
    tries: dict[Any, int] = {}
    number = 0
    while todo:
        case, number = todo.pop(0), number + 1
        spent = time.monotonic() - begin
        if spent > budget_s:
            print(f"the time is up; {len(todo) + 1} cases are left")
            break
        if case.threads not in pools:
            spawn = multiprocessing.get_context("spawn")
            pools[case.threads] = ProcessPoolExecutor(1, spawn, initializer=use_cores, initargs=(case.threads,))
            sessions.pop(case.threads, None)
        try:
            row = pools[case.threads].submit(measured, case).result()
        except BrokenProcessPool:
            row = "its process ended"
            pools.pop(case.threads).shutdown()
        left = min((time.monotonic() - begin) / number * len(todo), budget_s - spent)
        if isinstance(row, str):
            again = row.startswith(BUSY) and tries.get(case.identity, 0) < TRIES
            tries[case.identity] = tries.get(case.identity, 0) + 1
            todo += [case] if again else []
            print(f"{case.title}: {'later' if again else 'left out'}, {row}; {left:.0f} s left", flush=True)
            continue
        about = {name: row.pop(name) for name in SESSION_FIELDS}
        if case.threads not in sessions:
            sessions[case.threads] = uuid.uuid4().hex[:12]
            same = {name: row[name] for name in ("protocol", "time")}
            rows.append({"kind": "session", "session": sessions[case.threads], "phase": "onnxruntime", **same, **about})
        rows.append({**row, "session": sessions[case.threads]})
        kept += 1
        print(f"{case.title}: {row['latency_ms']:.3g} ms; {left:.0f} s left", flush=True)
    for pool in pools.values():
        pool.shutdown()
    print(f"{kept} rows in {time.monotonic() - begin:.0f} s")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "measure", "file"))
    parser.add_argument("folder", type=Path, help="where the ONNX files are")
    parser.add_argument("--out", type=Path, default=Path("rows.jsonl"), help="the file of rows")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no case is begun")
    parser.add_argument("--seed", type=int, default=0, help="draws the order of the cases and the lengths of texts")
    parser.add_argument("--only", default="", help="only files whose path holds this word")
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.step == "prepare":
        return onnx_corpus.prepare(folder)
    if options.step == "measure":
        return measure(folder, options.out, options.budget, options.seed, options.only)
    from forerun.data.intake import take_in
    from forerun.data.store import Store

    print(take_in([options.out], Store(), onnx_files=files_of(folder, options.only)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
