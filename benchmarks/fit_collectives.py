"""Fits the laws of collectives and of DataParallel to published measurements, and writes their tables to
docs/PARALLEL.md.

    forerun data import aiconfigurator FOLDER
    forerun data import vidur FOLDER
    forerun data import pytorch_gpu_benchmark FOLDER
    python benchmarks/fit_collectives.py            minutes; --check writes nothing and exits with 1 if a file differs
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from pathlib import Path

from forerun.advice.data_parallel import CONSTANTS
from forerun.data.store import Store
from forerun.evaluate import collectives, scaling
from forerun.evaluate.report import markdown
from forerun.predictors.laws.collectives import FILE

PAGE = Path(__file__).parents[1] / "docs" / "PARALLEL.md"
_PLACE = re.compile(r"(<!-- (collectives|scaling) -->\n).*?(<!-- end -->)", re.S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    store = Store()
    steps = scaling.measured(store)
    tables = {
        one.name: f"{textwrap.fill(one.words, 120)}\n\n{markdown(one.table, shares)}\n"
        for one, shares in (
            (collectives.section(store), collectives.SHARE_COLUMNS), (scaling.section(steps), scaling.SHARE_COLUMNS)
        )
    }  # fmt: skip
    law = collectives.fitted(collectives.measured(store)).to_json()
    made = {
        FILE: json.dumps(_rounded(law), separators=(",", ":")) + "\n",
        CONSTANTS: json.dumps(_rounded(vars(scaling.law(steps))), separators=(",", ":")) + "\n",
        PAGE: _PLACE.sub(lambda place: place[1] + tables[place[2]] + place[3], PAGE.read_text(encoding="utf-8")),
    }
    for path, text in made.items():
        if check and path.read_text(encoding="utf-8") != text:
            print(f"{path.name} differs: run python benchmarks/fit_collectives.py", file=sys.stderr)
            return 1
        if not check:
            path.write_text(text, encoding="utf-8")
    return 0


def _rounded(value: object) -> object:
    """Numbers to four digits."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
