"""python -m forerun.measure.tabular SPEC --out ROWS.jsonl --budget SECONDS: measures tabular models on this CPU.

The measured call is `predict_proba` on a float32 matrix of `batch` rows, with one thread or all. The protocol, the
format of rows, repeats and resuming are those of the core.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from forerun.errors import ForerunError
from forerun.measure import tabular_models
from forerun.measure.core import models, plan, specs
from forerun.measure.core.__main__ import arguments
from forerun.measure.core.protocol import Call
from forerun.measure.core.timing_phase import Timing

CASE_LIMIT_S = 60.0
TRIES = 20  # draws per wanted case before a spec counts as too narrow


def cases(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The `n` cases of a spec: kinds in turn, a model of each drawn at random, `per_model` of its rows and threads.

    `max_visits` limits the time: cases with more rows x trees x depth are skipped.
    """
    if spec.get("kind") != "tabular":
        raise ForerunError(f"The spec {spec['name']} must be of kind tabular.")
    wanted, distinct = int(spec["n"]), dict[str, dict[str, Any]]()
    rng = random.Random(f"{spec.get('seed', 0)}/{spec['name']}")
    runs = [(rows, _threads(given)) for rows in spec["rows"] for given in spec["threads"]]
    met: set[str] = set()
    for kind in itertools.islice(itertools.cycle(spec["kinds"]), TRIES * wanted):
        settings = {key: rng.choice(spec["draws"][key]) for key in tabular_models.settings_of(kind)}
        name = tabular_models.name(kind, **settings)
        if name in met:
            continue
        met.add(name)
        visits = settings.get("trees", 0) * settings.get("depth", 0)
        fitting = [run for run in runs if run[0] * visits <= float(spec.get("max_visits", math.inf))]
        for rows, threads in rng.sample(fitting, min(int(spec["per_model"]), len(fitting))):
            case = {"kind": "model", "source": "tabular", "name": name, "family": kind, "mode": "inference"}
            case |= {"batch": rows, "dtype": "fp32", "threads": threads}
            distinct.setdefault(specs.key_of(case), case)
        if len(distinct) >= wanted:
            return list(distinct.values())[:wanted]
    raise ForerunError(f"The draws of {spec['name']} give only {len(distinct)} of the {wanted} cases that it wants.")


class Built(models.Built):
    """One trained model, without PyTorch."""

    def __init__(self, case: dict[str, Any]) -> None:
        kind, settings = tabular_models.parse(case["name"])
        self.model = tabular_models.build(kind, **settings)
        self.features = settings["features"]
        self.input_shape = [self.features]
        self.facts = {**tabular_models.facts(kind, self.model), "train_rows": tabular_models.training_rows(settings)}
        self.facts |= {"kernel_ms": None, "kernel_ms_reason": "a CPU launches no kernels"}

    def prepare(self, case: dict[str, Any]) -> None:
        """Sets the number of threads of OpenMP and BLAS, and `n_jobs` if the model has it."""
        tabular_models.library("threadpoolctl").threadpool_limits(case["threads"])
        if case["family"] in ("random_forest", "extra_trees", "xgboost"):
            self.model.set_params(n_jobs=case["threads"])

    def call(self, case: dict[str, Any]) -> Call:
        rng = np.random.default_rng(tabular_models.SEED + 1)  # rows that are not in the training set
        x = rng.standard_normal((case["batch"], self.features), dtype=np.float32)
        return Call(lambda: self.model.predict_proba(x))


class Tabular(Timing):
    """The core's timing phase for tabular models."""

    phase = "tabular"
    unit_s = math.inf  # there is no other spec, and continuing later would mean training again

    def __init__(self, spec: dict[str, Any], out_path: str | Path, budget_s: float) -> None:
        groups: dict[str, list[dict[str, Any]]] = {}
        for case in cases(spec):
            groups.setdefault(case["name"], []).append(case)
        modules = ["sklearn", "xgboost"] if "xgboost" in spec["kinds"] else ["sklearn"]
        self.versions = {module: tabular_models.library(module).__version__ for module in modules}
        given = {"--out": out_path, "--budget": budget_s, "--case-limit": CASE_LIMIT_S, "--device": "cpu"}
        words = [str(word) for pair in given.items() for word in pair]
        super().__init__(arguments([*words, "--no-host-probe"]))
        done = {(row["key"], row.get("repeat", 0)) for row in self.earlier if row.get("kind") == "model"}
        rng = random.Random(f"{spec.get('seed', 0)}/order of {spec['name']}")
        units = plan.ordered([plan.Unit(group) for group in groups.values()], rng, done)
        self.lanes = [plan.Lane(spec["name"], 1.0, units)]

    def software(self) -> dict[str, Any]:
        return {**super().software(), **self.versions}

    def build(self, case: dict[str, Any]) -> Built:
        return Built(case)


def run(spec: dict[str, Any], out_path: str | Path, budget_s: float) -> int:
    """Measures the cases that the file does not have yet until the budget is spent; returns the exit code."""
    worker = Tabular(spec, out_path, budget_s)
    with worker.rows:
        return worker.run()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="forerun.measure.tabular", description=__doc__)
    parser.add_argument("spec", help="a sweep spec of kind tabular")
    parser.add_argument("--out", required=True, help="file of rows, one JSON object per line; appended to")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds after which it stops by itself")
    args = parser.parse_args(argv)
    try:
        return run(specs.load(args.spec), args.out, args.budget)
    except ForerunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _threads(given: int | str) -> int:
    return len(os.sched_getaffinity(0)) if given == "all" else int(given)


if __name__ == "__main__":
    sys.exit(main())
