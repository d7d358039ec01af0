"""Are the gains that `forerun optimise` claims real? Pairs of calls that were measured both ways, on the H200.

Without files: the rows that ship, by left-out predictions (the model's family was in neither the weights nor the errors
of gains); kinds of change with too few pairs have no interval there and are left out. With files (JSON lines of
`forerun sweep`): every pair in them, as `forerun optimise` compares it, by the shipped weights; such rows should be of
models that no training row has. Exit code 1 where fewer than 40 pairs were compared, or the direction is right in fewer
than 90 % of those claimed. `--every` prints every pair.

    python benchmarks/optimise_measured.py [--every] [FILE ...]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from forerun.advice.gains import CLAIMED, WORSE, Gain
from forerun.api.predict import predict_workload
from forerun.api.questions import profiled
from forerun.data.intake import tables_of
from forerun.data.splits import hold_out
from forerun.data.store import Store
from forerun.decisions.optimise.comparison import Answer, compared
from forerun.decisions.optimise.goals import GOALS
from forerun.device import load_device
from forerun.evaluate.gains import calibrated, calls, described, pairs, replayed
from forerun.evaluate.stored import stored_predictions
from forerun.measure.cases import workload_of
from forerun.measure.core.rows import read
from forerun.predictors.laws.gain_errors import GainErrors
from forerun.predictors.laws.gain_errors import read as read_errors
from forerun.predictors.registry import load_predictor
from forerun.predictors.saved import SHIPPED

CONFIDENCE, LEAST_PAIRS, LEAST_RIGHT, FOLDS = 0.9, 40, 0.9, 16


@dataclass(frozen=True)
class Pair:
    """One change of one call: the gain that was predicted, and the one that was measured."""

    call: str
    kinds: tuple[str, ...]
    gain: Gain
    measured: float
    source: str = ""

    @property
    def right(self) -> bool | None:
        """Whether a claim has the right direction; None where nothing is claimed."""
        return {CLAIMED: self.measured > 1, WORSE: self.measured < 1}.get(self.gain.verdict)

    @property
    def inside(self) -> bool:
        return self.gain.low <= self.measured <= self.gain.high


def shipped_pairs() -> Iterator[Pair]:
    """Pairs of one change among the shipped rows, their intervals by the errors of other families."""
    rows = Store().read("models", columns=["case_key", "case"])
    found = pairs(calls(stored_predictions(SHIPPED / "default"), rows))
    for others, asked in hold_out(found["family"], FOLDS):
        errors = GainErrors(calibrated(found[others]), {})
        for row in found[asked & (found["kinds"].map(len) == 1).to_numpy()].itertuples():
            kind = errors.kind_of("latency_ms", row.kinds, "gpu")
            if kind is None:
                continue
            items = row.batch_to / row.batch
            ratio = row.predicted_latency_ms / row.predicted_latency_ms_to * items
            factors = errors.factors("latency_ms", kind, "gpu", row.side, CONFIDENCE, 0.0)
            measured = row.latency_ms / row.latency_ms_to * items
            yield Pair(_title(row), row.kinds, Gain.of(ratio, factors), measured)


def file_pairs(files: list[str]) -> Iterator[Pair]:
    """Pairs of one change among the rows of a sweep, compared as `optimise` does it."""
    lines = [row for file in files for row in tables_of(read(file), "own")["models"] if row["status"] == "ok"]
    frame = pd.DataFrame(lines).reset_index(names="row")
    cases = frame["case"].map(lambda case: json.loads(case) if isinstance(case, str) else case)
    frame = frame.assign(host_slowness=frame["extra"].map(_launch_us), device_kind="gpu", host_over_device=0.0)
    known = described(frame, cases)
    found = pairs(pd.concat([known, replayed(known)], ignore_index=True))
    found = found[found["kinds"].map(len) == 1].drop_duplicates(["row", "row_to", "runtime", "runtime_to"])
    errors, answers = read_errors(SHIPPED / "default"), dict[tuple[int, str], Answer]()

    def answer(row: int, runtime: str) -> Answer:
        if (row, runtime) not in answers:
            workload = workload_of(cases[row] | ({} if runtime == "eager" else {"runtime": runtime}))
            device = load_device(str(frame["device"][row]))
            p = predict_workload(workload, device, measured=False, confidence=CONFIDENCE)
            doubt = load_predictor("default").ood_sigma(profiled(workload).columns, [device], workload)
            answers[row, runtime] = Answer(p, float(doubt[0]), device.kind)
            print(f"\r{len(answers)} calls predicted", end="", file=sys.stderr)
        return answers[row, runtime]

    for row in found.itertuples():
        one, two = answer(row.row, row.runtime), answer(row.row_to, row.runtime_to)
        gain, source = compared(one, two, GOALS["throughput"], row.kinds, errors, CONFIDENCE)
        yield Pair(_title(row), row.kinds, gain, row.latency_ms / row.latency_ms_to * row.batch_to / row.batch, source)


def _launch_us(extra: object) -> float:
    known = json.loads(extra) if isinstance(extra, str) else extra or {}
    probe = known.get("host_probe_before") if isinstance(known, dict) else None
    return float(probe["launch_us"]) if probe else float("nan")


def _title(row: object) -> str:
    number, runtime = (getattr(row, f"{name}") for name in ("number", "runtime"))
    words = [str(row.model), str(row.mode), f"batch {row.batch:.0f}", number, row.layout.replace("_", " ")]  # type: ignore[attr-defined]
    return " ".join(word for word in (*words, "" if runtime == "eager" else runtime) if word)


def report(found: list[Pair], every: bool) -> bool:
    """Prints the pairs and the totals by kind of change; returns whether enough claims were right."""
    if every:
        print(f"\n{'call':<58} {'change':<24} {'predicted':>9} {'90 % interval':>15} {'measured':>8}  claim")
        for pair in found:
            g, claim = pair.gain, {True: "right", False: "WRONG", None: ""}[pair.right]
            words = (
                f"{pair.call[:58]:<58} {'+'.join(pair.kinds):<24} {g.value:>9.2f} {f'{g.low:.2f} … {g.high:.2f}':>15}"
            )
            print(f"{words} {pair.measured:>8.2f}  {g.verdict} {claim}")
    print(f"\n{'change':<26} {'pairs':>6} {'in interval':>12} {'claimed':>8} {'right':>7} {'worse':>6} {'right':>7}")
    names = [*sorted({kind for pair in found for kind in pair.kinds}), "all"]
    for name in names:
        mine = [pair for pair in found if name in (*pair.kinds, "all")]
        better = [pair.right for pair in mine if pair.gain.verdict == CLAIMED]
        worse = [pair.right for pair in mine if pair.gain.verdict == WORSE]
        inside = np.mean([pair.inside for pair in mine])
        print(
            f"{name:<26} {len(mine):>6} {inside:>12.0%} {len(better):>8} {_share(better):>7} {len(worse):>6} "
            f"{_share(worse):>7}"
        )
    claims = [pair.right for pair in found if pair.right is not None]
    return len(found) >= LEAST_PAIRS and bool(claims) and float(np.mean(claims)) >= LEAST_RIGHT


def _share(right: list[bool | None]) -> str:
    return f"{np.mean([bool(r) for r in right]):.1%}" if right else ""


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if not word.startswith("--")]
    compared_pairs = list(file_pairs(given) if given else shipped_pairs())
    sys.exit(0 if report(compared_pairs, "--every" in sys.argv) else 1)
