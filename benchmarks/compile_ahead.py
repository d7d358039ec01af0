"""Compiles the cases of a sweep side by side, so that a measurement of the same sweep finds Inductor's code on disk.

    python benchmarks/compile_ahead.py SWEEP... [--workers 14] [--seconds 200] [--device cuda]

A cold compile takes 15 to 50 s; a sweep that measures one case at a time spends its minutes on it. What Inductor chose
by timing kernels while others ran is deleted at the end: the measurement chooses anew. Its rows say
`compiled_from_cache`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from forerun.measure.core import meters, models, plan, specs


def cases(paths: list[str], seed: int) -> list[dict[str, Any]]:
    """The cases in the order in which a sweep of the same seed measures them, each once."""
    lanes = [plan.lane(specs.load(path), 1.0, seed, set()) for path in paths]
    ordered = [case for lane in lanes for unit in lane.units if not unit.repeat for case in unit.cases]
    return list({specs.key_of(case): case for case in ordered}.values())


def compile_one(case: dict[str, Any], device: str, until: float) -> str:
    """Builds a model and calls it once; what would begin too late is left."""
    import torch

    if time.time() > until:
        return ""
    begin = time.monotonic()
    shown = f"{case.get('name')} {case['mode']} {case['dtype']}"
    try:
        meter = meters.meter_for(device)
        built = models.Built(case, meter.device)
        built.prepare(case)
        built.call(case).call()
        meter.sync()
        del built
        torch.compiler.reset()
        meter.reset_memory()
    except Exception as error:  # noqa: BLE001 - the sweep records it
        return f"{shown}: {type(error).__name__}"
    return f"{shown}: {time.monotonic() - begin:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="+")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=200.0, help="no case is begun after these")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    until = time.time() + given.seconds
    try:
        with ProcessPoolExecutor(given.workers, multiprocessing.get_context("spawn")) as pool:
            waiting = [pool.submit(compile_one, case, given.device, until) for case in cases(given.sweeps, given.seed)]
            for done in as_completed(waiting):
                if done.result():
                    print(done.result(), flush=True)
    finally:
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        for chosen in Path(cache_dir()).rglob("*.best_config"):
            chosen.unlink()


if __name__ == "__main__":
    main()
