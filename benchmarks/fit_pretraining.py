"""Fits the law of pre-training steps to published runs, and writes its constants and its tables to docs/PARALLEL.md.

The table of training on many devices (MLPerf) has the shipped constants of that law.

forerun data import llmfoundry_mfu FOLDER
forerun data import nemo_megatron_perf FOLDER
forerun data import mlperf_training FOLDER
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
from forerun.evaluate import mlperf_scaling, pretraining
from forerun.evaluate.report import markdown
from forerun.evaluate.results import Section
from forerun.predictors.laws.pretraining import FILE, framework, to_json

PAGE = Path(__file__).parents[1] / "docs" / "PARALLEL.md"
_PLACE = re.compile(r"(<!-- (pretraining|mlperf_scaling) -->\n).*?(<!-- end -->)", re.S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    rows = pretraining.measured(Store())
    constants = json.dumps(_rounded(to_json(pretraining.laws(rows))), separators=(",", ":")) + "\n"
    if not _made(FILE, constants, check):
        return 1
    framework.cache_clear()  # the table of many devices has the new constants
    scaled = mlperf_scaling.section(mlperf_scaling.measured(Store()))
    tables = {
        "pretraining": _table(pretraining.section(rows), pretraining.SHARE_COLUMNS),
        "mlperf_scaling": _table(scaled, mlperf_scaling.SHARE_COLUMNS),
    }
    page = _PLACE.sub(lambda place: place[1] + tables[place[2]] + place[3], PAGE.read_text("utf-8"))
    return 0 if _made(PAGE, page, check) else 1


def _made(path: Path, text: str, check: bool) -> bool:
    """Writes a file, or says whether it is what would be written."""
    if not check:
        path.write_text(text, encoding="utf-8")
    elif path.read_text(encoding="utf-8") != text:
        print(f"{path.name} differs: run python benchmarks/fit_pretraining.py", file=sys.stderr)
        return False
    return True


def _table(one: Section, shares: tuple[str, ...]) -> str:
    return f"{textwrap.fill(one.words, 120)}\n\n{markdown(one.table, shares)}\n"


def _rounded(value: object) -> object:
    """Numbers to three digits."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
