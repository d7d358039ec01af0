"""Captures 200 timm models and every architecture of the catalogue, and counts what fails. Nightly, not in CI.

python benchmarks/capture_all.py            # everything: about half an hour on two cores
python benchmarks/capture_all.py --sample 30
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import track

TIMM = (Path(__file__).parent / "timm_200.txt").read_text().split()


def cases() -> list[tuple[str, str]]:
    """(model, mode): vision and encoders in inference, language models in decode."""
    from forerun.evaluate.answered import architectures

    return [(f"timm/{name}", "inference") for name in TIMM] + [(q.model, q.mode) for q in architectures()]


@contextmanager
def processes(count: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """`map` over so many processes that start with an empty cache, so that every model is captured afresh."""
    with tempfile.TemporaryDirectory() as empty:
        os.environ["FORERUN_CACHE"] = empty
        with ProcessPoolExecutor(count) as pool:
            yield functools.partial(pool.map, chunksize=4)


def capture(case: tuple[str, str]) -> dict[str, object]:
    from forerun.frontends import load_graph
    from forerun.graph.cost import totals
    from forerun.workload import Workload

    warnings.filterwarnings("ignore")
    model, mode = case
    start = time.perf_counter()
    try:
        dtype = "bf16" if mode == "decode" else "fp32"
        graph = load_graph(Workload(model, batch=2, mode=mode, dtype=dtype, seq_len=64 if mode == "decode" else None))
        cost = totals(graph)
        return {"model": model, "mode": mode, "ok": True, "s": round(time.perf_counter() - start, 2), "macs": cost.macs,
                "parameters": graph.parameters, "ops": len(graph.ops), "scalable": graph.scalable,
                "notes": graph.notes}  # fmt: skip
    except Exception as e:  # noqa: BLE001 - counting failures is what this script is for
        return {
            "model": model,
            "mode": mode,
            "ok": False,
            "s": round(time.perf_counter() - start, 2),
            "why": str(e)[:300],
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, help="only so many, drawn with a fixed seed")
    parser.add_argument("--out", type=Path, help="write one JSON line per case here")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    chosen = cases()
    if options.sample:
        chosen = random.Random(0).sample(chosen, options.sample)
    with processes(options.workers) as through:
        done = list(track(through(capture, chosen), total=len(chosen), description="capturing"))
    if options.out:
        options.out.write_text("".join(json.dumps(d) + "\n" for d in done))
    failed = [d for d in done if not d["ok"]]
    for d in failed:
        print(f"FAILED {d['model']} ({d['mode']}): {d['why']}")
    for kind, names in (("timm", [d for d in done if str(d["model"]).startswith("timm/")]),
                        ("Hugging Face", [d for d in done if not str(d["model"]).startswith("timm/")])):  # fmt: skip
        print(f"{kind}: {sum(bool(d['ok']) for d in names)} of {len(names)} captured")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
