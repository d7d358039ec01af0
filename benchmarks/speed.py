"""Measures the speed figures of docs/PREDICT.md: `python benchmarks/speed.py`. Wall times of processes, best of three.

Best of several, because the machine may be busy with other things; beside the wall time stands the processor time of
the process, which other work moves less. Figures that start a process are also given as a multiple of an import that
nobody can avoid, measured in the same run. `--against FOLDER` measures another checkout in turn with this one and
prints both. The figures are stored in benchmarks/speed.json, which benchmarks/readme.py reads; those of runs with
`--against` or `--only` are not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).with_name("speed.json")
TIMES = 3
FORERUN = (sys.executable, "-c", "from forerun.cli import main; main()")
RESNET = (*FORERUN, "predict", "resnet50", "--device", "a100")
LLAMA = (*FORERUN, "predict", "meta-llama/Llama-3.1-405B", "--device", "h100-sxm", "--mode", "decode", "--dtype",
         "bf16", "--batch", "16", "--seq-len", "2048")  # fmt: skip
#: A torchvision beside a CPU build of torch cannot be imported as it is: two names are missing.
WORKS = "from forerun.capture.torch_compat import prepare; prepare(); "
TIMM, LLAMA_CLASS = WORKS + "import timm", WORKS + "import transformers.models.llama.modeling_llama"

#: What scripts begin with: they print the wall and the processor time between `start()` and `stop()`.
CLOCK = """
import time, forerun
def start():
    global began
    began = time.perf_counter(), time.process_time()
def stop(times=1):
    print((time.perf_counter() - began[0]) / times, (time.process_time() - began[1]) / times)
def forget():  # so that nothing but the disk cache is warm
    try:
        from forerun.api.questions import _remembered
    except ImportError:
        from forerun.questions import _remembered
    _remembered.cache_clear()
"""
MANY = """
import pandas
from forerun.device import all_devices
devices = [d for d in all_devices() if d.bandwidth_gbs and d.peak_tflops][:100]
models = ["resnet18", "resnet50", "mobilenetv3_large_100", "vit_base_patch16_224", "convnext_tiny"]
cases = [forerun.Workload(m, batch=b, dtype=d) for m in models for b in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
         for d in ("fp32", "fp16")]
for m in models:
    for d in ("fp32", "fp16"):
        for b in (1, 2):
            forerun.predict(m, "h200", batch=b, dtype=d)   # captured and on disk
forget()
start()
assert len(forerun.predict_many(cases, devices)) == 10_000
stop()
"""
ONE = """
for _ in range(5):
    forerun.predict("resnet50", "a100", batch=8)
start()
for _ in range(50):
    forerun.predict("resnet50", "a100", batch=8)
stop(50)
"""
RECOMMEND = """
asked = [("meta-llama/Llama-3.1-8B", {"mode": "decode", "seq_len": 4096}), ("timm/efficientnet_b4", {})]
for model, settings in asked:
    forerun.recommend(model, batches=[1, 2], **settings)   # captured and on disk
forget()
start()
for model, settings in asked:
    forerun.recommend(model, **settings)
