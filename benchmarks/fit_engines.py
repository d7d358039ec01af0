"""Fits the constants of serving engines to published operators and runs, and writes the tables of docs/SERVING.md.

    forerun data import aiconfigurator FOLDER        and splitwise, llm_inference_bench, ml_energy
    python benchmarks/fit_engines.py                 writes engines.json and the tables (an hour on two cores)
    python benchmarks/fit_engines.py --check         exits with 1 if either would change

Efficiencies of operators come from the operators alone, before any run of a whole model is read.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from forerun.data.store import Store
from forerun.evaluate import engine_fit, engine_operators, serving, serving_requests
from forerun.evaluate.report import markdown
from forerun.evaluate.serving_fit import fit, with_runs
from forerun.predictors.laws.engines import FILE, EngineLaw

PAGE = Path(__file__).parents[1] / "docs" / "SERVING.md"
_PLACE = re.compile(r"(<!-- (operators|serving) -->\n).*?(<!-- end -->)", re.DOTALL)
#: Runs that the shipped constants are fitted to, and those of AMD's cards, which the first has not.
_SHIPPED, _AMD = ("serving_end_to_end", "llm_inference_bench"), "vllm on amd"


def law_of(operators: EngineLaw, tables: Mapping[str, pd.DataFrame]) -> EngineLaw:
    """The shipped constants, with intervals from held-out errors."""
    current, others = (tables[name] for name in _SHIPPED)
    others = others[others["engine"] == _AMD]
    rows = pd.concat([current, others], ignore_index=True)
    # Cards that run a fraction as fast as their sheet says pull the constants of all: they have theirs, and no others.
    found = {**fit(current), _AMD: fit(rows)[_AMD]}
    by_model = serving.held_out(current, current["unit"])
    by_card = serving.held_out(current, current["device"])
    seen = serving.quantiles(by_model)
    beyond = serving.quantiles(by_card)
    unseen = (min(seen[0], beyond[0]), max(seen[1], beyond[1]))
    first = serving_requests.held_out(current, current["unit"])
    of_first = serving.quantiles(first[first["target"] == "TTFT"])
    powered = tables["ml_energy"]
    of_energy = serving.quantiles(serving.held_out(powered, powered["unit"], serving.ENERGY))
    intervals = {"seen card": seen, "unseen card": unseen, "ttft": of_first, "energy": of_energy}
    energy = fit(powered.assign(engine=""), serving.ENERGY)[""]
    request_ms = {engine: by["request_ms"] for engine, by in serving_requests.of_all(current).items()}
    request_ms[_AMD] = request_ms[_AMD.split()[0]]  # the same program on the host
    factors = {name: tuple(np.exp(ends)) for name, ends in intervals.items()}
    made = with_runs(operators, found, factors, request_ms)
    return EngineLaw(
        made.weights, made.overheads, made.parts, dict(zip(serving.ENERGY, np.exp(energy).tolist(), strict=True)),
        tuple(sorted(rows["device"].unique())), made.intervals,
    )  # fmt: skip


def written(operators: pd.DataFrame, tables: Mapping[str, pd.DataFrame], left: str) -> dict[Path, str]:
    """Both files as they should be."""
    law = law_of(EngineLaw(engine_fit.weights(operators), {}), tables).to_json()
    of_operators = engine_fit.section(operators)
    of_runs = (f"{serving.WORDS} Left out: {left}.", markdown(serving.judged(tables), serving.SHARE_COLUMNS))
    of_each = (of_operators.words, markdown(of_operators.table, engine_fit.SHARE_COLUMNS))
    parts = {"operators": of_each, "serving": of_runs}
    shown = {name: f"{textwrap.fill(words, 120)}\n\n{table}" for name, (words, table) in parts.items()}
    page = PAGE.read_text(encoding="utf-8")
    return {
        FILE: json.dumps(_rounded(law), separators=(",", ":")) + "\n",
        PAGE: _PLACE.sub(lambda place: f"{place[1]}{shown[place[2]]}\n{place[3]}", page),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file would change")
    check = parser.parse_args().check
    store = Store()
    operators = engine_operators.measured(store)
    tables, left = serving.read(store, lambda name: print(f"{name} ...", file=sys.stderr))
    for path, text in written(operators, tables, left).items():
        if check and path.read_text(encoding="utf-8") != text:
            print(f"{path.name} differs: run python benchmarks/fit_engines.py", file=sys.stderr)
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
