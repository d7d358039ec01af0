"""Fits the law of whole generations to the rows of the store, and writes its table to docs/PREDICT.md.

python benchmarks/fit_generations.py            minutes; --check writes nothing and exits with 1 if a file differs
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from fit_collectives import _rounded as rounded
from rich.progress import track

from forerun.data.store import Store
from forerun.evaluate import generations
from forerun.evaluate.report import markdown
from forerun.predictors.laws.generation import FILE

PAGE = Path(__file__).parents[1] / "docs" / "PREDICT.md"
_PLACE = re.compile(r"(<!-- generations -->\n).*?(<!-- end -->)", re.S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    cases = generations.measured(Store(), lambda rows, n: track(rows, "calls", total=n))
    lines = generations.held_out(cases)
    law = generations.with_intervals(generations.fitted(cases), lines)
    text = markdown(generations.table(lines), generations.SHARE_COLUMNS)
    made = {
        FILE: json.dumps(rounded(law.to_json()), separators=(",", ":")) + "\n",
        PAGE: _PLACE.sub(lambda place: f"{place[1]}{text}\n{place[2]}", PAGE.read_text(encoding="utf-8")),
    }
    for path, content in made.items():
        if check and path.read_text(encoding="utf-8") != content:
            print(f"{path.name} differs: run python benchmarks/fit_generations.py", file=sys.stderr)
            return 1
        if not check:
            path.write_text(content, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
