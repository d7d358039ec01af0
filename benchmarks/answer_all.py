"""Asks the default predictor for every model of the catalogue on every device whose specs suffice. Nightly, not in CI.

python benchmarks/answer_all.py --lines coverage.jsonl      # everything; started again, it goes on where it was
python benchmarks/answer_all.py --sample 120
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import capture_all
import pandas as pd
from rich.console import Console
from rich.progress import track

from forerun.evaluate import answered as coverage
from forerun.evaluate.report import markdown


def kept(path: Path | None, devices: int) -> dict[str, dict[str, Any]]:
    """The lines of an earlier run by model, where every one of these devices was answered; the rest is asked again."""
    if path is None or not path.exists():
        return {}
    lines = [json.loads(text) for text in path.read_text().splitlines() if text.endswith("}")]
    return {line["model"]: line for line in lines if line["asked"] == line["answered"] == devices}


def keeping(lines: Iterable[dict[str, Any]], total: int, path: Path | None) -> Iterator[dict[str, Any]]:
    """Shows how far the work is, and writes every line as it comes."""
    for line in track(lines, "asking", total=total, console=Console(stderr=True)):
        if path is not None:
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
        yield line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="only so many models, drawn with a fixed seed from every source")
    parser.add_argument("--lines", type=Path, help="one JSON line per model; those answered there are not asked again")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    devices, questions = coverage.known_devices(), coverage.catalogue()
    if options.sample:
        questions = coverage.drawn(questions, options.sample)
    if options.lines:
        options.lines.parent.mkdir(parents=True, exist_ok=True)
    before = kept(options.lines, len(devices))
    before = {q.model: before[q.model] for q in questions if q.model in before}
    if before:
        print(f"{len(before)} of {len(questions)} models were answered before, as {options.lines} says")
    left = [q for q in questions if q.model not in before]
    with capture_all.processes(options.workers) as through:
        fresh = coverage.answered(
            left, devices, lambda lines, total: keeping(lines, total, options.lines), through=through
        )
    earlier = pd.DataFrame(list(before.values()), columns=list(coverage.COLUMNS))
    found = pd.concat([part for part in (earlier, fresh) if len(part)], ignore_index=True)
    wanting, table = coverage.failures(found), coverage.totals(found)
    counts = {name: [f"{count:,}" for count in table[name]] for name in ("models", "devices", "cases", "answered")}
    print(markdown(table.assign(**counts, share=[f"{100 * share:.2f} %" for share in table["share"]])))
    if len(wanting):
        print("\nNot answered:\n\n" + markdown(wanting))
    return 1 if len(wanting) else 0


if __name__ == "__main__":
    sys.exit(main())
