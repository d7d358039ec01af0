"""Fits the law of pre-training steps to published runs, and writes its constants and its table to docs/PARALLEL.md.

forerun data import llmfoundry_mfu FOLDER
forerun data import nemo_megatron_perf FOLDER
python benchmarks/fit_pretraining.py            minutes; --check writes nothing and exits with 1 if a file differs
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from pathlib import Path

from forerun.data.store import Store
from forerun.evaluate import pretraining
from forerun.evaluate.report import markdown
from forerun.predictors.laws.pretraining import FILE, to_json

PAGE = Path(__file__).parents[1] / "docs" / "PARALLEL.md"
_PLACE = re.compile(r"(<!-- pretraining -->\n).*?(<!-- end -->)", re.S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    rows = pretraining.measured(Store())
    one = pretraining.section(rows)
    table = f"{textwrap.fill(one.words, 120)}\n\n{markdown(one.table, pretraining.SHARE_COLUMNS)}\n"
    constants = json.dumps(_rounded(to_json(pretraining.laws(rows))), separators=(",", ":")) + "\n"
    made = {FILE: constants, PAGE: _PLACE.sub(lambda place: place[1] + table + place[2], PAGE.read_text("utf-8"))}
    for path, text in made.items():
        if check and path.read_text(encoding="utf-8") != text:
            print(f"{path.name} differs: run python benchmarks/fit_pretraining.py", file=sys.stderr)
            return 1
        if not check:
            path.write_text(text, encoding="utf-8")
    return 0


def _rounded(value: object) -> object:
    """Numbers to three digits."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
