"""Runs a sweep for the command line: validates the spec, starts the core in a child process, reports progress."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError
from forerun.measure.cases import workload_of
from forerun.measure.core import curve_phase, meters, plan, python_file, serving_cases, specs, tabular_cases
from forerun.measure.core.rows import read
from forerun.measure.core.supervisor import die_with_parent

KINDS = ("model", "op", "curve", serving_cases.KIND, tabular_cases.KIND)
EXAMPLES = {
    "model": "{mode: inference, batch: [1, 8], dtype: fp32}",
    serving_cases.KIND: "{dtype: bf16, arrivals: poisson, rate: [1, 4], prompt: 256, output: 64}",
}
POLL_S, REPORT_S = 0.5, 5.0  # infrequent, to not disturb the measurement


def load(path: str | Path) -> dict[str, Any]:
    """Reads a sweep spec. Raises a ForerunError if it is not valid."""
    try:
        spec = specs.load(str(path))
    except ForerunError as e:
        if not Path(path).exists():
            raise ForerunError(f"there is no sweep spec {path}") from None
        raise ForerunError(f"{path} is not a sweep spec: {e}") from None
    except Exception as e:
        raise ForerunError(f"{path} is not a sweep spec: {str(e).splitlines()[0]}") from e
    problem = _problem(spec)
    if problem:
        raise ForerunError(f"{path}: {problem}")
    return spec


def _problem(spec: dict[str, Any]) -> str | None:
    kind = spec.get("kind", "model")
    if kind not in KINDS:
        return f"kind must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, not {kind!r}"
    if kind == "op":
        n = spec.get("n")
        good = isinstance(n, int) and 0 < n <= specs.MAX_CASES
        return None if good else f"an operator sweep needs n, the number of cases (at most {specs.MAX_CASES:,})"
    if kind == tabular_cases.KIND:
        return tabular_cases.problem(spec)
    blocks = spec.get("blocks")
    if not isinstance(blocks, list) or not blocks or not all(isinstance(b, dict) for b in blocks):
        return "a sweep needs blocks: a list of models with their settings"
    for number, block in enumerate(blocks, 1):
        if not any(block.get(part) for part in ("families", "configs", "variants")):
            return f"block {number} names no models (families, configs or variants)"
        example = EXAMPLES.get(kind)
        if example and not isinstance(block.get("settings"), list):
            return f"block {number} has no settings: a list such as - {example}"
    return None


def wanted(spec: dict[str, Any], seed: int) -> set[tuple[str, int]]:
    """Every row of a sweep, as (key, repeat)."""
    try:
        if spec.get("kind") == "curve":
            return {(specs.key_of(case), 0) for case in curve_phase.cases(spec)}
        if spec.get("kind") == serving_cases.KIND:
            runs = serving_cases.units(spec, seed, set())
            return {(specs.key_of(case), unit.repeat) for unit in runs for case in unit.cases}
        lane = tabular_cases.lane if spec.get("kind") == tabular_cases.KIND else plan.lane
        units = lane(spec, 1.0, seed, set()).units
        if spec.get("kind", "model") == "model":
            for unit in units:
                for case in unit.cases:
                    workload_of(case)  # a case that the store could not hold is refused before it is measured
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as e:
        raise ForerunError(f"sweep {spec.get('name')} cannot be expanded: {type(e).__name__} {e}") from e
    return {(specs.key_of(case), unit.repeat) for unit in units for case in unit.cases}


def _python_files(spec: dict[str, Any]) -> set[str]:
    """The Python files whose functions build the models of a sweep."""
    blocks = spec.get("blocks", []) if spec.get("kind", "model") == "model" else []
    listed = (model for block in blocks for model in specs.models(block, 0))
    return {model["name"].rpartition(":")[0] for model in listed if model.get("source") == python_file.SOURCE}


def run(
    paths: Sequence[str | Path],
    out: Path,
    *,
    budget_s: float,
    device: str = "auto",
    seed: int = 0,
    resume: Sequence[str | Path] = (),
    data: str | None = None,
    case_limit_s: float = 20.0,
    cooldown_s: float = 0.0,
    trust_remote_code: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[int, int]:
    """Measures until done or out of time, continuing an earlier run of the same file; returns (done, wanted)."""
    meters.check_name(device)
    if data is None and any(load(path).get("kind") == "curve" for path in paths):
        raise ForerunError("a sweep of kind curve needs --data, the images (.npz) to train on")
    every = {row for path in paths for row in wanted(load(path), seed)}
    if not trust_remote_code and (files := sorted({name for path in paths for name in _python_files(load(path))})):
        raise ForerunError(f"this sweep runs Python code of {', '.join(files)}: --trust-remote-code runs it")
    command = [sys.executable, "-m", "forerun.measure.core", "--out", str(out), "--budget", f"{budget_s:.0f}"]
    command += ["--device", device, "--seed", str(seed), "--case-limit", str(case_limit_s)]
    command += ["--cooldown", str(cooldown_s)]
    for path in paths:
        command += ["--spec", str(path)]
    for path in resume:
        command += ["--resume", str(path)]
    command += ["--data", data] if data else []
    out.parent.mkdir(parents=True, exist_ok=True)
    earlier = _done([*resume, out], every)
    log = out.with_suffix(".log")
    with log.open("ab") as file:
        child = subprocess.Popen(command, stdout=file, stderr=file, preexec_fn=die_with_parent)
        reported = time.monotonic()
        while child.poll() is None:
            time.sleep(POLL_S)
            if progress and time.monotonic() - reported > REPORT_S:
                reported = time.monotonic()
                progress(len(_done([*resume, out], every)), len(every))
    done = _done([*resume, out], every)
    if child.returncode and len(done) == len(earlier):
        last = (log.read_text(errors="replace").strip().splitlines() or ["its log is empty"])[-1]
        raise ForerunError(f"the sweep measured nothing: {last} (see {log})")
    return len(done), len(every)


def _done(files: Sequence[str | Path], wanted: set[tuple[str, int]]) -> set[tuple[str, int]]:
    measured = {(row["key"], row.get("repeat", 0)) for f in files for row in read(f) if row.get("kind") in KINDS}
    return measured & wanted
