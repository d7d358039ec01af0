"""Fits the law of tabular models to rows, and writes its table to docs/PREDICT.md.

python benchmarks/fit_tabular.py                  to the rows of the store; --rows FILE adds those of a sweep
python benchmarks/fit_tabular.py --check          writes nothing and exits with 1 if a file differs
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from fit_collectives import _rounded as rounded

from forerun.data.store import Store
from forerun.evaluate import tabular
from forerun.evaluate.report import markdown
from forerun.predictors.laws.tabular import FILE

PAGE = Path(__file__).parents[1] / "docs" / "PREDICT.md"
_PLACE = re.compile(r"(<!-- tabular -->\n).*?(<!-- end -->)", re.S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", action="append", default=[], help="a file of rows of a sweep; may be given again")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file would change")
    args = parser.parse_args()
    cases = tabular.measured(Store(), args.rows)
    lines = tabular.held_out(cases)
    law = tabular.with_intervals(tabular.fitted(cases), lines)
    text = markdown(tabular.table(lines), tabular.SHARE_COLUMNS)
    page = PAGE.read_text(encoding="utf-8")
    made = {
        FILE: json.dumps(rounded(law.to_json()), separators=(",", ":")) + "\n",
        PAGE: _PLACE.sub(lambda place: f"{place[1]}{text}\n{place[2]}", page),
    }
    for path, content in made.items():
        if args.check and path.read_text(encoding="utf-8") != content:
            print(f"{path.name} differs: run python benchmarks/fit_tabular.py", file=sys.stderr)
            return 1
        if not args.check:
            path.write_text(content, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