stop(len(asked))
"""
POPULATION = """
import numpy
rng = numpy.random.default_rng(0)
n = {n}
settings = {{"depth": rng.integers(2, 11, n), "filters": rng.integers(8, 129, n), "batch": rng.integers(1, 1025, n)}}
start()
frame = forerun.predict_population("cnn:depth={{depth}},filters={{filters}}", settings, "h200")
stop()
assert len(frame) == n and frame["latency_ms"].notna().all()
"""
HUNDRED, MILLION = (POPULATION.format(n=n) for n in (100_000, 1_000_000))


@dataclass(frozen=True)
class Figure:
    """One thing that is measured: a command, or a script that prints its own times."""

    what: str
    words: tuple[str, ...] = ()
    script: str = ""
    fresh: bool = False  # each run finds an empty cache
    unit: str = "s"
    at_most: float = float("inf")
    floor: str = ""  # Python that nobody can do without
    times_floor: float = float("inf")


FIGURES = (
    Figure("`import forerun`", (sys.executable, "-c", "import forerun"), at_most=0.3),
    Figure("`forerun predict resnet50`, cold", RESNET, fresh=True, at_most=5, floor=TIMM, times_floor=1.15),
    Figure("the same, graph cached", RESNET, at_most=1.5, floor="import torch", times_floor=0.25),
    Figure("Llama-3.1-405B decode, cold", LLAMA, fresh=True, at_most=10, floor=LLAMA_CLASS, times_floor=1.25),
    Figure("`predict`, cached, in process", script=ONE, unit="ms", at_most=5),
    Figure("`predict_population`, 100,000 networks of one family", script=HUNDRED, at_most=60),
    Figure("`recommend` over the catalogue", script=RECOMMEND, at_most=5),
    Figure("`predict_many`, 10,000 cached cases (100 devices)", script=MANY, at_most=2),
)  # fmt: skip
#: Measured on request alone: it takes a minute and 10 GB.
WHOLE = Figure("`predict_population`, 1,000,000 networks of one family", script=MILLION, at_most=600)


@dataclass(frozen=True)
class Cost:
    """What one run took: seconds of wall and processor time, and the most memory in GB."""

    wall: float
    cpu: float
    memory: float = 0.0

    def least(self, other: Cost) -> Cost:
        return Cost(min(self.wall, other.wall), min(self.cpu, other.cpu), min(self.memory, other.memory))


class Side:
    """A checkout that is measured, with a cache of its own; None is this one."""

    def __init__(self, folder: Path | None, cache: Path) -> None:
        source = {} if folder is None else {"PYTHONPATH": str(folder / "src")}
        # Bytecode is written as on any machine of a user, whatever this shell has set.
        usual = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self.cache, self.env = cache, {**usual, **source, "FORERUN_CACHE": str(cache)}

    def run(self, figure: Figure) -> Cost:
        """One run of a figure."""
        if figure.script:
            words = [sys.executable, "-c", CLOCK + figure.script]
            done = subprocess.run(words, env=self.env, check=True, capture_output=True, text=True)
            return Cost(*map(float, done.stdout.split()))
        cache = f"{self.cache}/{time.time_ns()}" if figure.fresh else str(self.cache)
        return spent(figure.words, {**self.env, "FORERUN_CACHE": cache})

    def warm(self, figures: Sequence[Figure]) -> None:
        """One run that counts for nothing: bytecode is written, graphs are captured."""
        for figure in figures:
            if not figure.fresh:
                self.run(figure)


def spent(words: Sequence[str], env: dict[str, str]) -> Cost:
    """What a process took."""
    start = time.perf_counter()
    child = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, list(words))
    return Cost(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20)


def best(figure: Figure, sides: Sequence[Side]) -> tuple[list[Cost], Cost | None]:
    """The least of each side over several rounds, in turn, and that of what nobody can do without."""
    least: list[Cost | None] = [None] * len(sides)
    floor: Cost | None = None
    for _ in range(TIMES):
        for at, side in enumerate(sides):
            now, before = side.run(figure), least[at]
            least[at] = now if before is None else now.least(before)
        if figure.floor:
            now = spent((sys.executable, "-c", figure.floor), sides[0].env)
            floor = now if floor is None else now.least(floor)
    return [one for one in least if one is not None], floor


def store(rows: Sequence[tuple[str, float, float, str]]) -> None:
    """Writes the figures where benchmarks/readme.py finds them."""
    figures = [
        {"what": what, "measured": float(f"{got:.3g}"), "at_most": limit, "unit": unit}
        for what, got, limit, unit in rows
    ]
    machine = f"{os.cpu_count()} cores ({platform.machine()}), best of three"
    made = {"machine": machine, "figures": figures}
    RESULTS.write_text(json.dumps({**json.loads(RESULTS.read_text()), **made}, indent=1) + "\n")


def report(figure: Figure, costs: Sequence[Cost], floor: Cost | None) -> bool:
    """Prints a figure; whether it is within its limits."""
    own = costs[0]
    factor = 1e3 if figure.unit == "ms" else 1.0
    wall, cpu = own.wall * factor, own.cpu * factor
    good = wall <= figure.at_most
    limit = f" (at most {figure.at_most:g} {figure.unit})"
    print(f"{figure.what:<54} {wall:7.2f} {figure.unit}, processor {cpu:7.2f} {figure.unit}{limit}")
    if floor is not None:
        good = good and own.cpu <= figure.times_floor * floor.cpu
        words = f"    times `{figure.floor.removeprefix(WORKS)}`: {own.wall / floor.wall:.2f} wall"
        print(f"{words}, {own.cpu / floor.cpu:.2f} processor (at most {figure.times_floor:g})")
    for other in costs[1:]:
        print(
            f"    against {other.wall * factor:.2f} {figure.unit}, processor {other.cpu * factor:.2f} {figure.unit}: "
            f"{own.wall / other.wall:.2f} times the wall time, {own.cpu / other.cpu:.2f} the processor time"
        )
    if not good:
        print("    MISSED")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="another checkout, measured in turn with this one")
    parser.add_argument("--only", default="", help="figures whose name contains this")
    parser.add_argument("--million", action="store_true", help="also 1,000,000 networks of one family")
    given = parser.parse_args()
    figures = [f for f in (*FIGURES, *([WHOLE] if given.million else ())) if given.only in f.what]
    rows: list[tuple[str, float, float, str]] = []
    good = True
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(__file__).parents[1], *([given.against] if given.against else [])]
        sides = [Side(folder, Path(scratch) / str(at)) for at, folder in enumerate(folders)]
        bare = spent((sys.executable, "-c", "pass"), sides[0].env)
        for figure in figures:
            for side in sides:
                side.warm([figure])
            costs, floor = best(figure, sides)
            if figure.what == "`import forerun`":
                costs = [Cost(max(c.wall - bare.wall, 0.0), max(c.cpu - bare.cpu, 0.0)) for c in costs]
            good = report(figure, costs, floor) and good
            factor = 1e3 if figure.unit == "ms" else 1.0
            rows.append((figure.what, costs[0].wall * factor, figure.at_most, figure.unit))
            if figure.words == LLAMA:
                rows.append(("Llama-3.1-405B decode, resident memory", costs[0].memory, 1.5, "GB"))
    if given.against is None and not given.only:
        store([row for row in rows if row[0] != WHOLE.what])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
