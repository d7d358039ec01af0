"""Whether the chosen device is truly the best: `python benchmarks/recommend_measured.py`.

Takes cases of published sets that were measured on several GPUs in one way (import them first: forerun data import
timm, pytorch_gpu_benchmark), predicts them without the store, and compares the orders. The weights that ship have seen
these GPUs. With --left-out, each GPU is predicted by weights that saw no row of it, as `forerun evaluate --devices`
does: a fit of minutes for each GPU, kept in the store's folder. The rows that ship are judged first, on what several
devices have in common. Exit code 1 where less than 90 % of the pairs whose intervals do not overlap are in the right
order, 2 where no published set is imported.
"""

from __future__ import annotations

import argparse
import sys

import pandas as pd

from forerun.cli.progress import Lines
from forerun.data.importers import importer
from forerun.data.places import default_folder
from forerun.data.store import Store
from forerun.errors import ForerunError
from forerun.evaluate.choices import (
    Judgement,
    case_names,
    judge,
    measured_together,
    predicted,
    shipped_together,
)

WANTED = 0.9
#: Published sets with the same calls on several GPUs.
SETS = ("timm", "pytorch_gpu_benchmark")


def report(title: str, found: Judgement, lines: int) -> bool:
    """Prints a judgement; True where it is good enough."""
    print(f"\n{title}: {len(found.cases)} cases")
    table = found.cases.head(lines).assign(lost=found.cases["lost"].map(lambda lost: f"{lost:+.0%}"))
    print(table.drop(columns="open").to_string(index=False, max_colwidth=90))
    print(f"pairs in the right order                      {found.pairs_right:>6,} of {found.pairs:,}")
    print(f"pairs whose intervals do not overlap, right   {found.distinct_right:>6,} of {found.distinct:,}")
    print(f"cases in which the truly best is chosen       {found.best_chosen:>6,} of {len(found.cases):,}")
    print(f"cases in which the intervals leave it open    {found.best_within_interval:>6,} of {len(found.cases):,}")
    good = found.share_right >= WANTED
    print(f"{found.share_right:.1%} of the pairs that differ by more than the interval{'' if good else ': MISSED'}")
    return bool(good)


def left_out(chosen: pd.DataFrame) -> pd.DataFrame:
    """The same cases, each GPU predicted by weights that saw no row of it."""
    from forerun.evaluate.devices import models_predicted
    from forerun.predictors.default import DefaultPredictor
    from forerun.training.gather import gather

    cases = gather(Store())
    rows = models_predicted(
        cases, predictor=DefaultPredictor(), keep=default_folder() / "evaluations", progress=Lines("fits")
    )
    frame = pd.DataFrame({
        "case": case_names(rows), "device": rows["device"], "measured_ms": rows["latency_ms"] - rows["copy_ms"],
        "predicted_ms": rows["predicted_ms"], "low_ms": rows["low_ms"], "high_ms": rows["high_ms"],
    })  # fmt: skip
    return frame[frame["case"].isin(chosen["case"])].drop_duplicates(["case", "device"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=60, help="how many cases are drawn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lines", type=int, default=20, help="how many of them are printed")
    parser.add_argument("--left-out", action="store_true", help="also by weights without each GPU: minutes a GPU")
    given = parser.parse_args()
    rows = Store().read("models")
    ours = shipped_together(rows, given.cases, given.seed)
    if ours.empty:
        print("No case of the rows that ship was measured on several devices.")
        good = True
    else:
        named = " and ".join(sorted(ours["device"].unique()))
        good = report(f"The rows that ship, which were measured on {named} alone", judge(predicted(ours)), given.lines)
    try:
        chosen = measured_together(rows, given.cases, given.seed)
    except ForerunError:
        commands = " && ".join(importer(name).command for name in SETS)
        print(f"\nNo published set is imported, so GPUs are not compared with each other: {commands}")
        return 2
    good = report("The weights that ship", judge(predicted(chosen)), given.lines) and good
    if given.left_out:
        good = report("Weights that saw no row of the GPU", judge(left_out(chosen)), given.lines) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
