"""Expands a sweep of kind tabular into its cases: models drawn at random, each fitted and then asked to predict."""

from __future__ import annotations

import math
import os
import random
from typing import Any

from forerun.errors import ForerunError
from forerun.frontends.tabular import kinds

from . import plan, specs

KIND = "tabular"
TRIES = 20  # draws per wanted model before a block counts as too narrow


def cases(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Every case of a spec, those of a model together: its fits, then its predictions."""
    out: dict[str, dict[str, Any]] = {}
    for number, block in enumerate(spec["blocks"]):
        rng = random.Random(f"{spec.get('seed', 0)}/{spec['name']}/{number}")
        for model in _models(block, rng):
            for case in _of(model, block, spec, rng):
                out.setdefault(specs.key_of(case), case)
    return list(out.values())


def lane(spec: dict[str, Any], share: float, seed: int, done: set[tuple[str, int]]) -> plan.Lane:
    """The units of a spec that are still to do."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for case in cases(spec):
        groups.setdefault(case["name"], []).append(case)
    rng = random.Random(f"{seed}/order of {spec['name']}")
    most = max(map(len, groups.values()))
    units = plan.ordered([plan.Unit(group) for group in groups.values()], rng, done, breadth=most)
    return plan.Lane(spec["name"], share, units)


def problem(spec: dict[str, Any]) -> str | None:
    """What is wrong with a spec, before it is expanded."""
    blocks = spec.get("blocks")
    if not isinstance(blocks, list) or not blocks or not all(isinstance(block, dict) for block in blocks):
        return "a sweep needs blocks: a list of kinds of models with their settings"
    for number, block in enumerate(blocks, 1):
        if not {"kind", "n", "draw"} <= set(block):
            return f"block {number} needs kind, n and draw, as in {{kind: xgboost, n: 8, draw: {{rows: [1000]}}}}"
    return None


def case_of(model: kinds.Tabular, mode: str, rows: int, threads: int) -> dict[str, Any]:
    """A case of the core: a fit, or a call that predicts so many rows."""
    batch = model.settings["rows"] if mode == "training" else rows
    about = {"kind": "model", "source": KIND, "name": model.name, "family": model.kind, "mode": mode}
    return {**about, "batch": batch, "dtype": "fp32", "threads": threads}


def _models(block: dict[str, Any], rng: random.Random) -> list[kinds.Tabular]:
    drawn: dict[str, kinds.Tabular] = {}
    for _ in range(TRIES * int(block["n"])):
        settings = {key: rng.choice(choices) for key, choices in block["draw"].items()}
        given = [f"{key}={value}" for key, value in settings.items() if value is not None]
        model = kinds.parse(kinds.PREFIX + ",".join([block["kind"], *given]))
        if _product(model.settings, block.get("fit_at_most")):
            drawn.setdefault(model.name, model)
        if len(drawn) == int(block["n"]):
            return list(drawn.values())
    raise ForerunError(f"the draws of {block['kind']} give only {len(drawn)} of the {block['n']} models that it wants")


def _of(model: kinds.Tabular, block: dict[str, Any], spec: dict[str, Any], rng: random.Random) -> list[dict[str, Any]]:
    threads = [_threads(given) for given in spec["threads"]]
    fits = rng.sample(threads, min(int(block.get("fits", 1)), len(threads)))
    able = [rows for rows in spec["rows"] if _product({**model.settings, "batch": rows}, block.get("call_at_most"))]
    calls = [(rows, count) for rows in able for count in threads]
    chosen = sorted(rng.sample(calls, min(int(block.get("calls", 2)), len(calls))))
    return [
        *(case_of(model, "training", 0, count) for count in sorted(fits)),
        *(case_of(model, "inference", rows, count) for rows, count in chosen),
    ]


def _product(settings: dict[str, int], limit: dict[str, Any] | None) -> bool:
    """Whether the product of the named settings is within a limit, which keeps the time of a case in bounds."""
    if limit is None:
        return True
    return math.prod(settings.get(name, 1) for name in limit["of"]) <= float(limit["most"])


def _threads(given: int | str) -> int:
    return len(os.sched_getaffinity(0)) if given == "all" else int(given)
